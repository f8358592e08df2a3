"""The README's commands and snippets are what the package understands."""

import re
import shlex
from pathlib import Path

import pytest

from bayes_planet import cli
from bayes_planet.config import presets

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines() if "bayes-planet " in line]


def test_first_block_trains_and_second_tests_in_one_line_each():
    (first, second) = (text.strip() for _, text in BLOCKS[:2])
    assert "\n" not in first and first.startswith("bash bin/setup && ") and "bayes-planet train" in first
    assert "\n" not in second and second.startswith("bash bin/setup --test && ") and "pytest" in second


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command):
    words = shlex.split(command.partition("bayes-planet ")[2], comments=True)
    options = cli.parser().parse_args(words)
    if options.command == "train":
        presets.load(options.config, options.overrides)
    if options.command == "configs":
        presets.load(options.presets)


SMALLER = {'"laptop"': '"debug"', "100_000": "2_000", "episodes=10": "episodes=1"}
SNIPPETS = [
    pytest.param(text, marks=pytest.mark.slow if ".learn(" in text else []) for kind, text in BLOCKS if kind == "python"
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_python_snippets_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, smaller in SMALLER.items():
        code = code.replace(given, smaller)
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})


PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pretrained/README.md", *(ROOT / "docs").rglob("*.md")]


def anchors(page):
    """What a heading's link is, as GitHub makes it."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if not target.startswith("http"):
            linked = (page.parent / target) if target else page
            assert linked.exists(), target
            assert not anchor or anchor in anchors(linked), f"{target}#{anchor}"
