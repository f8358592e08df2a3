"""The gallery's examples: each runs at a tiny size, and what its page claims holds."""

import importlib
import json
import math

import numpy as np
import pytest

pytest.importorskip("mlxtend")

from benchmarks.layers import gallery
from examples.gallery.command import run
from examples.gallery.data import images_and_tables as data

MINE = ["lenet", "regression", "lstm", "vae"]
LONG = ["deep_gp", "dynamics", "image_transformer", "resnet50"]  # many graphs, whatever the size


def main(name: str):
    return importlib.import_module(f"examples.gallery.{name}").main


@pytest.mark.parametrize("name", [*MINE, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_example_runs_and_its_loss_falls(name, tmp_path):
    figures = main(name)(tiny=True, picture=tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000
    assert all(math.isfinite(value) for measures in figures.values() for value in measures.values())
    if name in MINE:
        assert figures["training"]["last_loss"] < figures["training"]["first_loss"]


@pytest.mark.slow
def test_lenet_refuses_unknown_inputs_better_than_its_twin_and_mc_dropout():
    found = main("lenet")()
    bayesian, twin, dropout = (found[name] for name in ("bayesian", "twin", "MC dropout"))
    assert bayesian["accuracy"] > twin["accuracy"] - 0.01 and bayesian["nll"] < dropout["nll"] < twin["nll"]
    for kind in ("photographs", "noise"):
        assert bayesian[f"AUROC: {kind}"] > dropout[f"AUROC: {kind}"]
    assert bayesian["AUROC: letters"] > twin["AUROC: letters"]
    assert bayesian["refused: digits"] < 0.1 and bayesian["accuracy of answers"] > 0.985


@pytest.mark.slow
def test_regression_is_unsure_outside_of_the_data_and_covers():
    found = main("regression")()
    for prior in ("N(0, 1)", "fan-in", "mixture"):
        assert found[prior]["sine: epistemic stddev outside"] > 1.3 * found[prior]["sine: epistemic stddev inside"]
        assert found[prior]["diabetes: nll"] < found["twin"]["diabetes: nll"]
    assert 0.85 < found["mixture"]["diabetes: coverage_90"] < 0.98 and found["twin"]["diabetes: coverage_90"] < 0.8


@pytest.mark.slow
def test_lstm_is_as_accurate_as_its_twin_and_better_calibrated():
    found = main("lstm")()
    bayesian, twin = found["bayesian"], found["twin"]
    assert twin["accuracy"] > 0.93 and bayesian["accuracy"] > twin["accuracy"] - 0.01
    assert bayesian["nll"] < twin["nll"] and bayesian["ece"] < twin["ece"]


def test_pixels_are_guessed_and_predicted_from_those_before_them_alone():
    import tensorflow as tf

    from examples.gallery import image_transformer

    known, new = image_transformer.load(8, 4, seed=1)
    assert image_transformer.code_length(known, known) <= 8.01
    shaded = np.arange(8)[:, None, None] * 5 + np.arange(8)[:, None] * 3 + np.array([10, 20, 30])
    found = np.reshape(image_transformer.differences(shaded[None].astype(np.int32)), [8, 8, 3])
    assert (found[:, 1:, 0] == 3).all() and not found[:, 1:, 1:].any()  # the median misses the smaller slope
    row, places = new[0].reshape(192), [0, 1, 24, 100]
    later = [np.where(np.arange(192) > place, 3, row) for place in places]
    every = np.where(np.arange(192) == 24, np.arange(256)[:, None], row)
    patches = tf.constant(np.stack([row, *later, *every]).reshape(-1, 8, 8, 3), tf.int32)
    for mixture in (True, False):
        model = image_transformer.image_transformer(mixture, 8, 1)
        first, *found = image_transformer.log_prob(model, mixture, patches).numpy()
        for place, again in zip(places, found, strict=False):
            np.testing.assert_allclose(again[: place + 1], first[: place + 1], atol=1e-4)
        np.testing.assert_allclose(np.sum(np.exp(np.stack(found[len(places) :])[:, 24])), 1, atol=1e-3)


@pytest.mark.slow
def test_vae_bounds_are_in_order():
    found = main("vae")()["vae"]
    assert found["IWAE-50"] < found["-ELBO"] < 150


def test_digits_and_tables_are_split_without_overlap():
    digits = data.load_digits(300, 200, seed=1)
    assert digits.x.shape == (300, 28, 28, 1) and digits.y_test.shape == (200,)
    assert digits.x.min() == 0 and digits.x.max() == 1 and set(digits.y) == set(range(10))
    both = np.concatenate([digits.x, digits.x_test]).reshape(500, -1)
    assert len(np.unique(both, axis=0)) == 500
    for name, (rows, columns) in zip(data.TABLES, ((354, 10), (314, 7)), strict=True):
        table = data.load_table(name, seed=3)
        assert table.x.shape == (rows, columns) and table.y.shape == (rows, 1)
        assert np.allclose([table.x.mean(), table.x.std(), table.y.mean(), table.y.std()], [0, 1, 0, 1], atol=1e-3)
    with pytest.raises(ValueError, match="no table 'boston'. Accepted: diabetes, auto_mpg"):
        data.load_table("boston")
    with pytest.raises(ValueError, match="6000 \\+ 0 examples were asked for. Accepted: 5000"):
        data.load_digits(6000, 0)


def test_unknown_images_look_as_digits_do():
    for make in (data.letters, data.photographs, data.noise):
        images = make(4, seed=2)
        assert images.shape == (4, 28, 28, 1) and images.dtype == np.float32 and len(np.unique(images, axis=0)) == 4
    letters = data.letters(20)[..., 0]
    assert letters.min() >= 0 and letters.max() <= 1
    places = (np.arange(28) + 0.5)[:, None]
    centres = [(letters * places).sum((1, 2)), (letters * places.T).sum((1, 2))] / letters.sum((1, 2))
    assert np.abs(centres - 14).max() < 1.5  # the box is placed by whole pixels, and stays inside


def test_command_prints_figures(capsys, tmp_path):
    def example(seed, full, picture):
        return {"twin": {"rmse": 0.25}, "bayesian": {"rmse": 0.125, "nll": float(seed)}, "training": {"last_loss": 9.0}}

    figures = run(example, "What it does.", ["--seed", "3", "--picture", str(tmp_path / "x.png")])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["twin", "bayesian"] and shown[1].split() == ["rmse", "0.25", "0.125"]
    assert shown[2].split() == ["nll", "3"] and figures["training"] == {"last_loss": 9.0}


def test_table_of_a_page_has_mean_and_stddev(tmp_path, monkeypatch):
    runs = [{"seconds": 10.0, "figures": {"twin": {"rmse": value}, "training": {"last_loss": 0}}} for value in (1, 3)]
    result = {"runs": runs, "command": "run", "cores": 2, "date": "today", "versions": {"tensorflow": "2"}}
    monkeypatch.setattr(gallery, "PAGES", tmp_path)
    monkeypatch.setattr(gallery, "SCORES", tmp_path)
    (tmp_path / "x.json").write_text(json.dumps(result))
    page = tmp_path / "x.md"
    page.write_text(f"above\n{gallery.MARKS[0]}\nold\n{gallery.MARKS[1]}\nbelow\n")
    gallery.write_table("x")
    text = page.read_text()
    assert "| rmse | 2.0 ± 1.4 |" in text and "old" not in text and text.startswith("above") and "below" in text
    assert "last_loss" not in text and "`run`: mean ± standard deviation of 2 seeds, 10 s" in text
    gallery.write_table("x")
    assert page.read_text() == text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no place for the table"):
        gallery.write_table("x")


def test_a_point_prediction_has_the_noise_of_its_residuals_in_training():
    from examples.gallery import deep_gp

    split = data.Split(np.zeros([2, 1]), np.array([[1.0], [2.0]]), np.zeros([3, 1]), np.zeros([3, 1]))
    predictive = deep_gp.of_residuals(np.full([3, 1], 7.0), split, fitted=np.array([[4.0], [6.0]]))
    np.testing.assert_allclose(predictive.mean(), np.full([3, 1], 7.0), rtol=1e-6)
    np.testing.assert_allclose(predictive.stddev(), np.full([3, 1], 12.5**0.5), rtol=1e-6)  # of residuals 3 and 4
