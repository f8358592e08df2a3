"""Workers end with the process that started them, in whatever way it ends, and not before."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import WorkerError, Workers, process
from tests.envs.processes import ended
from tests.envs.toy import CountingEnv, FaultyEnv

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import sys, threading
import numpy as np
from bayes_planet.config import EnvConfig
from bayes_planet.envs import Workers
from tests.envs.toy import FaultyEnv

def run():
    workers = Workers(EnvConfig(observations="state", action_repeat=1), 2, factory=lambda: FaultyEnv("hang"))
    workers.reset([0, 0])
    if {hang}:
        for _ in range(2):
            workers.step(np.zeros((2, 1)))
        workers._send_actions(np.zeros((2, 1)), None)
    print(*workers.pids, flush=True)
    {ending}

{start}
"""


# The main thread waits: from Python 3.12 on, none starts another thread once it has ended.
IN_A_THREAD = "threading.Thread(target=run).start(); threading.Event().wait()"


def start_parent(hang, ending, start="run()"):
    code = PARENT.format(hang=hang, ending=ending, start=start)
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    return parent, pids


@pytest.mark.parametrize("hang", [False, True])
@pytest.mark.parametrize("start", ["run()", IN_A_THREAD])
def test_workers_die_with_a_killed_parent(hang, start):
    """Also while they hang in the middle of a step, where they cannot see the closed connection."""
    parent, pids = start_parent(hang, "threading.Event().wait()", start)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert all(ended(pid) for pid in pids)


@pytest.mark.parametrize("start", ["run()", IN_A_THREAD])
def test_stopped_workers_die_with_a_killed_parent(start):
    """They cannot look whether it lives."""
    parent, pids = start_parent(False, "threading.Event().wait()", start)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert all(ended(pid) for pid in pids)


def test_workers_end_with_a_parent_that_just_ends():
    parent, pids = start_parent(False, "sys.exit(3)")
    assert parent.wait(timeout=120) == 3
    assert all(ended(pid) for pid in pids)


def test_workers_outlive_the_thread_that_started_them():
    made = []
    config = EnvConfig(observations="state", action_repeat=1)
    thread = threading.Thread(target=lambda: made.append(Workers(config, 1, factory=CountingEnv)))
    thread.start()
    thread.join()
    with made[0] as workers:
        workers.reset([0])
        np.testing.assert_array_equal(workers.step(np.zeros((1, 1)))[0]["state"], [[1, 0]])


class WithSimulator(FaultyEnv):
    """Its simulator is a process of its own, which `close` ends; the number of that process is in `folder`."""

    def __init__(self, folder: str, fault: str, session: bool = False) -> None:
        super().__init__(fault)
        self._simulator = subprocess.Popen(["sleep", "1000"], start_new_session=session)
        (Path(folder) / str(self._simulator.pid)).touch()

    def close(self) -> None:
        self._simulator.kill()
        self._simulator.wait()


@pytest.mark.thorough
@pytest.mark.parametrize("fault", ["none", "hang", "exit", "raise"])
def test_what_an_environment_started_ends_with_its_worker(tmp_path, fault):
    config = EnvConfig(observations="state", action_repeat=1, timeout_seconds=2)
    with Workers(config, 2, factory=lambda: WithSimulator(str(tmp_path), fault)) as workers:
        workers.reset([0, 0])
        faults = {}
        for _ in range(3):
            workers.step(np.zeros((2, 1)), [0, 1], faults)
        assert set(faults) == (set() if fault == "none" else {0, 1})
        for index in faults:
            workers.restart(index)
        simulators = [int(path.name) for path in tmp_path.iterdir()]
        assert len(simulators) == 2 + len(faults)
        assert sum(not ended(pid, 0.5) for pid in simulators) == 2
    assert all(ended(pid) for pid in simulators)


class Forgetful(WithSimulator):
    """Leaves its simulator to others."""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("fault", ["none", "exit"])
@pytest.mark.parametrize("session", [False, True])
def test_what_an_environment_forgets_ends_with_its_worker(tmp_path, fault, session):
    """Also in a session of its own, and after a normal end."""
    config = EnvConfig(observations="state", action_repeat=1)
    with Workers(config, 1, factory=lambda: Forgetful(str(tmp_path), fault, session)) as workers:
        workers.reset([0])
        for _ in range(3):
            workers.step(np.zeros((1, 1)), [0], {})
        (simulator,) = (int(path.name) for path in tmp_path.iterdir())
        assert ended(simulator, 60.0 if fault == "exit" else 0.5) == (fault == "exit")
    assert ended(simulator)


class DyingAtFirst(CountingEnv):
    """The first processes that make it are killed while they do; each leaves a file in `folder`."""

    def __init__(self, folder: str, deaths: int) -> None:
        super().__init__()
        made = len(list(Path(folder).iterdir()))
        (Path(folder) / str(os.getpid())).touch()
        if made < deaths:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("deaths", [1, 3, 4])
def test_a_process_killed_at_its_first_start_is_started_again_three_times(tmp_path, deaths):
    config = EnvConfig(observations="state", action_repeat=1)
    try:
        with Workers(config, 1, factory=lambda: DyingAtFirst(str(tmp_path), deaths)) as workers:
            workers.reset([0])
            assert deaths < 4 and len(workers.lost_at_start) == deaths
            assert all("died during `start`" in reason for reason in workers.lost_at_start)
    except WorkerError as error:
        assert deaths == 4 and "killed by SIGKILL" in str(error)
    assert len(list(tmp_path.iterdir())) == min(deaths + 1, 4)


def test_an_environment_that_raises_at_its_start_is_made_once(tmp_path):
    def make() -> CountingEnv:
        (Path(tmp_path) / str(os.getpid())).touch()
        raise RuntimeError("it cannot")

    with pytest.raises(WorkerError, match="it cannot"):
        Workers(EnvConfig(observations="state", action_repeat=1), 1, factory=make)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.thorough
def test_a_worker_that_does_not_read_its_large_factory_has_hung(tmp_path, monkeypatch):
    """More than a socket holds, to a process that hangs before it reads it."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(process, "START_SECONDS", 2.0)
    size, config = 4_000_000, EnvConfig(observations="state", action_repeat=1, timeout_seconds=2)
    large = bytes(size)
    with pytest.raises(WorkerError, match=r"no answer to `start` in 2 s"):
        Workers(config, 1, factory=lambda: CountingEnv(length=len(large)))
