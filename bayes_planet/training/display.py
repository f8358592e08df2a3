"""What the terminal shows while a run goes on: a bar, and a line for each episode and evaluation."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Display:
    """Draws the bar (on terminals only) and prints the lines.

    Args:
      console: where to.
      episodes: training episodes of the whole run.
      bar: draw the bar.
      lines: print the lines of episodes and evaluations; notes are printed anyway.
    """

    def __init__(self, console: Console, episodes: int, bar: bool = True, lines: bool = True):
        self.console = console
        self._episodes = episodes
        self._lines = lines
        self._loss: Mapping[str, Any] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (bar and console.is_terminal),
        )
        self._run: TaskID | None = None
        self._task: TaskID | None = None

    @contextlib.contextmanager
    def shown(self, done: int) -> Iterator[None]:
        """Shows the bar inside the block; `done` episodes are there already."""
        with self._progress:
            self._run = self._progress.add_task("episodes", total=self._episodes, completed=done)
            self._task = self._progress.add_task("starting", total=None)
            yield

    def progress(self, name: str, done: int, total: int) -> None:
        """Sets the lower bar."""
        if self._task is not None:
            self._progress.update(self._task, description=name, completed=done, total=total or None)

    def note(self, text: str) -> None:
        """Prints a sentence."""
        self.console.print(text, markup=False, highlight=False)

    def row(self, row: Mapping[str, Any]) -> None:
        """Prints a row of metrics.jsonl if it closes an episode or an evaluation."""
        if "loss/total" in row:
            self._loss = row
        if "train/return" in row:
            if self._lines:
                self.note(self._episode_line(row))
            if self._run is not None:
                self._progress.update(self._run, completed=row["episodes"])
        if self._lines and "eval/return_mean" in row:
            self.note("  " + evaluation_sentence(row))

    def _episode_line(self, row: Mapping[str, Any]) -> str:
        parts = [
            f"episode {row['train/episode'] + 1:4d}",
            f"env steps {row['env_steps']:8d}",
            f"return {row['train/return']:7.1f}" + (" (random actions)" if row["train/random_actions"] else ""),
        ]
        if self._loss:
            parts.append(f"state KL {self._loss['state_kl']:.2f}")
            if "weight_kl/total" in self._loss:
                parts.append(f"weight KL {self._loss['weight_kl/total']:.0f}")
            parts.append(f"{self._loss['speed/updates_per_second']:.1f} updates/s")
        if "speed/milliseconds_per_plan" in row:
            parts.append(f"{row['speed/milliseconds_per_plan']:.0f} ms/plan")
        return " | ".join(parts)


def evaluation_sentence(row: Mapping[str, Any]) -> str:
    """One evaluation in words."""
    return (
        f"evaluation after {row['episodes']} episodes: return {row['eval/return_mean']:.1f} on average, "
        f"median {row['eval/return_median']:.1f}, {row['eval/return_min']:.1f} to {row['eval/return_max']:.1f} "
        f"({row['eval/episodes']} noise-free episodes)"
    )
