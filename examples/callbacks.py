"""Callbacks: evaluate and keep the best model, stop at a return, film now and then, and one of your own.

    python examples/callbacks.py --logdir runs/pendulum_callbacks --threshold -250

`runs/.../best/best_model` is for `BayesPlanet.load`, or `python examples/load_and_run.py`.
"""

import argparse
from pathlib import Path

from bayes_planet import BayesPlanet
from bayes_planet.agents.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnRewardThreshold,
    VideoRecorderCallback,
)


class Patience(BaseCallback):
    """Ends the training when no training episode has been better than the best one for `episodes` episodes."""

    def __init__(self, episodes: int):
        super().__init__()
        self.episodes, self.best, self.since = episodes, float("-inf"), 0

    def _on_episode(self, episode: dict, row: dict) -> bool:
        # `episode` has the arrays as they are stored, `row` the numbers that go to metrics.jsonl.
        better = row["train/return"] > self.best
        self.best, self.since = max(self.best, row["train/return"]), 0 if better else self.since + 1
        return self.since < self.episodes


def main(arguments: list[str] | None = None) -> dict:
    """Trains under the callbacks. Gives what the last and the best evaluation said, and where the best model is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logdir", default="runs/callbacks")
    parser.add_argument("--task", default="Pendulum-v1")
    parser.add_argument("--episodes", type=int, default=100, help="at most")
    parser.add_argument("--every", type=int, default=10, help="training episodes between evaluations and films")
    parser.add_argument("--threshold", type=float, default=-250.0, help="mean return at which training ends")
    parser.add_argument("--patience", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=["small", "test"], default="small", help="test: seconds, learns nothing")
    options = parser.parse_args(arguments)

    folder = Path(options.logdir)
    evaluation = EvalCallback(
        every_episodes=options.every,
        n_eval_episodes=5 if options.size == "small" else 2,
        best_model_save_path=folder / "best",
        callback_on_new_best=StopTrainingOnRewardThreshold(options.threshold, verbose=1),
        verbose=1,
    )
    callbacks = [
        evaluation,
        CheckpointCallback(2 * options.every, folder / "saved"),
        VideoRecorderCallback(options.every, verbose=1),
        Patience(options.patience),
    ]
    config = ["state"] if options.size == "small" else ["state", "debug"]
    with BayesPlanet(options.task, config, seed=options.seed, logdir=folder / "run", verbose=1) as model:
        model.learn(episodes=options.episodes, callbacks=callbacks, progress_bar=True)
        best = folder / "best" / "best_model"
        print(f"{model.num_episodes} episodes; the best model, return {evaluation.best_mean_reward:.1f}: {best}")
        return {
            "episodes": model.num_episodes,
            "last": evaluation.last_mean_reward,
            "best": evaluation.best_mean_reward,
            "best_model": best,
        }


if __name__ == "__main__":
    main()
