"""`bayes-planet configs --reference`, and that docs/configuration.md is what it prints."""

import dataclasses
from pathlib import Path

import pytest

from bayes_planet import cli
from bayes_planet.config import Config, presets, reference
from bayes_planet.config.setting import Settings, fields_of, setting, within

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
ROWS = {setting.key: setting for setting in reference.settings()}


def test_the_page_is_what_the_command_prints(capsys):
    assert cli.main(["configs", "--reference"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(), "bayes-planet configs --reference > docs/configuration.md"


def test_every_setting_has_its_row():
    assert list(ROWS) and set(ROWS) == set(presets.flatten(Config()))
    assert all(row.meaning for row in ROWS.values())


@pytest.mark.parametrize("key", ROWS)
def test_a_default_as_written_is_the_default(key):
    default = presets.flatten(Config())[key]
    assert presets.flatten(presets.load(overrides=[f"{key}={ROWS[key].default}"]))[key] == default


def test_what_a_setting_accepts():
    """A few by hand."""
    accepted = {key: row.accepted for key, row in ROWS.items()}
    assert accepted["seed"] == "0 to 2**31 - 1"
    assert accepted["env.observations"] == "pixels, state, both"
    assert accepted["planner.elites"] == "1 or more"
    assert accepted["train.learning_rate"] == "a positive number"
    assert accepted["model.value"] == "true, false"
    assert accepted["env.camera"] == "any"
    assert accepted["model.bayesian.layers"].startswith("prior_input, gru")
    types = {key: row.type for key, row in ROWS.items()}
    assert types["model.bayesian.layers"] == "list of text" and types["train.batch_size"] == "whole number"


def test_every_number_and_choice_says_what_it_accepts():
    """A new setting without a check must be added here, or, better, get one."""
    free = {"env.name", "env.camera"}
    assert {key for key, row in ROWS.items() if row.accepted == "any"} == free


def test_what_an_error_says_is_what_the_page_says():
    """Values far out are refused in the words of the reference."""
    probes = {"whole number": (-(10**9), 10**9), "number": (-1e9, 1e9), "text": ("?",), "list of text": ("[?]",)}
    refused = 0
    for key, row in ROWS.items():
        for value in probes.get(row.type, ()):
            try:
                presets.load(overrides=[f"{key}={value}"])
            except presets.ConfigError as error:
                given, _, accepted = str(error).partition(". Accepted: ")
                if given.startswith(f"{key} is ") and accepted.startswith(row.accepted):
                    refused += 1
    assert refused >= 53


def test_every_setting_says_what_a_change_of_it_means():
    for key, field in fields_of(Config).items():
        assert field.metadata["change"] in ("freely", "announced", "never"), key
        assert field.metadata["part"] in ("method", "task", "machine"), key
        if field.metadata["change"] == "freely":
            assert field.metadata["part"] == "machine", f"{key} may change without a word, so it cannot make a method"


def test_every_preset_has_its_section():
    page = PAGE.read_text()
    for name, description in presets.list_presets().items():
        assert f"| [`{name}`](#{name}) | {description} |" in page
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert section.strip().startswith("```yaml\n# ") and section.rstrip().endswith("```")


def test_presets_beside_it_are_refused(capsys):
    assert cli.main(["configs", "debug", "--reference"]) == 2
    assert "'debug'" in capsys.readouterr().err


def test_a_setting_of_another_kind_is_found():
    """The generator reads records, not their names."""

    @dataclasses.dataclass(frozen=True)
    class Record(Settings):
        GROUP = "group"
        count: int = setting(3, "how many | of it", within(0, 4, "0 to 4"), "A, Sec. 1", change="announced")

    @dataclasses.dataclass(frozen=True)
    class Whole(Settings):
        group: Record = dataclasses.field(default_factory=Record)

    Whole.__annotations__["group"] = Record
    (row,) = reference.settings(Whole)
    words = ("group.count", "whole number", "3", "how many | of it", "0 to 4", "with --change", "A, Sec. 1")
    assert dataclasses.astuple(row) == words
    with pytest.raises(ValueError, match=r"group.count is 5. Accepted: 0 to 4."):
        Record(5)
