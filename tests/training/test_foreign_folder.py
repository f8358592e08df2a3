"""A run's folder from somebody else: nothing outside of it changes, nothing of the run's own goes, nothing waits."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from bayes_planet.commands.console import divert_output
from bayes_planet.config import presets
from bayes_planet.files.json_files import JsonFileError
from bayes_planet.replay import EpisodeStore
from bayes_planet.replay.episode import episode_files
from bayes_planet.replay.rounds import UNFINISHED, remove_unfinished
from bayes_planet.runs.checkpoints import CheckpointError, Checkpoints
from bayes_planet.runs.metrics import MetricsFileError, MetricsWriter, read_metrics
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from tests.replay.make import assert_same, make_episode

CONFIG = presets.load(["debug"], ["env.name=Pendulum-v1", "env.observations=state"])


@pytest.fixture
def outside(tmp_path) -> Path:
    """Files of the user, in and beside the folder that runs are in."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("thesis.tex", "episode-000000-rows000005.npz"):
        (folder / name).write_text("mine")
    (folder / "folder").mkdir()
    (folder / "folder" / "kept").write_text("mine")
    return folder


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(CONFIG)
    directory.unlock()
    store = EpisodeStore(directory.episodes, 0)
    for index in range(2):
        store.add(make_episode(index, 5), index)
    return directory


def contents(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def note(run: RunDirectory, *lines: bytes) -> None:
    (run.episodes / UNFINISHED).write_bytes(b"\n".join(lines))


def test_a_note_of_a_round_removes_nothing_but_its_round(run, outside):
    before, own = contents(outside), contents(run.path)
    note(
        run,
        b"", b"   ", b"\xff\xfe\x00", b".", b"..", b"../config.yaml", b"../../home/thesis.tex",
        str(outside / "thesis.tex").encode(), b"/etc/passwd", b"../../home/episode-000000-rows000005.npz",
        b"episode-000000-rows000005.npz", b"episode-000001-rows000005.npz", b"./episode-000001-rows000005.npz",
        b"episode-000001-rows000005.npz/", b".collected", b"x" * 100_000,
    )  # fmt: skip
    assert EpisodeStore(run.episodes, 0).indices == [0, 1]
    remove_unfinished(run.episodes)
    assert contents(outside) == before and contents(run.path) == own  # the note is gone
    store = EpisodeStore(run.episodes, 0)
    assert_same(store.load(1), make_episode(1, 5))


def test_what_a_killed_writer_left_of_a_round_goes(run):
    note(run, b"episode-000002-rows000005.npz", b"", b"episode-000003-rows000005.npz")
    EpisodeStore(run.path / "other", 0).add(make_episode(2, 5), 2).rename(
        run.episodes / "episode-000002-rows000005.npz"
    )
    store = EpisodeStore(run.episodes, 0)
    assert store.indices == [0, 1] and len(episode_files(run.episodes)) == 2
    store.add_round({2: make_episode(7, 6), 3: make_episode(8, 5)})
    assert EpisodeStore(run.episodes, 0).indices == [0, 1, 2, 3]
    assert not (run.episodes / UNFINISHED).exists() and not list(run.episodes.glob("*000002-rows000005*"))


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_note_that_is_no_file_names_nothing_and_blocks_nothing(run, outside, kind):
    path = run.episodes / UNFINISHED
    before = contents(outside)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(outside / ("thesis.tex" if kind == "link" else "new"))
    store = EpisodeStore(run.episodes, 0)
    store.add_round({2: make_episode(2, 5), 3: make_episode(3, 5)})
    assert EpisodeStore(run.episodes, 0).indices == [0, 1, 2, 3] and contents(outside) == before


LINKS = (".lock", ".versions.json.tmp", ".starts.json.tmp", ".config.yaml.tmp", "versions.json", "config.yaml")


@pytest.mark.parametrize("target", ["thesis.tex", "new"])
@pytest.mark.parametrize("name", LINKS)
def test_a_start_writes_through_no_link(run, outside, name, target):
    before = contents(outside)
    path = run.path / name
    if path.exists():
        shutil.copy(path, outside / "copy")
        path.unlink()
        before = contents(outside)
    path.symlink_to(outside / ("copy" if (outside / "copy").exists() else target))
    for _ in range(2):
        try:
            run.prepare(CONFIG)
            run.record_start(2)
        except OSError as error:  # .lock alone: its link is not ours to replace
            assert name == ".lock" and error.errno == errno.ELOOP and "Remove the link" in str(error)
        finally:
            run.unlock()
    assert contents(outside) == before


@pytest.mark.parametrize("name", ["episodes", "checkpoints", "best_model", "videos", "logs", "tensorboard", "analysis"])
def test_a_folder_of_the_run_that_is_a_link_is_refused(run, outside, name):
    before = contents(outside)
    shutil.rmtree(run.path / name, ignore_errors=True)
    (run.path / name).symlink_to(outside / "folder")
    with pytest.raises(RunDirectoryError, match=f"{name} is a link to .*home/folder"):
        run.prepare(CONFIG)
    assert contents(outside) == before


def test_the_run_itself_may_be_behind_a_link(run, tmp_path):
    (tmp_path / "short").symlink_to(run.path)
    again = RunDirectory(tmp_path / "short")
    assert again.prepare(CONFIG).env.name == "Pendulum-v1"
    again.unlock()


@pytest.mark.parametrize("kind", ["link", "second name", "pipe"])
def test_rows_and_logs_are_appended_to_files_of_the_run_alone(run, outside, kind):
    (outside / "rows.jsonl").write_text('{"updates": 1}\n')
    before = contents(outside)
    (run.logs / "libraries.log").unlink(missing_ok=True)
    for path in (run.metrics_file, run.logs / "libraries.log"):
        if kind == "pipe":
            os.mkfifo(path)
        else:
            (path.symlink_to if kind == "link" else path.hardlink_to)(outside / "rows.jsonl")
    with pytest.raises(OSError):
        MetricsWriter(run.path)
    with pytest.raises(OSError), divert_output(run.logs / "libraries.log"):
        pass
    assert contents(outside) == before


def test_leftovers_of_a_replaced_folder_lead_nowhere(run, outside):
    before = contents(outside)
    for kind, target in [("lock", "thesis.tex"), ("new", "folder"), ("old", "folder")]:
        (run.path / f".best_model.{'a' * 32}.{kind}").symlink_to(outside / target)
    try:
        run.prepare(CONFIG)
    except OSError as error:
        assert "a link" in str(error)
    finally:
        run.unlock()
    assert contents(outside) == before


def checkpoints(folder: Path, value: float = 0.0) -> tuple[Checkpoints, tf.Variable]:
    variable = tf.Variable(value)
    counters = {"updates": int, "evaluated_at": int}
    return Checkpoints(folder, 2, counters=counters, variable=variable), variable


@pytest.mark.parametrize("name", ["a[1]", "a]b", "back\\slash", "star*", "what?", "{a,b}", "[!x]", "ä [é]*?\\"])
def test_a_checkpoint_is_found_below_any_name(tmp_path, name):
    folder = tmp_path / name / "checkpoints"
    for updates in range(3):
        checkpoints(folder, 7.0 + updates)[0].save({"updates": updates, "evaluated_at": -1})
    again, variable = checkpoints(folder)
    assert again.restore() == {"updates": 2, "evaluated_at": -1} and variable.numpy() == 9.0
    assert sorted(os.listdir(folder)) == ["ckpt-00000001", "ckpt-00000002"]


def test_nor_does_a_neighbour_match_instead(tmp_path):
    """`run[12]` as a pattern is run1."""
    for name, value in (("run1", 1.0), ("run[12]", 2.0)):
        checkpoints(tmp_path / name, value)[0].save({"updates": 0, "evaluated_at": -1})
    again, variable = checkpoints(tmp_path / "run[12]")
    again.restore()
    assert variable.numpy() == 2.0


def forged(counters: object) -> bytes:
    """With the right checksum."""
    import hashlib

    plain = json.dumps(counters, sort_keys=True)
    return json.dumps({"counters": counters, "sha256": hashlib.sha256(plain.encode()).hexdigest()}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"null", b"[]", b"3", b'"x"', b"{}", b'{"counters": []}', b'{"counters": {}, "sha256": 3}', b"[" * 200_000,
        b"\xff", b"", forged({}), forged([]), forged({"updates": "3", "evaluated_at": 1}),
        forged({"updates": 3}), forged({"updates": 3, "evaluated_at": None}), forged({"updates": 10**30, "evaluated_at": 1}),
        b'{"counters": {"updates": NaN}, "sha256": ""}',
    ],
)  # fmt: skip
def test_an_older_checkpoint_is_tried_where_counters_are_wrong(tmp_path, data):
    for updates in (1, 2):
        checkpoints(tmp_path, float(updates))[0].save({"updates": updates, "evaluated_at": -1})
    (tmp_path / "ckpt-00000002" / "counters.json").write_bytes(data)
    again, variable = checkpoints(tmp_path)
    with pytest.warns(RuntimeWarning, match="Skipped checkpoint .*ckpt-00000002"):
        assert again.restore()["updates"] == 1
    assert variable.numpy() == 1.0


@pytest.mark.parametrize("name", ["counters.json", "variables.index", "variables.data-00000-of-00001"])
def test_a_checkpoint_with_a_pipe_is_skipped_and_not_waited_for(tmp_path, name):
    for updates in (1, 2):
        checkpoints(tmp_path, float(updates))[0].save({"updates": updates, "evaluated_at": -1})
    path = tmp_path / "ckpt-00000002" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(RuntimeWarning, match="a pipe"):
        assert checkpoints(tmp_path)[0].restore()["updates"] == 1


def test_temporary_checkpoints_that_are_links_are_not_followed(tmp_path, outside):
    before = contents(outside)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / ".tmp-ckpt-00000001").symlink_to(outside / "folder")
    (folder / "ckpt-00000000").symlink_to(outside / "folder")
    for updates in (1, 2, 3):
        checkpoints(folder, 1.0)[0].save({"updates": updates, "evaluated_at": -1})
    assert contents(outside) == before
    assert sorted(os.listdir(folder))[-2:] == ["ckpt-00000002", "ckpt-00000003"]


def test_a_full_disk_is_named(small_disk):
    variable = tf.Variable(tf.zeros([100_000]))
    with pytest.raises(CheckpointError, match="The disk under .* is full: make room"):
        Checkpoints(small_disk / "checkpoints", 1, variable=variable).save({"updates": 1})
    assert os.listdir(small_disk / "checkpoints") == []


@pytest.mark.parametrize(
    "data", [b"null", b"[]", b"{}", b'{"observation": {}}', b"[" * 200_000, b'{"observation": 3, "action": 4}']
)
def test_wrong_spaces_are_one_error(run, data):
    run.spaces_file.write_bytes(data)
    with pytest.raises(JsonFileError, match=r"spaces\.json cannot be used.*Expected: spaces\.json of a run"):
        run.read_spaces()


@pytest.mark.parametrize(
    "change",
    [
        {"shape": []}, {"shape": [0]}, {"shape": [-3]}, {"shape": [10**12]}, {"shape": ["3"]}, {"shape": 3}, {"dtype": "O"},
        {"dtype": "nonsense"}, {"dtype": 3}, {"low": "x"}, {"low": 5.0, "high": 1.0}, {"low": [0]},
    ],
)  # fmt: skip
def test_a_box_that_cannot_be_is_one_error(run, change):
    good = {"shape": [3], "dtype": "float32", "low": -1.0, "high": 1.0}
    run.spaces_file.write_text(json.dumps({"observation": {"state": good}, "action": {**good, **change}}))
    with pytest.raises(JsonFileError, match=r"spaces\.json cannot be used"):
        run.read_spaces()


@pytest.mark.parametrize("data", ["null", "[]", "{}", '{"format": 1, "episodes": "3"}', "[" * 200_000])
def test_a_wrong_saved_model_is_one_error(run, data):
    run.model_file.write_text(data)
    with pytest.raises(JsonFileError, match=r"model\.json cannot be used"):
        run.saved_model()


@pytest.mark.parametrize(
    "line", ["null", "[1]", '{"updates": "3"}', '{"time": NaN}', '{"updates": 1e999}', "[" * 200_000, "9" * 5000]
)
def test_a_wrong_row_is_named_by_its_line(run, line):
    run.metrics_file.write_text('{"updates": 1}\n' + line + '\n{"updates": 2}\n')
    with pytest.raises(MetricsFileError, match=r"Line 2 of .*metrics\.jsonl"):
        read_metrics(run.metrics_file)


@pytest.mark.parametrize(
    "data", ["null", "{}", "[3]", '[{"started": 3}]', '[{"started": "x", "changed_from": []}]', "[" * 200_000]
)
def test_wrong_starts_are_one_error(run, data):
    run.starts_file.write_text(data)
    with pytest.raises(RunDirectoryError, match=r"starts\.json cannot be used.*restore it, or move it away"):
        run.read_starts()
