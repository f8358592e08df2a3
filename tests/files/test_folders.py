"""Folders that are replaced whole or not at all, also by processes that are killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bayes_planet.files.folders import recover_folder, replacing_folder

REPLACE = """
import os, signal, sys
from pathlib import Path
from bayes_planet.files.folders import replacing_folder
folder, renames = Path(sys.argv[1]), int(sys.argv[2])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

original = Path.rename
def rename(path, target):
    global renames
    original(path, target)
    renames -= 1
    if renames == 0:
        die()

Path.rename = rename
with replacing_folder(folder) as temporary:
    temporary.mkdir()
    (temporary / "model").write_text("new")
    if renames == 0:
        die()
"""


def killed_after(renames: int, folder: Path) -> None:
    """Kills a process that replaces the folder: while it fills the new one, or after `renames`."""
    ended = subprocess.run([sys.executable, "-c", REPLACE, str(folder), str(renames)], timeout=240)
    assert ended.returncode == -signal.SIGKILL


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "best_model"
    path.mkdir()
    (path / "model").write_text("old")
    return path


@pytest.mark.parametrize(("renames", "content"), [(0, "old"), (1, "old"), (2, "new")])
def test_a_sound_folder_survives_a_kill(folder, renames, content):
    killed_after(renames, folder)
    assert len(os.listdir(folder.parent)) > 1
    with pytest.raises(ZeroDivisionError), replacing_folder(folder) as temporary:
        temporary.mkdir()
        raise ZeroDivisionError
    assert (folder / "model").read_text() == content
    assert os.listdir(folder.parent) == ["best_model"]  # nothing is left of either


@pytest.mark.parametrize(("renames", "content"), [(0, "old"), (1, "old"), (2, "new")])
def test_it_can_be_recovered_without_another_replacement(folder, renames, content):
    for _ in range(2):
        killed_after(renames, folder)
    recover_folder(folder)
    assert (folder / "model").read_text() == content and os.listdir(folder.parent) == ["best_model"]


def test_the_first_one_killed_while_it_is_filled_leaves_nothing(tmp_path):
    killed_after(0, tmp_path / "new")
    recover_folder(tmp_path / "new")
    assert os.listdir(tmp_path) == []
    recover_folder(tmp_path / "not" / "there")


def test_leftovers_of_earlier_versions_are_known(folder):
    folder.rename(folder.with_name(".best_model.4711.old"))
    for number in (4711, 12):
        folder.with_name(f".best_model.{number}.new").mkdir()
    recover_folder(folder)
    assert (folder / "model").read_text() == "old" and os.listdir(folder.parent) == ["best_model"]


def test_what_a_living_process_fills_is_left_alone(folder):
    with replacing_folder(folder) as temporary:
        temporary.mkdir()
        (temporary / "model").write_text("new")
        recover_folder(folder)
        assert (temporary / "model").exists()
    assert (folder / "model").read_text() == "new" and os.listdir(folder.parent) == ["best_model"]


def test_an_old_folder_without_its_successor_may_be_the_only_copy(folder):
    """The new one was in place and somebody took it away, or it is half removed: neither restored nor lost."""
    left = folder.rename(folder.with_name(f".best_model.{'a' * 32}.old"))
    recover_folder(folder)
    assert (left / "model").exists() and not folder.exists()


def test_neighbours_stay(folder):
    names = [".best_model.backup.old", ".best_model.x.12.new", ".other.12.old", "best_model.12.new", ".best_model.12"]
    for name in names:
        folder.with_name(name).mkdir()
    recover_folder(folder)
    assert sorted(os.listdir(folder.parent)) == sorted([*names, "best_model"])


def test_a_link_leads_to_what_was_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with replacing_folder(tmp_path / "link") as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "new").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "there"]
