"""A command as a program: its streams may be closed, full or without a reader, and a signal ends it with one line."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bayes_planet.files.streams import failure_of, lasting_text

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def signals_as_in_a_terminal():
    """Children inherit what is ignored, as by nohup or in the background of a shell."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in kept.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


MODULES = ("bayes_planet", "bayes_planet.cli")


def shell(line: str, *arguments: str) -> subprocess.CompletedProcess:
    """`line` of bash, where $P is the program."""
    program = f'P() {{ "{sys.executable}" -m bayes_planet "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", program + line, "bash", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("line", "code", "stderr"),
    [
        ("P configs planet > /dev/full", 74, "error: standard output could not be written: No space left on device\n"),
        ("P --help > /dev/full", 74, "error: standard output could not be written: No space left on device\n"),
        ("P configs --reference | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("P configs planet >&- 2>&-", 0, ""),
        ("P configs planet <&- >&- 2>&-", 0, ""),
        ("P configs no_such 2> /dev/full", 2, ""),
        ("P configs no_such >&- 2>&-", 2, ""),
    ],
)
def test_output_that_cannot_be_written_is_an_exit_code_and_no_traceback(line, code, stderr):
    ended = shell(line)
    assert (ended.returncode, ended.stderr) == (code, stderr)


def test_closed_streams_are_occupied_before_any_file_is_opened(tmp_path):
    """Else what is printed lands in the first file that is opened, which was the run's lock."""
    code = """
import sys
from bayes_planet.runs.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
directory.path.mkdir()
directory.lock()
import os
os.write(1, b"text for stdout")
os.write(2, b"text for stderr")
"""
    line = f"'{sys.executable}' -c '{code}' {tmp_path}/run >&- 2>&-"
    assert shell(line).returncode == 0
    assert (tmp_path / "run" / ".lock").read_bytes() == b""


def test_a_stream_lasts_and_says_what_it_did_not_take(tmp_path):
    instead = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    full = lasting_text(os.open("/dev/full", os.O_WRONLY), instead=instead)
    for number in range(3):
        full.write(f"line {number}\n")
    assert failure_of(full).strerror == "No space left on device"
    full.close()
    assert (tmp_path / "log").read_text() == "line 0\nline 1\nline 2\n"


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text = "x" * 1000 + "\n"
    code = f"import os, time; time.sleep(0.5); n = 0\nwhile data := os.read({reading}, 5000): n += len(data)\nprint(n)"
    reader = subprocess.Popen([sys.executable, "-c", code], pass_fds=[reading], stdout=subprocess.PIPE, text=True)
    os.close(reading)
    stream = lasting_text(writing)
    for _ in range(500):
        stream.write(text)
    assert failure_of(stream) is None
    stream.close()
    assert reader.communicate(timeout=30)[0] == f"{500 * len(text)}\n"


WAITING = """
import sys, time
sys.argv = ["bayes-planet", "configs"]
import bayes_planet.commands.configs as configs
def wait(*arguments):
    try:
        print("working", flush=True)
        {work}
    finally:
        print("cleaned", flush=True)
configs.configs = wait
from bayes_planet.cli import run
sys.exit(run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "work",
    [
        "time.sleep(60)",
        # What a library may make of it.
        "exec('try: time.sleep(60)\\nexcept BaseException: raise ImportError')",
        "exec('import concurrent.futures as f\\nwith f.ThreadPoolExecutor() as t: t.submit(time.sleep, 1).result()')",
    ],
)
def test_a_signal_is_one_line_after_the_cleaning_up(number, work):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING.format(work=work)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "working\n"
    time.sleep(0.2)
    for _ in range(3):  # impatience does not cut into the cleaning up
        process.send_signal(number)
        time.sleep(0.05)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (128 + number, "cleaned\n")
    assert stderr.startswith(f"Stopped by {number.name}") and len(stderr.splitlines()) == 1


IMPORTING = """
import os, runpy, signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatient())
sys.argv = ["bayes-planet", "report", "no-such-run"]
runpy.run_module("{module}", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("name", ["argparse", "bayes_planet.commands.report", "numpy", "matplotlib", "omegaconf"])
def test_ctrl_c_while_a_command_is_imported(tmp_path, module, name):
    """Of Python's own start, some 60 ms, nobody can take the traceback."""
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTING.format(module=module, name=name)],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (130, "Stopped by SIGINT.\n")
    assert list(tmp_path.iterdir()) == []


def test_an_ignored_signal_stays_ignored():
    """As of a job in the background of a script, or with nohup."""
    code = WAITING.format(work="time.sleep(1)")
    ignoring = f"import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{code}"
    process = subprocess.Popen([sys.executable, "-c", ignoring], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (0, "cleaned\n")
