"""`bayes-planet pack` and `unpack`: a run in a small folder, and a run again."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from bayes_planet.commands.console import divert_output
from bayes_planet.commands.display import megabytes
from bayes_planet.commands.errors import user_errors
from bayes_planet.commands.inputs import check_output, read_config
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, START_ERRORS
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.starts import cores

SHOWN = 5


def pack(options: argparse.Namespace) -> int:
    """Writes the folder and says what is in it. The run is left as it is."""
    read_config(options.run)
    check_output("--out", options.out, folder=True)
    with _quiet() as console:
        from bayes_planet.training.devices.strategy import prepare_devices
        from bayes_planet.training.saved.packing import pack as write
        from bayes_planet.training.saved.restoring import RESTORE_ERRORS

        prepare_devices()
        with user_errors(*RESTORE_ERRORS, ValueError, OSError):
            episodes = write(RunDirectory(options.run), options.out, not options.no_optimizer)
        _say(
            console,
            f"{options.out} ({megabytes(options.out):.1f} MB): {episodes} episodes and the newest checkpoint of "
            f"{options.run}\n"
            f"  a run again: bayes-planet unpack {options.out} --logdir RUN",
        )
    return 0


def unpack(options: argparse.Namespace) -> int:
    """Makes the run's folder, and says which episodes came out otherwise."""
    read_config(options.pack)
    check_output("--logdir", options.logdir, folder=True)
    with _quiet() as console:
        from bayes_planet.training.devices.strategy import prepare_devices
        from bayes_planet.training.saved.packing import unpack as make
        from bayes_planet.training.saved.restoring import RESTORE_ERRORS

        prepare_devices()
        with (
            user_errors(*RESTORE_ERRORS, *ENVIRONMENT_ERRORS, *START_ERRORS, OSError),
            Progress(console=console, transient=True) as bar,
        ):
            task = bar.add_task("episodes", total=None)
            played = make(
                RunDirectory(options.pack),
                RunDirectory(options.logdir),
                cores(),
                lambda done, of: bar.update(task, completed=done, total=of),
            )
        _say(console, f"{options.logdir}: {played.episodes} episodes, {_comparison(played.episodes, played.different)}")
    return 0


def _comparison(episodes: int, different: dict[int, tuple[float, float]]) -> str:
    if not different:
        return "each the one that was packed, to the last bit"
    shown = ", ".join(f"{index}: {here:.1f} ({there:.1f})" for index, (here, there) in list(different.items())[:SHOWN])
    return (
        f"{episodes - len(different)} of them the ones that were packed, to the last bit. The others came out "
        f"otherwise, as another processor or other versions compute other numbers (compare versions.json); they are "
        f"what the same actions do here. Their returns, in brackets those of the packed ones: {shown}"
        + (f" and {len(different) - SHOWN} more" if len(different) > SHOWN else "")
    )


@contextlib.contextmanager
def _quiet() -> Iterator[Console]:
    with tempfile.TemporaryDirectory() as folder, divert_output(Path(folder) / "libraries.log", result=True) as console:
        yield console


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
