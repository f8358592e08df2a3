"""Asks OpenGL who draws. Run as a program it answers on stdout, in JSON, and ends.

It imports nothing of this package, so that trying a backend costs one short process.
"""

import json
import os


def gl_renderer() -> str:
    """GL_RENDERER of the backend that MUJOCO_GL names; raises what the driver raises where it does not work."""
    from dm_control import _render
    from OpenGL import GL

    context = _render.Renderer(64, 64)
    with context.make_current() as current:
        text = current.call(GL.glGetString, GL.GL_RENDERER)
    context.free()
    if not text:  # GLFW without a screen warns, and then has no context
        raise RuntimeError("it gave no OpenGL context")
    return text.decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps(gl_renderer()), flush=True)
    os._exit(0)  # some drivers print, or hang, when they are taken down
