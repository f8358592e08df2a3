"""Commands side by side: how many at once, what follows what, and that nothing is left behind."""

import os
import sys
import time

import pytest

from benchmarks.run_queue import Command, Work, environment, run_all

MARK = "import os, sys, time; open(sys.argv[1], 'w').write(str(time.time())); time.sleep(0.5); print('said')"


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_commands_follow_each_other_and_failures_are_named(tmp_path):
    log = tmp_path / "logs" / "log"
    good = Work("good", [Command(python("print(1)")), Command(python("print(2)"), tmp_path / "out")], log)
    bad = Work("bad", [Command(python("exit(3)"), tmp_path / "no"), Command(python("print(4)"), tmp_path / "no")], log)
    lines: list[str] = []
    assert run_all([good, bad], 2, lines.append) == ["bad"]
    assert log.read_text() == "1\n"
    assert (tmp_path / "out").read_text() == "2\n" and not (tmp_path / "no").exists()
    assert f"bad: failed with exit code 3, see {log}" in lines


def test_no_more_than_so_many_at_once(tmp_path):
    marks = [tmp_path / str(number) for number in range(4)]
    works = [Work(mark.name, [Command(python(MARK, str(mark)))], tmp_path / "log") for mark in marks]
    assert run_all(works, 2, lambda line: None) == []
    begun = sorted(float(mark.read_text()) for mark in marks)
    assert begun[2] >= begun[0] + 0.5 and begun[3] >= begun[1] + 0.5


def test_an_end_ends_the_processes(tmp_path):
    code = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    mark = tmp_path / "pid"

    def interrupt(line: str) -> None:
        for _ in range(200):
            if mark.exists() and mark.read_text():
                raise KeyboardInterrupt
            time.sleep(0.05)

    works = [Work("long", [Command(python(code, str(mark)))], tmp_path / "log")]
    works.append(Work("next", [Command(python("print(1)"))], tmp_path / "log"))
    says = iter((lambda line: None, interrupt))
    with pytest.raises(KeyboardInterrupt):
        run_all(works, 2, lambda line: next(says)(line))
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_cores_are_shared():
    cores = len(os.sched_getaffinity(0))
    assert environment(1)["OMP_NUM_THREADS"] == str(cores)
    assert environment(10 * cores)["TF_NUM_INTRAOP_THREADS"] == "1"
