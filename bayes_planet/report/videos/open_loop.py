"""Open-loop predictions with their uncertainty as frames: true | mean prediction | error | epistemic stddev."""

import matplotlib
import numpy as np

from bayes_planet.report.figures import style


def to_frames(images: np.ndarray) -> np.ndarray:
    """Images of the model, float [..., H, W, 3] around [-0.5, 0.5], as uint8."""
    return np.clip((np.asarray(images, np.float32) + 0.5) * 256.0, 0.0, 255.0).astype(np.uint8)


def heat(stddev: np.ndarray, top: float) -> np.ndarray:
    """Colours of a standard deviation [..., H, W], 0 to `top`: uint8 [..., H, W, 3]."""
    scaled = np.clip(np.asarray(stddev, np.float32) / max(top, 1e-12), 0.0, 1.0)
    return (matplotlib.colormaps[style.MAP](scaled)[..., :3] * 255).round().astype(np.uint8)


def heat_top(stddev: np.ndarray) -> float:
    """Where the colours of `heat` end: the 99.5th percentile, so that a few pixels do not darken the rest."""
    return float(np.percentile(np.asarray(stddev, np.float32), 99.5))


def panels(true: np.ndarray, mean: np.ndarray, epistemic_stddev: np.ndarray) -> tuple[np.ndarray, ...]:
    """The four panels: the truth, the mean prediction, (prediction - true + 1) / 2 (grey where they agree), the stddev.

    Args:
      true, mean: uint8 [N, T, H, W, 3].
      epistemic_stddev: [N, T, H, W], averaged over the colours.

    Returns:
      Four uint8 arrays [N, T, H, W, 3].

    Raises:
      ValueError: shapes that differ.
    """
    true, mean, stddev = np.asarray(true), np.asarray(mean), np.asarray(epistemic_stddev)
    if true.ndim != 5 or true.shape != mean.shape or stddev.shape != true.shape[:-1]:
        raise ValueError(
            f"The shapes are true {true.shape}, mean {mean.shape}, stddev {stddev.shape}. Accepted: twice "
            "[N, T, height, width, 3], and [N, T, height, width]."
        )
    error = ((mean.astype(np.int16) - true + 255) // 2).astype(np.uint8)
    return true, mean, error, heat(stddev, heat_top(stddev))


def uncertainty_panels(true: np.ndarray, mean: np.ndarray, epistemic_stddev: np.ndarray, gap: int = 2) -> np.ndarray:
    """The four `panels` side by side, one row of them a sequence, `gap` black pixels between.

    Returns:
      uint8 [T, N * H + (N - 1) * gap, 4 * W + 3 * gap, 3].
    """
    columns = panels(true, mean, epistemic_stddev)
    count, steps, height, width, _ = columns[0].shape
    frames = np.zeros((steps, count * (height + gap) - gap, 4 * (width + gap) - gap, 3), np.uint8)
    for column, panel in enumerate(columns):
        for row in range(count):
            y, x = row * (height + gap), column * (width + gap)
            frames[:, y : y + height, x : x + width] = panel[row]
    return frames
