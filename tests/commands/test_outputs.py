"""Where a command writes what a user has named, and what it does with names and numbers that are none."""

import os
import stat
import subprocess
import sys

import pytest

from bayes_planet import cli
from tests.commands.untrained import untrained_run
from tests.report.make import make_run


def fails(capsys, *arguments: object) -> str:
    assert cli.main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and "Traceback" not in captured.err
    return captured.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "r[1]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return untrained_run(tmp_path_factory.mktemp("back\\slash") / "a[1]*?", "env.episode_env_steps=40")


@pytest.mark.thorough
def test_a_page_goes_through_links_and_devices(capsys, run, tmp_path):
    target, link = tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("old")
    link.symlink_to(target)
    for out in (link, "/dev/null"):
        assert cli.main(["report", str(run), "--out", str(out)]) == 0
    assert link.is_symlink() and target.read_text().startswith("<!") and stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert "The disk is full" in fails(capsys, "report", run, "--out", "/dev/full")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_pipes_and_folders_are_refused_before_the_work(capsys, run, tmp_path):
    pipe = tmp_path / "pipe.mp4"
    os.mkfifo(pipe)
    assert "a pipe (FIFO). Accepted: a file" in fails(capsys, "report", run, "--out", pipe)
    assert "a folder. Accepted: a file" in fails(capsys, "report", run, "--out", tmp_path)
    for given in (pipe, "/dev/null"):
        assert "no folder" in fails(capsys, "report", run, "--figures", given)
        assert "no folder" in fails(capsys, "export", run, "--out", given)
    for option in ("--video", "--open-loop"):
        assert f"{option} is " in (text := fails(capsys, "evaluate", run, option, pipe)) and "a pipe (FIFO)" in text
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(tmp_path) == ["pipe.mp4"]


def test_a_page_is_not_written_out_of_a_run_by_its_own_link(capsys, run, tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    link = run / "report.html"
    link.unlink(missing_ok=True)
    link.symlink_to(mine)
    try:
        assert "is a link to" in fails(capsys, "report", run)
        assert mine.read_text() == "mine" and link.is_symlink()
    finally:
        link.unlink()


@pytest.mark.thorough
def test_a_full_disk_leaves_no_half_page(capsys, run, small_disk):
    (small_disk / "page.html").write_text("old")
    for name in ("page.html", "new.html"):
        assert "The disk is full" in fails(capsys, "report", run, "--out", small_disk / name)
    assert os.listdir(small_disk) == ["page.html"] and (small_disk / "page.html").read_text() == "old"


@pytest.mark.thorough
def test_a_run_below_any_name_is_evaluated_and_filmed(capsys, trained, tmp_path, small_disk):
    film = tmp_path / "film[1].gif"
    assert cli.main(["evaluate", str(trained), "--episodes", "1", "--video", str(film)]) == 0
    assert film.read_bytes()[:6] == b"GIF89a"
    (small_disk / "film.mp4").symlink_to(small_disk / "real.mp4")
    (small_disk / "filled").write_bytes(b"x" * 60_000)
    text = fails(capsys, "evaluate", trained, "--episodes", 1, "--video", small_disk / "film.mp4")
    assert "The disk is full" in text and sorted(os.listdir(small_disk)) == ["filled", "film.mp4"]


def test_bytes_that_are_no_text_are_one_error(tmp_path):
    for arguments in (["report", b"r\xff"], ["configs", b"seed=\xfe"], ["train", "--logdir", b"\xff/x"]):
        command = [sys.executable, "-m", "bayes_planet", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=240)
        assert ended.returncode == 2 and b"is not UTF-8" in ended.stderr and b"Traceback" not in ended.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 20, "-" + "9" * 20, "1e3", "0x10", "", "½"])
@pytest.mark.parametrize("option", ["--episodes", "--seed"])
def test_numbers_of_any_length_are_one_error(capsys, run, option, number):
    with pytest.raises(SystemExit) as ended:
        cli.main(["evaluate", str(run), f"{option}={number}"])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "is not a whole number of at most 18 digits" in error and len(error) < 2000
