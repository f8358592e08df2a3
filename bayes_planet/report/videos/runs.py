"""The open-loop videos of a run, read back from its files."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.report.pages.section import Note, Part, Video
from bayes_planet.report.reading.runs import Run

FRAMES_PER_SECOND = 15
MOST_FRAMES = 300


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
            except (OSError, ValueError, EOFError, SyntaxError) as error:  # Pillow raises SyntaxError on broken files
                parts.append(Note(f"The video {path.name} cannot be read ({error}).", "missing"))
    return parts


def read_frames(path: Path) -> tuple[np.ndarray, float]:
    """Frames uint8 [T, H, W, 3] of a GIF or MP4, and frames a second; equal frames that a GIF merged are apart again.

    Raises:
      OSError or ValueError: the file is none, or is broken.
    """
    if path.suffix.lower() != ".gif":
        import imageio.v2 as imageio

        reader: Any = imageio.get_reader(path)
        with reader:
            frames = list(itertools.islice(reader, MOST_FRAMES))
            return np.stack(frames), float(reader.get_meta_data()["fps"])
    from PIL import Image, ImageSequence

    with Image.open(path) as image:
        shown = [
            (np.asarray(each.convert("RGB")), each.info.get("duration", 0)) for each in ImageSequence.Iterator(image)
        ]
    # encode_gif gives every frame the same duration, and merged ones a multiple of it.
    durations = [duration for _, duration in shown if duration > 0]
    unit = min(durations) if len(shown) > 1 and durations else 1000 / FRAMES_PER_SECOND
    frames = [frame for frame, duration in shown for _ in range(max(1, round(duration / unit)))]
    return np.stack(frames[:MOST_FRAMES]), 1000 / unit
