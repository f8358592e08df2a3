"""Thompson sampling against planning under the mean weights, on Pendulum-v1 from its state.

`planner.weight_samples=1` plans every decision under one draw of the transition's weights, so the agent also tries what
may be good; 0 plans under the posterior's mean. Each way is trained with the same seeds. The return while training
counts what exploring costs, that of the evaluation (each under its own planner) what it brought.

    python examples/thompson_sampling.py --episodes 30 --seeds 3

With few seeds the intervals are wide: look at the last line before believing in a difference.
"""

import argparse

import numpy as np

from bayes_planet import BayesPlanet
from bayes_planet.agents.callbacks import BaseCallback
from bayes_planet.report.reading.statistics import Estimate, difference, estimate

DRAWS = {"mean": 0, "sample": 1}


class TrainingReturns(BaseCallback):
    """Notes the return of each episode that the planner ran."""

    def _on_training_start(self) -> None:
        self.returns: list[float] = []

    def _on_episode(self, episode: dict, row: dict) -> bool:
        if not row["train/random_actions"]:
            self.returns.append(row["train/return"])
        return True


def train(weights: str, seed: int, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Returns of the training episodes and of the evaluation of one run."""
    config = ["state"] if options.size == "small" else ["state", "debug"]
    training = TrainingReturns()
    with BayesPlanet(options.task, config, seed=seed, overrides={"planner.weight_samples": DRAWS[weights]}) as model:
        model.learn(episodes=options.episodes, callbacks=[training])
        return np.array(training.returns), np.array(model.evaluate(options.evaluation_episodes).returns)


def interval(found: Estimate) -> str:
    """A mean with its 95% bootstrap interval: over seeds, or over episodes where there is one seed."""
    bounds = "" if found.low is None else f" ({found.low:.0f} to {found.high:.0f}, over {found.resampled})"
    return f"{found.value:.0f}{bounds}"


def main(arguments: list[str] | None = None) -> dict[str, dict[str, Estimate]]:
    """Trains both ways. Gives estimates of the mean return by phase: mean, sample, and their difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="Pendulum-v1")
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--evaluation-episodes", type=int, default=5)
    parser.add_argument("--size", choices=["small", "test"], default="small", help="test: seconds, learns nothing")
    options = parser.parse_args(arguments)

    returns: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {weights: [] for weights in DRAWS}
    for weights, runs in returns.items():
        for seed in range(options.seeds):
            runs.append(train(weights, seed, options))
            print(f"{weights}, seed {seed}: training {runs[-1][0].mean():.0f}, evaluation {runs[-1][1].mean():.0f}")
    result = {}
    for phase, name in enumerate(("training", "evaluation")):
        mean, sample = ([run[phase] for run in returns[weights]] for weights in DRAWS)
        result[name] = {
            "mean": estimate([mean], np.mean),
            "sample": estimate([sample], np.mean),
            "difference": difference(sample, mean, np.mean),
        }
        shown = ", ".join(f"{key} {interval(found)}" for key, found in result[name].items())
        print(f"{name}: {shown}")
    return result


if __name__ == "__main__":
    main()
