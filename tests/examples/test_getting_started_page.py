"""The commands of docs/getting_started.md are understood, its paths exist, what it says of settings holds.

Its Python snippet is run by test_examples.py.
"""

import re
import shlex
from pathlib import Path

import pytest

from bayes_planet import cli
from bayes_planet.config import presets

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting_started.md").read_text()
LINES = [
    line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]
COMMANDS = [line for line in LINES if line.startswith("bayes-planet ")]


@pytest.mark.parametrize("command", [line for line in COMMANDS if "--help" not in line])
def test_commands_are_understood(command):
    options = cli.parser().parse_args(shlex.split(command)[1:])
    if options.command == "train":
        presets.load(options.config, options.overrides)


def test_every_line_is_a_command_of_ours_or_a_file_that_exists():
    assert len(COMMANDS) >= 9
    for line in set(LINES) - set(COMMANDS):
        words = shlex.split(line)
        assert words[0] in ("bash", "source", "python"), line
        assert words[1].startswith(".venv/") or (ROOT / words[1]).exists(), line


def test_examples_get_arguments_that_they_know():
    for line in LINES:
        if line.startswith("python examples/"):
            path, *arguments = shlex.split(line)[1:]
            source = (ROOT / path).read_text()
            assert all(f'"{option}"' in source for option in arguments if option.startswith("--")), line


def test_links_and_folders_exist():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_what_it_says_of_the_first_run_is_so():
    train = shlex.split(next(line for line in COMMANDS if "runs/pendulum " in line and " train " in line))
    options = cli.parser().parse_args(train[1:])
    config = presets.load(options.config, options.overrides)
    assert config.env.observations == "state" and config.train.episodes == 40 and config.train.seed_episodes == 5
    assert config.evaluation.episodes == 10
    # "Episodes of 200 steps": Gymnasium's own limit, below ours.
    assert config.env.episode_env_steps >= 200 or config.env.episode_env_steps == 0
    kinds = {text.partition(":")[0] for text in presets.list_presets().values()}
    assert {"Task", "Size"} <= kinds
