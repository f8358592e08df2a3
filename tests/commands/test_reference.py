"""`bayes-planet configs --reference`, and that docs/configuration.md is what it prints."""

import dataclasses
from pathlib import Path

import pytest

from bayes_planet import cli
from bayes_planet.config import Config, presets, reference

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
    """Read off the errors, so these are truths about them; a few by hand."""
    accepted = {key: row.accepted for key, row in ROWS.items()}
    assert accepted["seed"] == "0 to 2**31 - 1"
    assert accepted["env.observations"] == "pixels, state, both"
    assert accepted["planner.elites"] == "1 or more and at most planner.candidates, 1000"
    assert accepted["train.learning_rate"] == "a positive number"
    assert accepted["replay.compress"] == "true, false"
    assert accepted["env.camera"] == "any"
    assert accepted["env.image_size"] == "1 or more pixels and 64 (the convolutions are built for it)"
    assert accepted["model.bayesian.layers"].startswith("prior_input, gru")
    types = {key: row.type for key, row in ROWS.items()}
    assert types["model.bayesian.layers"] == "list of text" and types["train.batch_size"] == "whole number"


def test_every_number_and_choice_says_what_it_accepts():
    """A new setting without a check must be added here, or, better, get one."""
    free = {"env.name", "env.camera"}
    assert {key for key, row in ROWS.items() if row.accepted == "any"} == free


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
    class Record:
        count: int = dataclasses.field(default=3, metadata={"help": "how many | of it", "source": "A, Sec. 1"})

        def __post_init__(self):
            if self.count not in range(5):
                raise ValueError(f"group.count is {self.count!r}. Accepted: 0 to 4. Did you mean 4?")

    @dataclasses.dataclass(frozen=True)
    class Whole:
        group: Record = dataclasses.field(default_factory=Record)

        def __post_init__(self):
            if self.group.count == 0:
                raise ValueError("group.count is 0. Accepted: 1 or more.")

    (row,) = reference.settings(Whole())
    assert dataclasses.astuple(row) == (
        "group.count",
        "whole number",
        "3",
        "how many | of it",
        "0 to 4 and 1 or more",
        "A, Sec. 1",
    )
