"""Files that a user names: whole or not at all, through links and devices, never in place of them."""

import errno
import os
import resource
import socket
import stat
from pathlib import Path

import pytest

from bayes_planet.files.writing import check_output, is_disk_full, remove_leftovers, write_atomically, write_output

ROOT = os.geteuid() == 0


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    target, link, second = tmp_path / "far" / "page.html", tmp_path / "link", tmp_path / "second"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    second.symlink_to("link")
    write_output(second, b"new")
    assert target.read_bytes() == b"new" and stat.S_IMODE(target.stat().st_mode) == 0o640
    assert link.is_symlink() and second.is_symlink() and not target.is_symlink()
    assert os.listdir(tmp_path / "far") == ["page.html"]
    assert sorted(os.listdir(tmp_path)) == ["far", "link", "second"]


def test_a_link_to_what_is_not_there_yet_makes_it(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "new" / "page.html")
    write_output(tmp_path / "link", b"new")
    assert (tmp_path / "new" / "page.html").read_bytes() == b"new" and (tmp_path / "link").is_symlink()


def test_a_new_file_has_the_permissions_that_the_process_gives(tmp_path):
    before = os.umask(0o027)
    try:
        write_output(tmp_path / "page", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "page").stat().st_mode) == 0o640


def test_a_device_is_written_through_and_stays(tmp_path):
    null, link = os.stat("/dev/null"), tmp_path / "link"
    write_output(Path("/dev/null"), b"x" * 100_000)
    link.symlink_to("/dev/full")
    with pytest.raises(OSError) as raised:
        write_output(link, b"x")
    assert raised.value.errno == errno.ENOSPC and is_disk_full(raised.value)
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode) and link.is_symlink()
    assert os.stat("/dev/null").st_ino == null.st_ino and stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("through_link", [False, True])
@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "block"])
def test_what_is_no_file_is_refused_and_stays(tmp_path, kind, through_link):
    path = tmp_path / "there"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "block":
        try:
            os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 250))
        except OSError:
            pytest.skip("making a block device needs root")
    else:
        with socket.socket(socket.AF_UNIX) as each:
            os.chdir(tmp_path)
            each.bind("there")
    given = path
    if through_link:
        given = tmp_path / "link"
        given.symlink_to(path)
    mode = path.stat().st_mode
    words = {"fifo": "a pipe", "socket": "a socket", "folder": "a folder", "block": "a block device"}[kind]
    for attempt in (check_output, lambda path: write_output(path, b"page")):
        with pytest.raises(OSError, match=f"It is {words}.*Accepted: a file"):
            attempt(given)
    assert path.stat().st_mode == mode and given.is_symlink() == through_link
    assert len(os.listdir(tmp_path)) == 1 + through_link


def test_a_pipe_behind_a_descriptor_is_refused(tmp_path):
    reading, writing = os.pipe()
    try:
        with pytest.raises(OSError, match="a pipe"):
            write_output(Path(f"/dev/fd/{writing}"), b"page")
    finally:
        os.close(reading)
        os.close(writing)


def test_a_full_disk_leaves_what_was_there(small_disk):
    page = small_disk / "page"
    page.write_bytes(b"old")
    for path in (page, small_disk / "new"):
        with pytest.raises(OSError) as raised:
            write_output(path, b"x" * 200_000)
        assert is_disk_full(raised.value) and str(path) == raised.value.filename
    assert page.read_bytes() == b"old" and os.listdir(small_disk) == ["page"]


def test_a_link_onto_a_full_disk(small_disk, tmp_path):
    (tmp_path / "link").symlink_to(small_disk / "page")
    with pytest.raises(OSError):
        write_output(tmp_path / "link", b"x" * 200_000)
    assert os.listdir(small_disk) == [] and sorted(os.listdir(tmp_path)) == ["disk", "link"]


def test_a_file_that_may_not_grow_leaves_nothing(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError) as raised:
            write_output(tmp_path / "page", b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG and not is_disk_full(raised.value) and os.listdir(tmp_path) == []


def test_a_run_s_own_file_replaces_a_link(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("versions.json", ".versions.json.tmp", ".tmp"):
        (run / name).symlink_to(outside)
    write_atomically(run / "versions.json", b"{}")
    assert outside.read_text() == "mine"
    assert (run / "versions.json").read_bytes() == b"{}" and not (run / "versions.json").is_symlink()


def test_only_leftovers_of_dead_writers_go(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    (run / ".a.tmp").write_text("left")
    (run / ".link.tmp").symlink_to(outside)
    (run / ".folder.tmp").mkdir()
    os.mkfifo(run / ".pipe.tmp")
    (run / "mine.tmp").write_text("kept")
    import fcntl

    with open(run / ".living.tmp", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_leftovers(run)
        assert sorted(os.listdir(run)) == [".folder.tmp", ".living.tmp", "mine.tmp"]
    remove_leftovers(run)
    assert sorted(os.listdir(run)) == [".folder.tmp", "mine.tmp"] and outside.read_text() == "mine"


def test_long_names_have_room_for_a_temporary_one(tmp_path):
    path = tmp_path / ("ü" * 125 + ".html")
    write_output(path, b"page")
    assert path.read_bytes() == b"page"


def test_the_disk_is_found_full_behind_other_errors():
    try:
        try:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        except OSError as error:
            raise RuntimeError("the checkpoint was not written") from error
    except RuntimeError as error:
        assert is_disk_full(error)
    assert is_disk_full(RuntimeError("variables.data; No space left on device"))
    assert not is_disk_full(OSError(errno.EIO, "bad")) and not is_disk_full(None)
