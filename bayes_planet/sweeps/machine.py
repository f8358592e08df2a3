"""What a machine has for runs side by side, beside cores: graphics cards, and memory."""

import os
from pathlib import Path

import psutil

_CGROUP = Path("/sys/fs/cgroup")
_CARDS = Path("/proc/driver/nvidia/gpus")


def cards() -> list[str]:
    """Names of the NVIDIA cards that a process may use, as CUDA_VISIBLE_DEVICES has them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [each for each in given.split(",") if each and each != "-1"]
    return [str(number) for number, _ in enumerate(_CARDS.iterdir())] if _CARDS.is_dir() else []


def free_memory() -> int:
    """Bytes that processes can still take: of the machine, or of the container if that has less."""
    free = psutil.virtual_memory().available
    try:
        most = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        cached = next(
            int(line.split()[1])
            for line in (_CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, ValueError, StopIteration):  # 'max': there is no limit
        return free
    return min(free, most - used + cached)


def memory_of(process: int) -> int:
    """Bytes that a process and all that it has started hold."""
    total = 0
    try:
        first = psutil.Process(process)
        for each in [first, *first.children(recursive=True)]:
            try:
                total += each.memory_info().rss
            except psutil.Error:
                continue
    except psutil.Error:
        return total
    return total
