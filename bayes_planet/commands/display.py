"""What the terminal shows at the end of a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.display import evaluation_sentence


def megabytes(folder: Path) -> float:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def print_summary(console: Console, run: Path) -> None:
    """What a run came to, read from its files: score, belief, video, where things are."""
    rows = read_metrics(run / "metrics.jsonl")

    def last(key: str) -> Mapping[str, Any] | None:
        return next((row for row in reversed(rows) if key in row), None)

    def line(name: str, text: str) -> None:
        console.print(f"  {name:<12} {text}", markup=False, highlight=False)

    if evaluation := last("eval/return_mean"):
        line("return", evaluation_sentence(evaluation).partition(": return ")[2])
    if belief := last("weight_kl/total"):
        layers = [
            f"{key.removeprefix('weight_kl/')} {value:.0f}"
            for key, value in belief.items()
            if key.startswith("weight_kl/") and key not in ("weight_kl/total", "weight_kl/scale")
        ]
        line("weight KL", f"{belief['weight_kl/total']:.0f} nats ({', '.join(layers)})")
    best = RunDirectory(RunDirectory(run).best_model)
    try:
        saved = best.saved_model() or {}
    except (OSError, ValueError) as error:
        saved = {}
        line("best model", str(error))
    if "evaluation" in saved:  # what `EvalCallback` saved under this name has none
        mean = saved["evaluation"]["return_mean"]
        line("best model", f"{best.path}, after {saved.get('episodes', '?')} episodes (return {mean:.1f} on average)")
    videos = sorted((run / "videos").glob("open_loop-*"))
    if videos:
        line("video", f"{videos[-1]} (true, predicted, error)")
    line("metrics", f"{run / 'metrics.jsonl'}, and TensorBoard: tensorboard --logdir {run / 'tensorboard'}")
    line("library logs", str(run / "logs"))
