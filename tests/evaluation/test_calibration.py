"""Coverage, PIT and CRPS on predictions whose distribution is known."""

import numpy as np
import pytest
from scipy import integrate, stats

from bayes_planet.evaluation.calibration import LEVELS, calibrate, crps, fitted_noise, pit


@pytest.mark.parametrize("samples", [2, 5, 32])
def test_coverage_is_nominal_for_any_number_of_samples(samples):
    """Truth and samples come from one skewed distribution, whose place and scale differ from case to case."""
    generator = np.random.default_rng(0)
    cases = 40_000
    place, scale = generator.normal(size=cases), generator.exponential(size=cases)
    draw = place + scale * generator.gamma(2.0, size=(samples + 1, cases))
    result = calibrate(draw[1:], draw[0])
    bound = 4 * np.sqrt(0.25 / cases)
    np.testing.assert_allclose(result.coverage, LEVELS, atol=bound)
    assert result.error < bound and result.count == cases
    values = pit(draw[1:], draw[0], generator)
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_gaussian_noise_is_part_of_the_prediction():
    """Means ~ N(0, 1), noise stddev 0.5: nominal with it, too narrow without, too wide with 2."""
    generator = np.random.default_rng(1)
    cases = 6_000
    means = generator.normal(size=(33, cases))
    truth = means[0] + 0.5 * generator.normal(size=cases)
    right, none, wide = (calibrate(means[1:], truth, noise) for noise in (0.5, 0.0, 2.0))
    np.testing.assert_allclose(right.coverage, LEVELS, atol=4 * np.sqrt(0.25 / cases))
    at = LEVELS.index(0.9)
    total = np.sqrt(1.25)
    # Of 32 samples the 90% interval by rank is close to that of N(0, 1).
    np.testing.assert_allclose(none.coverage[at], 2 * stats.norm.cdf(1.645 / total) - 1, atol=0.03)
    assert wide.coverage[at] > 0.98
    assert right.crps < none.crps and right.crps < wide.crps
    np.testing.assert_allclose(right.width, 2 * 1.645 * total, rtol=0.1)
    per_case = calibrate(means[1:], truth, np.full(cases, 0.5))
    assert per_case.coverage == right.coverage and per_case.crps == pytest.approx(right.crps)


def test_a_shifted_prediction_is_not_calibrated():
    generator = np.random.default_rng(2)
    samples = generator.normal(size=(50, 5000))
    assert calibrate(samples, generator.normal(1.5, 1.0, 5000)).error > 0.15


def test_ties_are_broken_at_random():
    """A prediction that is right without spread, as of a constant reward, is calibrated."""
    result = calibrate(np.zeros((10, 20_000)), np.zeros(20_000))
    np.testing.assert_allclose(result.coverage, LEVELS, atol=4 * np.sqrt(0.25 / 20_000))
    assert result.crps == result.absolute_error == result.width == 0.0


def test_crps_of_samples_is_the_definition():
    generator = np.random.default_rng(3)
    samples, truth = generator.normal(size=(7, 4)), generator.normal(size=4)
    expected = np.zeros(4)
    for place in range(4):
        first = sum(abs(x - truth[place]) for x in samples[:, place]) / 7
        second = sum(abs(x - y) for x in samples[:, place] for y in samples[:, place]) / 49
        expected[place] = first - second / 2
    np.testing.assert_allclose(crps(samples, truth), expected, rtol=1e-12)


def test_crps_of_a_gaussian_mixture_is_the_integral_of_its_squared_distance():
    samples, stddev = np.array([[-1.0], [0.5], [2.0]]), 0.7
    for truth in (-3.0, 0.4, 1.9):

        def squared(x, truth=truth):
            return (stats.norm.cdf(x, samples[:, 0], stddev).mean() - (x >= truth)) ** 2

        expected = integrate.quad(squared, -12, truth)[0] + integrate.quad(squared, truth, 12)[0]
        np.testing.assert_allclose(crps(samples, np.array([truth]), stddev), [expected], rtol=1e-6)


def test_crps_of_one_gaussian_is_gneitings_formula():
    truth, stddev = np.array([0.3, -2.0]), np.array([0.5, 2.0])
    z = truth / stddev
    expected = stddev * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    np.testing.assert_allclose(crps(np.zeros((4, 2)), truth, stddev), expected, rtol=1e-12)
    # One that goes to zero is the formula for samples.
    samples = np.random.default_rng(4).normal(size=(5, 2))
    np.testing.assert_allclose(crps(samples, truth, 1e-9), crps(samples, truth), rtol=1e-6)
    mixed = crps(samples, truth, np.array([0.0, 0.4]))
    np.testing.assert_allclose(mixed[0], crps(samples, truth)[0], rtol=1e-12)
    np.testing.assert_allclose(mixed[1], crps(samples, truth, 0.4)[1], rtol=1e-12)


def test_the_true_distribution_has_the_lowest_crps():
    generator = np.random.default_rng(5)
    truth = generator.normal(size=3000)
    scores = {spread: calibrate(spread * generator.normal(size=(100, 3000)), truth).crps for spread in (0.3, 1.0, 3.0)}
    assert scores[1.0] < scores[0.3] and scores[1.0] < scores[3.0]
    np.testing.assert_allclose(scores[1.0], 1 / np.sqrt(np.pi), rtol=0.05)  # E|Y - y| - E|Y - Y'| / 2 of N(0, 1)


def test_fitted_noise_has_the_highest_likelihood():
    residuals = np.random.default_rng(6).normal(0.2, 0.8, (40, 5))
    best = fitted_noise(residuals)
    logs = [stats.norm.logpdf(residuals, 0.0, scale).sum() for scale in (0.99 * best, best, 1.01 * best)]
    assert logs[1] > logs[0] and logs[1] > logs[2]


def test_bad_input_says_what_is_accepted():
    good = np.zeros((4, 3))
    with pytest.raises(ValueError, match="N >= 2"):
        calibrate(good[:1], np.zeros(3))
    with pytest.raises(ValueError, match="samples has shape"):
        calibrate(good, np.zeros(4))
    with pytest.raises(ValueError, match="0 or more"):
        calibrate(good, np.zeros(3), -1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibrate(good, np.zeros(3), levels=(0.5, 1.0))
    with pytest.raises(ValueError, match="one or more"):
        fitted_noise(np.zeros(0))
