"""Law of total variance over a crossed table of draws, and rank correlation with the error."""

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from bayes_planet import bayesian_layers
from bayes_planet.evaluation.uncertainty import CrossedTable, error_correlation, total_variance
from tests.world_model.tiny import seed


def slow_parts(values: np.ndarray) -> tuple[float, float, float]:
    """The expected mean squares of a two-way layout (Searle et al.), written out with loops."""
    draws, noises = values.shape
    grand = values.mean()
    rows, columns = values.mean(1), values.mean(0)
    between = sum((row - grand) ** 2 for row in rows) / (draws - 1)
    interaction = 0.0
    for s in range(draws):
        for k in range(noises):
            interaction += (values[s, k] - rows[s] - columns[k] + grand) ** 2
    interaction /= (draws - 1) * (noises - 1)
    aleatoric = np.mean([sum((x - row.mean()) ** 2 for x in row) / (noises - 1) for row in values])
    return grand, between - interaction / noises, aleatoric


def test_parts_are_those_of_the_two_way_layout():
    values = np.random.default_rng(0).normal(size=(5, 3, 4, 2))
    parts = total_variance(values)
    for place in np.ndindex(4, 2):
        expected = slow_parts(values[:, :, *place])
        found = (parts.mean[place], parts.epistemic[place], parts.aleatoric[place])
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(parts.total, parts.epistemic + parts.aleatoric)


@pytest.mark.parametrize("sizes", [(2, 2), (3, 5), (8, 2)])
def test_estimates_are_unbiased_with_interaction(sizes):
    """y = 2 a + 3 b + 1.5 a b with a, b ~ N(0, 1): Var E[y|a] = 4, E Var[y|a] = 9 + 2.25."""
    generator = np.random.default_rng(1)
    tables = 20_000
    a = generator.normal(size=(sizes[0], 1, tables))
    b = generator.normal(size=(1, sizes[1], tables))
    parts = total_variance(2 * a + 3 * b + 1.5 * a * b)
    for estimates, truth in ((parts.epistemic, 4.0), (parts.aleatoric, 11.25)):
        assert abs(estimates.mean() - truth) < 5 * estimates.std() / np.sqrt(tables)
        assert estimates.std() / np.sqrt(tables) < 0.05 * truth


def test_noise_common_to_all_weight_draws_drops_out_of_the_epistemic_part():
    generator = np.random.default_rng(2)
    weights, noise = generator.normal(size=(6, 1)), 100.0 * generator.normal(size=(1, 3))
    parts = total_variance((weights + noise)[..., None])
    np.testing.assert_allclose(parts.epistemic, weights.var(ddof=1), rtol=1e-9)
    np.testing.assert_allclose(parts.aleatoric, noise.var(ddof=1), rtol=1e-9)


def test_known_variance_is_aleatoric_and_one_draw_has_no_epistemic_part():
    values = np.random.default_rng(3).normal(size=(4, 3, 2))
    plain, noisy = total_variance(values), total_variance(values, np.full(values.shape, 0.25))
    np.testing.assert_allclose(noisy.aleatoric, plain.aleatoric + 0.25)
    np.testing.assert_array_equal(noisy.epistemic, plain.epistemic)
    one = total_variance(values[:1])
    np.testing.assert_array_equal(one.epistemic, 0.0)
    np.testing.assert_allclose(one.aleatoric, values[0].var(0, ddof=1))


def test_a_bayesian_linear_model_has_its_closed_form():
    """y = x W + noise with W ~ N(m, s^2) from this package's layer: Var_w E[y|w] = sum x_i^2 s_i^2."""
    layer = bayesian_layers.DenseReparameterization(1, use_bias=False)
    layer.build([None, 3])
    posterior = layer.kernel_initializer
    x = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], np.float32)
    draws, noises, stddev = 4000, 3, 0.3
    weights = bayesian_layers.sample_weights(layer, seed(5), samples=draws)
    with bayesian_layers.use_weights(weights):
        means = layer(tf.constant(x)[None]).numpy()[:, None, :, 0]  # [S, 1, B]
    noise = stddev * np.random.default_rng(6).normal(size=(1, noises, 2))
    parts = total_variance(means + noise, np.full((draws, noises, 2), 0.5))
    expected = np.square(x) @ np.square(posterior.stddev_value().numpy()[:, 0])
    np.testing.assert_allclose(parts.epistemic, expected, rtol=5 * np.sqrt(2 / draws))
    np.testing.assert_allclose(parts.aleatoric, 0.5 + noise[0].var(0, ddof=1), rtol=1e-4)
    np.testing.assert_allclose(parts.mean, x @ posterior.mean_value().numpy()[:, 0] + noise[0].mean(0), atol=0.02)


def test_one_at_a_time_is_the_same_as_at_once():
    values = np.random.default_rng(7).normal(1000.0, 1e-3, size=(6, 4, 5))
    table = CrossedTable()
    for row in values:
        table.add(row)
    for one, other in zip(vars(table.parts()).values(), vars(total_variance(values)).values()):
        np.testing.assert_array_equal(one, other)
    # Far from zero nothing is lost.
    np.testing.assert_allclose(table.parts().epistemic, total_variance(values - 1000.0).epistemic, rtol=1e-3)


def test_too_few_noise_draws_and_shapes_that_change_are_errors():
    with pytest.raises(ValueError, match="2 or more"):
        total_variance(np.zeros((3, 1, 2)))
    table = CrossedTable()
    with pytest.raises(ValueError, match="Nothing was added"):
        table.parts()
    table.add(np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"Accepted: \(2, 3\)"):
        table.add(np.zeros((2, 4)))


def test_error_correlation_is_spearmans():
    generator = np.random.default_rng(8)
    epistemic = generator.exponential(size=(40, 6))
    error = np.square(epistemic) + 0.3 * generator.exponential(size=(40, 6))
    result = error_correlation(epistemic, error)
    expected = np.corrcoef(stats.rankdata(epistemic), stats.rankdata(error))[0, 1]
    np.testing.assert_allclose(result.rho, expected, rtol=1e-10)
    assert result.low < result.rho < result.high and result.high - result.low < 0.3
    steps = [np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1] for a, b in zip(epistemic.T, error.T)]
    np.testing.assert_allclose(result.within_step, np.mean(steps), rtol=1e-10)


def test_growth_with_the_horizon_alone_is_seen_through():
    generator = np.random.default_rng(9)
    step = np.arange(1, 21)
    epistemic, error = (step * generator.uniform(0.8, 1.2, (50, 20)) for _ in range(2))
    result = error_correlation(epistemic, error)
    assert result.rho > 0.9 and abs(result.within_step) < 0.1
    assert error_correlation(np.zeros((50, 20)), error) is None
    with pytest.raises(ValueError, match=r"\[N, T\]"):
        error_correlation(epistemic, error[:, :3])
