"""The fastest stretch of each training episode: how well an agent can do, apart from how often it falls.

    python -m benchmarks.fastest RUN [RUN2 ...] [--block 10]

The return of an episode mixes two things: how fast the agent runs, and for how long it lies on its back. This is the
highest mean reward over 25 decisions in a row, median over each block of training episodes, and beside it the median
and the lowest return of the same episodes. RUN is the folder of a run, or one in results/ with a fastest.json, which
`python -m benchmarks.evidence keep` writes where the episodes are at hand.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bayes_planet.replay.episode import episode_files, episode_return, read
from benchmarks.page import heading

DECISIONS = 25
FILE = "fastest.json"


def fastest(rewards: np.ndarray, decisions: int = DECISIONS) -> float:
    """The highest mean of `decisions` rewards in a row; of all of them where there are fewer.

    Args:
      rewards: [T] of the decisions of an episode, T at least 1.
    """
    window = min(decisions, len(rewards))
    total = np.concatenate([[0.0], np.cumsum(rewards, dtype=np.float64)])
    return float(np.max(total[window:] - total[:-window])) / window


def of_episodes(folder: Path) -> list[list[float]]:
    """[fastest stretch, return] of each episode of a run, in order; empty where the first ones are not there."""
    rows = []
    for position, (path, index, count) in enumerate(episode_files(folder)):
        if index != position:
            return []
        episode = read(path, count)
        rows.append([round(fastest(episode["reward"][1:]), 3), round(episode_return(episode), 1)])
    return rows


def of_run(run: Path) -> list[list[float]]:
    """[fastest stretch, return] of each training episode.

    Raises:
      ValueError: the folder has neither the episodes nor what `keep` has noted of them.
    """
    if (run / FILE).exists():
        return json.loads((run / FILE).read_text())
    rows = of_episodes(run / "episodes")
    if not rows:
        raise ValueError(
            f"{run} has neither {FILE} nor all of its episodes. Give the folder of a run, "
            "of a packed one as `bayes-planet unpack` makes it, or one in results/ with that file."
        )
    return rows


def table(rows: Sequence[Sequence[float]], block: int) -> str:
    """One line for each `block` episodes."""
    lines = [heading(("episodes", "fastest 25 decisions, median", "return, median", "lowest"))]
    for start in range(0, len(rows), block):
        part = np.array(rows[start : start + block])
        speed, reward = np.median(part, axis=0)
        lines.append(f"| {start + 1} to {start + len(part)} | {speed:.2f} | {reward:.0f} | {part[:, 1].min():.0f} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+")
    parser.add_argument("--block", type=int, default=10, help="episodes on a line (default: 10)")
    options = parser.parse_args(arguments)
    if options.block < 1:
        parser.error(f"--block must be at least 1, not {options.block}.")
    for run in options.run:
        try:
            print(f"{run}\n{table(of_run(run), options.block)}\n")
        except ValueError as error:
            parser.error(str(error))


if __name__ == "__main__":
    main()
