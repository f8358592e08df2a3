"""An environment process: `python -m bayes_planet.envs.worker FD PARENT`. Started by `Workers`.

It reads requests from the socket FD and answers each; it never imports TensorFlow. Messages, pickled:
  in   hello (a dict), then (number, command, argument)
  out  ("ok", number, result) or ("error", number, type name, message, traceback)
"""

import ctypes
import functools
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_SECONDS = 1.0


def die_with_parent(parent: int) -> None:
    """Ends this process soon after `parent` ends, even while the environment hangs.

    Linux kills it at once, also if it is stopped; it goes by the *thread* that started it, which must live as long
    as the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


def ignore_signals() -> None:
    """Leaves Ctrl-C and the signals of a batch system to the parent, which closes its workers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def build(hello: dict[str, Any]) -> Any:
    """Makes the environment that the parent described."""
    from bayes_planet.config import EnvConfig
    from bayes_planet.envs.environments import make

    sys.path.extend(path for path in hello["paths"] if path not in sys.path)
    factory = None if hello["factory"] is None else pickle.loads(hello["factory"])
    return make(EnvConfig(**hello["config"]), factory, hello["diagnostics"], hello["backend"])


def answer(env: Any, command: str, argument: Any) -> Any:
    """Carries out one request of the parent."""
    if command == "reset":
        return env.reset(seed=argument)
    if command == "step":
        return env.step(argument)
    if command == "render":
        return env.render()
    raise ValueError(f"The worker got the command {command!r}. Accepted: reset, step, render.")


def trace(error: BaseException) -> str:
    """The traceback, without the lines of this package where others are left: it is the environment that failed."""
    import bayes_planet

    package = os.path.dirname(os.path.abspath(bayes_planet.__file__)) + os.sep
    written = traceback.TracebackException.from_exception(error)
    others = [frame for frame in written.stack if not os.path.abspath(frame.filename).startswith(package)]
    if others:
        written.stack = traceback.StackSummary.from_list(others)
    return "".join(written.format())


def without_unsendable(reply: tuple[Any, ...], error: Exception) -> tuple[Any, ...]:
    """A reply without the entries of `info` that cannot be pickled; the error where it is something else."""
    try:
        *rest, info = reply[2]
        dropped = [key for key, value in info.items() if not _sendable(value)]
        if not dropped or not _sendable(rest):
            raise error
    except Exception:
        text = f"What the environment returned cannot be sent to another process: {error}"
        return ("error", reply[1], type(error).__name__, text, trace(error))
    _say_once(f"worker {os.getpid()}: info {dropped} cannot be sent to another process and is left out")
    return (*reply[:2], (*rest, {key: value for key, value in info.items() if key not in dropped}))


@functools.cache
def _say_once(text: str) -> None:
    """Not at every step of an environment."""
    print(text, flush=True)


def _sendable(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def serve(connection: Connection) -> Any:
    """Answers requests until the parent closes the connection. Returns the environment, if one was made."""
    number = 0
    env = None
    while True:
        try:
            message = connection.recv()
        except (EOFError, ConnectionResetError):
            return env
        try:
            if env is None:
                env = build(message)
                result: Any = {
                    "observation_space": env.observation_space,
                    "action_space": env.action_space,
                    "action_repeat": env.action_repeat,
                    "episode_steps": env.episode_steps,
                    "description": env.description,
                }
                print(f"worker {os.getpid()}: {env.description}", flush=True)
            else:
                number, command, argument = message
                result = answer(env, command, argument)
            reply: tuple[Any, ...] = ("ok", number, result)
        except Exception as error:
            reply = ("error", number, type(error).__name__, str(error), trace(error))
        try:
            connection.send(reply)
        except (BrokenPipeError, ConnectionResetError):
            return env
        except Exception as error:  # it cannot be pickled
            connection.send(without_unsendable(reply, error))
        if env is None:
            return None


def main(arguments: list[str]) -> None:
    import faulthandler

    descriptor, parent = (int(argument) for argument in arguments)
    ignore_signals()
    die_with_parent(parent)
    faulthandler.enable()
    env = serve(Connection(descriptor))
    try:
        if env is not None:
            env.close()  # it may have a simulator in a process of its own
    except Exception:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # GL drivers print, or hang, when they are taken down


if __name__ == "__main__":
    main(sys.argv[1:])
