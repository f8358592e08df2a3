"""The process in which PyTorch runs, and PyTorch's contestants in it."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.speed.roofline import Work
from benchmarks.speed.yardsticks.sizes import Sizes
from benchmarks.timing import Contestant, Failure

ROOT = Path(__file__).parents[3]
HOW_TO_GET_IT = (
    "not installed: torch and tf-agents want different versions of typing-extensions, so make it an environment of "
    "its own (python3 -m venv torch && torch/bin/pip install torch numpy) and give --torch-python torch/bin/python"
)
LEFT_OUT = 4.0  # how many times slower than the fastest one before it a variant may be, to be measured further
VARIANTS: dict[str, dict[str, dict[str, bool]]] = {
    "update": {
        "float32": {},
        "float32+channels_last": {"channels_last": True},
        "bfloat16": {"bfloat16": True},
        "bfloat16+channels_last": {"bfloat16": True, "channels_last": True},
        "float32+compile": {"compile": True},
        "bfloat16+channels_last+compile": {"bfloat16": True, "channels_last": True, "compile": True},
    },
    # A plan sees no image, so it has no memory format.
    "plan": {
        "float32": {},
        "bfloat16": {"bfloat16": True},
        "float32+compile": {"compile": True},
        "bfloat16+compile": {"bfloat16": True, "compile": True},
    },
}
"""How PyTorch computes each kind of work, by name."""


class TorchError(RuntimeError):
    """PyTorch's process could not do what it was asked."""


def find_torch(python: str | None) -> str | None:
    """The interpreter to use: the given one, else this one if it has torch; None: there is no torch.

    Raises:
      TorchError: an interpreter was given and cannot import torch.
    """
    candidate = python or sys.executable
    try:
        done = subprocess.run([candidate, "-c", "import torch, numpy"], capture_output=True, text=True, timeout=120)
        problem = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if problem and python:
        raise TorchError(f"--torch-python is {python}, which cannot import torch and numpy: {problem}.")
    return None if problem else candidate


class TorchProcess:
    """A process of `benchmarks.speed.yardsticks.torch_worker`, idle except while it answers.

    Attributes:
      versions: of torch and its Python.
      threads: that torch computes with.
      wait_policy: OMP_WAIT_POLICY of its threads.
      idle_share: processor time over wall time while waiting: 'torch' of that process, 'harness' of this one while
        torch works. Near 0, or the contestants disturb each other.
    """

    def __init__(self, python: str):
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        # A thread of OpenMP that has nothing to do sleeps, instead of waiting in a loop; the user's choice wins.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        self.wait_policy = environment["OMP_WAIT_POLICY"]
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.speed.yardsticks.torch_worker"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._idle = {"torch": [0.0, 0.0], "harness": [0.0, 0.0]}
        hello = self.request("hello")
        self.versions: dict[str, str] = hello["versions"]
        self.threads: int = hello["threads"]
        self.modules: list[str] = hello["modules"]

    def request(self, command: str, **arguments: Any) -> dict:
        """Sends one command and waits for its answer. Raises TorchError where it fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise TorchError(f"PyTorch's process ended at {command!r}: {self._last_words()}")
        answer = json.loads(line)
        if command == "run":
            for name, used, passed in (
                ("harness", time.process_time() - cpu, time.perf_counter() - wall),
                ("torch", answer["idle"]["cpu"], answer["idle"]["wall"]),
            ):
                self._idle[name][0] += used
                self._idle[name][1] += passed
        if "error" in answer:
            raise TorchError(answer["error"])
        return answer

    @property
    def idle_share(self) -> dict[str, float]:
        return {name: cpu / wall if wall else 0.0 for name, (cpu, wall) in self._idle.items()}

    def facts(self) -> dict[str, Any]:
        """For the results: versions, threads, how they wait, and `idle_cpu_share`."""
        return {
            "versions": self.versions,
            "threads": self.threads,
            "wait_policy": self.wait_policy,
            "idle_cpu_share": self.idle_share,
        }

    def _last_words(self) -> str:
        self._process.wait(10.0)
        self._log.seek(0)
        return " | ".join(self._log.read().strip().splitlines()[-3:]) or f"exit code {self._process.returncode}"

    def close(self) -> None:
        """Ends the process. Harmless when called again."""
        if self._process.poll() is None:
            try:
                assert self._process.stdin is not None
                self._process.stdin.write('{"command": "quit"}\n')
                self._process.stdin.close()
                self._process.wait(10.0)
            except (OSError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        self._log.close()

    def __enter__(self) -> "TorchProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def contestants(
    process: TorchProcess | None, work: str, sizes: Sizes, needs: Work, data: Path
) -> list[Contestant | Failure]:
    """PyTorch's variants of 'update' or 'plan', each run once to see that it works; one Failure without torch."""
    if process is None:
        return [Failure("torch/float32", "PyTorch", HOW_TO_GET_IT)]
    found: list[Contestant | Failure] = []
    first = float("inf")
    for name, variant in VARIANTS[work].items():
        key, label = f"torch/{name}", "PyTorch " + name.replace("+", ", ")
        try:
            process.request(
                "prepare", name=key, work=work, sizes=dataclasses.asdict(sizes), variant=variant, data=str(data)
            )
            seconds = process.request("run", name=key, repeats=1)["seconds"]
            if variant.get("compile"):
                seconds = process.request("run", name=key, repeats=1)["seconds"]  # the first one compiled
        except TorchError as error:
            process.request("forget", name=key)
            found.append(Failure(key, label, str(error).splitlines()[0]))
            continue

        first = min(first, seconds)
        if seconds > LEFT_OUT * first:
            process.request("forget", name=key)
            found.append(Failure(key, label, f"left out: one took {seconds:.1f} s, another variant {first:.1f} s"))
            continue

        def measure(repeats: int, key: str = key) -> float:
            return process.request("run", name=key, repeats=repeats)["seconds"]

        found.append(Contestant(key, label, measure, needs, name.partition("+")[0]))
    return found


def forget(process: TorchProcess | None, entries: list[Contestant | Failure]) -> None:
    """Frees what `contestants` prepared."""
    for entry in entries:
        if process is not None and isinstance(entry, Contestant) and entry.name.startswith("torch/"):
            process.request("forget", name=entry.name)


def write_data(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Writes what a contestant of another process needs."""
    np.savez(path, **arrays)
    return path
