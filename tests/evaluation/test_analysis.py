"""A whole analysis: its numbers, its files, and the sections that are drawn from it."""

import dataclasses
import io
import json
import xml.etree.ElementTree

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from bayes_planet.commands.analyse import summary
from bayes_planet.evaluation import analysis as files
from bayes_planet.evaluation.analysis import Analysis, load, plain, save
from bayes_planet.evaluation.held_out import HeldOut
from bayes_planet.evaluation.live import open_loop_monitor
from bayes_planet.evaluation.model_analysis import Settings, analyse_model
from bayes_planet.evaluation.open_loop import predict_open_loop
from bayes_planet.report.figures.model import sections
from bayes_planet.report.pages.section import Note, Picture, Table, Video
from bayes_planet.report.videos.open_loop import heat, uncertainty_panels
from bayes_planet.world_model import State
from tests.world_model.tiny import (
    ACTION_SIZE,
    IMAGE_SHAPES,
    STATE_SHAPES,
    STATE_SIZE,
    tiny_batch,
    tiny_config,
    tiny_model,
)

BELIEF = {"layers": ["prior_input", "prior_hidden"], "initial_stddev": 0.4}
SETTINGS = Settings(
    context_steps=2, prediction_steps=5, weight_samples=3, state_samples=2, sequences=4, reward_sequences=6,
    novel_sequences=4, shown=2, horizons=(1, 3, 50),
)  # fmt: skip


def held_out(shapes, velocities: bool = True, rows: int = 24) -> HeldOut:
    batch = tiny_batch(3, rows, shapes)
    episodes = tuple({key: batch[key][number] for key in (*shapes, "action", "reward")} for number in range(3))
    if not velocities:
        return HeldOut(episodes, (False, False, True))
    qvel = tuple(np.random.default_rng(number).normal(size=(rows, 2)) for number in range(3))
    return HeldOut(episodes, (False, False, True), qvel, ("rootx", "knee"), ("m/s", "rad/s"))


@pytest.fixture(scope="module")
def full() -> Analysis:
    """Images, random weights, a reference run, velocities, another task's frames."""
    model, reference = tiny_model(tiny_config(bayesian=BELIEF), IMAGE_SHAPES), tiny_model(shapes=IMAGE_SHAPES, seed=1)
    foreign = [{"image": tiny_batch(1, 9, IMAGE_SHAPES, seed=5)["image"][0]}]
    return analyse_model(model, held_out(IMAGE_SHAPES), 123, SETTINGS, reference, foreign)


@pytest.fixture(scope="module")
def bare() -> Analysis:
    """State observations, no random weights, nothing to compare with, no velocities."""
    return analyse_model(tiny_model(), held_out(STATE_SHAPES, velocities=False), 7, SETTINGS)


@pytest.mark.thorough
def test_numbers_are_means_of_the_kept_curves(full):
    numbers, arrays = full.numbers, full.arrays
    assert full.updates == 123 and numbers["random_weights"] is True
    assert set(numbers["open_loop"]["image"]) == {"model", "reference", "repeat"}
    for key in ("image", "reward", "latent"):
        for name, row in numbers["open_loop"][key].items():
            for column, value in row.items():
                curve = arrays[f"open_loop/{name}/{key}/{column}"]
                assert curve.shape == (4, 7)
                np.testing.assert_allclose(value, curve[:, 2:].mean(), rtol=1e-4, atol=1e-9)
    assert numbers["open_loop"]["reward"]["model"]["epistemic"] > 0
    assert numbers["open_loop"]["reward"]["reference"]["epistemic"] == 0


@pytest.mark.thorough
def test_calibration_is_of_rewards_behind_the_context(full):
    found = full.numbers["calibration"]
    assert set(found) == {"model", "reference"} and set(found["model"]["return"]) == {"1", "3"}
    rewards = found["model"]["reward"]
    assert rewards["none"]["count"] == 6 * 5 and found["model"]["return"]["3"]["unit"]["count"] == 6
    # Rewards here are N(0, 1) and the predictions nearly constant: the unit noise is about right, none too narrow.
    assert rewards["none"]["width"] < 0.6 * rewards["unit"]["width"]
    assert rewards["unit"]["crps"] < rewards["none"]["crps"]
    assert 0.6 < found["model"]["fitted_noise"] < 1.4


def test_every_part_is_there(full):
    numbers = full.numbers
    assert set(numbers["novelty"]) == {"held out", "another task", "noise", "extreme actions"}
    assert numbers["novelty"]["held out"]["latent"]["ratio"] == 1.0
    assert set(numbers["correlation"]["model"]) == {"image", "reward", "latent"}
    assert numbers["correlation"]["reference"]["reward"] is None
    assert numbers["probe"]["names"] == ["rootx", "knee"]
    assert set(numbers["probe"]["r2"]) == {"model", "reference"}
    assert set(numbers["probe"]["r2"]["model"]) == {"belief", "sample", "both", "control"}
    assert set(numbers["weights"]) == {
        f"{kind}/{layer}" for kind in ("weight_stddev", "weight_snr") for layer in BELIEF["layers"]
    }
    assert full.arrays["frames/true"].shape == full.arrays["frames/mean"].shape == (2, 7, 64, 64, 3)


def test_files_hold_it_all(full, tmp_path):
    folder = save(full, tmp_path)
    assert folder == tmp_path / "analysis"
    found = load(tmp_path)
    assert found.numbers == json.loads(json.dumps(found.numbers))
    assert {key: found.numbers[key] for key in full.numbers} == full.numbers
    assert set(found.arrays) == set(full.arrays)
    for name, value in full.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], value)


def test_no_analysis_is_none_and_a_broken_one_says_so(bare, tmp_path):
    assert load(tmp_path) is None
    save(bare, tmp_path)
    numbers, arrays = tmp_path / "analysis" / files.NUMBERS, tmp_path / "analysis" / files.ARRAYS
    whole = numbers.read_bytes(), arrays.read_bytes()

    def broken(message: str) -> None:
        with pytest.warns(RuntimeWarning, match=message):
            assert load(tmp_path) is None
        numbers.write_bytes(whole[0])
        arrays.write_bytes(whole[1])
        assert load(tmp_path) is not None

    numbers.write_bytes(whole[0][:100])
    broken("bayes-planet analyse")
    numbers.write_bytes(b'{"version": 999, "updates": 1}')
    broken("version 1")
    arrays.write_bytes(whole[1][:-50])
    broken("another analysis")
    arrays.write_bytes(b"x" * len(whole[1]))
    broken("bayes-planet analyse")
    arrays.unlink()
    broken("bayes-planet analyse")


def test_plain_values_for_json():
    @dataclasses.dataclass
    class Point:
        x: float
        y: tuple

    assert plain({"a": Point(float("nan"), (1, np.float32(0.5))), 3: np.arange(2)}) == {
        "a": {"x": None, "y": [1, 0.5]},
        "3": [0, 1],
    }


@pytest.mark.thorough
def test_sections_of_a_full_analysis(full):
    found = sections(full)
    titles = ["Open-loop prediction", "Uncertainty", "Calibration", "Unknown inputs", "Velocity probe"]
    assert [section.title for section in found] == titles
    parts = [part for section in found for part in section.parts]
    assert not [part for part in parts if isinstance(part, Note)]
    assert all(any(isinstance(part, Picture) for part in section.parts) for section in found)
    for part in parts:
        if isinstance(part, Picture) and part.media_type == "image/png":
            assert min(Image.open(io.BytesIO(part.data)).size) > 300
        elif isinstance(part, Picture):
            assert xml.etree.ElementTree.fromstring(part.data).tag.endswith("svg")
    (video,) = [part for part in parts if isinstance(part, Video)]
    assert video.frames.shape == (7, 2 * (2 * 64 + 2), 2 * (4 * 64 + 3 * 2), 3)
    np.testing.assert_array_equal(video.frames[3, ::2, ::2][:64, :64], full.arrays["frames/true"][0, 3])
    (table,) = [part for part in found[0].parts if isinstance(part, Table)]
    row = next(row for row in table.rows if row[0] == "reward, reference run")
    assert row[1] == full.numbers["open_loop"]["reward"]["reference"]["squared_error"]


def test_sections_say_what_is_missing(bare, tmp_path):
    save(bare, tmp_path)
    found = sections(load(tmp_path))
    notes = " ".join(part.text for section in found for part in section.parts if isinstance(part, Note))
    for text in ("no images", "--reference", "not random", "no epistemic part", "no velocities"):
        assert text in notes
    assert "probe" not in bare.numbers and "image" not in bare.numbers["open_loop"]


def test_too_short_episodes_shorten_the_prediction_or_are_an_error():
    episodes = held_out(STATE_SHAPES, velocities=False, rows=4)
    assert analyse_model(tiny_model(), episodes, 0, SETTINGS).numbers["settings"]["prediction_steps"] == 2
    with pytest.raises(ValueError, match="has 2 rows, the context takes 2"):
        analyse_model(tiny_model(), held_out(STATE_SHAPES, velocities=False, rows=2), 0, SETTINGS)


@pytest.mark.thorough
def test_a_reference_run_is_measured_in_the_units_of_the_first():
    """Models that say the same of the task, but were trained on replays of other spreads, have the same numbers."""
    episodes = held_out(STATE_SHAPES, velocities=False)
    models = []
    for stddev in (1.0, 3.0):
        model = tiny_model()
        model.normaliser.variance.assign(np.full(3, stddev**2, np.float32))
        last = model.decoders["state"].variables[-2:]  # kernel and bias of the output
        assert [value.shape[-1] for value in last] == [3, 3]
        for value in last:
            value.assign(value / stddev)
        # Its latent states are the same too: the encoder undoes the scale.
        first = model.encoders["state"].variables[0]
        assert first.shape[0] == 3
        first.assign(first * stddev)
        models.append(model)
    errors = []
    for first, second in (models, models[::-1]):
        found = analyse_model(first, episodes, 0, SETTINGS, second)
        table = found.numbers["open_loop"]["state"]
        for column in ("squared_error", "log_likelihood", "aleatoric"):
            np.testing.assert_allclose(table["reference"][column], table["model"][column], rtol=1e-3)
        for name in ("error", "epistemic_stddev"):
            one, two = (found.arrays[f"correlation/{run}/state/{name}"] for run in ("model", "reference"))
            np.testing.assert_allclose(two, one, rtol=1e-3, atol=1e-6)
        errors.append(table["model"]["squared_error"])
    np.testing.assert_allclose(errors[0] / errors[1], 9.0, rtol=1e-3)


def early(rows: tuple[int, ...], shapes=STATE_SHAPES) -> HeldOut:
    """Episodes, each with this number of rows."""
    whole = held_out(shapes)
    cut = [{key: value[:count] for key, value in one.items()} for one, count in zip(whole.episodes, rows, strict=True)]
    velocities = tuple(one[:count] for one, count in zip(whole.velocities, rows, strict=True))
    return HeldOut(tuple(cut), whole.noisy, velocities, whole.names, whole.units)


@pytest.mark.thorough
def test_episodes_that_end_early_leave_parts_out(tmp_path):
    model = tiny_model(tiny_config(bayesian=BELIEF))
    found = analyse_model(model, early((3, 9, 20)), 0, SETTINGS)
    assert found.numbers["left_out"] == {} and found.numbers["probe"]["episodes"] == [1, 2]
    assert found.arrays["probe/true"].shape == found.arrays["probe/model/mlp"].shape == (15, 2)  # the longest
    assert np.isfinite(found.numbers["probe"]["r2"]["model"]["control"]["linear"]).all()
    found = analyse_model(model, early((3, 6, 20)), 0, SETTINGS)
    assert "probe" not in found.numbers and found.numbers["weights"]
    assert found.numbers["left_out"] == {"velocity probe": "1 of 3 held-out episodes have 7 rows or more; it takes two"}
    save(found, tmp_path)
    titles = [section.title for section in sections(load(tmp_path))]
    assert titles[-1] == "Velocity probe" and len(titles) == 5


@pytest.mark.thorough
def test_frames_of_another_task_that_are_too_few_leave_it_out():
    foreign = [{"image": tiny_batch(1, 1, IMAGE_SHAPES)["image"][0]}]
    model = tiny_model(tiny_config(bayesian=BELIEF), IMAGE_SHAPES)
    found = analyse_model(model, held_out(IMAGE_SHAPES, velocities=False, rows=5), 0, SETTINGS, foreign=foreign)
    assert set(found.numbers["novelty"]) == {"held out", "noise", "extreme actions"}
    assert found.numbers["left_out"] == {
        "another task": "no episode of another task has the context's 2 rows",
        "velocity probe": "the simulator tells no velocities",
    }
    assert sections(found)[3].title == "Unknown inputs"


@pytest.mark.thorough
def test_that_there_are_no_frames_of_another_task_is_said_with_the_reason():
    model = tiny_model(tiny_config(bayesian=BELIEF), IMAGE_SHAPES)
    episodes = held_out(IMAGE_SHAPES, velocities=False, rows=5)
    found = analyse_model(model, episodes, 0, SETTINGS, no_foreign="no OpenGL here")
    assert set(found.numbers["novelty"]) == {"held out", "noise", "extreme actions"}
    assert found.numbers["left_out"]["another task"] == "no OpenGL here"
    notes = [part.text for part in sections(found)[3].parts if isinstance(part, Note)]
    assert notes == ["Another task's frames left out: no OpenGL here."]
    assert "another task" not in analyse_model(model, episodes, 0, SETTINGS).numbers["left_out"]  # nobody looked


class Shift(tf.Module):
    """A transition without a belief: the state is the observation, to whose first entries actions are added."""

    def observe(self, embedded, actions, state=None, *, seed, weights=None):
        return self._state(embedded), self._state(embedded)

    def imagine(self, actions, state, *, seed, weights=None, shared_noise=False, unroll=None):
        moved = tf.pad(tf.cumsum(actions, -2), [[0, 0]] * (len(actions.shape) - 1) + [[0, STATE_SIZE - ACTION_SIZE]])
        return self._state(state.sample[..., None, :] + moved)

    @staticmethod
    def _state(x):
        return State(x, tf.zeros_like(x), x, x[..., :0])


class Memoryless(tf.Module):
    """A world model of one's own with that transition."""

    normaliser = None
    observation_shapes = STATE_SHAPES

    def __init__(self):
        super().__init__()
        self.rssm = Shift()

    def prepare(self, observation, seed):
        return {"state": tf.cast(observation["state"], tf.float32)}

    def embed(self, prepared):
        return prepared["state"]

    def observe(self, batch, seed, weights=None):
        return self.rssm.observe(self.embed(self.prepare(batch, seed)), batch["action"], seed=seed)

    def reward(self, features):
        return tf.reduce_sum(features, -1)

    def decode(self, features, normalised=False):
        return {"state": features}


def test_a_model_without_a_belief_is_analysed_whole(tmp_path):
    found = analyse_model(Memoryless(), held_out(STATE_SHAPES), 0, SETTINGS)
    assert found.numbers["left_out"] == {} and found.arrays["probe/model/mlp"].shape == (19, 2)
    assert list(found.numbers["probe"]["r2"]["model"]) == ["sample", "both", "control"]
    assert any("mean R^2 from the latent state" in line for line in summary(found.numbers))
    save(found, tmp_path)
    section = sections(load(tmp_path))[-1]
    (table,) = [part for part in section.parts if isinstance(part, Table)]
    latents = ["model, sample", "model, both", "model, both, velocities of another episode"]
    assert section.title == "Velocity probe" and [row[0] for row in table.rows] == latents


def test_panels_show_what_they_say():
    true = np.full((2, 3, 4, 5, 3), 100, np.uint8)
    mean = true.copy()
    mean[1] += 50
    stddev = np.zeros((2, 3, 4, 5), np.float16)
    stddev[0, 2] = 1.0
    frames = uncertainty_panels(true, mean, stddev, gap=1)
    assert frames.shape == (3, 2 * 4 + 1, 4 * 5 + 3, 3)
    np.testing.assert_array_equal(frames[:, 5:, 6:11], 150)
    np.testing.assert_array_equal(frames[:, :4, 12:17], 127)
    np.testing.assert_array_equal(frames[:, 5:, 12:17], 152)
    np.testing.assert_array_equal(frames[2, :4, 18:], heat(np.ones((4, 5)), 1.0))
    np.testing.assert_array_equal(frames[0, :4, 18:], heat(np.zeros((4, 5)), 1.0))
    np.testing.assert_array_equal(frames[:, 4], 0)
    with pytest.raises(ValueError, match="Accepted: twice"):
        uncertainty_panels(true, mean, stddev[..., None])


def test_the_monitor_is_one_chain():
    """Point prediction under the posterior mean, the baseline, the predictive distribution, and both videos."""
    model = tiny_model(tiny_config(bayesian=BELIEF), IMAGE_SHAPES)
    episodes, key = held_out(IMAGE_SHAPES, rows=8).episodes, np.array([1, 2], np.int32)
    live = open_loop_monitor(model, episodes, 3, 5, 2, key)
    batch = {name: np.stack([episode[name] for episode in episodes[:2]]) for name in episodes[0]}
    expected = predict_open_loop(model, batch, 3, key)
    for name, value in expected.metrics().items():
        np.testing.assert_allclose(live.values[name], value, rtol=1e-5)
    repeated = np.square((batch["image"][:, 3:] - batch["image"][:, 2:3].astype(np.float64)) / 256).mean()
    np.testing.assert_allclose(live.values["open_loop/image_error_of_repeating"], repeated, rtol=1e-5)
    assert live.values["predictive/reward_epistemic"] > 0
    assert live.videos["open_loop"].shape == (8, 130, 3 * 64 + 4, 3)
    assert live.videos["open_loop_uncertainty"].shape == (8, 130, 4 * 64 + 6, 3)
    np.testing.assert_array_equal(live.videos["open_loop"][:, :64, :64], batch["image"][0])
    assert set(open_loop_monitor(model, episodes, 3, 5, 1, key, weight_samples=0).videos) == {"open_loop"}
    short = open_loop_monitor(model, episodes, 8, 5, 1, key)
    assert short.values == {} and short.videos == {} and short.rows == 8
    assert batch["action"].shape[2] == ACTION_SIZE
