"""How sure a model is of its weights: histograms of their stddev and of their signal-to-noise ratio, by layer."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayes_planet import bayesian_layers

BINS = 30
EDGES = {
    "weight_stddev": np.logspace(-5, 1, BINS + 1),
    "weight_snr": np.logspace(-3, 3, BINS + 1),
}
"""Edges of the bins, the same in every run, evenly spaced in the logarithm; what lies outside is in the end bins."""


def weight_statistics(root: Any) -> dict[str, dict[str, np.ndarray]]:
    """Every random weight's posterior stddev and |mean| / stddev (signal-to-noise ratio, no unit).

    Args:
      root: a built tf.Module, Keras layer or model, or a list of these. Posteriors must be normal, or another that
        has `mean_value` and `stddev_value`, as `TrainableNormal`; others are left out.

    Returns:
      {'weight_stddev' and 'weight_snr': {layer name: flat array over the layer's random weights}}.
    """
    statistics: dict[str, dict[str, np.ndarray]] = {name: {} for name in EDGES}
    for layer in bayesian_layers.variational_layers(root):
        normal = [posterior for posterior in layer.posteriors().values() if hasattr(posterior, "stddev_value")]
        if not normal:
            continue
        mean = np.concatenate([np.ravel(posterior.mean_value()) for posterior in normal]).astype(np.float64)
        # A shared stddev has fewer axes than the weight.
        stddev = np.concatenate(
            [np.ravel(np.broadcast_to(posterior.stddev_value(), posterior.weight_shape)) for posterior in normal]
        ).astype(np.float64)
        name = layer.name
        while name in statistics["weight_stddev"]:
            name += "'"
        statistics["weight_stddev"][name] = stddev
        statistics["weight_snr"][name] = np.abs(mean) / np.maximum(stddev, np.finfo(np.float64).tiny)
    return statistics


def weight_histograms(
    statistics: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{'weight_stddev/LAYER' and 'weight_snr/LAYER': (edges [31], counts [30])} of `weight_statistics`; {} without
    random weights."""
    found = {}
    for name, layers in statistics.items():
        edges = EDGES[name]
        for layer, values in layers.items():
            inside = np.clip(values, edges[0], edges[-1])
            found[f"{name}/{layer}"] = (edges, np.histogram(inside, edges)[0])
    return found


def histogram_metrics(root: Any) -> dict[str, Any]:
    """Values for `MetricsWriter.write`: the histograms, and the median signal-to-noise ratio of each layer."""
    statistics = weight_statistics(root)
    values: dict[str, Any] = {
        f"histogram/{name}": {"edges": edges, "counts": counts}
        for name, (edges, counts) in weight_histograms(statistics).items()
    }
    for layer, ratios in statistics["weight_snr"].items():
        values[f"weight_snr/{layer}"] = float(np.median(ratios))
    return values
