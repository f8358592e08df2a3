"""Does the belief predict better? Two methods on the same held-out episodes, from what `analyse --reference` found.

    bayes-planet analyse RUN --reference OTHER --episodes 10       # and the other way round
    python -m benchmarks.prediction FOLDER                         # of analysis.json files, under any names

Each file compares a run with a reference on episodes that the run's agent collected. A model is at home on its own
agent's episodes, so both ways round are needed; the rows say who collected. Writes FOLDER/README.md.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import heading, with_table, write

STEPS = ("1", "12", "50")
COLUMNS = (
    "episodes of",
    "model",
    "pairs of runs",
    "state, squared error",
    "reward, log-likelihood",
    *(f"90% interval of {steps}-step returns covers" for steps in STEPS),
    "CRPS of 12-step returns",
    "CRPS of 50-step returns",
)


def facts(found: dict[str, Any], who: str) -> np.ndarray:
    """The numbers of a row: `who` is model or reference."""
    returns = found["calibration"][who]["return"]
    open_loop = found["open_loop"]
    return np.array(
        [
            open_loop["state"][who]["squared_error"],
            open_loop["reward"][who]["log_likelihood"],
            *(returns[steps]["fitted"]["coverage"][-1] for steps in STEPS),
            returns["12"]["fitted"]["crps"],
            returns["50"]["fitted"]["crps"],
        ]
    )


def table(files: Sequence[Path]) -> str:
    """Markdown: for each collector, the belief and the deterministic model on its episodes; means over the pairs."""
    rows: dict[tuple[str, str], list[np.ndarray]] = {}
    for file in files:
        found = json.loads(file.read_text())
        models = ("Bayesian PlaNet", "PlaNet") if found["random_weights"] else ("PlaNet", "Bayesian PlaNet")
        for who, model in zip(("model", "reference"), models, strict=True):
            rows.setdefault((models[0], model), []).append(facts(found, who))
    lines = [heading(COLUMNS)]
    for (collector, model), numbers in sorted(rows.items()):
        means = np.mean(numbers, 0)
        cells = [collector, model, str(len(numbers)), f"{means[0]:.2f}", f"{means[1]:.2f}"]
        cells += [f"{100 * share:.0f}%" for share in means[2:5]]
        cells += [f"{value:.1f}" for value in means[5:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(folder: Path) -> str:
    """README.md of a folder of analyses."""
    return with_table(folder, COLUMNS, table(sorted(folder.glob("*.json"))))


def main(arguments: Sequence[str] | None = None) -> None:
    write(__doc__, page, arguments)


if __name__ == "__main__":
    main()
