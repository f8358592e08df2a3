"""A finished run's last agent for `pretrained/`: weights of 16 bits, and its returns in that form.

    python -m benchmarks.returns.publish RUN pretrained/TASK

writes the folder, and published.json in it: the returns of 30 noise-free episodes, which `bayes-planet evaluate
pretrained/TASK --episodes 30 --json` prints, the KL of its belief by layer, and the run that it comes from.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayes_planet import BayesPlanet
from bayes_planet.report.reading.runs import read_runs
from bayes_planet.report.reading.starts import machine_text
from bayes_planet.runs.starts import machine
from bayes_planet.world_model.networks.precision import dtype_policy
from benchmarks.returns.six_tasks import FINAL_EPISODES, commits_of

PUBLISHED = "published.json"


def publish(folder: Path, out: Path, episodes: int = FINAL_EPISODES) -> dict[str, Any]:
    """Saves the agent of a run's folder at `out`, measures what was saved, and returns what `published.json` holds.

    Raises:
      RunError: the folder is no run.
      ValueError: `out` holds something else than a saved model.
    """
    (run,) = read_runs([folder])
    with BayesPlanet.load(folder) as model:
        model.save(out, optimizer=False, bits=16)
    with BayesPlanet.load(out) as saved:
        returns = list(saved.evaluate(episodes, seed=0).returns)
        beliefs = {name: float(value) for name, value in saved.world_model.weight_kl().items()}
        method, precision = saved.config.planner.method, dtype_policy(saved.config.train.precision)
        env_steps = saved.num_env_steps
    published = {
        "commands": {method: f"bayes-planet evaluate {out.as_posix()} --episodes {episodes} --json"},
        "returns": {method: {"bfloat16" if "bfloat16" in precision else "float32": returns}},
        "machine": machine_text(machine()),
        "run": {
            "seed": run.seed,
            "env_steps": env_steps,
            "commits": commits_of(folder.parent),
        },
        "weight_kl": beliefs,
    }
    (out / PUBLISHED).write_text(json.dumps(published, indent=1) + "\n")
    return published


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    published = publish(options.run, options.out)
    print(json.dumps(published["returns"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
