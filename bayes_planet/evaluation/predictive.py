"""Open-loop prediction as a distribution: over draws of the weights and of the latent state."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from scipy.special import logsumexp

from bayes_planet import bayesian_layers
from bayes_planet.evaluation.uncertainty import CrossedTable, VarianceParts
from bayes_planet.world_model import State, StateNormaliser, WorldModel
from bayes_planet.world_model.interface import require_predictive

CHUNK, CHUNK_WITHOUT_IMAGES = 4, 16  # sequences predicted at a time; a weight draw makes K videos of each


@dataclasses.dataclass(frozen=True)
class Predictive:
    """What a model says of B sequences of T = context + prediction steps, over S weight draws and K state draws.

    One unit of an image is black to white, one of a state the stddev over a model's replay:
    this model's, or that of the model it is compared with, see `scale_of` in `predict_distribution`.

    Attributes:
      context_steps: steps whose observation the model saw; their prediction is a reconstruction.
      true: 'image' and/or 'state' and 'reward' [B, T, ...], and 'latent' [B, T, Z], the mean of the filter's state
        that has seen every observation (under the posterior mean of the weights).
      parts: mean, epistemic and aleatoric variance [B, T, ...] of the predicted means, by the same names. That of the
        latent has the prior's own variance in it; those of observations and reward leave out the unit variance of
        their likelihood.
      log_likelihood: [B, T] nats, log of the mean over draws of N(true; predicted mean, 1) in these units; not of the
        latent.
      rewards: [S, K, B, T], the predicted mean reward under each draw.
    """

    context_steps: int
    true: dict[str, np.ndarray]
    parts: dict[str, VarianceParts]
    log_likelihood: dict[str, np.ndarray]
    rewards: np.ndarray

    @property
    def prediction_steps(self) -> int:
        return self.rewards.shape[-1] - self.context_steps

    def squared_error(self, key: str) -> np.ndarray:
        """Squared error of the mean prediction, averaged over pixels or dimensions: [B, T]."""
        return _mean_behind(np.square(self.true[key] - self.parts[key].mean))

    def variance(self, key: str, part: str) -> np.ndarray:
        """'epistemic', 'aleatoric' or 'total' variance, averaged over pixels or dimensions: [B, T]."""
        return _mean_behind(getattr(self.parts[key], part))

    def metrics(self) -> dict[str, float]:
        """Means over the sequences and the predicted steps, named for metrics.jsonl."""
        values = {}
        for key in self.parts:
            values[f"predictive/{key}_error"] = self._predicted(self.squared_error(key))
            for part in ("epistemic", "aleatoric"):
                values[f"predictive/{key}_{part}"] = self._predicted(self.variance(key, part))
        for key, value in self.log_likelihood.items():
            values[f"predictive/{key}_log_likelihood"] = self._predicted(value)
        return values

    def _predicted(self, value: np.ndarray) -> float:
        return float(value[:, self.context_steps :].mean())


def predict_distribution(
    world_model: WorldModel,
    batch: Mapping[str, np.ndarray],
    context_steps: int,
    seed: tf.Tensor | np.ndarray,
    weight_samples: int = 8,
    state_samples: int = 4,
    images: bool = True,
    scale_of: WorldModel | None = None,
) -> Predictive:
    """Filters `context_steps` observations and imagines the rest from the actions, under each of S weight draws.

    A draw holds for a whole sequence. Every weight draw meets the same state noise, see `uncertainty`.

    Args:
      world_model: any of this package; without random weights S is 1 and the epistemic parts are 0.
      batch: [B, T, ...] sequences as in the replay, T > context_steps.
      context_steps: observations to see.
      seed: int32 [2].
      weight_samples: S, 2 or more.
      state_samples: K, 2 or more.
      images: decode frames; without, B may be large.
      scale_of: the model whose units of a state all is in. Each model's are those of its own replay, so models are
        compared on the scale of one. None: world_model's own.

    Raises:
      ValueError: context_steps or a number of samples that is too small or too large.
    """
    require_predictive(world_model, "Open-loop prediction")
    steps = batch["action"].shape[1]
    if not 1 <= context_steps < steps:
        raise ValueError(
            f"context_steps is {context_steps}. Accepted: 1 to {steps - 1}, as the sequences have {steps} steps."
        )
    for name, count in (("weight_samples", weight_samples), ("state_samples", state_samples)):
        if count < 2:
            raise ValueError(f"{name} is {count}. Accepted: 2 or more, to tell the variance of weights from noise.")
    fold = tf.random.experimental.stateless_fold_in
    seed = tf.convert_to_tensor(seed)
    chunk = CHUNK if images and "image" in world_model.observation_shapes else CHUNK_WITHOUT_IMAGES
    parts = [
        _predict_chunk(
            world_model,
            {key: value[first : first + chunk] for key, value in batch.items()},
            context_steps,
            fold(fold(seed, 0), first),
            fold(seed, 1),
            (weight_samples, state_samples),
            images,
            (world_model if scale_of is None else scale_of).normaliser,
        )
        for first in range(0, len(batch["action"]), chunk)
    ]
    return _concatenated(parts)


def model_scale(key: str, value: np.ndarray, normaliser: StateNormaliser | None = None) -> np.ndarray:
    """Observations as the model predicts them, float32.

    Images uint8 -> [-0.5, 0.5], the middle of their level; states by the normaliser's mean and stddev. They are not
    clipped as a model's inputs are: another model clips elsewhere, and the truth must be the same for both.
    """
    if key == "state":
        mean, stddev = _statistics(normaliser)
        return ((value - mean) / stddev).astype(np.float32)
    return (value.astype(np.float32) + 0.5) / 256.0 - 0.5 if key == "image" else value.astype(np.float32)


def repeat_last(
    batch: Mapping[str, np.ndarray], context_steps: int, key: str, normaliser: StateNormaliser | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The baseline that repeats the last observation (or reward) it saw, on the scale of the model of `normaliser`.

    Returns:
      (squared error, log-likelihood under unit variance) [B, T], as of `Predictive`; 0 error within the context.
    """
    true = model_scale(key, batch[key], normaliser)
    predicted = true.copy()
    predicted[:, context_steps:] = true[:, context_steps - 1 : context_steps]
    squares = np.square(true - predicted)
    return _mean_behind(squares), _log_normal(_sum_behind(squares), math.prod(true.shape[2:]))


def _predict_chunk(
    model: WorldModel,
    batch: Mapping[str, np.ndarray],
    context_steps: int,
    seed: tf.Tensor,
    weight_seed: tf.Tensor,
    samples: tuple[int, int],
    images: bool,
    normaliser: StateNormaliser | None,
) -> Predictive:
    draws, noises = samples
    keys = [key for key in model.observation_shapes if images or key != "image"]
    true = {key: model_scale(key, np.asarray(batch[key]), normaliser) for key in (*keys, "reward")}
    inputs = {key: tf.convert_to_tensor(batch[key]) for key in (*model.observation_shapes, "action")}
    true["latent"] = filtered_means(model, inputs, tf.random.experimental.stateless_fold_in(seed, 2)).numpy()
    tables = {key: CrossedTable() for key in true}
    squares: dict[str, list[np.ndarray]] = {key: [] for key in (*keys, "reward")}
    rewards = []
    random = bool(bayesian_layers.variational_layers(model.rssm))
    for draw in range(draws if random else 1):
        fold = tf.random.experimental.stateless_fold_in
        # Plain weights, without Flipout's signs: a draw is one transition function for all sequences.
        weights = bayesian_layers.sample_weights(model.rssm, fold(weight_seed, draw), shared=True)
        predicted = _imagined(model, inputs, context_steps, noises, tuple(keys), seed, weights)
        predicted = {key: value.numpy() for key, value in predicted.items()}
        if "state" in predicted:
            predicted["state"] = _rescaled(predicted["state"], model.normaliser, normaliser)
        variance = np.square(predicted.pop("latent_stddev"))
        for key, value in predicted.items():
            tables[key].add(value, variance if key == "latent" else None)
            if key in squares:
                squares[key].append(_sum_behind(np.square(value - true[key]), 3))
        rewards.append(predicted["reward"])
    likelihood = {}
    for key, values in squares.items():
        every = np.concatenate(values)  # [S * K, B, T]
        logs = _log_normal(every, math.prod(true[key].shape[2:]))
        likelihood[key] = logsumexp(logs, axis=0) - math.log(len(every))
    parts = {key: table.parts() for key, table in tables.items()}
    if "image" in parts:  # half the memory, for many videos
        parts["image"] = VarianceParts(*(value.astype(np.float32) for value in dataclasses.astuple(parts["image"])))
    return Predictive(context_steps, true, parts, likelihood, np.stack(rewards))


@tf.function(autograph=False)
def filtered_means(model: WorldModel, batch: dict, seed: tf.Tensor) -> tf.Tensor:
    """Means of the latent state [B, T, Z] that has seen every observation of a batch [B, T, ...], under the posterior
    mean of the weights; seed int32 [2]."""
    posterior, _ = model.observe(batch, seed)
    return posterior.mean


@tf.function(autograph=False)
def _imagined(
    model: WorldModel,
    batch: dict,
    context_steps: int,
    noises: int,
    keys: tuple[str, ...],
    seed: tf.Tensor,
    weights: dict,
) -> dict[str, tf.Tensor]:
    """Predicted means [K, B, T, ...] by name under one weight draw, and the latent's mean and stddev."""
    fold = tf.random.experimental.stateless_fold_in
    context = {key: batch[key][:, :context_steps] for key in model.observation_shapes}
    embedded = model.embed(model.prepare(context, fold(seed, 0)))
    embedded = tf.tile(embedded, [noises, 1, 1])
    actions = tf.tile(batch["action"], [noises, 1, 1])
    rssm = model.rssm
    posterior, _ = rssm.observe(embedded, actions[:, :context_steps], seed=fold(seed, 1), weights=weights)
    last = State(*(value[:, -1] for value in posterior))
    imagined = rssm.imagine(actions[:, context_steps:], last, seed=fold(seed, 3), weights=weights)
    features = tf.concat([posterior.features, imagined.features], 1)
    predicted = {"reward": model.reward(features)}
    if keys:
        decoded = model.decode(features, normalised=True)
        predicted.update({key: decoded[key] for key in keys})
    predicted["latent"] = tf.concat([posterior.mean, imagined.mean], 1)
    predicted["latent_stddev"] = tf.concat([posterior.stddev, imagined.stddev], 1)
    rows = batch["action"].shape[0]
    return {key: tf.reshape(value, [noises, rows, *value.shape[1:]]) for key, value in predicted.items()}


def _rescaled(state: np.ndarray, own: StateNormaliser | None, other: StateNormaliser | None) -> np.ndarray:
    """States [..., n] as `own` normalises them -> as `other` does, float32."""
    (mean, stddev), (other_mean, other_stddev) = _statistics(own), _statistics(other)
    # Not by way of the task's units: a mean far above the stddev would take the digits.
    return (state * (stddev / other_stddev) + (mean - other_mean) / other_stddev).astype(np.float32)


def _statistics(normaliser: StateNormaliser | None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and stddev of a state in the units of the task, float64 [n]; [] for a model that takes it as it is."""
    if normaliser is None:
        return np.zeros(()), np.ones(())
    return normaliser.mean.numpy().astype(np.float64), normaliser.stddev.numpy().astype(np.float64)


def _concatenated(chunks: list[Predictive]) -> Predictive:
    first = chunks[0]

    def join(name: str) -> dict[str, np.ndarray]:
        return {key: np.concatenate([getattr(chunk, name)[key] for chunk in chunks]) for key in getattr(first, name)}

    parts = {
        key: VarianceParts(
            *(
                np.concatenate([getattr(chunk.parts[key], field.name) for chunk in chunks])
                for field in dataclasses.fields(VarianceParts)
            )
        )
        for key in first.parts
    }
    rewards = np.concatenate([chunk.rewards for chunk in chunks], 2)
    return Predictive(first.context_steps, join("true"), parts, join("log_likelihood"), rewards)


def _log_normal(sum_of_squares: np.ndarray, size: int) -> np.ndarray:
    return -0.5 * sum_of_squares.astype(np.float64) - 0.5 * math.log(2 * math.pi) * size


def _sum_behind(values: np.ndarray, axes: int = 2) -> np.ndarray:
    """Sum over all axes after the first `axes`."""
    return values.reshape(*values.shape[:axes], -1).sum(-1, dtype=np.float64)


def _mean_behind(values: np.ndarray) -> np.ndarray:
    """Mean over all axes after [B, T]."""
    return values.reshape(*values.shape[:2], -1).mean(-1, dtype=np.float64)
