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
from bayes_planet.envs import Workers
from tests.envs.test_workers import ended
from tests.envs.toy import CountingEnv

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
        workers.send_step(np.zeros((2, 1)))
    print(*workers.pids, flush=True)
    {ending}

{start}
"""


def start_parent(hang, ending, start="run()"):
    code = PARENT.format(hang=hang, ending=ending, start=start)
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    return parent, pids


@pytest.mark.parametrize("hang", [False, True])
@pytest.mark.parametrize("start", ["run()", "threading.Thread(target=run).start()"])
def test_workers_die_with_a_killed_parent(hang, start):
    """Also while they hang in the middle of a step, where they cannot see the closed connection."""
    parent, pids = start_parent(hang, "threading.Event().wait()", start)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert all(ended(pid) for pid in pids)


@pytest.mark.parametrize("start", ["run()", "threading.Thread(target=run).start()"])
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
