import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_planet.envs import NoGLError
from bayes_planet.envs.rendering import Backend, area_resize, find_backend, resolve_quality


def test_whole_blocks_become_their_mean():
    frame = np.random.RandomState(0).randint(0, 256, (128, 192, 3)).astype(np.uint8)
    blocks = frame.reshape(64, 2, 64, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(area_resize(frame, 64), blocks, atol=0.5 + 1e-3)


@given(height=st.integers(1, 90), width=st.integers(1, 90), grey=st.integers(0, 255))
@settings(max_examples=40, deadline=None)
def test_one_colour_stays_one_colour(height, width, grey):
    small = area_resize(np.full((height, width, 3), grey, np.uint8), 16)
    assert small.shape == (16, 16, 3) and small.dtype == np.uint8 and small.flags.c_contiguous
    assert (small == grey).all()


def test_fractional_areas_keep_the_mean_and_the_gradient():
    ramp = np.repeat(np.linspace(0, 250, 100)[None, :, None], 70, axis=0).repeat(3, axis=2).astype(np.uint8)
    small = area_resize(ramp, 64)
    assert abs(small.mean() - ramp.mean()) < 0.5
    assert (np.diff(small[0, :, 0].astype(int)) >= 0).all()
    assert (small == small[:1]).all()


def test_auto_quality_follows_the_renderer():
    assert resolve_quality("auto", Backend("egl", "llvmpipe (LLVM 15.0.6, 256 bits)")) == "fast"
    assert resolve_quality("auto", Backend("egl", "NVIDIA H100 PCIe/PCIe/SSE2")) == "full"
    assert resolve_quality("full", Backend("osmesa", "softpipe")) == "full"
    assert resolve_quality("fast", Backend("egl", "NVIDIA H100 PCIe/PCIe/SSE2")) == "fast"


def test_a_backend_is_found_and_drawn_by_something():
    backend = find_backend()
    backend.require()
    assert backend.name in ("egl", "osmesa", "glfw") and backend.renderer


def test_mujoco_gl_is_obeyed_and_its_failure_says_what_to_do(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "no_such_backend")
    backend = find_backend()
    assert backend.name == "disabled"
    with pytest.raises(NoGLError) as caught:
        backend.require()
    for part in ("MUJOCO_GL=no_such_backend", "libegl1 libgl1-mesa-dri", "libosmesa6", "env.observations=state"):
        assert part in str(caught.value)


def test_switched_off_rendering_is_named(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    with pytest.raises(NoGLError, match=r"MUJOCO_GL=disabled.*switched off"):
        find_backend().require()


def test_every_candidate_is_tried_and_named(monkeypatch):
    """No EGL device has this number, so EGL fails for real; OSMesa is then tried in a fresh process."""
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "97")
    backend = find_backend()
    if backend.name == "osmesa":
        return
    with pytest.raises(NoGLError, match=r"egl: .*got 97.*osmesa: "):
        backend.require()


def test_dm_control_imported_without_a_backend_is_told_what_to_do():
    """In a process of its own: without a screen dm_control falls back to GLFW, which has no context there."""
    code = (
        "from dm_control import suite\n"
        "from bayes_planet.config import EnvConfig\n"
        "from bayes_planet.envs import make\n"
        "make(EnvConfig())\n"
    )
    hidden = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode != 0
    assert "NoGLError" in result.stderr and "MUJOCO_GL" in result.stderr, result.stderr
