"""Processes from outside."""

import os
import time


def ended(pid, seconds=60.0):
    """Whether a process is gone, or a zombie with no thread that has yet to end, within that time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stream:
                zombie = stream.read().rsplit(")", 1)[1].split()[0] == "Z"
            if zombie and len(os.listdir(f"/proc/{pid}/task")) == 1:  # its parent can wait for it
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False
