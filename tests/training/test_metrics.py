import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bayes_planet.runs.metrics import MetricsWriter, read_metrics


def write(writer, updates, **values):
    return writer.write(values, updates=updates, env_steps=10 * updates, episodes=updates // 2)


def events(logdir):
    """(tag, step, tensor) of all that TensorBoard would read."""
    found = []
    for path in sorted((logdir / "tensorboard").iterdir()):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(value.tag, event.step, tf.make_ndarray(value.tensor), value) for value in event.summary.value]
    return found


def test_rows_hold_the_counters_and_plain_values(tmp_path):
    values = {
        "train/return": np.float32(1.5),
        "eval/count": np.int64(10),
        "loss/total": tf.constant(2.25),
        "env/name": "cheetah",
        "flag": np.bool_(True),
        "none": None,
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "tensor_nan": tf.constant(float("nan")),
    }
    with MetricsWriter(tmp_path / "run") as writer:
        row = writer.write(values, updates=200, env_steps=4000, episodes=7)
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == row == read_metrics(tmp_path / "run" / "metrics.jsonl")[0]
    own = {"updates": 200, "env_steps": 4000, "episodes": 7, "time": row["time"], "wall_clock": row["wall_clock"]}
    assert row == own | {"train/return": 1.5, "eval/count": 10, "loss/total": 2.25, "env/name": "cheetah", "flag": 1}
    assert row["wall_clock"].endswith("+00:00") and 0 <= row["time"] < 60


def test_tensorboard_has_the_same_numbers_at_the_env_step(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for updates, value in ((1, 0.5), (2, 0.25)):
            write(writer, updates, **{"loss/image": value, "name": "text", "missing": None})
    found = {(tag, step): float(tensor) for tag, step, tensor, _ in events(tmp_path)}
    assert found[("loss/image", 10)] == 0.5 and found[("loss/image", 20)] == 0.25
    assert {tag for tag, _ in found} == {"loss/image", "episodes", "time"}


def test_a_video_is_an_animated_image_on_tensorboard(tmp_path):
    frames = np.zeros((6, 5, 8, 3), np.uint8)
    frames[np.arange(6), :, np.arange(6)] = 255
    with MetricsWriter(tmp_path) as writer:
        writer.video("open_loop/train", frames, step=70, fps=10)
    ((tag, step, content, value),) = events(tmp_path)
    assert (tag, step) == ("open_loop/train", 70) and value.metadata.plugin_data.plugin_name == "images"
    assert content.tolist()[:2] == [b"8", b"5"]
    image = Image.open(io.BytesIO(content.tolist()[2]))
    assert (image.format, image.n_frames, image.size) == ("GIF", 6, (8, 5))


def test_tensorboard_itself_serves_the_video(tmp_path):
    from tensorboard import context
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    with MetricsWriter(tmp_path) as writer:
        writer.video("open_loop", np.zeros((3, 4, 4, 3), np.uint8), step=1)
    multiplexer = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(tmp_path))
    sequences = provider.list_blob_sequences(context.RequestContext(), experiment_id="", plugin_name="images")
    assert list(sequences["tensorboard"]) == ["open_loop"]


def test_a_list_of_numbers_is_kept_whole(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        write(writer, 1, returns=[3.0, np.float32(1.5), 2], broken=[1.0, float("nan")])
    (row,) = read_metrics(writer.path)
    assert row["returns"] == [3.0, 1.5, 2.0] and "broken" not in row


def test_names_and_values_that_cannot_be_written(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match=r"\['time'\].*Accepted: any other name"):
            write(writer, 1, time=3.0)
        for wrong in ([], [1.0, "a"], np.zeros(2), tf.zeros([2]), object(), 1j):
            with pytest.raises(ValueError, match=r"Value 'x' is a .* Accepted: one number or a string"):
                write(writer, 1, x=wrong)
    assert read_metrics(writer.path) == []


def test_each_row_is_on_disk_at_once(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for updates in range(3):
            write(writer, updates, x=updates)
            assert [row["x"] for row in read_metrics(writer.path)] == list(range(updates + 1))


def test_rewind_drops_what_will_be_done_again(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        for updates in (0, 100, 100, 200, 300):
            write(writer, updates, x=updates)
        kept = writer.rewind(lambda row: row["updates"] <= 200)
        assert [row["updates"] for row in kept] == [0, 100, 100, 200]
        assert read_metrics(writer.path) == kept
        write(writer, 250)
    assert [row["updates"] for row in read_metrics(writer.path)] == [0, 100, 100, 200, 250]
    with MetricsWriter(tmp_path) as writer:
        assert writer.rewind(lambda row: False) == [] == read_metrics(writer.path)


def points(logdir):
    """(tag, step) of all that TensorBoard would read of x."""
    return sorted((tag, step) for tag, step, _, _ in events(logdir) if tag in ("x", "film"))


@pytest.mark.parametrize("marked", [0, 1, 2])
def test_tensorboard_goes_back_to_the_checkpoint_too(tmp_path, marked):
    """Whatever process wrote it last: no point twice, none lost, and others' files in the folder as they were."""
    foreign = tmp_path / "tensorboard" / "events.out.tfevents.1.other.v2"
    foreign.parent.mkdir()
    foreign.write_bytes(b"theirs")
    marks = [{}]
    for process in range(2):
        with MetricsWriter(tmp_path) as writer:
            write(writer, 10 * process + 1, x=1)
            marks.append(writer.mark())
            write(writer, 10 * process + 2, x=2)
            writer.video("film", np.zeros((2, 8, 8, 3), np.uint8), 10)
    with MetricsWriter(tmp_path) as writer:
        kept = writer.rewind(lambda row: row["updates"] in (1, 2, 11)[: marked + 1], marks[marked])
    assert foreign.read_bytes() == b"theirs"
    foreign.unlink()
    films = [("film", 10)] if marked == 2 else []
    assert points(tmp_path) == sorted(films + [("x", row["env_steps"]) for row in kept])


def test_a_link_among_tensorboards_files_is_left_alone(tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"not ours")
    with MetricsWriter(tmp_path / "run") as writer:
        (name,) = writer.mark()["tensorboard"]
    (tmp_path / "run" / "tensorboard" / name.replace("events.out.tfevents.", "events.out.tfevents.0")).symlink_to(
        outside
    )
    with MetricsWriter(tmp_path / "run") as writer:
        writer.rewind(lambda row: True, {})
    assert outside.read_bytes() == b"not ours"


def test_time_goes_on_where_the_earlier_process_was(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        assert write(writer, 1)["time"] < 100
    rows = read_metrics(writer.path)
    writer.path.write_text("".join(json.dumps(row | {"time": row["time"] + 1000}) + "\n" for row in rows))
    with MetricsWriter(tmp_path) as writer:
        assert 1000 <= write(writer, 2)["time"] < 1100
        writer.rewind(lambda row: row["updates"] <= 1)
        assert 1000 <= write(writer, 2)["time"] < 1100
        writer.rewind(lambda row: False)
        assert write(writer, 2)["time"] < 100


@given(st.data())
def test_a_line_cut_short_is_left_out_and_written_over(tmp_path_factory, data):
    rows = [{"updates": number, "name": "ü" * number} for number in range(4)]
    whole = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    cut = data.draw(st.integers(0, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    path.write_bytes(whole[:cut])
    complete = [
        row for number, row in enumerate(rows) if cut >= len(b"".join(whole.splitlines(True)[: number + 1])) - 1
    ]
    assert read_metrics(path) == complete


def test_a_writer_repairs_the_end_before_it_goes_on(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        first = write(writer, 1)
    with open(writer.path, "ab") as file:
        file.write(b'{"updates": 2, "env_')
    with MetricsWriter(tmp_path) as writer:
        second = write(writer, 3)
    assert read_metrics(writer.path) == [first, second]
    assert [json.loads(line) for line in writer.path.read_bytes().splitlines()] == [first, second]


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for wrong in ("{broken", "[1]"):
        path.write_text(f'{{"updates": 1}}\n{wrong}\n{{"updates": 2}}\n')
        with pytest.raises(
            ValueError, match=r"Line 2 of .*metrics.jsonl cannot be used.*Expected: a JSON object.*Delete the line"
        ):
            read_metrics(path)


FULL_DISK = """
import errno, os, sys
from pathlib import Path
import numpy as np
from bayes_planet.runs.metrics import MetricsWriter

folder = Path(sys.argv[1])
writer = MetricsWriter(folder / "run")
writer.write({"loss/total": 1.0}, updates=1, env_steps=1, episodes=1)
writer.flush()
filling = os.open(folder / "filling", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(filling, bytes(4096))
except OSError as error:
    assert error.errno == errno.ENOSPC
try:
    for _ in range(20):  # TensorFlow notices late
        writer.video("film", np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), np.uint8), 2)
        writer.write({"loss/total": 2.0}, updates=2, env_steps=2, episodes=1)
    print("a full disk took it")
except OSError as error:
    print(errno.errorcode[error.errno], Path(error.filename).name)
os.remove(folder / "filling")
os._exit(0)
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_a_full_disk_is_an_os_error_whoever_writes(tmp_path):
    """On a file system of 4 MB that is really full."""
    shell = f"mount -t tmpfs -o size=4m tmpfs {tmp_path} && exec {sys.executable} - {tmp_path}"
    command = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", shell]
    result = subprocess.run(command, input=FULL_DISK, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no file system of one's own here: {result.stderr}")
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.split() == ["ENOSPC", "tensorboard"]
