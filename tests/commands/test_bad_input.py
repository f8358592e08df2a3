"""What a user may get wrong on the command line: each is one clear sentence, exit code 2, and nothing lost."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bayes_planet import cli
from bayes_planet.config import presets
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.run_directory import RunDirectory, RunDirectoryError
from tests.commands.untrained import untrained_run
from tests.replay.make import make_episode


def fails(capsys, *arguments: object, code: int = 2) -> str:
    assert cli.main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and "Traceback" not in captured.err
    return captured.err


def test_a_folder_with_an_equals_sign_holds_presets_too(capsys, tmp_path):
    path = tmp_path / "lr=0.1" / "mine.yaml"
    path.parent.mkdir()
    path.write_text("train: {batch_size: 7}\n")
    assert cli.main(["configs", str(path), "seed=5"]) == 0
    printed = capsys.readouterr().out
    assert "batch_size: 7" in printed and "seed: 5" in printed
    text = fails(capsys, "train", "--logdir", tmp_path / "run", "--config", "debug", str(path), "planner.elites=99")
    assert "planner.elites is 99" in text


@pytest.mark.parametrize("damaged", ["metrics", "episode"])
def test_damaged_files_of_a_run_are_told(capsys, tmp_path, damaged):
    overrides = ["env.name=Pendulum-v1", "env.observations=state", "env.action_repeat=2"]
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(presets.load(["debug"], overrides))
    directory.unlock()
    store = EpisodeStore(directory.episodes, 0)
    store.add(make_episode(0, 5), 0)
    said = "odd file away"
    if damaged == "metrics":
        (directory.path / "metrics.jsonl").write_text('{"updates": 0}\nnonsense\n{"updates": 0}\n')
        said = "Line 2 of"
    else:
        wide = make_episode(1, 5) | {"action": np.zeros((5, 3), np.float32)}
        EpisodeStore(tmp_path / "other", 0).add(wide, 1).rename(
            directory.episodes / store.path(0).name.replace("00-", "01-")
        )
    text = fails(capsys, "train", "--config", "debug", "--logdir", directory.path, *overrides)
    assert said in text


def test_unknown_preset_names_the_nearest(capsys, tmp_path):
    text = fails(capsys, "train", "--config", "cheeta_run", "--logdir", tmp_path / "run")
    assert "'cheeta_run'" in text and "cheetah_run" in text
    assert not (tmp_path / "run").exists()


def test_unknown_key_names_the_nearest(capsys, tmp_path):
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", "train.batchsize=3")
    assert "train.batchsize" in text and "train.batch_size" in text


def test_wrong_type(capsys, tmp_path):
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", "train.batch_size=many")
    assert "train.batch_size" in text and "many" in text


def test_override_behind_config_is_understood(capsys, tmp_path):
    text = fails(capsys, "train", "--logdir", tmp_path / "run", "--config", "debug", "train.batch_size=0")
    assert "train.batch_size is 0" in text


def test_out_of_range(capsys, tmp_path):
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", "planner.elites=17")
    assert "planner.elites is 17" in text and "16" in text


def test_unknown_task_names_the_nearest(capsys, tmp_path):
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", "env.name=dm_control/cheeta-run")
    assert "cheetah-run" in text


def test_discrete_actions_are_refused(capsys, tmp_path):
    overrides = ("env.name=CartPole-v1", "env.observations=state", "env.action_repeat=1")
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", *overrides)
    assert "Discrete" in text


def test_no_gl_names_the_package(tmp_path):
    arguments = ["train", "--config", "debug", "--logdir", str(tmp_path / "run")]
    environment = {**os.environ, "MUJOCO_GL": "osmesa"}
    result = subprocess.run(
        [sys.executable, "-m", "bayes_planet.cli", *arguments],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    if result.returncode == 0:
        pytest.skip("OSMesa is installed here")
    assert result.returncode == 2 and "libosmesa6" in result.stderr and "Traceback" not in result.stderr


def test_run_directory_of_another_configuration(capsys, tmp_path):
    config = presets.load(["debug"])
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(config)
    directory.unlock()
    EpisodeStore(directory.episodes, 0).add(make_episode(0, 5), 0)
    before = directory.config_file.read_text()
    text = fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run", "model.belief_units=17")
    assert "model.belief_units: 16 there, 17 now" in text
    assert directory.config_file.read_text() == before


def test_a_mistyped_first_command_does_not_bind_the_folder(capsys, tmp_path):
    """The second one gets past the folder, to a mistake of its own; else the test would have to train."""
    train = ("train", "--config", "debug", "--logdir", tmp_path / "run", "env.observations=state")
    assert "cartpole-swingupp'" in fails(capsys, *train, "env.name=dm_control/cartpole-swingupp")
    text = fails(capsys, *train, "env.name=dm_control/cartpole-swingu", "train.batch_size=3")
    assert "cartpole-swingu'" in text and "another configuration" not in text
    assert RunDirectory(tmp_path / "run").read_config().train.batch_size == 3


def test_run_directory_in_use(tmp_path):
    config = presets.load(["debug"])
    first, second = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "run")
    first.prepare(config)
    with pytest.raises(RunDirectoryError, match="Another process"):
        second.prepare(config)
    first.unlock()
    second.prepare(config)
    second.unlock()


def test_logdir_is_a_file(capsys, tmp_path):
    (tmp_path / "run").write_text("mine")
    assert "a file" in fails(capsys, "train", "--config", "debug", "--logdir", tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


def test_evaluate_without_a_run(capsys, tmp_path):
    assert "no config.yaml" in fails(capsys, "evaluate", tmp_path)


def test_evaluate_options(capsys, tmp_path):
    assert "--episodes is 0" in fails(capsys, "evaluate", tmp_path, "--episodes", 0)
    assert ".mp4 or .gif" in fails(capsys, "evaluate", tmp_path, "--video", "film.avi")
    for seed in (-1, 2**31):
        assert f"--seed is {seed}. Accepted: 0 to 2**31 - 1." in fails(capsys, "evaluate", tmp_path, "--seed", seed)
    files = ("--video", tmp_path / "film.gif", "--open-loop", tmp_path / "run" / ".." / "film.gif")
    assert "Accepted: two files" in fails(capsys, "evaluate", tmp_path, *files)


@pytest.mark.thorough
def test_evaluate_refuses_videos_before_it_starts_anything(capsys, tmp_path):
    """The run has no checkpoint, which would be told first if the environments had been started."""
    logdir = tmp_path / "run"
    directory = RunDirectory(logdir)
    directory.prepare(presets.load(["debug"], ["env.observations=state"]))
    directory.unlock()
    before = sorted(path.name for path in logdir.iterdir())
    assert "has no images" in fails(capsys, "evaluate", logdir, "--open-loop", tmp_path / "new" / "film.gif")
    assert not (tmp_path / "new").exists()
    for place, reason in (
        (logdir / "config.yaml" / "film.gif", "Not a directory"),
        (logdir / "config.yaml" / "deep" / "film.gif", "Not a directory"),
        (tmp_path / ("a" * 300 + ".gif"), "File name too long"),
    ):
        text = fails(capsys, "evaluate", logdir, "--video", place)
        assert f"--video is {str(place)!r}, which cannot be written" in text and reason in text
    (tmp_path / "folder.gif").mkdir()
    assert "a folder. Accepted: a file" in fails(capsys, "evaluate", logdir, "--video", tmp_path / "folder.gif")
    assert "no checkpoint yet" in fails(capsys, "evaluate", logdir, "--video", tmp_path / "new" / "film.gif")
    assert list((tmp_path / "new").iterdir()) == [] and sorted(path.name for path in logdir.iterdir()) == before


def test_a_film_that_cannot_be_drawn_is_told_before_the_episodes(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disabled")
    logdir = untrained_run(tmp_path / "run", "env.observations=state")
    text = fails(capfd, "evaluate", logdir, "--episodes", 2, "--video", tmp_path / "film.gif")
    assert "No OpenGL backend can draw" in text and not (tmp_path / "film.gif").exists()


def test_paths_that_no_system_takes(capsys, tmp_path):
    long, file = tmp_path / ("a" * 300), tmp_path / "file"
    file.write_text("mine")
    for command in (["evaluate", long], ["analyse", long], ["export", long, "--out", tmp_path / "out"]):
        assert "cannot be read" in fails(capsys, *command)
    for logdir in (long, file / "run"):
        text = fails(capsys, "train", "--config", "debug", "--logdir", logdir)
        assert f"--logdir is {str(logdir)!r}, which cannot be used" in text
    assert file.read_text() == "mine"


def test_an_episode_that_cannot_be_read(capsys, tmp_path):
    """A link to itself (ELOOP), which is an error to root too."""
    logdir = tmp_path / "run"
    overrides = ["env.name=Pendulum-v1", "env.observations=state", "env.action_repeat=2"]
    directory = RunDirectory(logdir)
    directory.prepare(presets.load(["debug"], overrides))
    directory.unlock()
    directory.episodes.mkdir()
    link = directory.episodes / "episode-000000-rows000101.npz"
    link.symlink_to(link.name)
    text = fails(capsys, "train", "--config", "debug", "--logdir", logdir, *overrides, code=74)
    assert str(link) in text and "could not be read" in text and "give the same command" in text
    assert link.is_symlink()


def test_batch_longer_than_any_episode(capsys, tmp_path):
    """Told before the first update, with the seed episodes kept."""
    logdir = tmp_path / "run"
    overrides = ["train.sequence_length=50", "env.name=Pendulum-v1", "env.observations=state", "env.action_repeat=2"]
    text = fails(capsys, "train", "--config", "debug", "--logdir", logdir, *overrides)
    assert "train.sequence_length" in text and "41" in text
    files = list((logdir / "episodes").glob("*.npz"))
    assert len(files) == 2
    with np.load(files[0]) as episode:
        assert episode["reward"].shape == (41,)


def test_figures_that_cannot_be_written_are_told_by_their_name(capsys, tmp_path):
    directory = RunDirectory(tmp_path / "run")
    directory.prepare(presets.load(["debug"]))
    directory.unlock()
    page, figures = tmp_path / "page.html", directory.config_file / "figures"
    text = fails(capsys, "report", tmp_path / "run", "--out", page, "--figures", figures)
    assert f"--figures is {figures}, which cannot be written" in text and not page.exists()
    text = fails(capsys, "report", tmp_path / "run", "--out", directory.config_file / "page.html")
    assert "--out is" in text and "which cannot be written" in text


@pytest.mark.parametrize("line", [["train", "--logdir", ""], ["evaluate", ""], ["report", ""]])
def test_an_empty_path_is_not_the_current_folder(capsys, monkeypatch, tmp_path, line):
    """Of `--logdir "$UNSET"` in a script, say."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        cli.main(line)
    assert "it is empty. Accepted: a path" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
