"""Open-loop prediction: see a few frames, then predict many without looking."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bayes_planet.collecting.rollout import Episode
from bayes_planet.world_model import State, WorldModel
from bayes_planet.world_model.interface import require_predictive
from bayes_planet.world_model.networks.images import to_uint8


@dataclasses.dataclass(frozen=True)
class OpenLoop:
    """Observations and rewards beside the model's predictions, for B sequences of T = context + prediction steps.

    Attributes:
      context_steps: steps whose observation the model saw; their "prediction" is a reconstruction.
      true, predicted: 'image' uint8 [B, T, 64, 64, 3] and/or 'state' float32 [B, T, n], and 'reward' [B, T].
      state_stddev: float32 [n], what one unit of the model's state is; None: 1.
    """

    context_steps: int
    true: dict[str, np.ndarray]
    predicted: dict[str, np.ndarray]
    state_stddev: np.ndarray | None = None

    def error(self, key: str) -> np.ndarray:
        """Mean squared error by time step, [T], on the scale of the model: an image's unit is black to white."""
        scale: float | np.ndarray = 255.0 if key == "image" else 1.0
        if key == "state" and self.state_stddev is not None:
            scale = self.state_stddev
        difference = (self.true[key].astype(np.float64) - self.predicted[key].astype(np.float64)) / scale
        squared = np.square(difference)
        return squared.reshape(*squared.shape[:2], -1).mean((0, 2))

    def metrics(self) -> dict[str, float]:
        """Error over the predicted steps, by what is predicted."""
        return {f"open_loop/{key}_error": float(self.error(key)[self.context_steps :].mean()) for key in self.true}


def chunks(
    episodes: Sequence[Episode], count: int, length: int, seed: Sequence[int] | np.ndarray
) -> dict[str, np.ndarray]:
    """Draws `count` sequences of at most `length` rows: [count, L, ...], L the same for all.

    Episodes of at least `length` rows are preferred; where there is none, L is the rows of the shortest drawn one.
    """
    generator = np.random.default_rng(np.random.SeedSequence(tuple(int(word) for word in seed)))
    episodes = [episode for episode in episodes if len(episode["reward"]) >= length] or episodes
    chosen = [episodes[index % len(episodes)] for index in range(count)]
    length = min(length, *(len(episode["reward"]) for episode in chosen))
    starts = [generator.integers(len(episode["reward"]) - length + 1) for episode in chosen]
    return {
        key: np.stack([episode[key][start : start + length] for episode, start in zip(chosen, starts, strict=True)])
        for key in chosen[0]
    }


def predict_open_loop(
    world_model: WorldModel,
    batch: dict[str, np.ndarray],
    context_steps: int,
    seed: tf.Tensor,
    weights: dict | None = None,
) -> OpenLoop:
    """Filters `context_steps` observations, then imagines the rest of the batch from its actions alone.

    Args:
      batch: [B, T, ...] sequences as in the replay, T > context_steps.
      seed: int32 [2].
      weights: a weight sample; None: the posterior mean.

    Source: PlaNet, Fig. 3 and 11; Bayesian Layers v1, Fig. 11.
    """
    require_predictive(world_model, "Open-loop prediction")
    steps = batch["action"].shape[1]
    if not 1 <= context_steps < steps:
        raise ValueError(
            f"context_steps is {context_steps}. Accepted: 1 to {steps - 1}, as the sequences have {steps} steps."
        )
    predicted = _predict(world_model, batch, context_steps, tf.convert_to_tensor(seed), weights)
    true = {key: np.asarray(batch[key]) for key in (*world_model.observation_shapes, "reward")}
    stddev = None if world_model.normaliser is None else world_model.normaliser.stddev.numpy()
    return OpenLoop(context_steps, true, {key: value.numpy() for key, value in predicted.items()}, stddev)


@tf.function(autograph=False)
def _predict(world_model: WorldModel, batch: dict, context_steps: int, seed: tf.Tensor, weights: dict | None) -> dict:
    fold = tf.random.experimental.stateless_fold_in
    context = {key: value[:, :context_steps] for key, value in batch.items()}
    posterior, _ = world_model.observe(context, fold(seed, 0), weights)
    last = State(*(value[:, -1] for value in posterior))
    imagined = world_model.rssm.imagine(batch["action"][:, context_steps:], last, seed=fold(seed, 1), weights=weights)
    features = tf.concat([posterior.features, imagined.features], 1)
    predicted = dict(world_model.decode(features), reward=world_model.reward(features))
    if "image" in predicted:
        predicted["image"] = to_uint8(predicted["image"])
    return predicted
