import numpy as np
import pytest

from examples.gallery import real_nvp


def test_logits_keep_the_pixels_probability():
    """The densities' factor is the derivative of the change, over 17 levels."""
    pixels = np.array([[0.0, 8.0, 16.0]])
    random = np.random.default_rng(0)
    x, slope = real_nvp.to_logits(pixels, random)
    y = 1 / (1 + np.exp(-x.astype(np.float64)))
    levels = (y - real_nvp.SQUEEZE) / (1 - 2 * real_nvp.SQUEEZE) * 17
    np.testing.assert_array_equal(np.floor(levels), pixels)
    # dx / d(level) = (1 - 2 squeeze) / 17 / (y (1 - y)); the density of the level has its logarithm added.
    np.testing.assert_allclose(slope, np.log((1 - 2 * real_nvp.SQUEEZE) / 17 / (y * (1 - y))).sum(-1), rtol=1e-5)


@pytest.mark.thorough
def test_runs(tmp_path):
    figures = real_nvp.main(tiny=True, picture=tmp_path / "flow.png")
    assert (tmp_path / "flow.png").stat().st_size > 1000
    for row in ("normal", "mixture", "flow"):
        assert np.isfinite(list(figures[row].values())).all()


@pytest.mark.slow
def test_the_flow_beats_one_normal():
    figures = real_nvp.main(seed=0)
    for measure in ("two moons: NLL, nats", "digits: bits a pixel"):
        assert figures["flow"][measure] < figures["normal"][measure]
