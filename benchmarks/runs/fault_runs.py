"""A tiny run of the command line, for `benchmarks.runs.faults`: starting it, ending it, and comparing what it left."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bayes_planet.replay.episode import episode_files
from bayes_planet.runs.metrics import read_metrics

SETTINGS = (
    *("env.observations=state", "env.name=dm_control/cartpole-swingup", "env.action_repeat=8", "env.timeout_seconds=5"),
    *("train.episodes=8", "evaluation.workers=1"),
)
# What may differ between two equal runs: clocks, and what was counted of faults.
CLOCKS = ("time", "wall_clock", "env/worker_faults", "env/dropped_episodes")


def command(*arguments: object) -> list[str]:
    """A command line of the package."""
    return [sys.executable, "-m", "bayes_planet", *map(str, arguments)]


def train_command(folder: Path, *settings: str) -> list[str]:
    """Trains the tiny run in `folder`."""
    return command("train", "--config", "bayes_planet", "debug", "--logdir", folder, *SETTINGS, *settings)


def start(arguments: Sequence[str], **options) -> subprocess.Popen:
    """A process whose two outputs are kept, in a group of its own as a shell's job is."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(arguments, process_group=0, text=True, errors="replace", **settings)


def _outputs(process: subprocess.Popen) -> tuple[str, str]:
    """What a process wrote, once it has ended; it is killed where it takes ten minutes, or this program is stopped."""
    try:
        return process.communicate(timeout=600)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            return "", "it had not ended after 600 s"
        raise


def finish(arguments: Sequence[str], **options) -> tuple[int, str, str]:
    """(exit code, standard output, standard error)."""
    process = start(arguments, **options)
    stdout, stderr = _outputs(process)
    return process.returncode, stdout or "", stderr or ""


def end_after(arguments: Sequence[str], seconds: float, number: int, **options) -> tuple[int, str, str]:
    """As `finish`, with a signal after `seconds`, if it still runs then."""
    process = start(arguments, **options)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with contextlib.suppress(ProcessLookupError):
        if process.poll() is None:
            os.kill(process.pid, number)
    stdout, stderr = _outputs(process)
    return process.returncode, stdout or "", stderr or ""


def clean(code: int, stderr: str, accepted: Sequence[int]) -> str:
    """Why this is not how a command ends: '' where the code is accepted and at most one error is told in words."""
    if code not in accepted:
        return f"exit code {code}, accepted {list(accepted)}: {stderr.strip()[-300:]}"
    if "Traceback" in stderr or "Exception ignored" in stderr:
        return f"a traceback: {stderr.strip()[-300:]}"
    return ""


def rows(folder: Path, updates: bool = True) -> list[str]:
    """The rows of metrics without clocks and speeds, in an order of their own: they are to be equal, each once.

    `updates`: those of updates too.
    """
    kept = [
        {key: value for key, value in row.items() if key not in CLOCKS and not key.startswith("speed/")}
        for row in read_metrics(folder / "metrics.jsonl")
        if updates or "loss/total" not in row
    ]
    return sorted(repr(sorted(row.items())) for row in kept)


def difference(folder: Path, expected: Path, updates: bool = True) -> str:
    """How the rows of a run differ from those of an undisturbed one; '' where they are equal."""
    ours, theirs = rows(folder, updates), rows(expected, updates)
    if ours == theirs:
        return ""
    missing, other = len(set(theirs) - set(ours)), len(set(ours) - set(theirs))
    return f"{len(ours)} rows for {len(theirs)}: {missing} missing, {other} others"


def episodes(folder: Path) -> dict[str, bytes]:
    """The finished episodes, by name."""
    if not (folder / "episodes").is_dir():
        return {}
    return {path.name: path.read_bytes() for path, _, _ in episode_files(folder / "episodes")}


def worker_pids(parent: int) -> list[int]:
    """The environment processes of a process that runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            above = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if above == parent and b"bayes_planet.envs.worker" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of this size in memory. PermissionError where this user may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if made.returncode:
        raise PermissionError(made.stderr.strip() or "mount failed")
    try:
        yield folder
    finally:
        for _ in range(20):
            if subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
                break
            time.sleep(0.5)


def remount(folder: Path, options: str) -> None:
    """Changes a `small_disk`: 'size=64m', 'ro', 'rw'."""
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True, capture_output=True)


def signalled(number: int) -> tuple[int, ...]:
    """The exit codes of a command that a signal ended: in words, or in the first moments of Python by default."""
    return (128 + number, -number)


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
