"""`bayes-planet install`: what is there is left alone, and a pip that fails is told."""

import pytest

from bayes_planet import cli
from bayes_planet.commands import install
from bayes_planet.commands.errors import UserError


def test_what_is_there_is_left_alone(capsys):
    assert cli.main(["install", "dm-control"]) == 0
    assert capsys.readouterr().out == "dm-control is there\n"


def test_another_name_is_refused(capsys):
    with pytest.raises(SystemExit):
        cli.main(["install", "labmaze"])
    assert "tf-agents" in capsys.readouterr().err


def test_a_pip_that_fails_is_told(capfd):
    with pytest.raises(UserError, match="did not succeed; what pip says is above"):
        install._pip("--no-index", "--find-links", "/nowhere", "a-package-of-no-name")
    assert "a-package-of-no-name" in capfd.readouterr().err
