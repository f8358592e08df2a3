"""Whether the model notices inputs it never saw: its epistemic variance there, against that on held-out data."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.evaluation.measures import auroc
from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.predictive import Predictive, predict_distribution
from bayes_planet.world_model import WorldModel


@dataclasses.dataclass(frozen=True)
class Response:
    """What one kind of input does to the variance of one prediction, over the predicted steps.

    Attributes:
      epistemic, aleatoric: mean variances, in the squared unit of what is predicted.
      ratio: epistemic / that of held-out data; 1: not noticed. None where that of held-out data is not above 0.
      auroc: chance that a novel sequence has a larger epistemic variance than a held-out one; 0.5: not noticed.
    """

    epistemic: float
    aleatoric: float
    ratio: float | None
    auroc: float


def novel_batches(
    batch: Mapping[str, np.ndarray], context_steps: int, seed: int, foreign: Sequence[Episode] = ()
) -> dict[str, dict[str, np.ndarray]]:
    """Sequences as `batch`, each kind changed in one way.

      another task: the context's frames are consecutive ones of `foreign` episodes (their images must have the size).
      noise: the context's observations are noise: pixels uniform, states normal with the batch's mean and stddev.
      extreme actions: after the context, one random corner of the action box, held to the end.

    Args:
      batch: [N, T, ...] held-out sequences.
      context_steps: steps whose observation the model sees.
      seed: of all draws.
      foreign: episodes of another task. Those of fewer than `context_steps` rows are passed over; none is left: that
        kind is left out. So it is without images.
    """
    generator = np.random.default_rng(seed)
    found: dict[str, dict[str, np.ndarray]] = {}

    def changed(key: str, value: np.ndarray, base: Mapping[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
        copy = base[key].copy()
        copy[:, rows] = value
        return {**base, key: copy}

    seen, count = slice(0, context_steps), len(batch["action"])
    foreign = [episode for episode in foreign if len(episode["image"]) >= context_steps] if "image" in batch else []
    if foreign:
        frames = np.stack(
            [
                episode["image"][start : start + context_steps]
                for episode in (foreign[index % len(foreign)] for index in range(count))
                for start in [generator.integers(len(episode["image"]) - context_steps + 1)]
            ]
        )
        found["another task"] = changed("image", frames, batch, seen)
    noise: Mapping[str, np.ndarray] = batch
    if "image" in batch:
        noise = changed("image", generator.integers(0, 256, batch["image"][:, seen].shape, np.uint8), noise, seen)
    if "state" in batch:
        mean, stddev = batch["state"].mean((0, 1)), batch["state"].std((0, 1))
        noise = changed("state", generator.normal(mean, stddev, batch["state"][:, seen].shape), noise, seen)
    found["noise"] = dict(noise)
    corners = generator.choice([-1.0, 1.0], (count, 1, batch["action"].shape[2]))
    found["extreme actions"] = changed("action", corners, batch, slice(context_steps, None))
    return found


def novelty_response(
    world_model: WorldModel,
    batch: Mapping[str, np.ndarray],
    novel: Mapping[str, Mapping[str, np.ndarray]],
    context_steps: int,
    seed: np.ndarray | tf.Tensor,
    weight_samples: int = 8,
    state_samples: int = 4,
    images: bool = True,
) -> dict[str, dict[str, Response]]:
    """Predicts held-out and novel sequences alike, with the same draws.

    Args:
      world_model: any of this package.
      batch: held-out sequences [N, T, ...].
      novel: by kind, sequences of the same shapes, such as `novel_batches` makes.
      context_steps, seed, weight_samples, state_samples, images: see `predict_distribution`.

    Returns:
      By kind ('held out' first), then by what is predicted: image, state, reward, latent.
    """
    options = (context_steps, seed, weight_samples, state_samples, images)
    held_out = predict_distribution(world_model, batch, *options)
    predicted = {"held out": held_out} | {
        kind: predict_distribution(world_model, other, *options) for kind, other in novel.items()
    }
    return {
        kind: {key: _response(held_out, prediction, key) for key in prediction.parts}
        for kind, prediction in predicted.items()
    }


def _response(held_out: Predictive, prediction: Predictive, key: str) -> Response:
    steps = slice(held_out.context_steps, None)
    base, own = (each.variance(key, "epistemic")[:, steps].mean(1) for each in (held_out, prediction))
    ratio = float(own.mean() / base.mean()) if base.mean() > 0 else None
    aleatoric = float(prediction.variance(key, "aleatoric")[:, steps].mean())
    return Response(float(own.mean()), aleatoric, ratio, auroc(base, own))
