import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(program, *arguments, **environment):
    code = "import sys, os\nfrom bayes_planet.commands.console import divert_output\n" + program
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, env=os.environ | environment,
    )  # fmt: skip


CHATTER = """
import warnings, logging, subprocess
print("before")
with divert_output(sys.argv[1]) as console:
    console.print("ours: [bold]start[/bold]")
    from absl import logging as absl_logging
    absl_logging.warning("chatter of absl")
    logging.warning("chatter of logging")
    warnings.warn("chatter of warnings")
    print("chatter of print")
    print("more of it", file=sys.stderr)
    os.write(1, b"chatter of C\\n")
    subprocess.run(["echo", "chatter of a child"])
    console.print("ours: end")
print("after")
print("after, on stderr", file=sys.stderr)
"""


def test_only_our_lines_reach_the_terminal(tmp_path):
    log = tmp_path / "logs" / "libraries.log"
    ended = run(CHATTER, log)
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == ["before", "ours: start", "ours: end", "after"]
    assert ended.stderr == "after, on stderr\n"
    text = log.read_text()
    for line in ("absl", "logging", "warnings", "print", "C", "a child"):
        assert f"chatter of {line}" in text
    assert "more of it" in text and "ours" not in text and "after" not in text


def test_the_log_is_appended_to(tmp_path):
    for number in range(2):
        run(f"with divert_output(sys.argv[1]): print('start {number}')", tmp_path / "log")
    assert (tmp_path / "log").read_text() == "start 0\nstart 1\n"


def test_an_uncaught_exception_reaches_the_terminal(tmp_path):
    ended = run("with divert_output(sys.argv[1]): raise ValueError('what went wrong')", tmp_path / "log")
    assert ended.returncode == 1 and ended.stderr.endswith("ValueError: what went wrong\n")
    assert "Traceback" in ended.stderr and (tmp_path / "log").read_text() == ""


def test_the_text_of_an_exit_reaches_the_terminal(tmp_path):
    ended = run("with divert_output(sys.argv[1]): sys.exit('no such task')", tmp_path / "log")
    assert (ended.returncode, ended.stderr) == (1, "no such task\n")


def test_a_crash_in_c_shows_where(tmp_path):
    ended = run("with divert_output(sys.argv[1]): os.abort()", tmp_path / "log")
    assert ended.returncode == -6 and "Fatal Python error: Aborted" in ended.stderr


def test_a_pipe_gets_plain_unbroken_lines(tmp_path):
    program = """
with divert_output(sys.argv[1]) as console:
    console.print("[red]" + "word " * 60 + "[/red]é")
    print(console.is_terminal, sys.stdout.isatty())
    from rich.progress import track
    for _ in track(range(100), console=console, disable=not console.is_terminal): pass
"""
    ended = run(program, tmp_path / "log", PYTHONIOENCODING="ascii")
    assert ended.stdout == "word " * 60 + "?\n"
    assert (tmp_path / "log").read_text() == "False False\n"


def test_a_reader_that_has_gone_does_not_end_the_work(tmp_path):
    code = """
import sys
from bayes_planet.commands.console import divert_output
with divert_output(sys.argv[1]) as console:
    for _ in range(10_000):
        console.print("x" * 100)
sys.exit(3)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 3
    assert (tmp_path / "log").read_text().splitlines().count("x" * 100) > 9_000  # what a pipe holds is less


def test_on_a_terminal_the_console_animates_and_knows_the_width(tmp_path):
    code = """
import sys
from bayes_planet.commands.console import divert_output
with divert_output(sys.argv[1]) as console:
    console.print(console.is_terminal, console.width, sys.stdout.isatty())
    console.print("[bold]x[/bold]")
"""
    terminal, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 133, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "log")],
        cwd=ROOT, stdin=subprocess.DEVNULL, stdout=ours, stderr=ours, env=environment | {"TERM": "xterm-256color"},
    )  # fmt: skip
    assert process.wait(60) == 0
    os.close(ours)
    text = os.read(terminal, 10_000).decode()
    os.close(terminal)
    assert "True" in text and "133" in text and "False" in text
    assert "\x1b[1mx\x1b[0m" in text
