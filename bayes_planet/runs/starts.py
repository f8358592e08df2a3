"""How a run came about: command line, machine and versions of a process that works on it. Imports no TensorFlow."""

import contextlib
import datetime
import importlib.metadata
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import bayes_planet

# What the numbers of a run may depend on.
PACKAGES = (
    *("tensorflow", "tensorflow-probability", "tf-agents", "tf-keras", "numpy", "scipy"),
    *("dm-control", "mujoco", "gymnasium"),
)

# Tells this process from all others that work on a run, one after another.
_PROCESS_STARTED = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def versions() -> dict[str, str]:
    """Of this package, Python, and the packages that a run's numbers may depend on; absent ones are left out."""
    found = {"bayes-planet": bayes_planet.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def command() -> str:
    """The command line of this process, as a shell takes it; the interpreter's folder is left out."""
    script = Path(sys.argv[0]).name if sys.argv else ""
    if script == "bayes-planet":
        return shlex.join([script, *sys.argv[1:]])
    return shlex.join(["python", *sys.orig_argv[1:]])


def core_numbers() -> list[int]:
    """Numbers of the processor cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def cores() -> int:
    """How many processor cores this process may use."""
    return len(core_numbers())


def cpuinfo() -> dict[str, str]:
    """The first processor's entries in /proc/cpuinfo, such as 'model name' and 'flags'; empty without that file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def machine() -> dict[str, Any]:
    """'cpu' model, 'cores' this process may use, 'cores_of_machine', 'memory_gb', 'accelerators' as TensorFlow lists
    them, and 'system'."""
    return {
        "cpu": cpuinfo().get("model name") or platform.processor() or platform.machine(),
        "cores": cores(),
        "cores_of_machine": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "accelerators": _accelerators(),
        "system": platform.platform(),
    }


def start(episodes: int) -> dict[str, Any]:
    """The entry about this process: it goes on after `episodes` of training."""
    return {
        "started": _PROCESS_STARTED,
        "episodes": episodes,
        "command": command(),
        "machine": machine(),
        "versions": versions(),
    }


def announcement(changed_from: dict[str, Any]) -> dict[str, Any]:
    """The entry that this process puts in the place of its `start` until it works: settings of the start before, by
    key, that are others now."""
    return {"started": _PROCESS_STARTED, "changed_from": changed_from}


def _accelerators() -> list[str]:
    import tensorflow as tf  # not before a command has diverted its output

    found = []
    for device in tf.config.get_visible_devices():
        if device.device_type not in ("CPU", "TPU_SYSTEM"):
            details = tf.config.experimental.get_device_details(device) if device.device_type == "GPU" else {}
            found.append(details.get("device_name") or device.name)
    return found
