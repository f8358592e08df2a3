"""One of two processes that train together on real environments. A program: a cluster needs processes.

Arguments: the run's folder, this process's index, two free ports, further settings. Prints a digest of the weights.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import bayes_planet  # noqa: F401  (selects Keras 2)


def main(folder: Path, index: int, ports: list[str], settings: list[str]) -> None:
    hosts = [f"localhost:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}})

    from bayes_planet.commands import train as command
    from bayes_planet.commands.errors import UserError
    from bayes_planet.training import build as building
    from tests.training.parts import STATE_TASK

    made = []
    build = building.build

    def remember(*arguments):
        made.append(build(*arguments))
        return made[-1]

    building.build = remember
    overrides = [*STATE_TASK, "train.batch_size=4", "evaluation.workers=1", "evaluation.episodes=1", *settings]
    try:
        code = command.train(["bayes_planet", "debug"], overrides, folder, "cpu", "multi_worker")
    except UserError as error:
        print("ERROR", error)
        sys.exit(2)
    if code:
        sys.exit(code)
    learner = made[0].learner
    assert learner.strategy.num_replicas_in_sync == 2
    digest = hashlib.sha256(b"".join(variable.numpy().tobytes() for variable in learner.variables)).hexdigest()
    print("RESULT", json.dumps({"code": code, "updates": int(learner.updates.numpy()), "digest": digest}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:5], sys.argv[5:])
