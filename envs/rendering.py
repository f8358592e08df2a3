"""Which OpenGL draws the images, how well, and how large frames become small ones.

A GL backend is chosen once a process: the first import of dm_control reads MUJOCO_GL, and an EGL that
failed cannot be tried again. So each candidate is tried in a short process of its own.
"""

import dataclasses
import functools
import importlib
import json
import os
import subprocess
import sys
import types
from typing import Any

import numpy as np

from bayes_planet import compatibility
from bayes_planet.envs import gl_probe
from bayes_planet.envs.errors import NoGLError

DISABLED = ("disabled", "disable", "off", "false", "0")
SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software rasterizer")
PROBE_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Backend:
    """An OpenGL backend that was seen to work, or why there is none.

    Attributes:
      name: what MUJOCO_GL is set to: egl, osmesa, glfw, or disabled.
      renderer: GL_RENDERER, the device or the software that draws; empty without GL.
      failure: why no backend works; empty where one does.
    """

    name: str
    renderer: str = ""
    failure: str = ""

    @property
    def software(self) -> bool:
        """Whether the processor draws, which makes shadows and antialiasing expensive."""
        return any(word in self.renderer.lower() for word in SOFTWARE)

    def require(self) -> None:
        """Raises NoGLError where there is no backend."""
        if self.name == "disabled":
            raise NoGLError(self.failure)


def find_backend(name: str | None = None) -> Backend:
    """Finds the GL backend for new processes: MUJOCO_GL if it is set, else EGL, else OSMesa; on macOS GLFW.

    Args:
      name: of the one to try, in place of MUJOCO_GL.

    Returns:
      The first backend that makes a context in a process of its own (about 0.7 s each, remembered), or one
      named `disabled` that says why.
    """
    return _find_backend(name or os.environ.get("MUJOCO_GL"), os.environ.get("MUJOCO_EGL_DEVICE_ID"))


def select_backend(found: Backend | None = None) -> Backend:
    """Fixes the GL backend of this process; call it before anything imports dm_control.

    Args:
      found: what `find_backend` gave elsewhere, so as not to search again.

    Returns:
      The backend this process draws with: the one dm_control was imported with, where it was.
    """
    # Rasterising in the calling thread: 1.6 times as many 64x64 frames a second as with llvmpipe's own threads.
    os.environ.setdefault("LP_NUM_THREADS", "0")
    loaded = sys.modules.get("dm_control._render")
    if compatibility.shares_symbols() and (refused := _beside_tensorflow(found, loaded)) is not None:
        return refused
    if loaded is not None:
        return _loaded_backend(loaded.BACKEND)
    backend = found or find_backend()
    if "mujoco" in sys.modules and os.environ.get("MUJOCO_GL", "") != backend.name:
        # MuJoCo has read the variable when it was imported; to set it now would end in "gladLoadGL error".
        reasons = [f"mujoco was imported here before MUJOCO_GL={backend.name} was set; use Workers, or set it first"]
        return _no_backend(_asked(os.environ.get("MUJOCO_GL")), reasons)
    os.environ["MUJOCO_GL"] = backend.name
    return backend


def resolve_quality(render_quality: str, backend: Backend) -> str:
    """`full` or `fast`: auto is fast on software GL, where it draws about 7 times as many frames a second."""
    if render_quality != "auto":
        return render_quality
    return "fast" if backend.software else "full"


def apply_quality(model: Any, quality: str) -> None:
    """For `fast`: no shadows, antialiasing or reflections, and round shapes of fewer faces.

    Counts until the first render of this MuJoCo model. On cheetah-run, over 101 frames under random actions, pixels
    differ by 1.4 of 255 on average, and 8% of their 5-bit levels.
    """
    if quality == "fast":
        model.vis.quality.shadowsize = 0
        model.vis.quality.offsamples = 0
        model.vis.quality.numslices = 12
        model.vis.quality.numstacks = 8
        model.mat_reflectance[:] = 0.0


def area_resize(frame: np.ndarray, size: int) -> np.ndarray:
    """Shrinks a frame by averaging the area under each new pixel; the whole frame stays in view.

    Args:
      frame: uint8 [H, W, 3].
      size: height and width of the result, pixels. A frame that is not square is squeezed.

    Returns:
      uint8 [size, size, 3], contiguous.
    """
    height, width, channels = frame.shape
    if (height, width) == (size, size):
        return np.array(frame, order="C")  # a copy: the environment may draw the next one in the same place
    rows = _area_weights(height, size) @ frame.reshape(height, width * channels).astype(np.float32)
    columns = _area_weights(width, size) @ rows.reshape(size, width, channels)
    return np.ascontiguousarray(np.clip(np.rint(columns), 0, 255).astype(np.uint8))


@functools.lru_cache(maxsize=8)
def _area_weights(old: int, new: int) -> np.ndarray:
    """Float32 [new, old]: row i has the share of each old pixel in new pixel i; rows sum to 1."""
    edges = np.arange(new + 1) * (old / new)
    start, stop = edges[:-1, None], edges[1:, None]
    pixel = np.arange(old)[None, :]
    overlap = np.clip(np.minimum(stop, pixel + 1) - np.maximum(start, pixel), 0.0, None)
    return (overlap / overlap.sum(axis=1, keepdims=True)).astype(np.float32)


@functools.lru_cache(maxsize=16)
def _find_backend(variable: str | None, device: str | None) -> Backend:
    del device  # only part of the key: another GPU may have another answer
    asked = _asked(variable)
    candidates = [variable] if variable else ["glfw"] if sys.platform == "darwin" else ["egl", "osmesa"]
    if candidates[0].lower() in DISABLED:
        return _no_backend(asked, ["rendering is switched off"])
    reasons = []
    for candidate in candidates:
        renderer, reason = _probe(candidate)
        if reason is None:
            return Backend(candidate, renderer)
        reasons.append(f"{candidate}: {reason}")
    return _no_backend(asked, reasons)


def _asked(variable: str | None) -> str:
    return f"MUJOCO_GL={variable}" if variable else "MUJOCO_GL is not set"


def _probe(candidate: str) -> tuple[str, str | None]:
    """GL_RENDERER of a backend tried in its own process, and why it failed or None."""
    # dm_control leaves PYOPENGL_PLATFORM behind, which would keep any other backend from loading.
    environment = {key: value for key, value in os.environ.items() if key != "PYOPENGL_PLATFORM"}
    environment["MUJOCO_GL"] = candidate
    try:
        answer = subprocess.run(
            [sys.executable, "-P", gl_probe.__file__],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"no answer in {PROBE_SECONDS} s"
    if answer.returncode == 0 and answer.stdout.strip():
        return json.loads(answer.stdout.splitlines()[-1]), None
    lines = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
    return "", lines[-1] if lines else f"the process ended with code {answer.returncode}"


def _beside_tensorflow(found: Backend | None, loaded: types.ModuleType | None) -> Backend | None:
    """`disabled` where the processor draws, which would crash this process, else None."""
    backend = found or find_backend(getattr(loaded, "BACKEND", None))
    if not backend.software:
        return None
    if loaded is None:
        # Its import would open the display. The variable itself is for worker processes to come as well.
        before = os.environ.get("MUJOCO_GL")
        os.environ["MUJOCO_GL"] = "disabled"
        try:
            importlib.import_module("dm_control._render")
        finally:
            os.environ.pop("MUJOCO_GL") if before is None else os.environ.update(MUJOCO_GL=before)
    return Backend(
        "disabled",
        failure=f"{backend.renderer.split(' (')[0]} would crash this process: TensorFlow, which was imported before "
        "bayes_planet (or under LD_PRELOAD), shares its LLVM with Mesa. Do one of: import bayes_planet (or "
        "bayes_planet.envs) before tensorflow; draw in other processes, with bayes_planet.envs.Workers; take "
        "observations='state' without drawing; or install tensorflow 2.18.",
    )


def _loaded_backend(loaded: str | None) -> Backend:
    if loaded is None or loaded in DISABLED:
        reasons = ["dm_control was imported in this process without a GL backend"]
        return _no_backend(_asked(os.environ.get("MUJOCO_GL")), reasons)
    return _renderer_of_this_process(loaded)


@functools.lru_cache(maxsize=1)
def _renderer_of_this_process(loaded: str) -> Backend:
    try:
        return Backend(loaded, gl_probe.gl_renderer())
    except Exception as error:  # a driver may raise anything
        return _no_backend(f"{loaded}, already loaded", [str(error)])


def _no_backend(asked: str, reasons: list[str]) -> Backend:
    """`disabled`, with a text that says why, and what to install."""
    return Backend(
        "disabled",
        failure=f"No OpenGL backend can draw images here ({asked}): {'; '.join(reasons)}. "
        "On Debian or Ubuntu install one of: `apt install libegl1 libgl1-mesa-dri` (EGL), "
        "`apt install libosmesa6` (OSMesa, no GPU needed). Or name a backend that works with "
        "MUJOCO_GL=egl|osmesa|glfw, or train without images: env.observations=state.",
    )
