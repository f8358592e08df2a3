import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints

ROOT = Path(__file__).parents[2]


class Work:
    """A model, its optimizer with slots, a random stream and a counter; every step changes all of them."""

    def __init__(self, units=4, build_optimizer=True):
        self.model = tf.keras.Sequential([tf.keras.layers.Dense(units, activation="tanh"), tf.keras.layers.Dense(1)])
        self.model.build([None, 3])
        self.optimizer = tf.keras.optimizers.Adam(0.01)
        if build_optimizer:
            self.optimizer.build(self.model.trainable_variables)
        self.random = tf.random.Generator.from_seed(1)
        self.updates = tf.Variable(0, dtype=tf.int64)

    def checkpoints(self, directory, keep=3):
        return Checkpoints(
            directory, keep, model=self.model, optimizer=self.optimizer, random=self.random, updates=self.updates
        )

    def step(self):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(self.random.normal([8, 3])) - 1.0) ** 2)
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.updates.assign_add(1)
        return float(loss)

    def state(self):
        variables = [*self.model.variables, *self.optimizer.variables, self.random.state, self.updates]
        return [variable.numpy() for variable in variables]


def assert_states(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        np.testing.assert_array_equal(one, other)


def saved(directory, count=3, keep=9):
    """`count` checkpoints at updates 1, 2, ...; returns the state at each."""
    work = Work()
    checkpoints = work.checkpoints(directory, keep)
    states = {}
    for updates in range(1, count + 1):
        work.step()
        checkpoints.save({"updates": updates, "name": f"number {updates}"})
        states[updates] = work.state()
    return states


def test_a_restored_run_goes_on_with_the_same_numbers(tmp_path):
    work = Work()
    checkpoints = work.checkpoints(tmp_path)
    for _ in range(3):
        work.step()
    counters = {"updates": 3, "time": 1.25, "note": "ü", "nested": {"list": [1, 2]}}
    folder = checkpoints.save(counters | {"numpy": np.int64(4)})
    assert folder == tmp_path / "ckpt-00000003" and checkpoints.folders == [folder]
    expected = [work.step() for _ in range(4)]

    other = Work()
    checkpoints = other.checkpoints(tmp_path)
    assert checkpoints.restored is None
    assert checkpoints.restore() == counters | {"numpy": 4}
    assert checkpoints.restored == folder and int(other.updates) == 3
    assert [other.step() for _ in range(4)] == expected
    assert_states(other.state(), work.state())


def test_nothing_to_restore(tmp_path):
    work = Work()
    before = work.state()
    assert work.checkpoints(tmp_path / "missing").restore() is None
    assert work.checkpoints(tmp_path).restore() is None
    assert_states(work.state(), before)


def test_the_newest_are_kept(tmp_path):
    work = Work()
    checkpoints = work.checkpoints(tmp_path, keep=2)
    for updates in (5, 90, 100, 100_000_000):
        checkpoints.save({"updates": updates})
    assert [path.name for path in checkpoints.folders] == ["ckpt-00000100", "ckpt-100000000"]
    assert sorted(os.listdir(tmp_path)) == ["ckpt-00000100", "ckpt-100000000"]


def test_saving_the_same_update_again_never_leaves_it_without(tmp_path):
    work = Work()
    checkpoints = work.checkpoints(tmp_path, keep=2)
    for number in range(4):
        work.step()
        checkpoints.save({"updates": 7, "number": number})
    assert [path.name for path in checkpoints.folders] == ["ckpt-00000007.2", "ckpt-00000007.3"]
    other = Work()
    assert other.checkpoints(tmp_path).restore()["number"] == 3
    assert_states(other.state(), work.state())


def truncate(path, share=0.5):
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 0b01010101
    path.write_bytes(content)


def data_file(folder):
    (path,) = folder.glob("variables.data-*")
    return path


DAMAGE = {
    "data cut short": lambda folder: truncate(data_file(folder)),
    "data empty": lambda folder: truncate(data_file(folder), 0),
    "data missing": lambda folder: data_file(folder).unlink(),
    "data flipped": lambda folder: flip(data_file(folder), 40),
    "data flipped at the end": lambda folder: flip(data_file(folder), -10),
    "index missing": lambda folder: (folder / "variables.index").unlink(),
    "index cut short": lambda folder: truncate(folder / "variables.index"),
    "counters missing": lambda folder: (folder / "counters.json").unlink(),
    "counters cut short": lambda folder: truncate(folder / "counters.json"),
    "counters changed": lambda folder: (folder / "counters.json").write_text(
        (folder / "counters.json").read_text().replace('"updates": 3', '"updates": 4')
    ),
    "counters of another kind": lambda folder: (folder / "counters.json").write_text('{"updates": 3}'),
    "folder empty": lambda folder: [path.unlink() for path in folder.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_skipped(tmp_path, damage):
    states = saved(tmp_path)
    DAMAGE[damage](tmp_path / "ckpt-00000003")
    work = Work()
    checkpoints = work.checkpoints(tmp_path, keep=1)
    with pytest.warns(RuntimeWarning, match=r"Skipped checkpoint .*ckpt-00000003: \w+: .") as warned:
        assert checkpoints.restore() == {"updates": 2, "name": "number 2"}
    assert len(warned) == 1
    assert_states(work.state(), states[2])
    # It counts no longer, so the one just restored is not the one to go.
    assert sorted(os.listdir(tmp_path)) == ["ckpt-00000001", "ckpt-00000002", "ckpt-00000003.broken"]
    checkpoints.save({"updates": 3})
    assert sorted(os.listdir(tmp_path)) == ["ckpt-00000003", "ckpt-00000003.broken"]
    assert Work().checkpoints(tmp_path).restore() == {"updates": 3}


@pytest.mark.filterwarnings("ignore:Skipped checkpoint")
def test_any_flipped_byte_is_found_or_harmless(tmp_path):
    states = saved(tmp_path / "whole", count=2)
    names = [path.name for path in (tmp_path / "whole" / "ckpt-00000002").iterdir()]
    generator = random.Random(0)
    for number in range(40):
        shutil.copytree(tmp_path / "whole", tmp_path / str(number))
        flip(tmp_path / str(number) / "ckpt-00000002" / names[number % len(names)], generator.randrange(10**6))
        work = Work()
        counters = work.checkpoints(tmp_path / str(number)).restore()
        assert_states(work.state(), states[counters["updates"]])


def test_all_damaged_is_an_error_with_every_reason(tmp_path):
    saved(tmp_path, count=2)
    DAMAGE["data cut short"](tmp_path / "ckpt-00000001")
    DAMAGE["counters missing"](tmp_path / "ckpt-00000002")
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(
            CheckpointError, match=r"None of the 2 .*ckpt-00000002: FileNotFoundError.*ckpt-00000001: .*move the folder"
        ),
    ):
        Work().checkpoints(tmp_path).restore()
    assert sorted(os.listdir(tmp_path)) == ["ckpt-00000001", "ckpt-00000002"]  # nothing was renamed


@pytest.mark.filterwarnings("ignore:Skipped checkpoint")
def test_what_does_not_match_exactly_is_refused(tmp_path):
    saved(tmp_path, count=1)
    with pytest.raises(CheckpointError, match="shape"):
        Work(units=5).checkpoints(tmp_path).restore()
    with pytest.raises(CheckpointError, match="Unresolved object"):
        Work(build_optimizer=False).checkpoints(tmp_path).restore()
    work = Work()
    with pytest.raises(CheckpointError, match="AssertionError"):
        Checkpoints(tmp_path, 1, model=work.model, more=tf.Variable(1.0)).restore()


def test_only_what_is_optional_may_be_lacking_or_left_over(tmp_path):
    first, second = tf.Variable(1.0), tf.Variable(2.0)
    Checkpoints(tmp_path / "without", 1, ["copy"], first=first).save({"updates": 0})
    Checkpoints(tmp_path / "with", 1, ["copy"], first=first, copy=second).save({"updates": 0})
    first.assign(5.0)
    second.assign(6.0)

    without = Checkpoints(tmp_path / "without", 1, ["copy"], first=first, copy=second)
    assert without.restore() and without.lacking == {"copy"}
    assert (first.numpy(), second.numpy()) == (1.0, 6.0)
    first.assign(5.0)
    both = Checkpoints(tmp_path / "with", 1, ["copy"], first=first)
    assert both.restore() and both.lacking == set()
    assert first.numpy() == 1.0
    for folder, trackables in (("without", {"first": first, "copy": second}), ("with", {"first": first})):
        with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match="None of the 1"):
            Checkpoints(tmp_path / folder, 1, **trackables).restore()
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError, match="None of the 1"):
        Checkpoints(tmp_path / "with", 1, ["copy"], first=first, copy=second, third=tf.Variable(3.0)).restore()


def test_a_reader_restores_a_part_and_renames_nothing(tmp_path):
    states = saved(tmp_path)
    DAMAGE["data cut short"](tmp_path / "ckpt-00000003")
    work = Work()
    checkpoints = Checkpoints(tmp_path, 1, model=work.model)
    with pytest.warns(RuntimeWarning, match="ckpt-00000003"):
        assert checkpoints.restore(partial=True)["updates"] == 2
    for variable, expected in zip(work.model.variables, states[2], strict=False):
        np.testing.assert_array_equal(variable.numpy(), expected)
    assert len(checkpoints.folders) == 3
    with pytest.warns(RuntimeWarning), pytest.raises(CheckpointError):
        Checkpoints(tmp_path, 1, model=work.model, more=tf.Variable(1.0)).restore(partial=True)


def test_bad_counters_are_refused_before_anything_is_written(tmp_path):
    checkpoints = Work().checkpoints(tmp_path / "new")
    for counters in ({}, {"updates": 1.5}, {"updates": True}, {"updates": None}):
        with pytest.raises(ValueError, match="'updates', a whole number"):
            checkpoints.save(counters)
    for value in (float("nan"), object(), {1, 2}):
        with pytest.raises(ValueError, match="Accepted: finite numbers"):
            checkpoints.save({"updates": 1, "value": value})
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="keep is 0"):
        Checkpoints(tmp_path, 0)


FULL_DISK = """
import resource, os, sys
import bayes_planet
import tensorflow as tf
from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints
directory = sys.argv[1]
variable = tf.Variable(tf.ones([100_000]))
checkpoints = Checkpoints(directory, 3, variable=variable)
checkpoints.save({"updates": 1})
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in (0, 200_000, 399_999):  # what the kernel then does is what a full disk does
    variable.assign_add(tf.ones([100_000]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        checkpoints.save({"updates": 2})
        print("saved")
    except CheckpointError as error:
        print("could not be written" in str(error) and "1 present" in str(error), os.listdir(directory))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(checkpoints.restore(), float(variable[0]))
variable.assign_add(tf.ones([100_000]))
checkpoints.save({"updates": 2})
print(sorted(os.listdir(directory)))
"""


def test_a_full_disk_leaves_the_earlier_ones(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert ended.stdout.splitlines() == [
        *["True ['ckpt-00000001']"] * 3,
        "{'updates': 1} 1.0",
        "['ckpt-00000001', 'ckpt-00000002']",
    ], ended.stderr


KEEP_SAVING = """
import sys
import bayes_planet
import tensorflow as tf
from bayes_planet.runs.checkpoints import Checkpoints
variables = [tf.Variable(tf.zeros([50_000])) for _ in range(4)]
checkpoints = Checkpoints(sys.argv[1], 2, variables=variables)
counters = checkpoints.restore() or {"updates": 0}
while True:
    counters["updates"] += 1
    for variable in variables:
        variable.assign(tf.fill([50_000], float(counters["updates"])))
    checkpoints.save(counters)
    print(counters["updates"], flush=True)
"""


@pytest.mark.thorough
def test_a_killed_writer_leaves_a_checkpoint_that_works(tmp_path):
    last = 0
    for round_number in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", KEEP_SAVING, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(5):
            process.stdout.readline()
        time.sleep(0.011 * round_number + 0.004)
        process.send_signal(signal.SIGKILL)
        printed = [int(line) for line in process.communicate(timeout=60)[0].split()]
        variables = [tf.Variable(tf.zeros([50_000])) for _ in range(4)]
        checkpoints = Checkpoints(tmp_path, 2, variables=variables)
        updates = checkpoints.restore()["updates"]
        assert updates >= max([last + 5, *printed])
        for variable in variables:
            np.testing.assert_array_equal(variable.numpy(), np.full(50_000, updates, np.float32))
        assert not list(tmp_path.glob("*.broken")) and len(checkpoints.folders) <= 3
        last = updates
    # the killed ones' leftovers go with the next checkpoint
    (tmp_path / ".tmp-ckpt-99999999").mkdir()
    (tmp_path / ".tmp-ckpt-99999999" / "variables.index").write_text(json.dumps("half"))
    checkpoints.save({"updates": last + 1})
    assert not list(tmp_path.glob(".tmp-*")) and len(os.listdir(tmp_path)) == 2
