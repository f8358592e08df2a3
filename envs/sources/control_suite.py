"""A dm_control suite task as a Gymnasium environment with a flat state and a picture on request.

Import this module only after `rendering.select_backend`: importing dm_control fixes the GL backend.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from dm_control import suite
from dm_control.mujoco import engine
from dm_control.rl.control import PhysicsError

from bayes_planet.envs import rendering
from bayes_planet.envs.errors import NonFiniteError
from bayes_planet.envs.sources.tasks import DmControlTask

_MODEL_SEED = 0  # lqr draws its springs when it is loaded; every process must get the same ones


class ControlSuite(gymnasium.Env):
    """One dm_control task; an env step is one control step of the task.

    Observation: float32 [n], the task's observation arrays flattened and put side by side in their order.
    Action: the task's own bounds. Termination: the task ended with discount 0. Truncation: its time limit.
    """

    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(
        self,
        task: DmControlTask,
        backend: rendering.Backend,
        image_size: int = 64,
        camera: str = "auto",
        quality: str = "full",
        own_limit: bool = False,
    ) -> None:
        """Loads the task.

        Args:
          task: which one.
          backend: the GL backend of this process.
          image_size: height and width of `render()`, pixels.
          camera: a camera's name or number, or auto: 0, and 2 for quadruped (0 looks from far away).
          quality: full, or fast (no shadows, no antialiasing).
          own_limit: keep the task's time limit; otherwise its episodes go on until the task itself ends.

        Raises:
          ValueError: no such camera.
          NoGLError: the task itself needs OpenGL (quadruped-escape) and there is none.
        """
        arguments: dict[str, Any] = {"random": np.random.RandomState(_MODEL_SEED)}
        if not own_limit:
            arguments["time_limit"] = math.inf
        self._name = task.name
        if task.domain == "quadruped" and task.task == "escape":
            backend.require()  # its terrain is uploaded to the GPU at every reset
        self._environment = suite.load(task.domain, task.task, task_kwargs=arguments)
        self._environment.task.random.seed(None)
        self._backend = backend
        self._size = image_size
        self._camera_id = _camera_id(task, camera, self.camera_names)
        self._camera: engine.Camera | None = None
        # The time limit is not public; the suite's own comparison is `steps >= limit`.
        limit = getattr(self._environment, "_step_limit", math.inf)
        self.step_limit: int | None = None if math.isinf(limit) else math.ceil(limit)
        rendering.apply_quality(self.physics.model, quality)

        bounds = self._environment.action_spec()
        self.action_space = gymnasium.spaces.Box(
            np.broadcast_to(bounds.minimum, bounds.shape).astype(np.float32),
            np.broadcast_to(bounds.maximum, bounds.shape).astype(np.float32),
        )
        entries = self._environment.observation_spec().values()
        size = int(sum(np.prod(entry.shape, dtype=int) for entry in entries))
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.metadata = {**self.metadata, "render_fps": round(1 / self._environment.control_timestep())}

    @property
    def physics(self) -> Any:
        """The dm_control physics: `physics.data.qvel`, `physics.named`, ..."""
        return self._environment.physics

    @property
    def camera_names(self) -> list[str]:
        model = self.physics.model
        return [model.id2name(number, "camera") for number in range(model.ncam)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Starts an episode.

        Args:
          seed: 0 to 2**32 - 1, as `suite.load(..., task_kwargs={"random": seed})`: it alone decides the
            episode. None goes on with the stream of the last seed.

        Returns:
          The observation, and `velocity_names` and `velocity_units`: what each entry of MuJoCo's `qvel` is.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._environment.task.random.seed(seed)  # in place: nothing is loaded again
        names, units = _velocities(self.physics.model)
        return _flat(self._environment.reset().observation), {"velocity_names": names, "velocity_units": units}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One control step. Raises NonFiniteError where the simulation diverges."""
        try:
            timestep = self._environment.step(np.asarray(action, np.float64))
        except PhysicsError as error:
            raise NonFiniteError(f"The simulation of {self._name} diverged: {error}") from error
        terminated = timestep.last() and timestep.discount == 0.0
        truncated = timestep.last() and not terminated
        return _flat(timestep.observation), float(timestep.reward), terminated, truncated, {}

    def render(self) -> np.ndarray:
        """The present state as uint8 [size, size, 3]. Raises NoGLError without GL."""
        if self._camera is None:
            self._backend.require()
            # One camera for good: `physics.render` builds a scene for every frame and takes twice the time.
            self._camera = engine.Camera(self.physics, self._size, self._size, self._camera_id)
        return np.ascontiguousarray(self._camera.render()).copy()

    def close(self) -> None:
        """Frees the GL context."""
        self._camera = None
        self._environment.close()


def _camera_id(task: DmControlTask, camera: str, names: list[str]) -> int:
    """The number of a camera given by name or number; -1, the free camera, for a task without cameras."""
    if camera == "auto":
        wanted = 2 if task.domain == "quadruped" else 0
        return wanted if names else -1
    if camera in names:
        return names.index(camera)
    if camera.isdecimal() and int(camera) < len(names):
        return int(camera)
    available = ", ".join(f"{number} ({name})" for number, name in enumerate(names)) or "auto alone"
    raise ValueError(f"env.camera is {camera!r}, which {task.name} does not have. Accepted: auto, {available}.")


def _velocities(model: Any) -> tuple[list[str], list[str]]:
    """Names and units of the entries of `qvel`, joint by joint; a free joint has six of them, a ball joint three."""
    names: list[str] = []
    units: list[str] = []
    for joint in range(model.njnt):
        name = model.id2name(joint, "joint") or f"joint {joint}"
        # MuJoCo's joint types: 0 free, 1 ball, 2 slide, 3 hinge.
        own = {
            0: [(f"{name} {axis}", "m/s") for axis in "xyz"] + [(f"{name} r{axis}", "rad/s") for axis in "xyz"],
            1: [(f"{name} r{axis}", "rad/s") for axis in "xyz"],
            2: [(name, "m/s")],
            3: [(name, "rad/s")],
        }[int(model.jnt_type[joint])]
        names += [entry for entry, _ in own]
        units += [unit for _, unit in own]
    return names, units


def _flat(observation: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(value) for value in observation.values()]).astype(np.float32)
