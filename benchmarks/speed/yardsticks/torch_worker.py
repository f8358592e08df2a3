"""PyTorch's side: reads one JSON command a line, answers with one JSON line.

Run as `PYTHON -m benchmarks.speed.yardsticks.torch_worker`. It imports neither TensorFlow nor
bayes_planet, and does nothing while it waits for a command.

    {"command": "hello"}                                             versions and threads
    {"command": "prepare", "name": N, "work": "update" | "plan", "sizes": {}, "variant": {}, "data": FILE.npz}
    {"command": "run", "name": N, "repeats": n}                      does the work n times; seconds in all
    {"command": "check", "sizes": {}, "variant": {}, "data": FILE}   loss, gradient norms and plan for given noise
    {"command": "forget", "name": N}
    {"command": "quit"}

An answer has "error" where the command failed.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.speed.yardsticks.plain_torch import PlainPlaNet, Variant
from benchmarks.speed.yardsticks.sizes import Sizes


class Worker:
    """The contestants of this process, by name."""

    def __init__(self) -> None:
        self._work: dict[str, Callable[[], object]] = {}

    def answer(self, request: dict) -> dict:
        """Carries out one command."""
        command = request.pop("command")
        if command not in ("hello", "prepare", "run", "check", "forget"):
            raise ValueError(f"The command is {command!r}. Accepted: hello, prepare, run, check, forget, quit.")
        return getattr(self, command)(**request)

    def hello(self) -> dict:
        return {
            "versions": {"torch": torch.__version__, "python": sys.version.split()[0]},
            "threads": torch.get_num_threads(),
            "modules": sorted(name for name in ("tensorflow", "bayes_planet") if name in sys.modules),
        }

    def prepare(self, name: str, work: str, sizes: dict, variant: dict, data: str) -> dict:
        arrays, weights = _read(data)
        model = PlainPlaNet(Sizes(**sizes), weights, Variant(**variant))
        if work == "update":
            batch = {key: arrays[key] for key in ("image", "action", "reward")}
            self._work[name] = lambda: model.update(batch)
        else:
            state = [torch.from_numpy(arrays[key]) for key in ("sample", "belief")]
            self._work[name] = lambda: model.plan(*state)
        return {}

    def run(self, name: str, repeats: int) -> dict:
        work = self._work[name]
        start = time.perf_counter()
        for _ in range(repeats):
            work()
        return {"seconds": time.perf_counter() - start}

    def forget(self, name: str) -> dict:
        self._work.pop(name, None)
        return {}

    def check(self, sizes: dict, variant: dict, data: str) -> dict:
        arrays, weights = _read(data)
        tensors = {key: torch.from_numpy(value) for key, value in arrays.items()}
        model = PlainPlaNet(Sizes(**sizes), weights, Variant(**variant))
        image = tensors["prepared"].flatten(0, 1).permute(0, 3, 1, 2)
        loss = model.loss(image, tensors["action"], tensors["reward"], tensors["noise"])
        loss.backward()
        noise = list(zip(tensors["action_noise"], tensors["state_noise"], strict=True))
        plan = model.plan(tensors["sample"], tensors["belief"], noise)
        levels = model.preprocess(tensors["image"].flatten(0, 1)).permute(0, 2, 3, 1).reshape(tensors["image"].shape)
        return {
            "loss": float(loss.detach()),
            "gradient_norms": model.gradient_norms(),
            "plan": plan.tolist(),
            "preprocessed": levels.tolist(),
        }


def _read(path: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The arrays of a file, and those of them whose names have a '/', which are weights."""
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    return arrays, {key: value for key, value in arrays.items() if "/" in key}


def main() -> None:
    """Answers until told to quit or until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not get between the answers
    worker = Worker()
    idle_cpu, idle_wall = time.process_time(), time.perf_counter()
    for line in sys.stdin:
        request = json.loads(line)
        if request["command"] == "quit":
            return
        idle = {"cpu": time.process_time() - idle_cpu, "wall": time.perf_counter() - idle_wall}
        try:
            answer = worker.answer(request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip()}"}
        answers.write(json.dumps({**answer, "idle": idle}) + "\n")
        answers.flush()
        idle_cpu, idle_wall = time.process_time(), time.perf_counter()


if __name__ == "__main__":
    main()
