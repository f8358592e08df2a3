"""What an evaluation shows of the model: open-loop predictions with their uncertainty, as numbers and videos."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.open_loop import chunks, predict_open_loop
from bayes_planet.evaluation.predictive import predict_distribution, repeat_last
from bayes_planet.report.videos.files import side_by_side
from bayes_planet.report.videos.open_loop import to_frames, uncertainty_panels
from bayes_planet.world_model import WorldModel


@dataclasses.dataclass(frozen=True)
class Live:
    """Numbers and videos of one evaluation.

    Attributes:
      values: for `MetricsWriter.write`.
      videos: uint8 [T, H, W, 3] by name: 'open_loop' (true | predicted | error) and, with random weights,
        'open_loop_uncertainty' (true | mean prediction | error | epistemic stddev). Empty without images.
      rows: of the sequences, context and prediction; at most the context's: too short, and `values` is empty.
    """

    values: dict[str, float]
    videos: dict[str, np.ndarray]
    rows: int


def open_loop_monitor(
    world_model: WorldModel,
    episodes: Sequence[Episode],
    context_steps: int,
    prediction_steps: int,
    sequences: int,
    seed: np.ndarray,
    weight_samples: int = 4,
    state_samples: int = 2,
) -> Live:
    """Predicts sequences of an evaluation's episodes open-loop: under the posterior mean, and over weight draws.

    Args:
      world_model: any of this package.
      episodes: held-out ones.
      context_steps, prediction_steps: rows to see, and to predict.
      sequences: how many; one row of panels each in the videos.
      seed: int32 [2].
      weight_samples, state_samples: draws of the predictive distribution; fewer than 2 weight draws: none of it.
    """
    batch = chunks(episodes, sequences, context_steps + prediction_steps, seed)
    rows = batch["reward"].shape[1]
    if rows <= context_steps:
        return Live({}, {}, rows)
    point = predict_open_loop(world_model, batch, context_steps, seed)
    values = point.metrics()
    for key in point.true:
        error, _ = repeat_last(batch, context_steps, key, world_model.normaliser)
        values[f"open_loop/{key}_error_of_repeating"] = float(error[:, context_steps:].mean())
    videos = {}
    images = "image" in point.true
    if images:
        videos["open_loop"] = side_by_side(point.true["image"], point.predicted["image"])
    if weight_samples >= 2:
        predictive = predict_distribution(world_model, batch, context_steps, seed, weight_samples, state_samples)
        values.update(predictive.metrics())
        if images and np.any(predictive.parts["image"].epistemic):
            image = predictive.parts["image"]
            videos["open_loop_uncertainty"] = uncertainty_panels(
                batch["image"], to_frames(image.mean), image.epistemic_stddev.mean(-1)
            )
    return Live(values, videos, rows)
