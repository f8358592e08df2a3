import imageio.v2 as imageio
import numpy as np
import pytest

from bayes_planet.report.videos.files import _is_whole, encode_gif, save_video, side_by_side, upscale

COLOURS = [(200, 30, 40), (20, 180, 60), (30, 50, 190), (120, 120, 120), (0, 0, 0), (255, 255, 255)]


def flat_frames(height, width):
    return np.stack([np.full((height, width, 3), colour, np.uint8) for colour in COLOURS])


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".GIF"])
@pytest.mark.parametrize("height, width", [(64, 64), (63, 49), (20, 33)])
def test_a_video_is_read_back(tmp_path, suffix, height, width):
    frames = flat_frames(height, width)
    path = save_video(tmp_path / "new" / f"video{suffix}", frames, fps=10)
    read = np.stack([frame[..., :3] for frame in imageio.mimread(path, memtest=False)])
    even = (height + height % 2, width + width % 2)
    assert read.shape == (len(frames), *(even if suffix == ".mp4" else (height, width)), 3)
    tolerance = 12 if suffix == ".mp4" else 3
    assert np.abs(read[:, :height, :width].astype(int) - frames).max() <= tolerance


def test_a_video_keeps_its_speed_and_place(tmp_path):
    frames = np.zeros((30, 32, 32, 3), np.uint8)
    frames[:, :16, :16] = 255  # upper left
    path = save_video(tmp_path / "video.mp4", frames, fps=15, scale=3)
    with imageio.get_reader(path) as reader:
        assert reader.get_meta_data()["fps"] == 15
        assert reader.get_meta_data()["duration"] == pytest.approx(2.0, abs=0.1)
        frame = reader.get_data(7)
    assert frame.shape == (96, 96, 3)
    assert frame[:44, :44].min() > 235 and frame[52:].max() < 20 and frame[:, 52:].max() < 20
    with imageio.get_reader(save_video(tmp_path / "video.gif", flat_frames(8, 8), fps=20)) as reader:
        assert reader.get_meta_data()["duration"] == 50  # milliseconds
    with imageio.get_reader(save_video(tmp_path / "still.gif", frames[:9], fps=20)) as reader:
        assert reader.get_meta_data()["duration"] == 9 * 50


def test_a_gif_of_natural_colours_is_close():
    ramp = np.linspace(0, 255, 64).astype(np.uint8)
    frame = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(80)), axis=-1)
    frames = np.stack([np.roll(frame, shift, axis=0) for shift in range(5)])
    read = np.stack([each[..., :3] for each in imageio.mimread(encode_gif(frames, 10), memtest=False)])
    assert read.shape == frames.shape
    assert np.abs(read.astype(int) - frames).mean() < 6


def test_side_by_side_places_true_predicted_and_error():
    random = np.random.default_rng(0)
    true, predicted = random.integers(0, 256, (2, 3, 4, 5, 6, 3), np.uint8)  # 3 sequences of 4 frames, 5 x 6
    frames = side_by_side(true, predicted, gap=2)
    assert frames.dtype == np.uint8 and frames.shape == (4, 3 * 5 + 2 * 2, 3 * 6 + 2 * 2, 3)
    for number in range(3):
        row = frames[:, 7 * number : 7 * number + 5]
        np.testing.assert_array_equal(row[:, :, 0:6], true[number])
        np.testing.assert_array_equal(row[:, :, 8:14], predicted[number])
        error = (predicted[number] / 255 - true[number] / 255 + 1) / 2
        assert np.abs(row[:, :, 16:22] / 255 - error).max() <= 0.5 / 255 + 1e-9
    assert not frames[:, 5:7].any() and not frames[:, :, 6:8].any()
    np.testing.assert_array_equal(side_by_side(true[0], predicted[0], gap=2), frames[:, :5])
    same = side_by_side(true[0], true[0], gap=0)[:, :, 12:]
    assert same.min() == same.max() == 127


def test_upscale_repeats_pixels():
    frames = np.arange(2 * 2 * 3 * 3, dtype=np.uint8).reshape(2, 2, 3, 3)
    np.testing.assert_array_equal(upscale(frames, 3), np.kron(frames, np.ones((1, 3, 3, 1), np.uint8)))
    np.testing.assert_array_equal(upscale(frames, 1), frames)
    for scale in (0, 1.5, -1):
        with pytest.raises(ValueError, match="whole number, 1 or more"):
            upscale(frames, scale)


def test_errors_name_what_is_accepted(tmp_path):
    frames = flat_frames(8, 8)
    with pytest.raises(ValueError, match=r"ends in '.avi'. Accepted: .mp4 or .gif"):
        save_video(tmp_path / "video.avi", frames, fps=10)
    for wrong in (frames.astype(np.float32), frames[0], frames[:0], frames[..., :1]):
        with pytest.raises(ValueError, match=r"Accepted: uint8 \[T, height, width, 3\]"):
            save_video(tmp_path / "video.gif", wrong, fps=10)
    for fps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="fps is"):
            save_video(tmp_path / "video.gif", frames, fps)
    with pytest.raises(ValueError, match="Accepted: the same"):
        side_by_side(frames, frames[1:])
    with pytest.raises(ValueError, match="true is float32"):
        side_by_side(frames.astype(np.float32), frames.astype(np.float32))
    assert list(tmp_path.iterdir()) == []


def test_a_film_on_a_full_disk_is_an_error(tmp_path):
    frames = np.zeros((3, 64, 64, 3), np.uint8)  # so few that ffmpeg finds out in the end
    for suffix in (".mp4", ".gif"):
        path = tmp_path / f"film{suffix}"
        path.symlink_to("/dev/full")
        with pytest.raises(OSError):
            save_video(path, frames, fps=10)


def test_no_beginning_of_a_film_is_taken_for_a_whole_one(tmp_path):
    film = save_video(tmp_path / "film.mp4", np.zeros((3, 16, 16, 3), np.uint8), fps=10).read_bytes()
    part = tmp_path / "part.mp4"
    for length in range(len(film)):
        part.write_bytes(film[:length])
        assert not _is_whole(part), length
    part.write_bytes(film)
    assert _is_whole(part)
