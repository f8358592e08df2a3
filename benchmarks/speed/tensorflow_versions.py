"""TensorFlow's releases side by side: `python -m benchmarks.speed.tensorflow_versions PYTHON [PYTHON ...]`.

Each interpreter runs the preset `laptop`'s update and plan in a process of its own, in turns with this one, so that
what disturbs the machine disturbs them all. Prints medians and their ratios to this interpreter's.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

from benchmarks.timing import paired_ratio

ROUNDS, REPEATS = 7, {"update": 3, "plan": 5}


def serve() -> None:
    """Answers each line, a name of `REPEATS`, with the seconds of one unit of it."""
    import tensorflow as tf

    from benchmarks.speed import ours
    from benchmarks.speed.settings import PLAIN_SEARCH, config_of, make_batch, make_state, sizes_of

    sizes = sizes_of(config_of("laptop", "bayes_planet", *PLAIN_SEARCH))
    contestants = {
        "update": ours.update_contestant("laptop", "bayes_planet", "auto", make_batch(sizes), as_preset=True),
        "plan": ours.plan_contestant("laptop", "bayes_planet", "auto", make_state(sizes)),
    }
    for contestant in contestants.values():
        contestant.measure(2)
    print(json.dumps({"python": sys.version.split()[0], "tensorflow": tf.__version__}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        print(contestants[name].measure(REPEATS[name]) / REPEATS[name], flush=True)


def compare(pythons: Sequence[str]) -> None:
    """Measures and prints, one line for each interpreter and unit; ratios are to the first."""
    processes = [
        subprocess.Popen(
            [python, "-m", "benchmarks.speed.tensorflow_versions", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for python in pythons
    ]

    def ask(process: subprocess.Popen, line: str = "") -> str:
        assert process.stdin is not None and process.stdout is not None
        if line:
            print(line, file=process.stdin, flush=True)
        return process.stdout.readline()

    facts = [json.loads(ask(process)) for process in processes]
    for name in REPEATS:
        rounds = np.array([[float(ask(process, name)) for process in processes] for _ in range(ROUNDS)])
        for index, fact in enumerate(facts):
            ratio = paired_ratio(list(rounds[:, index]), list(rounds[:, 0]))
            print(
                json.dumps({**fact, "unit": name, "median_seconds": float(np.median(rounds[:, index])), "ratio": ratio})
            )
    for process in processes:
        process.communicate()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="an interpreter whose environment has the package")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return
    for python in options.pythons:
        if shutil.which(python) is None:
            parser.error(f"PYTHON is {python!r}, which is no program here. Accepted: paths or names of interpreters.")
    compare([sys.executable, *options.pythons])


if __name__ == "__main__":
    main()
