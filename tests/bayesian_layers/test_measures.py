"""Each measure against an independent implementation: scikit-learn, TFP, SciPy, or the definition as a slow loop."""

import numpy as np
import pytest
import tensorflow_probability as tfp
from scipy import integrate, stats
from sklearn import calibration, metrics
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from bayes_planet.bayesian_layers.evaluation import measures

import tensorflow as tf  # isort: skip

RNG = np.random.default_rng(1)
N, K, S = 400, 4, 7
LOGITS = RNG.normal(size=(S, N, K)).astype(np.float32) * 2
CLASSES = bl.Predictive(tfd.Categorical(logits=LOGITS))
P = np.asarray(CLASSES.probabilities(), np.float64)
LABELS = np.array([RNG.choice(K, p=row / row.sum()) for row in P**0.5])
LOC, SCALE = RNG.normal(size=(S, N)), RNG.uniform(0.3, 1.0, (S, N))
NORMALS = bl.Predictive(tfd.Normal(LOC.astype(np.float32), SCALE.astype(np.float32)))
TRUTH = RNG.normal(size=N) * 1.2


def test_measures_of_classes_are_scikit_learns_and_tfps():
    found = bl.evaluate(CLASSES, LABELS).numbers
    p = P / P.sum(1, keepdims=True)
    assert found["nll"] == pytest.approx(metrics.log_loss(LABELS, p), rel=1e-5)
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(LABELS, p.argmax(1)))
    squares = [np.square(p[:, k] - (k == LABELS)).mean() for k in range(K)]
    assert found["brier"] == pytest.approx(np.sum(squares), rel=1e-5)
    theirs = tfp.stats.brier_score(LABELS.astype(np.int32), np.log(p).astype(np.float32))  # without the 1 of the truth
    assert found["brier"] == pytest.approx(1 + float(tf.reduce_mean(theirs)), rel=1e-4)
    ece = tfp.stats.expected_calibration_error(15, np.log(p).astype(np.float32), LABELS.astype(np.int32))
    assert found["ece"] == pytest.approx(float(ece), abs=1e-5)


@pytest.mark.parametrize("equal_mass", [False, True])
def test_reliability_bins_are_those_of_their_definition(equal_mass):
    bars = measures.reliability(P, LABELS, bins=10, equal_mass=equal_mass)
    confidence, correct = P.max(1), P.argmax(1) == LABELS
    strategy = "quantile" if equal_mass else "uniform"
    if equal_mass:
        order = np.argsort(confidence)
        groups = [order[start : start + N // 10] for start in range(0, N, N // 10)]
    else:
        groups = [np.flatnonzero((confidence > n / 10) & (confidence <= (n + 1) / 10)) for n in range(10)]
    groups = [group for group in groups if len(group)]
    np.testing.assert_allclose(bars.confidence, [confidence[group].mean() for group in groups])
    np.testing.assert_allclose(bars.accuracy, [correct[group].mean() for group in groups])
    assert bars.error == pytest.approx(sum(len(g) * abs(confidence[g].mean() - correct[g].mean()) for g in groups) / N)
    theirs, mean = calibration.calibration_curve(correct, confidence, n_bins=10, strategy=strategy)
    if not equal_mass:  # its quantile edges split ties otherwise
        np.testing.assert_allclose(bars.accuracy, theirs)
        np.testing.assert_allclose(bars.confidence, mean)


def test_ties_and_edges_of_reliability():
    bars = measures.reliability(np.eye(3)[[0, 1, 2, 2]], [0, 1, 2, 0], bins=5)
    assert bars.count.tolist() == [4] and bars.error == pytest.approx(0.25)
    assert measures.reliability([[0.5, 0.5]], [1], bins=2).count.tolist() == [1]
    with pytest.raises(ValueError, match="bins is 0"):
        measures.reliability(P, LABELS, bins=0)
    with pytest.raises(ValueError, match="integers"):
        measures.reliability(P, LABELS + K)


@pytest.mark.parametrize("ties", [False, True])
def test_telling_unknown_from_known_is_scikit_learns(ties):
    known, unknown = RNG.normal(size=300), RNG.normal(size=200) + 0.7
    if ties:
        known, unknown = np.round(known), np.round(unknown)
    label = np.r_[np.zeros(300), np.ones(200)]
    assert measures.auroc(known, unknown) == pytest.approx(metrics.roc_auc_score(label, np.r_[known, unknown]))
    false, true, _ = metrics.roc_curve(1 - label, -np.r_[known, unknown], drop_intermediate=False)
    assert measures.false_positive_rate(known, unknown) == pytest.approx(false[np.flatnonzero(true >= 0.95)[0]])
    assert measures.auroc(known, known + 100) == 1 and measures.false_positive_rate(known, known + 100) == 0


@pytest.mark.parametrize("ties", [False, True])
def test_risk_coverage_is_its_definition(ties):
    uncertainty = RNG.normal(size=N)
    uncertainty = np.round(uncertainty) if ties else uncertainty
    loss = (RNG.uniform(size=N) < 1 / (1 + np.exp(-uncertainty))).astype(float)
    curve = measures.risk_coverage(uncertainty, loss)
    for threshold, coverage, risk in zip(curve.threshold, curve.coverage, curve.risk):
        answered = uncertainty <= threshold
        assert coverage == pytest.approx(answered.mean()) and risk == pytest.approx(loss[answered].mean())
    assert len(curve.threshold) == len(np.unique(uncertainty)) and curve.coverage[-1] == 1
    if not ties:
        order = np.argsort(uncertainty)
        assert curve.area == pytest.approx(np.mean([loss[order[: n + 1]].mean() for n in range(N)]))
    threshold = curve.refuse_above(0.4)
    most = max((uncertainty <= t).mean() for t in uncertainty if loss[uncertainty <= t].mean() <= 0.4)
    assert loss[uncertainty <= threshold].mean() <= 0.4 and (uncertainty <= threshold).mean() == most
    assert measures.risk_coverage([1.0, 2.0], [1.0, 1.0]).refuse_above(0.5) == -np.inf


def test_measures_of_a_regression_are_their_definitions():
    found = bl.evaluate(NORMALS, TRUTH, levels=(0.5, 0.9)).numbers
    density = stats.norm.pdf(TRUTH, LOC, SCALE).mean(0)
    assert found["nll"] == pytest.approx(-np.log(density).mean(), rel=1e-4)
    assert found["rmse"] == pytest.approx(metrics.root_mean_squared_error(TRUTH, LOC.mean(0)), rel=1e-5)
    cdf = stats.norm.cdf(TRUTH, LOC, SCALE).mean(0)  # a truth is inside where its cdf is
    assert found["coverage_90"] == pytest.approx(np.mean(np.abs(cdf - 0.5) <= 0.45), abs=1e-9)
    assert found["coverage_50"] == pytest.approx(np.mean(np.abs(cdf - 0.5) <= 0.25), abs=1e-9)
    low, high = NORMALS.interval(0.9)
    assert found["width_90"] == pytest.approx(float(tf.reduce_mean(high - low)), rel=1e-5)


@pytest.mark.thorough
def test_crps_of_mixtures_is_the_integral_of_the_squared_distance():
    for n in range(4):
        loc, scale, truth = LOC[:, n], SCALE[:, n], TRUTH[n]

        def square(x, loc=loc, scale=scale, truth=truth):
            return (stats.norm.cdf(x, loc, scale).mean() - (x >= truth)) ** 2

        expected = integrate.quad(square, -12, truth)[0] + integrate.quad(square, truth, 12)[0]
        assert measures.crps(LOC[:, [n]], TRUTH[[n]], SCALE[:, [n]])[0] == pytest.approx(expected, rel=1e-6)
    one = bl.evaluate(bl.Predictive(tfd.Normal(LOC[:1], SCALE[:1])), TRUTH).numbers["crps"]
    z = (TRUTH - LOC[0]) / SCALE[0]
    gneiting = SCALE[0] * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert one == pytest.approx(gneiting.mean(), rel=1e-6)
    other = bl.Predictive(tfd.StudentT(30.0, LOC.astype(np.float32), SCALE.astype(np.float32)))  # near the normal
    from_draws = bl.evaluate(other, TRUTH, seed=[1, 2]).numbers["crps"]
    assert from_draws == pytest.approx(measures.crps(LOC, TRUTH, SCALE).mean(), rel=0.03)


def test_values_without_noise_have_no_likelihood():
    found = bl.evaluate(bl.Predictive(LOC), TRUTH).numbers
    assert "nll" not in found
    pairs = np.abs(LOC[:, None] - LOC[None]).mean((0, 1)) / 2
    assert found["crps"] == pytest.approx((np.abs(LOC - TRUTH).mean(0) - pairs).mean(), rel=1e-6)


def test_further_axes_are_further_truths():
    flat = bl.evaluate(NORMALS, TRUTH).numbers
    folded = tfd.Normal(LOC.reshape(S, -1, 2).astype(np.float32), SCALE.reshape(S, -1, 2).astype(np.float32))
    square = bl.evaluate(bl.Predictive(folded), TRUTH.reshape(-1, 2)).numbers
    for name in ("nll", "rmse", "crps", "coverage_90", "width_80"):
        assert square[name] == pytest.approx(flat[name], rel=1e-5), name


def test_unknown_data_refusal_and_the_picture(tmp_path):
    unknown = bl.Predictive(tfd.Categorical(logits=RNG.normal(size=(S, 90, K)).astype(np.float32) * 3))
    judged = bl.evaluate(CLASSES, LABELS, unknown=unknown, wanted_risk=0.4)
    information = np.asarray(CLASSES.mutual_information(), np.float64), np.asarray(unknown.mutual_information())
    label = np.r_[np.zeros(N), np.ones(90)]
    expected = metrics.roc_auc_score(label, np.concatenate(information))
    assert judged.numbers["auroc/mutual_information"] == pytest.approx(expected)
    answered = judged.uncertainties["entropy"][0] <= judged.refusal["entropy"]
    assert np.mean(P.argmax(1)[answered] != LABELS[answered]) <= 0.4
    assert judged.numbers["answered/entropy"] == pytest.approx(answered.mean())
    figure = judged.picture(tmp_path / "judged.png")
    assert (tmp_path / "judged.png").stat().st_size > 10_000 and len(figure.axes) == 4
    lines = figure.axes[0].get_lines()
    np.testing.assert_allclose(lines[1].get_ydata(), judged.reliability[0].accuracy)
    assert "accuracy" in str(judged)
    bl.evaluate(NORMALS, TRUTH).picture(tmp_path / "regression.png")
    assert (tmp_path / "regression.png").exists()


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"y": LABELS[:-1]}, "y has shape|incompatible|Incompatible"),
        ({"predictive": NORMALS, "y": TRUTH, "levels": (1.5,)}, "levels are"),
        ({"predictive": bl.Predictive(LOC), "y": TRUTH[:-1]}, "y has shape"),
    ],
)
def test_refuses(arguments, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        bl.evaluate(**{"predictive": CLASSES, "y": LABELS, **arguments})


# What is fitted on held-out data


def test_temperature_is_the_root_of_the_likelihoods_slope():
    from scipy import optimize, special

    fitted = bl.Temperature.fit(CLASSES, LABELS)
    logs = np.log(P)

    def loss(log_temperature):
        return -special.log_softmax(logs / np.exp(log_temperature), 1)[np.arange(N), LABELS].mean()

    best = optimize.minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8})
    assert np.log(fitted.temperature) == pytest.approx(best.x, abs=1e-3)
    assert fitted.temperature > 1.2  # the labels were drawn from flatter probabilities
    np.testing.assert_allclose(fitted(P), special.softmax(logs / fitted.temperature, 1), rtol=1e-9)
    np.testing.assert_array_equal(fitted(CLASSES).argmax(1), P.argmax(1))


def test_conformal_sets_and_intervals_cover_as_promised():
    """Averaged over many splits into held-out and new examples: at least the wanted coverage, and little more."""
    rng = np.random.default_rng(3)
    flat = bl.Predictive(LOC[:, :, None].repeat(2, 2).astype(np.float32))
    truth = np.stack([TRUTH, 2 * TRUTH], -1)
    sets, intervals = [], []
    for _ in range(40):
        order = rng.permutation(N)
        held, new = order[:99], order[99:]
        fitted = bl.ConformalSets.fit(P[held], LABELS[held], 0.8)
        sets.append(fitted(P[new])[np.arange(len(new)), LABELS[new]].mean())
        given = bl.Predictive(flat.values.numpy()[:, held])
        margins = bl.ConformalIntervals.fit(given, truth[held], 0.9)
        assert margins.margin.shape == (2,)
        low, high = margins(bl.Predictive(flat.values.numpy()[:, new]))
        intervals.append(((low <= truth[new]) & (truth[new] <= high)).mean(0))
    assert np.mean(sets) == pytest.approx(0.8, abs=0.015)
    np.testing.assert_allclose(np.mean(intervals, 0), 0.9, atol=0.015)


def test_conformal_margins_are_the_order_statistic():
    values = bl.Predictive(np.zeros([5, 9, 1], np.float32))
    y = np.arange(1.0, 10.0)[:, None]
    assert bl.ConformalIntervals.fit(values, y, 0.9).margin == 9.0  # rank ceil(10 * 0.9) of 9
    assert bl.ConformalIntervals.fit(values, y, 0.5).margin == 5.0
    with pytest.raises(ValueError, match="9 held-out examples. Accepted for a coverage of 0.95: 19"):
        bl.ConformalIntervals.fit(values, y, 0.95)
    with pytest.raises(ValueError, match="coverage is 1"):
        bl.ConformalSets.fit(P, LABELS, 1.0)


def test_coins_have_sets_of_two_classes():
    coins = bl.Predictive(tfd.Bernoulli(probs=RNG.uniform(size=(3, 40, 1)).astype(np.float32)))
    y = RNG.integers(2, size=40)
    assert bl.ConformalSets.fit(coins, y, 0.9)(coins).shape == (40, 2)
    assert bl.Temperature.fit(coins, y)(coins).shape == (40, 2)
