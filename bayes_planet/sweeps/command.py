"""`bayes-planet sweep`: runs that presets and settings times lists make, and a table of where each stands."""

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live

from bayes_planet.commands.errors import UserError, reason, user_errors
from bayes_planet.config.presets import ConfigError
from bayes_planet.files.plain import open_own
from bayes_planet.sweeps.local import CORES, Local
from bayes_planet.sweeps.points import Point, points
from bayes_planet.sweeps.queue import Engine, Job, Watch, run_all
from bayes_planet.sweeps.state import OUTPUT, Standing, is_done, last_words, record, standing, summary, table
from bayes_planet.sweeps.work import Main
from bayes_planet.training.interruption import EXIT_INTERRUPTED, SIGNALS, handled

EXIT_SOME_FAILED = 1
SHOWN_EVERY = 2.0
MOST_ROWS = 40


def sweep(options: argparse.Namespace, main: Main) -> int:
    """Trains what is not done. Returns 0: all is done; 1: some runs failed; 75: interrupted, all have saved.

    Args:
      options: of the command line.
      main: `bayes_planet.cli.main`, which engines run in processes of theirs.
    """
    for name in ("at_once", "cores", "retries"):
        least = 0 if name == "retries" else 1
        if (given := getattr(options, name)) is not None and given < least:
            raise UserError(f"--{name.replace('_', '-')} is {given}. Accepted: {least} or more.")
    with user_errors(ConfigError):
        wanted = points(options.items)
    folder = Path(os.path.abspath(options.runs))
    console = Console()
    if options.show:
        console.print(table(_standings(wanted, folder, set())))
        return 0
    with _locked(folder):
        left = [point for point in wanted if not is_done(point, folder / point.name)]
        _say(console, f"{len(wanted)} run{'s' * (len(wanted) > 1)} in {folder}, {len(wanted) - len(left)} done.")
        if left:
            jobs = [job(point, folder, options.device) for point in left]
            with _interruptible():
                try:
                    _work(wanted, jobs, folder, options, main, console)
                except KeyboardInterrupt:
                    standings = _standings(wanted, folder, set())
                    console.print(table(standings))
                    _say(console, f"Stopped, {summary(standings)}. What ran has saved; the same command goes on.")
                    return EXIT_INTERRUPTED
        standings = _standings(wanted, folder, set())
        console.print(table(standings))
        _say(console, f"{summary(standings)}. `bayes-planet report {options.runs}` puts them on one page.")
    return 0 if all(each.state == "done" for each in standings.values()) else EXIT_SOME_FAILED


def _say(console: Console, text: str) -> None:
    """A sentence as it is: not broken where a pipe has no width, and no brackets taken for markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def job(point: Point, folder: Path, device: str = "auto") -> Job:
    """The training of a run in a sweep's folder."""
    run = folder / point.name
    arguments = ("train", "--logdir", str(run), "--device", device, "--config", *point.stack, *point.overrides)
    return Job(point.name, arguments, run / OUTPUT, run)


def _work(
    wanted: Sequence[Point],
    jobs: Sequence[Job],
    folder: Path,
    options: argparse.Namespace,
    main: Main,
    console: Console,
) -> list[str]:
    by_name = {point.name: point for point in wanted}
    lines = not console.is_terminal

    def say(text: str) -> None:
        _say(console, text)

    def began(job: Job, waiting: int) -> None:
        if lines:
            say(f"{job.name}: begun, {waiting} waiting")

    def ended(job: Job, code: int | None, tries: int, again: bool) -> None:
        if code is not None:
            record(by_name[job.name], job.folder, code, tries)
        if code == 0:
            words = "done"
        elif code == EXIT_INTERRUPTED or code is None:
            words = "stopped, and saved"
        else:
            words = f"failed with exit code {code}: {last_words(job.folder)}"
        if lines or code not in (0, None):
            say(f"{job.name}: {words}{', will be tried again' if again else ''}")

    shown_at = -SHOWN_EVERY
    live = Live(console=console, auto_refresh=False, transient=True) if not lines else None

    def passed(running: set[str]) -> None:
        nonlocal shown_at
        if live is None or time.monotonic() - shown_at < SHOWN_EVERY:
            return
        shown_at = time.monotonic()
        standings = _standings(wanted, folder, running)
        some = dict(sorted(standings.items(), key=lambda pair: pair[1].state != "running")[:MOST_ROWS])
        view = table(some)
        view.caption = f"{summary(standings)}; Ctrl-C stops and saves"
        live.update(view, refresh=True)

    with contextlib.ExitStack() as stack:
        engine = _engine(options, folder, main, say, stack)
        if live is not None:
            stack.enter_context(live)
        return run_all(jobs, engine, options.retries, Watch(began, ended, passed))


def _engine(options: argparse.Namespace, folder: Path, main: Main, say: Any, stack: contextlib.ExitStack) -> Engine:
    if options.slurm is not None and options.ray is not None:
        raise UserError("--slurm and --ray were given. Accepted: one of the two, or neither for this machine.")
    if options.slurm is not None:
        from bayes_planet.sweeps.slurm import Slurm

        with user_errors(ValueError), _extra("slurm", "submitit"):
            given = _slurm_options(options.slurm)
            return Slurm(folder / "slurm", main, given, options.at_once, options.cores)
    if options.ray is not None:
        from bayes_planet.sweeps.ray_tasks import RayTasks

        with user_errors(ConnectionError, ValueError), _extra("ray", "ray"):
            engine = RayTasks(options.ray, main, options.cores or CORES, options.ray_gpus, options.retries)
        stack.callback(engine.close)
        return engine
    return Local(options.at_once, options.cores, use_cards=options.device != "cpu", say=say)


@contextlib.contextmanager
def _extra(name: str, package: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise UserError(
            f"--{name} needs {package}, which is not there. Install bayes_planet[{name}] or `pip install {package}`."
        ) from error


def _slurm_options(text: str) -> dict[str, Any]:
    """'timeout_min=600,slurm_partition=gpu' as a mapping; numbers are numbers."""
    found = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--slurm has {item!r}. Accepted: key=value,key=value, such as timeout_min=600.")
        found[key.strip()] = yaml.safe_load(value)
    return found


def _standings(wanted: Sequence[Point], folder: Path, running: set[str]) -> dict[str, Standing]:
    return {point.name: standing(point, folder / point.name, point.name in running) for point in wanted}


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One sweep works in a folder at a time. UserError where another does, or nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(open_own(folder / ".sweep.lock", os.O_RDWR), "rb")  # noqa: SIM115
    except OSError as error:
        raise UserError(
            f"--runs is {str(folder)!r}, which cannot be used: {reason(error)}. Accepted: a folder that can be written "
            "to, or a name that is free."
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another sweep works in {folder}. Wait for it, stop it, or choose another --runs; `--show` prints the "
                "table at any time."
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """The first signal stops all runs, which save; a second one while they do stops waiting for them."""

    def stop(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        print(f"{name}: stopping all runs, which save first. Once more to leave at once.", file=sys.stderr)
        raise KeyboardInterrupt(name)

    with handled((*SIGNALS, signal.SIGHUP), stop):
        yield
