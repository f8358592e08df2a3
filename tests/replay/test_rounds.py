"""A writer that is killed at any of its steps leaves whole rounds."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bayes_planet.replay import EpisodeStore
from bayes_planet.replay.rounds import remove_unfinished, whole_files, write_round
from tests.replay.make import assert_same, make_episode

ROOT = Path(__file__).parents[2]
PATTERN = "*.npz"

KILLED_AT = """
import os, signal, sys
from pathlib import Path
from bayes_planet.replay import EpisodeStore
from tests.replay.make import make_episode

store, step = EpisodeStore(sys.argv[1], 0), int(sys.argv[2])
store.add_round({index: make_episode(index, 5) for index in range(3)})
done = 0

def killed_at(real):
    def call(*arguments, **named):
        global done
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return real(*arguments, **named)
    return call

os.replace = killed_at(os.replace)
os.fsync = killed_at(os.fsync)
Path.unlink = killed_at(Path.unlink)
store.add_round({index: make_episode(index, 7) for index in range(3, 6)})
print("whole", done)
"""


def killed_at(folder, step):
    return subprocess.run(
        [sys.executable, "-c", KILLED_AT, str(folder), str(step)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )


def test_a_kill_at_any_step_leaves_the_round_before_or_the_whole_round(tmp_path):
    found, steps = [], 0
    while True:
        folder = tmp_path / str(steps)
        process = killed_at(folder, steps)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stderr
        store = EpisodeStore(folder, 0)
        assert store.indices in ([0, 1, 2], [0, 1, 2, 3, 4, 5])
        found.append(store.episodes)
        # What goes on collects it again, maybe with other lengths.
        if store.episodes == 3:
            store.add_round({index: make_episode(index, 9) for index in range(3, 6)})
        again = EpisodeStore(folder, 0)
        assert again.indices == [0, 1, 2, 3, 4, 5] and again.corrupt == 0
        assert_same(again.load(4), make_episode(4, 9 if found[-1] == 3 else 7))
        assert not list(folder.glob(".*"))
        steps += 1
    assert process.stdout.split() == ["whole", str(steps)]
    # A note, three files and the folder twice are synced; four names are given and one is taken away; one sync more.
    assert found == [3] * (steps - 1) + [6] and steps == 12


def test_a_reader_does_not_see_half_of_a_round(tmp_path, monkeypatch):
    replace, seen = os.replace, []
    write_round(tmp_path, {"0.npz": b"0"})

    def look(source, target):
        replace(source, target)
        seen.append([path.name for path in whole_files(tmp_path, PATTERN)])

    monkeypatch.setattr(os, "replace", look)
    write_round(tmp_path, {"1.npz": b"1", "2.npz": b"2"})
    assert seen == [["0.npz"]] * 3  # after the note, the first and the second
    assert [path.name for path in whole_files(tmp_path, PATTERN)] == ["0.npz", "1.npz", "2.npz"]


def test_one_file_needs_no_note(tmp_path, monkeypatch):
    replace, given = os.replace, []
    monkeypatch.setattr(os, "replace", lambda source, target: (given.append(target), replace(source, target)))
    write_round(tmp_path, {"0.npz": b"0"})
    assert given == [tmp_path / "0.npz"] and (tmp_path / "0.npz").read_bytes() == b"0"


def test_a_stop_between_two_names_leaves_nothing(tmp_path, monkeypatch):
    replace, given = os.replace, []

    def stop(source, target):
        if len(given) == 2:
            raise KeyboardInterrupt
        given.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_round(tmp_path, {"0.npz": b"0", "1.npz": b"1"})
    assert len(given) == 2 and list(tmp_path.iterdir()) == []


def test_nothing_unfinished_is_nothing_to_remove(tmp_path):
    (tmp_path / "0.npz").touch()
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0.npz"]
