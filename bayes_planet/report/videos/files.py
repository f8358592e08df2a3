"""Videos of frames: files, GIF bytes for TensorBoard, and the open-loop comparison.

Frames are uint8 [T, height, width, 3], values 0 to 255, everywhere in this file.
"""

import errno
import io
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.files.writing import write_atomically, write_output

SUFFIXES = (".mp4", ".gif")


def save_video(path: Path | str, frames: np.ndarray, fps: float, scale: int = 1) -> Path:
    """Writes a video.

    Args:
        path: ends in `.mp4` (H.264, which every browser plays) or `.gif`; folders are made. H.264 halves the
            colour resolution and needs even sizes, so the last row or column of an odd one is repeated.
        frames: uint8 [T, height, width, 3].
        fps: frames a second, positive. A GIF counts in hundredths of a second.
        scale: each pixel becomes scale x scale of them.

    Returns:
        `path`.

    Raises:
        ValueError: another suffix, or frames of another kind.
        OSError: the file could not be written; what was there is there. As `files.writing.write_output`.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} ends in {path.suffix!r}. Accepted: {' or '.join(SUFFIXES)}.")
    frames = upscale(_checked("frames", frames), scale)
    _check_fps(fps)
    write_output(path, encode_gif(frames, fps) if path.suffix.lower() == ".gif" else _encode_mp4(frames, fps))
    return path


def save_gif(path: Path, frames: np.ndarray, fps: float, scale: int = 1) -> None:
    """Writes a GIF into a run's own folder, made if missing: a link of this name is replaced, not followed.

    Args and errors are those of `save_video`.
    """
    data = encode_gif(upscale(_checked("frames", frames), scale), fps)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)


def _encode_mp4(frames: np.ndarray, fps: float) -> bytes:
    import imageio.v2 as imageio  # here, because it costs 0.2 s that most readers of this package do not need

    height, width = frames.shape[1:3]
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    # macro_block_size: imageio would resize to a multiple of 16. quality 8 of 10: small frames blur below it.
    options: dict[str, Any] = {"codec": "libx264", "pixelformat": "yuv420p", "macro_block_size": 1, "quality": 8}
    with tempfile.TemporaryDirectory(prefix="bayes_planet-") as folder:  # ffmpeg reads more into a name than is there
        path = Path(folder) / "video.mp4"
        with imageio.get_writer(path, fps=fps, **options) as writer:
            for frame in even:
                writer.append_data(frame)  # type: ignore[attr-defined]
        if not _is_whole(path):  # imageio does not look at what ffmpeg says in the end
            full = shutil.disk_usage(folder).free < even.nbytes
            number = errno.ENOSPC if full else errno.EIO
            raise OSError(number, f"ffmpeg could not write the video whole: {os.strerror(number)}", folder)
        return path.read_bytes()


def _is_whole(path: Path) -> bool:
    """Whether an MP4 file has all its boxes to the last byte, and the one without which nobody can play it."""
    kinds, end = [], 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while end < size:
            file.seek(end)
            header = file.read(16)
            length = int.from_bytes(header[:4], "big")
            length = int.from_bytes(header[8:16], "big") if length == 1 else length
            if length < 8:
                return False
            kinds.append(header[4:8])
            end += length
    return end == size and b"moov" in kinds


def encode_gif(frames: np.ndarray, fps: float) -> bytes:
    """An animated GIF that repeats for ever. frames: uint8 [T, height, width, 3]; fps: frames a second.

    Equal frames in a row are stored as one that lasts longer.
    """
    from PIL import Image

    frames = _checked("frames", frames)
    _check_fps(fps)
    # One palette for all: with one a frame, still parts flicker. It is taken from up to 16 frames, spread evenly.
    chosen = frames[np.unique(np.linspace(0, len(frames) - 1, 16).astype(int))]
    palette = Image.fromarray(chosen.reshape(-1, *frames.shape[2:])).quantize(256)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    buffer = io.BytesIO()
    milliseconds = max(10 * round(100 / fps), 20)  # viewers slow down what is shorter than 20 ms
    images[0].save(
        buffer, "GIF", save_all=True, append_images=images[1:], duration=milliseconds, loop=0, optimize=False
    )
    return buffer.getvalue()


def side_by_side(true: np.ndarray, predicted: np.ndarray, gap: int = 2) -> np.ndarray:
    """True frames, predicted ones and their difference, next to each other; one row of panels a sequence.

    The difference is (predicted - true + 1) / 2 on values scaled to [0, 1], as in PlaNet: grey where they agree,
    brighter where the prediction is brighter.

    Args:
        true: uint8 [T, height, width, 3], or [N, T, height, width, 3] for N sequences.
        predicted: the same shape.
        gap: black pixels between panels.

    Returns:
        uint8 [T, N * height + (N - 1) * gap, 3 * width + 2 * gap, 3].

    Raises:
        ValueError: other dtypes or shapes, or two that differ.
    """
    true, predicted = np.asarray(true), np.asarray(predicted)
    if true.shape != predicted.shape:
        raise ValueError(f"true has shape {list(true.shape)}, predicted {list(predicted.shape)}. Accepted: the same.")
    if true.ndim == 4:
        true, predicted = true[None], predicted[None]
    if true.ndim != 5:
        raise ValueError(f"true has shape {list(true.shape)}. Accepted: [T, height, width, 3], or N of these.")
    sequences = [_checked("true", each) for each in true], [_checked("predicted", each) for each in predicted]
    rows = []
    for truth, prediction in zip(*sequences, strict=True):
        difference = (prediction.astype(np.int16) - truth + 255) // 2
        rows.append(_join([truth, prediction, difference.astype(np.uint8)], gap, axis=2))
    return _join(rows, gap, axis=1)


def upscale(frames: np.ndarray, scale: int) -> np.ndarray:
    """Each pixel as scale x scale equal ones: [T, h, w, 3] -> [T, scale * h, scale * w, 3]."""
    if scale != int(scale) or scale < 1:
        raise ValueError(f"scale is {scale!r}. Accepted: a whole number, 1 or more.")
    return frames.repeat(int(scale), axis=1).repeat(int(scale), axis=2)


def _join(panels: list[np.ndarray], gap: int, axis: int) -> np.ndarray:
    shape = list(panels[0].shape)
    shape[axis] = gap
    space = np.zeros(shape, np.uint8)
    spaced = [part for panel in panels for part in (space, panel)]
    return np.concatenate(spaced[1:], axis=axis)


def _checked(name: str, frames: np.ndarray) -> np.ndarray:
    frames = np.asarray(frames)
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or frames.size == 0:
        raise ValueError(
            f"{name} is {frames.dtype} {list(frames.shape)}. Accepted: uint8 [T, height, width, 3], nothing of it 0."
        )
    return frames


def _check_fps(fps: float) -> None:
    if not 0 < fps < float("inf"):
        raise ValueError(f"fps is {fps!r}. Accepted: a positive number of frames a second.")
