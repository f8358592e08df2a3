"""What the numbers were measured on: processor, versions, and the rates of its matrix products and memory."""

import importlib.metadata
import os
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from bayes_planet.runs import starts
from benchmarks.timing import timed

FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
PACKAGES = ("bayes_planet", "tensorflow", "tf-keras", "numpy", "dm-control", "mujoco")
MATRIX_SIZES = (1024, 2048, 3072)
COPY_BYTES = 2**28


def describe_machine() -> dict:
    """Processor, its matrix and vector flags, cores this process may use, memory, GPUs."""
    here, flags = starts.machine(), starts.cpuinfo().get("flags", "").split()
    return {
        "cpu": here["cpu"],
        "cores": here["cores"],
        "flags": [flag for flag in FLAGS if flag in flags],
        "memory_gb": here["memory_gb"],
        "gpus": here["accelerators"],
        "system": here["system"],
        "load_at_start": list(os.getloadavg()),
    }


def versions() -> dict[str, str]:
    """Python and the packages that do the work."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def measure_rates(matrix_sizes: tuple[int, ...] = MATRIX_SIZES, copy_bytes: int = COPY_BYTES) -> dict[str, float]:
    """'float32' and 'bfloat16': operations a second of the best square matrix product; 'copy': bytes a second.

    A copied byte counts twice, as it is read and written.
    """
    rates = {dtype.name: max(_matmul_rate(size, dtype) for size in matrix_sizes) for dtype in (tf.float32, tf.bfloat16)}
    # Where bfloat16 is emulated, its work is bounded by what the machine can do at all.
    rates["bfloat16"] = max(rates.values())
    return rates | {"copy": _copy_rate(copy_bytes)}


def _matmul_rate(size: int, dtype: tf.DType) -> float:
    generator = tf.random.Generator.from_seed(0)
    a, b = (tf.cast(generator.normal([size, size]), dtype) for _ in range(2))
    product = tf.function(lambda: tf.reduce_max(tf.matmul(a, b)), autograph=False)
    return 2 * size**3 / _best(lambda: product().numpy())


def _copy_rate(size: int) -> float:
    """All cores copy, each a part of its own: one alone does not fill the memory's bandwidth."""
    count = starts.cores()
    sources = [np.ones(size // 8) for _ in range(count)]
    targets = [np.zeros(size // 8) for _ in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return 2 * size * count / _best(lambda: list(pool.map(np.copyto, targets, sources)))


def _best(function: Callable[[], object]) -> float:
    measure = timed(function)
    measure(1)
    return min(measure(1) for _ in range(5))
