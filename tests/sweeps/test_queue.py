"""Processes side by side: how many, on which cores, within which memory, how often again; and none is left."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayes_planet.runs.starts import core_numbers
from bayes_planet.sweeps.local import GIGABYTE, Local
from bayes_planet.sweeps.queue import Job, Watch, run_all

PYTHON = (sys.executable, "-c")
WAITS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def job(folder: Path, name: str, code: str, *arguments: object, output: Path | None = None) -> Job:
    return Job(name, (code, *map(str, arguments)), folder / name / "logs" / "output.log", folder / name, output)


def local(at_once: int = 2, **options) -> Local:
    return Local(at_once, program=PYTHON, **options)


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def written(path: Path) -> bool:
    return path.exists() and bool(path.read_text())


def test_what_fails_is_tried_again_as_often_as_asked(tmp_path):
    counts = "import sys; open(sys.argv[1], 'a').write('x'); print('tried'); sys.exit(int(sys.argv[2]))"
    second = "import os, sys; there = os.path.exists(sys.argv[1]); open(sys.argv[1], 'w'); sys.exit(0 if there else 9)"
    jobs = [
        job(tmp_path, "never", counts, tmp_path / "3", 3),
        job(tmp_path, "unusable", counts, tmp_path / "2", 2),
        job(tmp_path, "second", second, tmp_path / "mark"),
        job(tmp_path, "good", "print('said')", output=tmp_path / "out"),
        job(tmp_path, "bad", "print('no'); exit(1)", output=tmp_path / "no"),
    ]
    told = []
    failed = run_all(jobs, local(), 2, Watch(ended=lambda *each: told.append((each[0].name, *each[1:]))))
    assert sorted(failed) == ["bad", "never", "unusable"]
    assert (tmp_path / "3").read_text() == "xxx" and (tmp_path / "2").read_text() == "x"
    assert jobs[0].log.read_text() == "tried\n" * 3
    assert (tmp_path / "out").read_text() == "said\n" and not (tmp_path / "no").exists()
    assert ("second", 9, 1, True) in told and ("second", 0, 2, False) in told and ("never", 3, 3, False) in told


@pytest.mark.thorough
def test_so_many_at_once_each_with_cores_of_its_own(tmp_path):
    # The first ends only once a second has begun, however slow the machine is.
    code = """
import glob, os, sys, time
open(sys.argv[1], "w").write(f"{sorted(os.sched_getaffinity(0))} {os.environ['OMP_NUM_THREADS']}")
end = time.monotonic() + 60
while len(glob.glob(os.path.join(os.path.dirname(sys.argv[1]), "mark*"))) < 2 and time.monotonic() < end:
    time.sleep(0.05)
time.sleep(1)
"""
    jobs = [job(tmp_path, str(number), code, tmp_path / f"mark{number}") for number in range(5)]
    most = []
    assert run_all(jobs, local(2), watch=Watch(passed=lambda running: most.append(len(running)))) == []
    assert max(most) == 2
    cores, share = core_numbers(), max(1, len(core_numbers()) // 2)
    expected = {f"{cores[:share]} {share}", f"{(cores + cores)[share:][:share]} {share}"}
    assert {(tmp_path / f"mark{number}").read_text() for number in range(5)} == expected


def test_memory_bounds_how_many_begin_and_the_newest_is_put_back_where_it_runs_out(tmp_path):
    free = [1.0 * GIGABYTE]
    engine = local(3, free_memory=lambda: free[0])
    jobs = [job(tmp_path, name, WAITS, tmp_path / f"{name}.pid") for name in "abc"]
    assert engine.room() == 1  # the first begins whatever there is
    engine.start(jobs[:1])
    assert engine.room() == 0
    free[0] = 50.0 * GIGABYTE
    assert engine.room() == 1
    engine.start(jobs[1:2])
    wait_for(lambda: written(tmp_path / "a.pid") and written(tmp_path / "b.pid"))
    wait_for(lambda: engine.ended() == [] and engine._largest > 0)
    free[0] = 0.0
    ended: list = []
    wait_for(lambda: ended.extend(engine.ended()) or ended)
    assert ended == [(jobs[1], None)] and engine.at_once == 1
    engine.stop()
    assert engine.ended() == [(jobs[0], -signal.SIGTERM)]


def test_an_end_ends_the_processes(tmp_path):
    def interrupt(running: set[str]) -> None:
        if written(tmp_path / "pid"):
            raise KeyboardInterrupt

    jobs = [job(tmp_path, "long", WAITS, tmp_path / "pid"), job(tmp_path, "next", "print(1)")]
    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, local(1), watch=Watch(passed=interrupt))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not jobs[1].log.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a process learns of the end of its parent on Linux alone")
def test_a_killed_sweep_ends_its_processes_by_the_signal_that_saves(tmp_path):
    saves = (
        f"import signal, sys\nsignal.signal(15, lambda *a: (open(sys.argv[1] + '.saved', 'w'), sys.exit(75)))\n{WAITS}"
    )
    program = f"""
import sys
from pathlib import Path
from bayes_planet.sweeps.local import Local
from bayes_planet.sweeps.queue import Job, run_all
folder = Path({str(tmp_path)!r})
run_all([Job("a", ({saves!r}, str(folder / "pid")), folder / "log", folder / "a")], Local(1, program=(sys.executable, "-c")))
"""
    sweep = subprocess.Popen([sys.executable, "-c", program])
    wait_for(lambda: written(tmp_path / "pid"))
    sweep.kill()
    sweep.wait()
    wait_for(lambda: (tmp_path / "pid.saved").exists())


def test_nothing_begins_in_a_folder_that_another_process_trains_in(tmp_path):
    (tmp_path / "a").mkdir()
    began = []
    with (tmp_path / "a" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def passed(running: set[str]) -> None:
            if began == ["b"] and not running:
                fcntl.flock(lock, fcntl.LOCK_UN)

        jobs = [job(tmp_path, "a", "print(1)"), job(tmp_path, "b", "print(2)")]
        watch = Watch(began=lambda job, waiting: began.append(job.name), passed=passed)
        assert run_all(jobs, local(2), watch=watch) == []
    assert began == ["b", "a"]
