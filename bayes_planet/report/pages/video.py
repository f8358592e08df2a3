"""Videos as small MP4 files that every browser plays."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.report.videos.files import upscale

WIDEST_DOUBLED = 640
CONSTANT_RATE_FACTOR = 22
"""x264's quality, 0 (lossless) to 51; at 22 the noise of small frames is still there."""


def encode_mp4(frames: np.ndarray, fps: float) -> bytes:
    """H.264 of frames uint8 [T, H, W, 3].

    H.264 halves the resolution of colour, so small frames are doubled first, unless they already are: then each block
    of 2 x 2 pixels has one colour, and nothing is lost. The browser enlarges the pixels.
    """
    import imageio.v2 as imageio  # here: it costs 0.2 s that most readers of this package do not need

    if frames.shape[2] < WIDEST_DOUBLED and not _is_doubled(frames):
        frames = upscale(frames, 2)
    even = np.pad(frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge")
    options: dict[str, Any] = {
        "codec": "libx264",
        "pixelformat": "yuv420p",
        "macro_block_size": 1,  # or imageio would resize to a multiple of 16
        "quality": None,
        "output_params": ["-crf", str(CONSTANT_RATE_FACTOR), "-preset", "slow", "-movflags", "+faststart"],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        with imageio.get_writer(path, fps=fps, **options) as writer:
            for frame in even:
                writer.append_data(frame)  # type: ignore[attr-defined]
        return path.read_bytes()


def _is_doubled(frames: np.ndarray) -> bool:
    height, width = frames.shape[1:3]
    if height % 2 or width % 2:
        return False
    return np.array_equal(frames, upscale(frames[:, ::2, ::2], 2))
