"""A thread that starts processes and lives as long as this process does.

Linux ends a child that asked for it (PR_SET_PDEATHSIG) at the end of the *thread* that started it. Workers must outlive
the threads that train or collect with them, and must not outlive the process.
"""

import functools
import os
import queue
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def popen(*arguments: Any, **options: Any) -> subprocess.Popen:
    """`subprocess.Popen`, called by the thread that lives on."""
    return _starter(os.getpid()).call(lambda: subprocess.Popen(*arguments, **options))


class _Starter(threading.Thread):
    # A daemon: the end of the program does not wait for it, and it does not end before.
    def __init__(self) -> None:
        super().__init__(name="worker-starter", daemon=True)
        self._jobs: queue.SimpleQueue[tuple[Callable[[], subprocess.Popen], Future]] = queue.SimpleQueue()
        self.start()

    def call(self, job: Callable[[], subprocess.Popen]) -> subprocess.Popen:
        future: Future[subprocess.Popen] = Future()
        self._jobs.put((job, future))
        return future.result()

    def run(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)


@functools.cache
def _starter(pid: int) -> _Starter:
    del pid  # a forked process has none of its parent's threads
    return _Starter()
