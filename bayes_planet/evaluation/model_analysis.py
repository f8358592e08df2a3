"""All measurements of a trained model on held-out episodes, gathered into one `Analysis`."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayes_planet import bayesian_layers
from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.analysis import Analysis, plain
from bayes_planet.evaluation.calibration import calibrate, fitted_noise
from bayes_planet.evaluation.held_out import HeldOut, check_rows, windows
from bayes_planet.evaluation.novelty import novel_batches, novelty_response
from bayes_planet.evaluation.posterior import weight_histograms, weight_statistics
from bayes_planet.evaluation.predictive import Predictive, predict_distribution, repeat_last
from bayes_planet.evaluation.probe import LEAST_ROWS, SKIPPED, VelocityProbe, long_enough, probe_velocities
from bayes_planet.evaluation.uncertainty import error_correlation
from bayes_planet.report.videos.open_loop import to_frames
from bayes_planet.world_model import StateNormaliser, WorldModel
from bayes_planet.world_model.interface import require_predictive


@dataclasses.dataclass(frozen=True)
class Settings:
    """How much to measure.

    Attributes:
      context_steps, prediction_steps: agent steps to see, and then to predict.
      weight_samples, state_samples: S and K of the predictive distributions.
      sequences: for pixels.
      reward_sequences: the largest number for rewards and returns, which cost far less.
      novel_sequences: of those, that are changed into unknown inputs.
      shown: sequences whose frames are kept for figures and the video.
      horizons: over which predicted returns are calibrated, agent steps.
      seed: of every draw.
    """

    context_steps: int = 5
    prediction_steps: int = 50
    weight_samples: int = 8
    state_samples: int = 4
    sequences: int = 16
    reward_sequences: int = 128
    novel_sequences: int = 8
    shown: int = 3
    horizons: tuple[int, ...] = (1, 5, 12, 25, 50)
    seed: int = 0


def analyse_model(
    world_model: WorldModel,
    held_out: HeldOut,
    updates: int,
    settings: Settings = Settings(),
    reference: WorldModel | None = None,
    foreign: Sequence[Episode] = (),
    on_part: Callable[[str], None] = lambda name: None,
    no_foreign: str = "",
) -> Analysis:
    """Measures a model.

    Args:
      world_model: any of this package.
      held_out: episodes that it was not trained on; `held_out.collect` makes them.
      updates: which state of the model this is.
      settings: how much to measure. Episodes shorter than context + prediction shorten the prediction.
      reference: another model for the same task, to stand beside: the deterministic one, or another seed.
      foreign: episodes of another task, whose frames the model is then shown.
      on_part: called with the name of each part before it starts.
      no_foreign: why there are no `foreign` episodes, for `left_out`; empty where nobody looked for any.

    Raises:
      ValueError: no episode is longer than the context.
    """
    require_predictive(world_model, "The analysis")
    longest = max(len(episode["reward"]) for episode in held_out.episodes)
    length = min(settings.context_steps + settings.prediction_steps, longest)
    check_rows(length, settings.context_steps)
    settings = dataclasses.replace(
        settings,
        prediction_steps=length - settings.context_steps,
        horizons=tuple(step for step in settings.horizons if step <= length - settings.context_steps),
    )
    key = np.array([settings.seed % 2**31, 11], np.int32)
    models = {"model": world_model} | ({} if reference is None else {"reference": reference})
    stride = max(1, (longest - length) // 12)
    few, _ = windows(held_out.episodes, length, stride, settings.sequences)
    many, owners = windows(held_out.episodes, length, stride, settings.reward_sequences)
    draws = (settings.context_steps, key, settings.weight_samples, settings.state_samples)

    arrays: dict[str, np.ndarray] = {}
    numbers: dict[str, Any] = {
        "updates": updates,
        "settings": settings,
        "held_out": {
            "episodes": len(held_out.episodes),
            "returns": held_out.returns,
            "noisy": held_out.noisy,
            "rows": [len(episode["reward"]) for episode in held_out.episodes],
        },
        "random_weights": bool(bayesian_layers.variational_layers(world_model.rssm)),
    }
    on_part("open-loop prediction")
    predictions = {
        name: predict_distribution(model, few, *draws, scale_of=world_model) for name, model in models.items()
    }
    numbers["open_loop"] = _open_loop(predictions, few, arrays, world_model.normaliser)
    _keep_frames(predictions, few, settings.shown, arrays)
    on_part("calibration")
    numbers["calibration"], numbers["correlation"] = {}, {}
    for name, model in models.items():
        rewards = predict_distribution(model, many, *draws, images=False, scale_of=world_model)
        numbers["calibration"][name] = _calibration(rewards, owners, settings)
        numbers["correlation"][name] = _correlation(predictions[name], rewards, settings, arrays, name)
    on_part("unknown inputs")
    left_out: dict[str, str] = {}
    some = {key: value[:: -(-len(value) // settings.novel_sequences)] for key, value in few.items()}
    novel = novel_batches(some, settings.context_steps, settings.seed, foreign)
    numbers["novelty"] = novelty_response(world_model, some, novel, *draws)
    if (foreign or no_foreign) and "image" in few and "another task" not in novel:
        too_short = f"no episode of another task has the context's {settings.context_steps} rows"
        left_out["another task"] = too_short if foreign else no_foreign
    used = long_enough(held_out.velocities)
    if not held_out.velocities:
        left_out["velocity probe"] = "the simulator tells no velocities"
    elif len(used) < 2:
        left_out["velocity probe"] = (
            f"{len(used)} of {len(held_out.episodes)} held-out episodes have {SKIPPED + LEAST_ROWS} rows or more; "
            "it takes two"
        )
    else:
        on_part("velocity probe")
        probes = {
            name: probe_velocities(model, held_out.episodes, held_out.velocities, key) for name, model in models.items()
        }
        numbers["probe"] = _probe(probes, held_out, arrays)
    numbers["left_out"] = left_out
    on_part("weights")
    statistics = weight_statistics(world_model.rssm)
    numbers["weights"] = {
        name: {"edges": edges, "counts": counts} for name, (edges, counts) in weight_histograms(statistics).items()
    }
    numbers["median_snr"] = {name: float(np.median(values)) for name, values in statistics["weight_snr"].items()}
    return Analysis(plain(numbers), arrays)


def _open_loop(
    predictions: dict[str, Predictive],
    batch: dict[str, np.ndarray],
    arrays: dict[str, np.ndarray],
    normaliser: StateNormaliser | None,
) -> dict[str, Any]:
    """By what is predicted: means over sequences and predicted steps, of the model and each baseline."""
    model = predictions["model"]
    context = model.context_steps
    found: dict[str, Any] = {"sequences": len(batch["reward"])}
    for key in model.parts:
        table: dict[str, dict[str, float]] = {}
        for name, prediction in predictions.items():
            columns = {"squared_error": prediction.squared_error(key)}
            if key in prediction.log_likelihood:
                columns["log_likelihood"] = prediction.log_likelihood[key]
            for part in ("epistemic", "aleatoric"):
                columns[part] = prediction.variance(key, part)
            table[name] = _noted(columns, f"{name}/{key}", context, arrays)
        if key != "latent":
            error, likelihood = repeat_last(batch, context, key, normaliser)
            columns = {"squared_error": error, "log_likelihood": likelihood}
            table["repeat"] = _noted(columns, f"repeat/{key}", context, arrays)
        found[key] = table
    return found


def _noted(
    columns: dict[str, np.ndarray], prefix: str, context: int, arrays: dict[str, np.ndarray]
) -> dict[str, float]:
    """Keeps [B, T] curves as open_loop/PREFIX/NAME, and returns their means over the predicted steps."""
    for name, values in columns.items():
        arrays[f"open_loop/{prefix}/{name}"] = values.astype(np.float32)
    return {name: float(values[:, context:].mean()) for name, values in columns.items()}


def _keep_frames(
    predictions: dict[str, Predictive], batch: dict[str, np.ndarray], shown: int, arrays: dict[str, np.ndarray]
) -> None:
    image = predictions["model"].parts.get("image")
    if image is None:
        return
    chosen = np.unique(np.linspace(0, len(batch["image"]) - 1, min(shown, len(batch["image"]))).astype(int))
    arrays["frames/true"] = batch["image"][chosen]
    arrays["frames/mean"] = to_frames(image.mean[chosen])
    arrays["frames/epistemic_stddev"] = image.epistemic_stddev[chosen].mean(-1).astype(np.float16)
    if "reference" in predictions:
        arrays["frames/reference"] = to_frames(predictions["reference"].parts["image"].mean[chosen])


def _calibration(prediction: Predictive, owners: np.ndarray, settings: Settings) -> dict[str, Any]:
    """Of the reward at each predicted step, and of returns; with the model's unit noise, a fitted one, and none.

    The noise is fitted to the residuals of the context's rewards in other episodes, and so never to what it judges.
    """
    context = prediction.context_steps
    samples = prediction.rewards.reshape(-1, *prediction.rewards.shape[2:])[..., context:]
    truth = prediction.true["reward"][:, context:].astype(np.float64)
    residuals = (prediction.true["reward"] - prediction.parts["reward"].mean)[:, :context]
    own = np.array([_residual_noise(residuals, owners, owner) for owner in owners])[:, None]
    noises = {"none": np.zeros((len(truth), 1)), "fitted": own, "unit": np.ones((len(truth), 1))}
    found: dict[str, Any] = {"fitted_noise": float(own.mean()), "reward": {}, "return": {}, "climatology_crps": {}}
    for name, noise in noises.items():
        found["reward"][name] = calibrate(samples, truth, noise + 0.0 * truth, seed=settings.seed)
    for horizon in settings.horizons:
        sums, total = samples[..., :horizon].sum(-1), truth[:, :horizon].sum(-1)
        found["return"][str(horizon)] = {
            # Independent noise of each step adds up in the variance.
            name: calibrate(sums, total, np.sqrt(horizon) * noise[:, 0], seed=settings.seed)
            for name, noise in noises.items()
        }
        # Who knows nothing but the returns of all sequences: mean |y - y'| / 2.
        found["climatology_crps"][str(horizon)] = float(np.abs(total[:, None] - total).mean() / 2)
    return found


def _residual_noise(residuals: np.ndarray, owners: np.ndarray, owner: int) -> float:
    others = residuals[owners != owner]
    return fitted_noise(others if others.size else residuals)


def _correlation(
    frames: Predictive, rewards: Predictive, settings: Settings, arrays: dict[str, np.ndarray], name: str
) -> dict[str, Any]:
    """Spearman's rho of epistemic stddev and absolute error, by what is predicted, and of returns by horizon."""
    context = rewards.context_steps
    found: dict[str, Any] = {}
    for key in frames.parts:
        source = rewards if key in rewards.parts else frames
        variance = source.variance(key, "epistemic")[:, context:]
        error = np.sqrt(source.squared_error(key)[:, context:])
        found[key] = error_correlation(variance, error, settings.seed)  # ranks of variance are those of stddev
        stddev = np.sqrt(np.maximum(variance, 0.0))
        arrays[f"correlation/{name}/{key}/epistemic_stddev"] = stddev.astype(np.float32)
        arrays[f"correlation/{name}/{key}/error"] = error.astype(np.float32)
    return found


def _probe(probes: dict[str, VelocityProbe], held_out: HeldOut, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    first = probes["model"]
    shown = int(np.argmax([len(one) for one in first.true]))
    arrays["probe/true"] = first.true[shown].astype(np.float32)
    found: dict[str, Any] = {
        "names": held_out.names,
        "units": held_out.units,
        "skipped": first.skipped,
        "episodes": first.episodes,
        "r2": {},
    }
    for name, result in probes.items():
        found["r2"][name] = {
            part: {kind: probe.r2 for kind, probe in kinds.items()} for part, kinds in result.probes.items()
        }
        found["r2"][name]["control"] = {"linear": result.control.r2}
        for kind, probe in result.probes["both"].items():
            arrays[f"probe/{name}/{kind}"] = probe.predicted[shown].astype(np.float32)
    return found
