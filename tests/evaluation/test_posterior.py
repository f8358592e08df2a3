"""Histograms of the weights' posterior, and their way into metrics.jsonl and TensorBoard."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.evaluation.posterior import EDGES, histogram_metrics, weight_histograms, weight_statistics
from bayes_planet.runs.metrics import MetricsWriter, read_metrics
from tests.world_model.tiny import tiny_config, tiny_model


def test_counts_are_those_of_every_random_weight():
    model = tiny_model(tiny_config(bayesian={"layers": ["prior_input", "gru"], "initial_stddev": 0.05}))
    found = weight_histograms(weight_statistics(model.rssm))
    assert set(found) == {f"{name}/{layer}" for name in EDGES for layer in ("prior_input", "gru")}
    gru = model.rssm.gru
    ratios, count = [], 0
    for posterior in (gru.kernel_initializer, gru.recurrent_initializer):
        for mean, stddev in zip(posterior.mean_value().numpy().ravel(), posterior.stddev_value().numpy().ravel()):
            ratios.append(abs(float(mean)) / float(stddev))
            count += 1
    edges, counts = found["weight_snr/gru"]
    expected = [sum(low <= max(ratio, edges[0]) < high for ratio in ratios) for low, high in itertools.pairwise(edges)]
    np.testing.assert_array_equal(counts, expected)
    edges, counts = found["weight_stddev/gru"]
    assert counts.sum() == counts.max() == count
    place = int(np.argmax(counts))
    assert edges[place] <= 0.05 < edges[place + 1]
    values = histogram_metrics(model.rssm)
    np.testing.assert_allclose(values["weight_snr/gru"], np.median(ratios), rtol=1e-5)


def test_edges_are_even_in_the_logarithm_and_the_ends_hold_what_is_outside():
    for edges in EDGES.values():
        assert len(edges) == 31
        np.testing.assert_allclose(np.diff(np.log10(edges)), 0.2)
    layer = bayesian_layers.DenseReparameterization(3, use_bias=False, name="dense")
    layer.build([None, 2])
    layer.kernel_initializer.mean.assign([[0.0, 1e9, 0.1], [0.1, 0.1, 0.1]])
    counts = weight_histograms(weight_statistics(layer))["weight_snr/dense"][1]
    assert counts[0] == 1 and counts[-1] == 1 and counts.sum() == 6


def test_shared_stddev_counts_for_every_weight_and_equal_names_stay_apart():
    layers = [
        bayesian_layers.DenseReparameterization(
            4, kernel_initializer=bayesian_layers.initializers.get("trainable_normal_shared_stddev"), name="same"
        )
        for _ in range(2)
    ]
    for layer in layers:
        layer.build([None, 5])
    stddev = weight_statistics(layers)["weight_stddev"]
    assert {name: value.shape for name, value in stddev.items()} == {"same": (20,), "same'": (20,)}
    assert np.ptp(stddev["same"]) == 0.0


def test_no_random_weights_no_histograms():
    assert weight_histograms(weight_statistics(tiny_model().rssm)) == {} == histogram_metrics(tiny_model().rssm)


def test_histograms_in_the_metrics_file_and_on_tensorboard(tmp_path):
    model = tiny_model(tiny_config(bayesian={"layers": ["prior_mean"], "initial_stddev": 0.05}))
    values = histogram_metrics(model.rssm)
    with MetricsWriter(tmp_path) as writer:
        writer.write(values, updates=3, env_steps=30, episodes=1)
    (row,) = read_metrics(tmp_path / "metrics.jsonl")
    edges, counts = weight_histograms(weight_statistics(model.rssm))["weight_stddev/prior_mean"]
    histogram = row["histogram/weight_stddev/prior_mean"]
    np.testing.assert_allclose(histogram["edges"], edges, rtol=1e-6)
    assert histogram["counts"] == counts.tolist() and len(json.dumps(row)) < 2500
    found = {}
    for path in (tmp_path / "tensorboard").iterdir():
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found[value.tag] = (event.step, value.metadata.plugin_data.plugin_name, tf.make_ndarray(value.tensor))
    step, plugin, bins = found["histogram/weight_stddev/prior_mean"]
    assert (step, plugin) == (30, "histograms")
    np.testing.assert_allclose(bins, np.stack([edges[:-1], edges[1:], counts], 1), rtol=1e-6)


def test_tensorboard_itself_serves_the_histogram(tmp_path):
    from tensorboard import context
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    with MetricsWriter(tmp_path) as writer:
        value = {"edges": [0.0, 1.0, 3.0], "counts": [4, 5]}
        writer.write({"histogram/x": value}, updates=1, env_steps=2, episodes=1)
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    listed = provider.list_tensors(context.RequestContext(), experiment_id="", plugin_name="histograms")
    assert list(listed["tensorboard"]) == ["histogram/x"]


@pytest.mark.parametrize(
    "value",
    [
        {"edges": [0, 1], "counts": []},
        {"edges": [0, 1, 1], "counts": [1, 2]},
        {"edges": [0, float("inf")], "counts": [1]},
        {"edges": [0, 1]},
        {"edges": [], "counts": []},
        {"edges": [0, 1], "counts": [1], "more": 2},
    ],
)
def test_what_is_no_histogram_is_an_error(tmp_path, value):
    with MetricsWriter(tmp_path) as writer, pytest.raises(ValueError, match=r"Accepted: edges, n \+ 1 rising numbers"):
        writer.write({"histogram/x": value}, updates=1, env_steps=2, episodes=1)
