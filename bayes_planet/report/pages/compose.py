"""From run folders to the page: which sections it has, and the numbers behind them."""

import dataclasses
import datetime
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bayes_planet
from bayes_planet.files.writing import check_output, require_writable, write_output
from bayes_planet.report.figures import belief as belief_figures
from bayes_planet.report.figures import groups as group_figures
from bayes_planet.report.figures import run as run_figures
from bayes_planet.report.figures.files import save_figures
from bayes_planet.report.pages.overview import configuration, overview
from bayes_planet.report.pages.page import render
from bayes_planet.report.pages.section import Details, Note, Part, Section
from bayes_planet.report.reading.groups import Group, group_runs
from bayes_planet.report.reading.numbers import numbers
from bayes_planet.report.reading.runs import Run, RunError, read_runs
from bayes_planet.report.videos.runs import videos


@dataclasses.dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
      path, size: the file and its bytes.
      numbers: what the page shows, as plain JSON.
      missing: by run name, what is not there or could not be read.
      figures: the files of single figures, where they were asked for.
    """

    path: Path
    size: int
    numbers: dict[str, Any]
    missing: dict[str, list[str]]
    figures: tuple[Path, ...] = ()


def compose(
    paths: Sequence[Path | str],
    out: Path,
    group_by: Sequence[str],
    load_analysis: Callable[[Path], Any] | None,
    detailed: int,
    figures: Path | None = None,
) -> Report:
    """See `bayes_planet.report.report`."""
    if out.is_dir():
        raise RunError(f"--out is {out}, a folder. Accepted: a file, such as {out / 'report.html'}.")
    runs = read_runs(paths)
    groups = group_runs(runs, group_by)
    _check_out(out, runs)
    if figures is not None:
        _make_folder("--figures", figures, figures)
    # A run's own curve may be compared with nothing: it is the page of one run that shows it best.
    if len(runs) == 1:
        title = f"Run {runs[0].name}"
        subtitle = f"{groups[0].method} on {runs[0].task}, seed {_seed(runs[0])}"
        sections = run_sections(runs[0], load_analysis)
    else:
        methods = len({group.method for group in groups})
        title = f"{len(runs)} runs of {methods} method{'s' if methods > 1 else ''}"
        subtitle = ", ".join(sorted({group.task for group in groups}))
        sections = group_sections(groups, load_analysis, detailed)
    made = datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes")
    page = render(title, subtitle, sections, f"Written by bayes-planet {bayes_planet.__version__} at {made}.")
    write_output(out, page)
    missing = {run.name: list(run.missing) for run in runs}
    files = () if figures is None else tuple(save_figures(sections, figures))
    return Report(out, len(page), numbers(groups), missing, files)


def _check_out(out: Path, runs: Sequence[Run]) -> None:
    """RunError, before the work, where the page cannot be written, or would be written through a link in a run, which
    may come from somebody else."""
    if out.is_symlink() and any(out.parent.resolve() == run.path.resolve() for run in runs):
        raise RunError(
            f"{out} is a link to {os.readlink(out)}. The page of a run is not written out of its folder by surprise: "
            "name the place with --out, or remove the link."
        )
    try:
        check_output(out)
    except OSError as error:
        raise RunError(f"--out is {out}, which cannot be written: {error}. Choose another place.") from error


def _make_folder(option: str, path: Path, folder: Path) -> None:
    """The folder that an option's file or figures go to; RunError, before the work, where nothing can be written."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{option} is {path}, which is no folder. Accepted: a folder, or a name that is free.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require_writable(folder)
    except OSError as error:
        raise RunError(f"{option} is {path}, which cannot be written: {error}. Choose another place.") from error


def run_sections(run: Run, load_analysis: Callable[[Path], Any] | None) -> list[Section]:
    """The page of one run."""
    gaps = [Note(text, "missing") for text in run.missing]
    return [
        Section("Overview", "Where the run stands, and how to read it.", [*gaps, *overview(run)]),
        Section("Score", "Is it learning?", run_figures.score(run)),
        Section(
            "Weight belief", "Is the posterior over the weights a belief, or still noise?", belief_figures.belief(run)
        ),
        Section(
            "Open-loop prediction while training",
            "Can the model see ahead?",
            [*run_figures.open_loop(run), *videos(run)],
        ),
        *analysis_sections(run, load_analysis),
        Section(
            "Loss terms", "What the learner pays for, mean over the updates between two rows.", run_figures.losses(run)
        ),
        Section("Speed", "", run_figures.speeds(run)),
        Section("Configuration and versions", "", configuration(run)),
    ]


def group_sections(
    groups: Sequence[Group], load_analysis: Callable[[Path], Any] | None, detailed: int
) -> list[Section]:
    """The page of several runs."""
    runs = [run for group in groups for run in group.runs]
    gaps = _gaps(runs)
    hidden: list[Part] = [*gaps] if len(gaps) <= 3 else [Details(f"What is missing in these runs ({len(gaps)})", gaps)]
    hidden += [Note(text, "warning") for text in map(_repeated_seeds, groups) if text]
    tasks = list(dict.fromkeys(group.task for group in groups))
    sections = [
        Section("Final scores", "", [*hidden, *group_figures.final_scores(groups), *group_figures.over_tasks(groups)])
    ]
    for task in tasks:
        title = "Score curves" if len(tasks) == 1 else f"Score curves: {task}"
        sections.append(Section(title, "", group_figures.score_curves([g for g in groups if g.task == task])))
    if len(groups) > len(tasks):
        sections.append(Section("Comparisons", "Every pair of methods on one task.", group_figures.comparisons(groups)))
    sections.append(Section("Every run", "", [group_figures.seed_scores(groups), *group_figures.overlays(groups)]))
    for run in runs[:detailed]:
        inside = run_sections(run, load_analysis)
        sections.append(Section(f"Run {run.name}", "", [Details(f"Figures of {run.name}, seed {_seed(run)}", inside)]))
    if len(runs) > detailed:
        text = (
            f"The figures of {detailed} of {len(runs)} runs are above. `bayes-planet report {runs[detailed].path}` "
            "makes the page of one run."
        )
        sections.append(Section("Further runs", "", [Note(text)]))
    return sections


def _repeated_seeds(group: Group) -> str:
    """A warning where runs of a group have the same seed: they are no independent repetitions."""
    seeds = [run.seed for run in group.runs if run.seed is not None]
    repeated = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if not repeated:
        return ""
    names = ", ".join(run.name for run in group.runs if run.seed in repeated)
    return (
        f"Runs of {group.method} on {group.task} have the same seed ({names}) and are counted as different ones, which "
        "makes intervals too narrow. Leave one out, or tell them apart with `--group`."
    )


def _gaps(runs: Sequence[Run]) -> list[Note]:
    """What is missing in which runs, each sentence once."""
    by_text: dict[str, list[str]] = {}
    for run in runs:
        for text in run.missing:
            by_text.setdefault(text, []).append(run.name)
    return [Note(f"{', '.join(names)}: {text}", "missing") for text, names in by_text.items()]


def analysis_sections(run: Run, load: Callable[[Path], Any] | None) -> list[Section]:
    """What `bayes-planet analyse` has found: predictions, probe, uncertainty."""
    if load is None:
        return []
    from bayes_planet.report.figures import model as model_figures

    title = "Analysis of the model"
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            analysis = load(run.path)
    except (OSError, ValueError, KeyError) as error:
        text = (
            f"The analysis in {run.path / 'analysis'} cannot be read ({error}). `bayes-planet analyse {run.path}` "
            "makes it again."
        )
        return [Section(title, "", [Note(text, "missing")])]
    if analysis is None:
        text = (
            "Open-loop prediction in numbers, velocity probe, uncertainty and calibration were not computed for "
            f"this run. `bayes-planet analyse {run.path}` computes them; then make this page again."
        )
        return [Section(title, "", [*(Note(str(each.message), "warning") for each in caught), Note(text, "missing")])]
    try:
        return model_figures.sections(analysis)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        text = (
            f"{run.path / 'analysis' / 'analysis.json'} or the arrays beside it do not hold what an analysis of this "
            f"version does ({type(error).__name__}: {str(error)[:200]}). `bayes-planet analyse {run.path}` makes it "
            "again."
        )
        return [Section(title, "", [Note(text, "missing")])]


def _seed(run: Run) -> str:
    return "unknown" if run.seed is None else str(run.seed)
