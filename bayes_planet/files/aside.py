"""Where what cannot be used goes: beside where it was, under a name that nothing looks for."""

from pathlib import Path


def set_aside(path: Path, suffix: str) -> Path:
    """Renames a file or folder to its name with a suffix, and a number where that is taken; where it is now.

    Raises:
      FileNotFoundError: it is gone, as where another process has set it aside.
    """
    target, number = path.with_name(path.name + suffix), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{suffix}{number}")
    return path.rename(target)
