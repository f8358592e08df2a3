"""What the encoder and the latent state know of where things are, after some updates on episodes of random actions.

    python -m benchmarks.planning.sight --updates 300 --angles 0 1 --config bayes_planet laptop reacher_easy

A world model learns from images, a small network then learns the true state from the embedding of an image, and
another one from the latent features, and both are asked in held-out episodes. Printed as JSON, for each entry of the
environment's state the error, as a root mean square in its standard deviations: 1 is as good as always to say the mean.
Entries named by `--angles` are taken as sine and cosine, which come first.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet.collecting.rollout import rollout
from bayes_planet.config import Config, presets
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.replay.episode import Episode
from bayes_planet.runs.seeds import Stream, environment_seed
from bayes_planet.training.batches import draw_batch
from bayes_planet.training.build import build

HELD = 5
EPOCHS = 15
SKIPPED = 3  # first rows of a sequence, whose state has not seen enough


class Wander:
    """Random actions, in every second episode with a correlation of 0.8 from step to step."""

    def __init__(self, size: int, seed: int):
        self._generator = np.random.default_rng(seed)
        self._keep = 0.8 * (seed % 2)
        self._action = np.zeros([1, size])

    def __call__(self, observation: Any, is_first: np.ndarray, step: int) -> np.ndarray:
        fresh = self._generator.normal(size=self._action.shape)
        self._action = self._keep * self._action + np.sqrt(1.0 - self._keep**2) * fresh
        return np.clip(self._action, -1.0, 1.0).astype(np.float32)


def state_of(episode: Episode, angles: Sequence[int]) -> np.ndarray:
    """The environment's state [T, n], angles as sines and cosines in front."""
    state = np.asarray(episode["state"], np.float64)
    turned = state[:, list(angles)]
    return np.concatenate([np.sin(turned), np.cos(turned), np.delete(state, list(angles), 1)], 1)


def probe_error(
    seen: np.ndarray, true: np.ndarray, held_seen: np.ndarray, held_true: np.ndarray, epochs: int = EPOCHS
) -> np.ndarray:
    """Of a network that learns `true` [N, n] from `seen` [N, d], by entry, in standard deviations, on held-out rows."""
    mean, spread = seen.mean(0), seen.std(0) + 1e-3
    centre, unit = true.mean(0), true.std(0) + 1e-6
    layers = [tf.keras.layers.Dense(256, "relu") for _ in range(2)]
    network = tf.keras.Sequential([*layers, tf.keras.layers.Dense(true.shape[1])])
    network.compile(tf.keras.optimizers.legacy.Adam(1e-3), "mse")
    network.fit((seen - mean) / spread, (true - centre) / unit, batch_size=256, epochs=epochs, verbose=0)
    predicted = network(np.clip((held_seen - mean) / spread, -5.0, 5.0).astype(np.float32)).numpy()
    return np.sqrt(np.mean(np.square(predicted - (held_true - centre) / unit), 0))


def measure(config: Config, episodes: int, updates: Sequence[int], angles: Sequence[int]) -> Iterator[dict[str, Any]]:
    """After each number of updates, the errors 'embedding' and 'latent'.

    Args:
      config: its `env.observations` is pixels; the episodes have the state too.
      episodes: to learn from, beside `HELD`.
      updates: ascending.
      angles: entries of the state.
    """
    both = presets.overridden(config, ["env.observations=both"])
    with tempfile.TemporaryDirectory() as folder, Workers(both.env, 1) as workers:
        size = workers.action_space.shape[0]

        def play(index: int) -> Episode:
            seed = environment_seed(config.seed, Stream.TRAIN_ENVIRONMENT, index)
            return rollout(workers, Wander(size, index), [seed])[0]

        store = EpisodeStore(folder, config.replay.ram_gigabytes * 1e9)
        played = [play(index) for index in range(episodes + HELD)]
        for index, episode in enumerate(played[:episodes]):
            store.add(episode, index)
        spaces = gymnasium.spaces.Dict({"image": workers.observation_space["image"]})
        learner = build(config, spaces, workers.action_space).learner
        model = learner.trained

        @tf.function(autograph=False)
        def look(batch: dict[str, tf.Tensor], seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            embedded = model.embed(model.prepare(batch, seed))
            posterior, _ = model.rssm.observe(embedded, batch["action"], seed=seed)
            return tf.cast(embedded, tf.float32), posterior.features

        def seen(some: Sequence[Episode]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            found = []
            for number, episode in enumerate(some):
                batch = {key: tf.constant(episode[key][None]) for key in ("image", "action")}
                rows = [each[0].numpy() for each in look(batch, tf.constant([3, number]))]
                found.append([each[SKIPPED:] for each in (*rows, state_of(episode, angles))])
            embedded, features, true = (np.concatenate(each) for each in zip(*found, strict=True))
            return embedded, features, true

        for update in range(1, updates[-1] + 1):
            terms = learner.update(draw_batch(store, config, update), store.rows)
            if update in updates:
                learnt, held = seen(played[:episodes]), seen(played[episodes:])
                rounded = {}
                for place, name in enumerate(("embedding", "latent")):
                    error = probe_error(learnt[place], learnt[2], held[place], held[2])
                    rounded[name] = [round(float(each), 2) for each in error]
                yield {"updates": update, "state_kl": round(float(terms["state_kl"]), 1)} | rounded


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--updates", type=int, nargs="+", default=[300], help="ascending (default: 300)")
    parser.add_argument("--angles", type=int, nargs="*", default=[], help="entries of the state that are angles")
    parser.add_argument("--config", nargs="+", required=True, help="presets, then KEY=VALUE")
    options = parser.parse_args(arguments)
    config = presets.load(*presets.apart(options.config))
    for found in measure(config, options.episodes, options.updates, options.angles):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
