"""How fast world models learn to rank plans, from one fixed replay of cheetah-run: settings compared without acting.

    python -m benchmarks.planning.model_on_replay RUN --train 41 --held 41-44 --updates 1000 \
        --config bayes_planet cheetah_run state loss.state_scale=30

A fresh model is trained on the first episodes of RUN. In held-out ones, simulated again from their seeds and actions,
MuJoCo says what plans near the actions taken and random plans would have brought; the model says the same from its
posterior state. Printed as JSON, one line every `--every` updates: for 1, 4 and 12 steps ahead, the correlation over
plans from one state (mean over states) and the R^2 over all of them; and the error of the rewards that the posterior
states tell, as a root mean square. The same under 'trained/' for as many of the last episodes that train: where those
are better, the model knows its replay, not the task.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bayes_planet.config import Config, presets
from bayes_planet.planning.colored_noise import noise_matrix
from bayes_planet.replay import EpisodeStore, Prefetcher
from bayes_planet.replay.episode import Episode
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.batches import draw_batch
from bayes_planet.training.build import build
from bayes_planet.world_model import State, WorldModel
from benchmarks.planning.simulator_planning import CheetahSimulator

STEPS = 12
AHEAD = (1, 4, 12)
NEAR_STDDEV = 0.5  # of the coloured noise that plans near the actions taken differ by
LEAST_STDDEV = 0.02  # of true returns over plans: where all bring the same, there is nothing to rank


class Question(NamedTuple):
    """Plans from one row of an episode, and the rewards they would have brought."""

    episode: Episode
    row: int
    plans: np.ndarray  # [2 N, STEPS, A]: N near the actions taken, N random
    rewards: np.ndarray  # [2 N, STEPS]


def questions(
    episodes: dict[int, Episode], run_seed: int, action_repeat: int, plans: int, every: int
) -> list[Question]:
    """Asks the simulator at every `every`-th row of each episode, by its index in the replay.

    Raises:
      ValueError: simulated again, an episode gives other rewards than it has.
    """
    simulator = CheetahSimulator(action_repeat, threads=1)
    color = noise_matrix(STEPS, 1.0)
    generator = np.random.default_rng(0)
    found = []
    for index, episode in episodes.items():
        simulator.reset(environment_seed(run_seed, Stream.TRAIN_ENVIRONMENT, index))
        actions = episode["action"]
        for row in range(1, len(actions)):  # action[row] leads from row - 1 to row
            if row % every == 0 and row + STEPS <= len(actions):
                noise = generator.normal(size=(2, plans, *actions[row : row + STEPS].shape))
                noise = np.einsum("knta,ts->knsa", noise, color)
                both = np.concatenate([actions[row : row + STEPS] + NEAR_STDDEV * noise[0], noise[1]])
                both = np.clip(both, -1.0, 1.0).astype(np.float32)
                found.append(Question(episode, row - 1, both, simulator.imagine(both)))
            reward, _ = simulator.step(actions[row].astype(np.float64))
            if abs(reward - episode["reward"][row]) > 1e-4:
                raise ValueError(
                    f"Row {row} of episode {index} has reward {episode['reward'][row]}, simulated again it is "
                    f"{reward}. Accepted: episodes of a run with seed {run_seed}, by this version of MuJoCo."
                )
    return found


class Examination:
    """Asks a world model the questions."""

    def __init__(self, world_model: WorldModel, asked: Sequence[Question]):
        self._asked = asked
        self._keys = sorted(world_model.observation_shapes)

        def observe(batch: dict, seed: tf.Tensor) -> State:
            return world_model.observe(batch, seed)[0]

        def predict(latent: State, actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            rows = State(*(tf.repeat(value[None], actions.shape[0], 0) for value in latent))
            return world_model.reward(world_model.rssm.imagine(actions, rows, seed=seed).features)

        self._reward = world_model.reward
        self._observe = tf.function(observe, autograph=False)
        self._predict = tf.function(predict, autograph=False)

    def __call__(self) -> dict[str, float]:
        """Numbers by name: near/correlation/12 and the like, and 'reward_rmse'."""
        posteriors: dict[int, State] = {}
        errors = []
        predicted = []
        for number, question in enumerate(self._asked):
            episode = question.episode
            if id(episode) not in posteriors:
                batch = {key: tf.constant(episode[key][None]) for key in (*self._keys, "action")}
                posteriors[id(episode)] = posterior = self._observe(batch, tf.constant([1, number]))
                errors.append((self._reward(posterior.features)[0] - episode["reward"])[1:])
            latent = State(*(value[0, question.row] for value in posteriors[id(episode)]))
            predicted.append(self._predict(latent, tf.constant(question.plans), tf.constant([2, number])).numpy())
        found = agreement(np.array(predicted), np.array([question.rewards for question in self._asked]))
        return found | {"reward_rmse": float(np.sqrt(np.mean(np.square(np.concatenate(errors)))))}


def agreement(predicted: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """Correlations and R^2 of returns, by kind of plan and steps ahead, for rewards [questions, 2 N, STEPS]."""
    half = true.shape[1] // 2
    found = {}
    for kind, plans in (("near", slice(None, half)), ("random", slice(half, None))):
        for steps in AHEAD:
            ours, theirs = (rewards[:, plans, :steps].sum(-1) for rewards in (predicted, true))
            pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if b.std() > LEAST_STDDEV and a.std() > 0]
            correlations = [np.corrcoef(a, b)[0, 1] for a, b in pairs]
            found[f"{kind}/correlation/{steps}"] = float(np.mean(correlations)) if pairs else float("nan")
            error, spread = np.square(ours - theirs).mean(), theirs.var()
            found[f"{kind}/r2/{steps}"] = float(1.0 - error / spread) if spread else float("nan")
    return found


def measure(
    run: Path, config: Config, train: int, held: Sequence[int], updates: int, every: int, plans: int = 48
) -> list[dict[str, Any]]:
    """Trains a model of `config` on the first `train` episodes of `run` and examines it on the episodes `held`."""
    directory = RunDirectory(run)
    source = EpisodeStore(directory.episodes, config.replay.ram_gigabytes * 1e9)
    first = source.indices[:train]
    if set(held) & set(first) or not set(held) <= set(source.indices) or len(first) < train:
        raise ValueError(
            f"Episodes {list(held)} are held out and the first {train} train; {run} has {len(source.indices)} "
            f"episodes. Accepted: held-out episodes of the run that do not train."
        )
    made_by = directory.read_config()

    def ask(episodes: Sequence[int]) -> list[Question]:
        return questions({i: source.load(i) for i in episodes}, made_by.seed, made_by.env.action_repeat, plans, 15)

    seen = directory.read_spaces()
    if seen is None:
        raise ValueError(f"{run} has no {directory.spaces_file.name}. Accepted: the --logdir of a training run.")
    parts = build(config, *seen)
    model = parts.world_model
    examine, examine_trained = Examination(model, ask(held)), Examination(model, ask(first[-len(held) :]))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for index in first:
            [path] = directory.episodes.glob(f"episode-{index:06d}-*")
            (Path(folder) / path.name).symlink_to(path.absolute())
        store = EpisodeStore(folder, config.replay.ram_gigabytes * 1e9)
        if model.normaliser is not None:
            model.normaliser.catch_up(store.indices, lambda index: store.load(index)["state"])

        def draw(update: int) -> dict[str, np.ndarray]:
            return draw_batch(store, config, update)

        start, spent = time.perf_counter(), 0.0
        with Prefetcher(draw, range(updates)) as batches:
            for update, batch in enumerate(batches, 1):
                terms = parts.learner.update(batch, store.rows)
                if update % every == 0 or update == updates:
                    kl = float(terms["state_kl"])
                    spent += time.perf_counter() - start
                    trained = {f"trained/{key}": value for key, value in examine_trained().items()}
                    found.append({"updates": update, "seconds": round(spent, 1), "state_kl": kl} | examine() | trained)
                    print(json.dumps({k: v if isinstance(v, int) else round(v, 3) for k, v in found[-1].items()}))
                    start = time.perf_counter()
    return found


def _range(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a training run on cheetah-run, with its replay")
    parser.add_argument("--train", type=int, required=True, help="episodes to train on, the first ones")
    parser.add_argument("--held", type=_range, required=True, help="episodes to ask about, as FIRST-LAST")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--every", type=int, default=500, help="updates between examinations (default: 500)")
    parser.add_argument("--config", nargs="+", required=True, help="presets, then KEY=VALUE")
    options = parser.parse_args(arguments)
    config = presets.load(*presets.apart(options.config))
    return measure(options.run, config, options.train, options.held, options.updates, options.every)


if __name__ == "__main__":
    main()
