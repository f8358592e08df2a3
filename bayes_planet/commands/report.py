"""`bayes-planet report`: one HTML page about one run, or about several."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from bayes_planet.commands.errors import UserError, reason, user_errors
from bayes_planet.evaluation import analysis
from bayes_planet.report import report as write_report
from bayes_planet.report.reading.runs import RunError


def report(options: argparse.Namespace) -> int:
    """Writes the page; prints where it is and what is missing, or its numbers as JSON."""
    out = options.out or (options.runs[0] / "report.html" if len(options.runs) == 1 else Path("report.html"))
    if options.detailed < 0:
        raise UserError(f"--detailed is {options.detailed}. Accepted: 0 or more runs.")
    with user_errors(RunError):
        try:
            written = write_report(options.runs, out, options.group, analysis.load, options.detailed, options.figures)
        except OSError as error:
            raise UserError(f"The report could not be finished: {reason(error)}.") from error
    if options.json:
        numbers = {"report": str(written.path), "bytes": written.size, **written.numbers}
        print(json.dumps(numbers, allow_nan=False))
        return 0
    print(f"{written.path} ({written.size / 1e6:.1f} MB)")
    if options.figures is not None:
        print(f"{options.figures}: {len(written.figures)} figures")
    for group in written.numbers["groups"]:
        print(f"  {_sentence(group)}")
    for name, gaps in written.missing.items():
        for gap in gaps:
            print(f"  {name}: {gap}")
    return 0


def page_of_run(run: Path, note: Callable[[str], None]) -> None:
    """The page of a run that has ended, in its folder; `note` is told where it cannot be written."""
    try:
        write_report([run], run / "report.html", load_analysis=analysis.load)
    except Exception as error:
        note(f"warning: report.html could not be written: {reason(error)}.")


def _sentence(group: dict) -> str:
    name, final = f"{group['method']} on {group['task']}", group["final"]
    count = f"{len(group['runs'])} run{'s' if len(group['runs']) != 1 else ''}"
    if final is None:
        return f"{name}, {count}: no evaluation yet"
    if final["count"] == 1:
        return f"{name}, {count}: mean {final['mean']:.4g} at the last evaluation"
    middle = final["interquartile_mean"]
    sure = (
        ""
        if middle["low"] is None
        else f" (95% interval over {middle['resampled']} {middle['low']:.4g} to {middle['high']:.4g})"
    )
    return (
        f"{name}, {count}: median {final['median']:.4g}, 5 to 95% {final['low']:.4g} to {final['high']:.4g}, "
        f"interquartile mean {middle['value']:.4g}{sure}"
    )
