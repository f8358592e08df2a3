"""The parent's end of one environment process: start it, ask it, tell how it failed."""

import contextlib
import glob
import math
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import gymnasium

import bayes_planet
from bayes_planet.envs import starter
from bayes_planet.envs.errors import ENVIRONMENT_ERRORS, WorkerError
from bayes_planet.files.plain import open_own, open_plain

TYPED = {error.__name__: error for error in (*ENVIRONMENT_ERRORS, gymnasium.error.ResetNeeded)}
TYPED.pop(WorkerError.__name__)
TYPED_AT_START = {error.__name__: error for error in (ValueError, TypeError, ImportError, ModuleNotFoundError)}
LOG_LINES = 15
LONGEST_SECONDS = 1e6
"""Of waiting for an answer; `poll` takes no more than 2**31 milliseconds."""
START_SECONDS = 120.0
"""What a process has to start at least, however short the timeout of an answer is."""
MARK = "BAYES_PLANET_WORKER"
"""The environment variable by which a process is known that an environment has started."""
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class EnvironmentProcess:
    """One worker. Requests are numbered, so an answer that nobody waited for is recognised and dropped."""

    def __init__(self, index: int, hello: dict[str, Any], log_file: Path | None, timeout: float) -> None:
        """Starts the process and describes the environment to it; the first `receive` gives its properties.

        Args:
          index: its place among the workers, for messages.
          hello: config, factory, paths, diagnostics and backend, as `worker.build` reads them.
          log_file: where its output is appended; None: nowhere.
          timeout: seconds it may take for an answer.
        """
        self.index = index
        self._timeout = timeout = min(timeout, LONGEST_SECONDS)
        self._log_file = log_file
        self._log_start = log_file.stat().st_size if log_file is not None and log_file.exists() else 0
        self._number = 0
        self._asked = "start"
        self._killed = False
        self._mark = f"{MARK}={uuid.uuid4().hex}"
        self._polling = threading.Lock()
        ours, theirs = socket.socketpair()
        with ours, theirs, _opened(log_file) as output:
            self._process = starter.popen(
                [sys.executable, "-P", "-m", "bayes_planet.envs.worker", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=_environment(self._mark), process_group=0,  # its own group: Ctrl-C in the terminal is the parent's
            )  # fmt: skip
            # A process that stops in the middle of an answer, or before it has read a large factory, would else be
            # waited for without end.
            start = max(timeout, START_SECONDS)
            for option, seconds in ((socket.SO_RCVTIMEO, timeout), (socket.SO_SNDTIMEO, start)):
                ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", math.ceil(seconds), 0))
            self._connection = Connection(ours.detach())
        self._deadline = time.monotonic() + start
        with contextlib.suppress(OSError):  # it is dead already: `receive` says so
            self._connection.send(hello)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        with self._polling:  # `poll` says "alive" of a dead process while another thread is in it
            return self._process.poll() is None

    def send(self, command: str, argument: Any) -> None:
        """Asks for something: reset (a seed), step (an action) or render (None)."""
        self._number += 1
        self._asked = command
        self._deadline = time.monotonic() + self._timeout
        with contextlib.suppress(OSError):  # dead or closed: `receive` says so
            self._connection.send((self._number, command, argument))

    def receive(self) -> Any:
        """The answer to the last request.

        Raises:
          WorkerError: the process died, gave no answer in time (it is killed then), or its environment failed.
          those of ENVIRONMENT_ERRORS, ResetNeeded: as in the worker, caused by a WorkerError that has the worker's
            traceback. At the start also ValueError, TypeError and ImportError.
        """
        while True:
            try:
                if not self._connection.poll(max(0.0, self._deadline - time.monotonic())):
                    raise self._hung()
                reply = self._connection.recv()
            except BlockingIOError as error:
                raise self._hung() from error
            except (EOFError, OSError) as error:
                raise self._died() from error
            if reply[1] != self._number:
                continue
            if reply[0] == "ok":
                return reply[2]
            raise self._failed(*reply[2:])

    def stop(self) -> None:
        """Asks the process to end by closing its connection; `join` waits for it."""
        self._connection.close()

    def join(self, seconds: float) -> None:
        """Waits for the end of the process, and kills it after that long; then kills what it has left behind."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._kill()

    def _kill(self) -> None:
        """Ends the process and what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: a group of zombies
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        _kill_marked(self._mark)

    def _hung(self) -> WorkerError:
        self._killed = True
        self._kill()
        seconds = self._timeout if self._asked != "start" else max(self._timeout, START_SECONDS)
        return WorkerError(
            f"Worker {self.index} (process {self.pid}) gave no answer to `{self._asked}` in {seconds:g} s and was "
            f"killed. If the environment is that slow, raise env.timeout_seconds.{self._log_tail()}",
            self.index,
            ended=True,
        )

    def _died(self) -> WorkerError:
        self.join(5.0)
        if self._killed:
            message = f"Worker {self.index} hung before and was killed. Call restart({self.index})."
            return WorkerError(message, self.index, ended=True)
        self._kill()  # what it has started outlives it
        ending = _ending(self._process.returncode)
        return WorkerError(
            f"Worker {self.index} (process {self.pid}) died during `{self._asked}`: {ending}.{self._log_tail()}",
            self.index,
            ended=True,
        )

    def _failed(self, kind: str, message: str, trace: str) -> Exception:
        started = self._asked != "start"
        cause = WorkerError(
            f"Worker {self.index} failed during `{self._asked}`: {kind}: {message}\n\nIn the worker:\n{trace}",
            self.index,
            alive=started,
        )
        typed = TYPED.get(kind) or (None if started else TYPED_AT_START.get(kind))
        if typed is None:
            return cause
        error = typed(message)
        error.__cause__ = cause
        return error

    def _log_tail(self) -> str:
        if self._log_file is None:
            return " Its output was not kept; give Workers a log_file to see it."
        try:
            with open_plain(self._log_file) as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self._log_start, size - 20_000))
                lines = stream.read().decode(errors="replace").strip().splitlines()[-LOG_LINES:]
        except OSError as error:
            return f" Its log {self._log_file} cannot be read: {error}."
        if not lines and os.statvfs(self._log_file).f_bavail == 0:
            return f" The disk under {self._log_file} is full: make room."
        return f" Last lines of {self._log_file}:\n" + ("\n".join(lines) if lines else "(nothing)")


def _opened(log_file: Path | None) -> IO[bytes]:
    """Where a worker's output is appended."""
    return open(os.devnull if log_file is None else open_own(log_file, os.O_WRONLY | os.O_APPEND), "ab")


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", often for lack of memory" if -code == signal.SIGKILL else ""
    return f"exit code {code}, killed by {name}{hint}"


def _kill_marked(mark: str) -> None:
    """Kills processes that have inherited this environment variable, in whatever group and session. Linux alone."""
    for _ in range(20):  # one of them may be starting another
        found = 0
        for path in glob.iglob("/proc/[0-9]*/environ"):
            with contextlib.suppress(OSError, ProcessLookupError):  # another user's, or it has ended
                if mark.encode() in Path(path).read_bytes().split(b"\0"):
                    os.kill(int(Path(path).parent.name), signal.SIGKILL)
                    found += 1
        if not found:
            return
        time.sleep(0.01)


def _environment(mark: str) -> dict[str, str]:
    """Environment variables of a worker: one thread each, no window, no sound, and this package importable."""
    environment = dict(os.environ)
    # dm_control leaves this behind in a process that rendered, where it would rule out any other backend.
    environment.pop("PYOPENGL_PLATFORM", None)
    environment.update(dict.fromkeys(ONE_THREAD, "1"))
    environment.setdefault("SDL_VIDEODRIVER", "dummy")
    environment.setdefault("SDL_AUDIODRIVER", "dummy")
    environment.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    environment["DISABLE_RENDER_THREAD_OFFLOADING"] = "1"  # a worker has one thread that draws
    environment["PYTHONUNBUFFERED"] = "1"
    name, _, value = mark.partition("=")
    environment[name] = value
    root = Path(bayes_planet.__file__).absolute().parent.parent
    if root.name not in ("site-packages", "dist-packages"):  # a checkout; an installed package is found anyway
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{inherited}" if inherited else str(root)
    return environment
