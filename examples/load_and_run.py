"""A trained agent from its folder, step by step in its environment, and a film of what it does.

    python examples/gymnasium_task.py --logdir runs/pendulum
    python examples/load_and_run.py runs/pendulum --video pendulum.mp4

The folder is that of a run (`--logdir`), or what `BayesPlanet.save` wrote.
"""

import argparse

import numpy as np

from bayes_planet import BayesPlanet
from bayes_planet.report.videos.files import save_video


def main(arguments: list[str] | None = None) -> list[float]:
    """Gives the return of each episode."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="of a run, or of a saved model")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next one has the next number")
    parser.add_argument("--video", help="film all episodes, .mp4 or .gif")
    options = parser.parse_args(arguments)

    model = BayesPlanet.load(options.folder)
    print(f"{model.config.env.name} after {model.num_episodes} episodes and {model.num_updates} updates")
    env = model.make_env()  # a gymnasium.Env: actions in [-1, 1], action repeat inside
    returns, frames = [], []
    for episode in range(options.episodes):
        observation, _ = env.reset(seed=options.seed + episode)
        total, state, done = 0.0, None, False
        while not done:
            if options.video:
                frames.append(env.render())
            # What the agent remembers is in `state`; None begins an episode.
            action, state = model.predict(observation, state)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
        print(f"episode {episode}: return {total:.1f}")
    env.close()
    if options.video:
        print(f"film: {save_video(options.video, np.stack(frames), fps=25, scale=4)}")
    return returns


if __name__ == "__main__":
    main()
