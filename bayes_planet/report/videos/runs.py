"""The open-loop videos of a run, read back from its files."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.files.plain import read_plain
from bayes_planet.report.pages.section import Note, Part, Video
from bayes_planet.report.reading.runs import Run

FRAMES_PER_SECOND = 15
MOST_FRAMES = 300
MOST_BYTES = 2**29
"""Of a video's file, and of the frames that are shown of it, unpacked."""


PANELS = {
    "open_loop": "true frames, predicted frames, difference (grey where they agree)",
    "open_loop_uncertainty": "true frames, mean prediction over weight draws, difference, epistemic stddev (bright: "
    "unsure)",
}


def videos(run: Run) -> list[Part]:
    """The first and the newest video of each kind, so that the progress shows."""
    if not run.videos:
        if run.settings.get("env.observations") == "state":
            return [Note("The run has no images, so there are no open-loop videos.")]
        return [Note("There is no open-loop video yet; one is written at every evaluation.", "missing")]
    context = run.settings.get("evaluation.context_steps", "few")
    parts: list[Part] = []
    for kind, panels in PANELS.items():
        files = [path for path in run.videos if path.stem.rpartition("-")[0] == kind]
        for path in dict.fromkeys(files[:1] + files[-1:]):
            episodes = path.stem.rpartition("-")[2].lstrip("0") or "0"
            caption = (
                f"After {episodes} training episodes: {panels}. The first {context} frames are context, the rest is "
                "predicted from actions alone."
            )
            try:
                frames, fps = read_frames(path)
                parts.append(Video(frames, fps, caption))
            except Exception as error:  # a damaged video makes Pillow and ffmpeg raise nearly anything
                parts.append(Note(f"The video {path.name} cannot be read ({error}).", "missing"))
    return parts


def read_frames(path: Path) -> tuple[np.ndarray, float]:
    """Frames uint8 [T, H, W, 3] of a GIF or MP4, and frames a second; equal frames that a GIF merged are apart again.

    Raises:
      OSError or ValueError: the file is none, is broken, or is too large.
    """
    data = read_plain(path, MOST_BYTES)
    if path.suffix.lower() != ".gif":
        import imageio.v2 as imageio

        reader: Any = imageio.get_reader(data, path.suffix.lower())  # ffmpeg reads more into a name than is there
        with reader:
            _check_size(reader.get_meta_data()["size"])
            frames = list(itertools.islice(reader, MOST_FRAMES))
            return np.stack(frames), float(reader.get_meta_data()["fps"])
    from PIL import Image, ImageSequence

    with Image.open(io.BytesIO(data), formats=["GIF"]) as image:
        _check_size(image.size)
        first = itertools.islice(ImageSequence.Iterator(image), MOST_FRAMES)
        shown = [(np.asarray(each.convert("RGB")), each.info.get("duration", 0)) for each in first]
    # encode_gif gives every frame the same duration, and merged ones a multiple of it.
    durations = [duration for _, duration in shown if duration > 0]
    unit = min(durations) if len(shown) > 1 and durations else 1000 / FRAMES_PER_SECOND
    frames = [frame for frame, duration in shown for _ in range(max(1, round(duration / unit)))]
    return np.stack(frames[:MOST_FRAMES]), 1000 / unit


def _check_size(size: tuple[int, int]) -> None:
    if 3 * size[0] * size[1] * MOST_FRAMES > MOST_BYTES:
        raise ValueError(f"its frames are {size[0]} x {size[1]}; {MOST_FRAMES} of them may have {MOST_BYTES} bytes")
