"""Layers on meshes of 1, 2, 4 and 8 virtual devices: loss, gradients, training, memory; in processes of their own."""

import json
import pathlib
import subprocess
import sys

import pytest

from tests.bayesian_layers.sharded_process import MODELS, bl

pytestmark = pytest.mark.timeout(900)
DEVICES = [
    pytest.param(1, marks=pytest.mark.slow),
    2,
    pytest.param(4, marks=pytest.mark.slow),
    pytest.param(8, marks=pytest.mark.thorough),
]


@pytest.fixture(scope="module", params=DEVICES, ids=lambda count: f"{count} devices")
def outcome(request, tmp_path_factory):
    """How many devices a process has, and the process, which answers each line with the name of a check by a line."""
    errors = tmp_path_factory.mktemp("sharded") / "errors.txt"
    command = [sys.executable, "-m", "tests.bayesian_layers.sharded_process", str(request.param)]
    with errors.open("w") as file:
        started = subprocess.Popen(
            command,
            cwd=pathlib.Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    started.errors = errors
    with started:
        yield request.param, started
        started.kill()


def check(outcome, name):
    count, process = outcome
    process.stdin.write(f"{name}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line, process.errors.read_text()[-3000:]
    found = json.loads(line)
    assert "failed" not in found, found["failed"]
    return count, found


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_loss_gradients_and_bytes(outcome, name):
    """With the same draws all numbers equal those of one device, and each device holds its share."""
    count, found = check(outcome, name)
    assert found["loss"] < 1e-6
    assert found["gradients"] < 1e-5 * max(1.0, found["largest"])
    assert found["split"] == 5  # means and stddevs of two kernels, and a bias
    assert len(found["bytes"]) == count
    assert all(held == pytest.approx(found["bytes_whole"] / count, rel=0.1) for held in found["bytes"])


@pytest.mark.thorough
def test_training_goes_the_same_way(outcome):
    _, found = check(outcome, "training")
    assert found["there"] == pytest.approx(found["plain"], rel=1e-4)
    assert found["there"][-1] < found["there"][0]


@pytest.mark.thorough
def test_own_draws_have_the_right_distribution(outcome):
    count, found = check(outcome, "distribution")
    assert found["stddev"] == pytest.approx(1, abs=0.02)
    assert found["mean"] == pytest.approx(0, abs=0.02)
    assert count == 1 or abs(found["correlation"]) < 0.1


def test_errors_say_what_to_do(outcome):
    _, found = check(outcome, "errors")
    for place in ("seed", "seed outside"):
        assert "without a seed" in found[place] and "layer(x, seed=[0, step]) and other(x, seed=[1, " in found[place]
    assert "inside a tf.function" in found["eager"]
    assert "has 2 axes, but the variable 'up/bias'" in found["axes"]
    assert "splits along ['data']. Accepted: ['model'] or None" in found["unknown"]


def test_layout_map(outcome):
    count, found = check(outcome, "layout_map")
    assert found["difference"] < 1e-5 and found["kl"] < 1e-2
    layouts = found["layouts"]
    assert sum("model" in specs for specs in layouts.values()) == 3
    assert all(held == (16 * 32 + 32 * 8) * 4 / count for held in found["bytes"])


def test_a_size_that_the_devices_do_not_divide_is_refused():
    class Mesh:
        dim_names = ("model",)

        def dim_size(self, axis):
            return 4

    with (
        pytest.raises(ValueError, match=r"splits an axis of 'odd/kernel/mean', shape \[3, 6\], along 'model' of 4"),
        bl.sharded(Mesh(), {"odd/kernel": [None, "model"]}),
    ):
        bl.DenseReparameterization(6, name="odd").build([None, 3])
