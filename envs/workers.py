"""Environments in processes of their own, stepped side by side."""

import contextlib
import dataclasses
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np

from bayes_planet import arguments
from bayes_planet.config import EnvConfig
from bayes_planet.config.settings import require_settings
from bayes_planet.envs import rendering
from bayes_planet.envs.errors import EpisodeFault, WorkerError
from bayes_planet.envs.process import EnvironmentProcess
from bayes_planet.envs.wrappers import check_actions

Observations = dict[str, np.ndarray]
_SEED_LIMIT = 2**32
_CLOSE_SECONDS = 3.0
_STARTS = 4


class Workers:
    """`count` equal environments, each in a process that never imports TensorFlow.

    A crash there ends no training: the call that meets it raises WorkerError, the other workers stay in step, and
    `restart(index)` puts a fresh process in place. A caller that wants the others' results gives a dict for `faults`.
    Two threads may use it at a time, with `reset`, `step` and `restart`, if no worker is used by both.

    Attributes:
      count: processes.
      observation_space: Dict of `image` uint8 [S, S, 3] and/or `state` float32 [n].
      action_space: Box(-1, 1, [A], float32).
      action_repeat: env steps an action is held.
      episode_steps: agent steps after which an episode is cut; its rows in the replay less one.
      description: gl_backend, gl_renderer and render_quality.
      frames_checked: whether somebody has looked if its images show anything.
      lost_at_start: why processes ended while they were first started, and were started again (up to three times).
      infos: the last `info` of each worker, with `env_steps` (of the last agent step) and, with diagnostics, `qvel`.
    """

    def __init__(
        self,
        config: EnvConfig,
        count: int,
        log_file: str | os.PathLike[str] | None = None,
        factory: Callable[[], gymnasium.Env] | None = None,
        diagnostics: bool = False,
    ) -> None:
        """Starts the processes and waits until all are ready (about 2 s).

        Args:
          config: the `env` settings. `config.workers` is not read: `count` says how many.
          count: how many processes, 1 or more.
          log_file: their output (GL, MuJoCo, pygame) is appended here; None throws it away.
          factory: makes the environment instead of `config.name`; sent to the workers by cloudpickle.
          diagnostics: put velocities into `infos`.

        Raises:
          UnknownTaskError, UnsupportedSpaceError, NoGLError, ValueError: as `make`.
          WorkerError: a process could not be started.
        """
        require_settings(config)
        self.frames_checked = False
        self.count = count = arguments.whole("The number of workers", count, 1)
        self._timeout = config.timeout_seconds
        self._log_file = None if log_file is None else arguments.path("log_file", log_file).absolute()
        if self._log_file is not None:
            self._log_file.parent.mkdir(parents=True, exist_ok=True)
        self._hello = {
            "config": dataclasses.asdict(config),
            "factory": None if factory is None else _pickled(factory),
            "paths": [os.path.abspath(path) for path in sys.path],
            "diagnostics": arguments.flag("diagnostics", diagnostics),
            "backend": rendering.find_backend(),
        }
        self.lost_at_start: list[str] = []
        self._processes: list[EnvironmentProcess] = []
        self._finalizer = weakref.finalize(self, _close, self._processes)  # also at exit
        try:
            for index in range(count):
                self._processes.append(self._start(index))
            ready = self._first_answers()
        except BaseException:
            self._finalizer()
            raise
        self.observation_space: gymnasium.spaces.Dict = ready[0]["observation_space"]
        self.action_space: gymnasium.spaces.Box = ready[0]["action_space"]
        self.action_repeat: int = ready[0]["action_repeat"]
        self.episode_steps: int = ready[0]["episode_steps"]
        self.description: dict[str, str] = ready[0]["description"]
        self.infos: list[dict[str, Any]] = [{} for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def broken(self) -> list[int]:
        """Workers whose process has ended; `restart` them."""
        return [process.index for process in self._processes if not process.alive]

    def reset(
        self,
        seeds: Sequence[int | None],
        indices: Sequence[int] | None = None,
        faults: dict[int, EpisodeFault] | None = None,
    ) -> Observations:
        """Starts an episode in each chosen worker.

        Args:
          seeds: one for each chosen worker, 0 to 2**32 - 1. It alone decides the episode. None: go on with
            that environment's own stream.
          indices: which workers; None: all.
          faults: as in `step`.

        Returns:
          Observations, [n, ...] each, in the order of `indices`.
        """
        chosen = self._choose(indices)
        seeds = list(seeds)
        if len(seeds) != len(chosen):
            raise ValueError(f"There are {len(seeds)} seeds for {len(chosen)} workers. Accepted: one seed each.")
        checked = [_checked_seed(seed) for seed in seeds]
        for index, seed in zip(chosen, checked, strict=True):
            self._processes[index].send("reset", seed)
        answers = self._collect(chosen, faults)
        for index, (_, info) in answers.items():
            self.infos[index] = info
        return _stack([observation for observation, _ in answers.values()])

    def step(
        self,
        actions: np.ndarray,
        indices: Sequence[int] | None = None,
        faults: dict[int, EpisodeFault] | None = None,
    ) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray]:
        """One agent step in each chosen worker, side by side.

        Args:
          actions: [n, A], numbers in [-1, 1]; what lies outside is clipped.
          indices: which workers; None: all.
          faults: where given, a worker that died, hung or failed, or whose task gave a number that is not finite,
            raises nothing: its WorkerError or NonFiniteError is put here under its index, and the results have no row
            for it (n is smaller, possibly 0). After a NonFiniteError the worker lives: reset it.

        Returns:
          Observations, [n, ...] each; reward float32 [n], summed over the action repeat; terminated bool [n];
          truncated bool [n], never together with terminated.

        Raises:
          ValueError: actions of another shape, or not finite.
          WorkerError: a process died, hung or failed. Its `index` says which; the others have made their step.
          NonFiniteError: a task gave a reward or state that is not finite.
        """
        return self._results(self._send_actions(actions, indices), faults)

    def _send_actions(self, actions: np.ndarray, indices: Sequence[int] | None) -> list[int]:
        chosen = self._choose(indices)
        check_actions(actions, (len(chosen), *self.action_space.shape))
        rows = np.asarray(actions, np.float32)
        for row, index in enumerate(chosen):
            self._processes[index].send("step", rows[row])
        return chosen

    def _results(
        self, chosen: Sequence[int], faults: dict[int, EpisodeFault] | None
    ) -> tuple[Observations, np.ndarray, np.ndarray, np.ndarray]:
        answers = self._collect(chosen, faults)
        for index, answer in answers.items():
            self.infos[index] = answer[4]
        observations, rewards, terminated, truncated = ([answer[k] for answer in answers.values()] for k in range(4))
        return (
            _stack(observations),
            np.array(rewards, np.float32),
            np.array(terminated, bool),
            np.array(truncated, bool),
        )

    def render(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """The present images, uint8 [n, S, S, 3], whatever the observations are. Raises NoGLError without GL."""
        chosen = self._choose(indices)
        for index in chosen:
            self._processes[index].send("render", None)
        return np.stack(list(self._collect(chosen).values()))

    def restart(self, index: int) -> None:
        """Ends a worker, whatever state it is in, and starts a fresh one in its place; reset it before stepping."""
        [index] = self._choose([index])
        self._processes[index].stop()
        self._processes[index].join(_CLOSE_SECONDS)
        self._processes[index] = self._start(index)
        self.infos[index] = {}
        self._collect([index])

    def log(self, text: str) -> None:
        """Adds a line to the log file, if there is one."""
        if self._log_file is not None:
            with contextlib.suppress(OSError), open(self._log_file, "a", encoding="utf-8") as log:
                log.write(f"{text}\n")

    def close(self) -> None:
        """Ends all processes. Harmless when called again."""
        self._finalizer()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _start(self, index: int) -> EnvironmentProcess:
        return EnvironmentProcess(index, self._hello, self._log_file, self._timeout)

    def _first_answers(self) -> dict[int, Any]:
        """What each process says of its environment. One that ends meanwhile, killed for one, is started again."""
        answers: dict[int, Any] = {}
        for _ in range(_STARTS - 1):
            faults: dict[int, EpisodeFault] = {}
            answers |= self._collect([index for index in range(self.count) if index not in answers], faults)
            for index, error in faults.items():
                if not (isinstance(error, WorkerError) and error.ended):
                    raise error
                self.lost_at_start.append(str(error))
                self._processes[index].join(0.0)
                self._processes[index] = self._start(index)
            if not faults:
                return answers
        return answers | self._collect([index for index in range(self.count) if index not in answers])

    def _choose(self, indices: Sequence[int] | None) -> list[int]:
        if not self._finalizer.alive:
            raise WorkerError("These workers are closed. Make new ones.")
        everyone = range(self.count)
        chosen = list(everyone if indices is None else (arguments.whole("A worker index", each) for each in indices))
        if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) <= set(everyone):
            raise ValueError(f"The worker indices are {chosen}. Accepted: different ones of 0 to {self.count - 1}.")
        return chosen

    def _collect(self, indices: Iterable[int], faults: dict[int, EpisodeFault] | None = None) -> dict[int, Any]:
        """Answers by worker; waits for every one before it raises the first error, so that none falls out of step."""
        answers: dict[int, Any] = {}
        errors: list[Exception] = []
        for index in indices:
            try:
                answers[index] = self._processes[index].receive()
            except Exception as error:
                if faults is not None and isinstance(error, EpisodeFault):
                    faults[index] = error
                else:
                    errors.append(error)
        if errors:
            raise errors[0]
        return answers


def _checked_seed(seed: int | None) -> int | None:
    return None if seed is None else arguments.whole("The seed", seed, 0, _SEED_LIMIT - 1, "0 to 2**32 - 1, or None")


def _stack(observations: Sequence[Observations]) -> Observations:
    names = observations[0] if observations else ()
    return {name: np.stack([observation[name] for observation in observations]) for name in names}


def _pickled(factory: Callable[[], gymnasium.Env]) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(factory)
    except Exception as error:
        raise ValueError(
            f"The environment factory {factory!r} cannot be sent to a worker process: {error}. Accepted: a function "
            "or class that makes the environment inside, such as lambda: MyEnv(difficulty=3)."
        ) from error


def _close(processes: list[EnvironmentProcess]) -> None:
    for process in processes:
        process.stop()
    for process in processes:
        process.join(_CLOSE_SECONDS)
