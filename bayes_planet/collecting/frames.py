"""Whether the agent sees anything: frames that never change say so."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bayes_planet.collecting.rollout import Environments, Episode
from bayes_planet.envs import Workers


def look(environments: Environments, episodes: Sequence[Episode], note: Callable[[str], None]) -> None:
    """Tells `note`, and the environments' log, where the first episodes in these environments show nothing. Once."""
    if getattr(environments, "frames_checked", False):
        return
    setattr(environments, "frames_checked", True)  # noqa: B010 (not of every kind of environments)
    text = unchanging(episodes, getattr(environments, "description", {}))
    if text is not None:
        note(text)
        if isinstance(environments, Workers):
            environments.log(text)


def unchanging(episodes: Sequence[Episode], description: Mapping[str, str]) -> str | None:
    """A warning where all frames of these episodes are equal; None: they are not, or there are none.

    Args:
      episodes: with 'image' uint8 [T + 1, H, W, 3] where the agent sees images.
      description: of the environments; gl_backend and gl_renderer are named.
    """
    if not episodes or "image" not in episodes[0]:
        return None
    first = episodes[0]["image"][0]
    if sum(len(episode["image"]) for episode in episodes) < 2 or any(
        (episode["image"] != first).any() for episode in episodes
    ):
        return None
    colours = np.unique(first.reshape(-1, first.shape[-1]), axis=0)
    shown = "black" if not first.any() else f"one colour, {colours[0].tolist()}" if len(colours) == 1 else "one picture"
    backend, renderer = (description.get(key) for key in ("gl_backend", "gl_renderer"))
    drawn = f" Here OpenGL is {backend}{f' ({renderer})' if renderer else ''}." if backend else ""
    return (
        f"Warning: all frames of the first episode are equal ({shown}), so the images show the agent nothing. Often "
        f"the display is headless, or OpenGL draws nothing.{drawn} Look at a frame of its own render(); try "
        "MUJOCO_GL=egl or MUJOCO_GL=osmesa, or a virtual display (xvfb-run); or train without images: "
        "env.observations=state."
    )
