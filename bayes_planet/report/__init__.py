"""What people look at: videos, plots and the HTML report of a run.

from bayes_planet.evaluation import analysis
from bayes_planet.report import report

report(["runs/seed0", "runs/seed1"], "report.html", load_analysis=analysis.load)
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bayes_planet.report.pages.compose import Report


def report(
    runs: Sequence[Path | str],
    out: Path | str,
    group_by: Sequence[str] = (),
    load_analysis: Callable[[Path], Any] | None = None,
    detailed: int = 8,
    figures: Path | str | None = None,
) -> "Report":
    """Writes one self-contained HTML page on one run, or on several, grouped by method and task.

    Args:
      runs: folders of training runs, in any state: what is missing is said on the page.
      out: the file; folders are made, an older file is replaced in one go.
      group_by: settings such as model.bayesian.kl_scale that make a group; empty: all that make a method.
      load_analysis: `bayes_planet.evaluation.analysis.load`, which reads what `bayes-planet analyse` has left in a run;
        None: the page is about the training alone.
      detailed: of several runs, how many have their own figures on the page (2 to 10 seconds and about 1 MB each).
      figures: a folder that gets every figure as a file of its own too (.svg, .png), named after its section.

    Returns:
      The file, its size, the numbers on it (plain JSON), and what was missing.

    Raises:
      RunError: a folder that holds no run, or a group_by that is no setting.
      OSError: the page cannot be written.
    """
    from bayes_planet.report.pages.compose import (
        compose,  # here: it loads matplotlib and scipy, which training does not need
    )

    return compose(runs, Path(out), group_by, load_analysis, detailed, None if figures is None else Path(figures))
