"""A task of Gymnasium by its id, learnt from its state: Pendulum-v1.

    python examples/gymnasium_task.py --episodes 60 --logdir runs/pendulum

The same with `HalfCheetah-v5`, `MountainCarContinuous-v0` or any other id with continuous, bounded actions, and, as
`dm_control/cartpole-swingup`, with every task of dm_control. Give the same command again to go on with the run; then
`bayes-planet report runs/pendulum` writes a page about it.
"""

import argparse

import numpy as np

from bayes_planet import BayesPlanet


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Trains until the run has `--episodes` episodes. Gives the return's mean and stddev, and reward variances."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="Pendulum-v1")
    parser.add_argument("--episodes", type=int, default=60, help="training episodes of the run, in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logdir", help="the run's folder; none: a temporary one")
    parser.add_argument("--size", choices=["small", "test"], default="small", help="test: seconds, learns nothing")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="single settings, such as planner.horizon=15")
    options = parser.parse_args(arguments)

    config = ["state"] if options.size == "small" else ["state", "debug"]
    with BayesPlanet(
        options.task, config, seed=options.seed, logdir=options.logdir, overrides=options.overrides, verbose=1
    ) as model:
        missing = options.episodes - model.num_episodes
        if missing > 0:
            model.learn(episodes=missing, progress_bar=True)
        score = model.evaluate(episodes=10)
        print(f"return {score.mean:.1f} on average, median {score.median:.1f}, over {len(score.returns)} episodes")

        # What the model expects after the first steps of an episode, and which part of the doubt is its own.
        rewards = model.uncertainty(score.episodes[0])["reward"]
        result = {"return": score.mean, "stddev": score.stddev}
        result |= {"epistemic": float(np.mean(rewards.epistemic)), "aleatoric": float(np.mean(rewards.aleatoric))}
        print("variance of predicted rewards: {epistemic:.3g} epistemic, {aleatoric:.3g} aleatoric".format(**result))
    return result


if __name__ == "__main__":
    main()
