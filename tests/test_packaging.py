"""What is installed: one top-level name, with everything in it, from the same files as the repository."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import bayes_planet
from bayes_planet.commands import install

ROOT = Path(__file__).parents[1]
SHIPPED = ("pyproject.toml", "README.md", "LICENSE", "bayes_planet", "agents", "envs", "configs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SPECIFIC = re.compile(r"([A-Za-z0-9._-]+)==([^\s;]+)")


def run(*command: object, cwd: Path, **environment: str) -> str:
    ended = subprocess.run(
        [str(item) for item in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PYTHONS = ("3.11", "3.12", "3.13")


def pins(version: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / f"{version}.txt").read_text().splitlines()
    found = [SPECIFIC.fullmatch(line) for line in lines if line and not line.startswith("#")]
    assert all(found), f"constraints/{version}.txt holds name==version lines and nothing else"
    return {normal(match[1]): match[2] for match in found if match}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of a clean copy, so that nothing left over from another build gets in."""
    copy = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        source, target = ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    # Without a network where the environment can build by itself (bin/setup --test brings setuptools 77 or later).
    alone = int(importlib.metadata.version("setuptools").partition(".")[0]) >= 77
    isolation = ["--no-build-isolation"] if alone else []
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolation, "--wheel-dir", out, copy, cwd=copy)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_installs_one_name(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "bayes_planet",
        f"bayes_planet-{bayes_planet.__version__}.dist-info",
    }


def test_the_wheel_holds_every_module_and_preset(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("bayes_planet/")}
    expected = set()
    for folder, _, files in os.walk(ROOT / "bayes_planet", followlinks=True):
        expected |= {
            (Path(folder) / file).relative_to(ROOT).as_posix()
            for file in files
            if file.endswith((".py", ".yaml", "py.typed"))
        }
    assert {"bayes_planet/configs/planet.yaml", "bayes_planet/configs/debug.yaml"} <= expected
    assert names == expected


def test_an_installed_wheel_works_on_its_own(wheel, tmp_path):
    target = tmp_path / "site"
    pip = (sys.executable, "-m", "pip")
    run(*pip, "install", "--quiet", "--no-deps", "--target", target, wheel, cwd=tmp_path)
    program = (
        "import bayes_planet.config.presets as presets; print(presets.__file__); print(*presets.list_presets());"
        "print(presets.load(['quickstart']).train.episodes)"
    )
    where, names, _ = run(sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(target)).splitlines()
    assert Path(where).is_relative_to(target)
    assert {"planet", "bayes_planet", "quickstart"} <= set(names.split())


@pytest.mark.parametrize("version", PYTHONS)
def test_constraints_are_plain_pins_within_the_projects_ranges(version):
    packaging = pytest.importorskip("packaging.requirements")
    pinned = pins(version)
    groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][name] for name in ("test", "tf-agents"))]
    for text in (line for group in groups for line in group):
        requirement = packaging.Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"python_version": version}):
            continue
        assert normal(requirement.name) in pinned, f"{requirement.name} has no line in constraints/{version}.txt"
        assert requirement.specifier.contains(pinned[normal(requirement.name)]), text
    assert "bayes-planet" not in pinned
    for text in (line for group in (install.ALONE, install.NEEDS) for lines in group.values() for line in lines):
        requirement = packaging.Requirement(text)
        assert requirement.specifier.contains(pinned[normal(requirement.name)]), text


def test_every_python_of_the_range_has_its_classifier_and_constraints():
    specifiers = pytest.importorskip("packaging.specifiers")
    accepted = specifiers.SpecifierSet(PROJECT["requires-python"])
    assert [f"3.{minor}" for minor in range(8, 20) if f"3.{minor}" in accepted] == list(PYTHONS)
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert named == list(PYTHONS)
    assert sorted(path.stem for path in (ROOT / "constraints").glob("*.txt")) == list(PYTHONS)


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "bin/setup",
        ".ci/run",
        "bin/constraints",
        "bin/types",
        "bin/docs",
        *(f"constraints/{version}.txt" for version in PYTHONS),
    ],
)
def test_no_file_names_a_package_registry(name):
    text = (ROOT / name).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|pypi\.", text)


@pytest.mark.parametrize(
    "name", ["bin/setup", ".ci/run", "bin/constraints", "bin/check-python", "bin/types", "bin/docs"]
)
def test_scripts_are_executable_and_parse(name):
    assert os.access(ROOT / name, os.X_OK)
    run("bash", "-n", ROOT / name, cwd=ROOT)


def test_setup_refuses_an_argument_it_does_not_know():
    ended = subprocess.run(["bash", ROOT / "bin/setup", "--tests"], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "Accepted: --test" in ended.stderr


def test_the_readme_begins_with_the_two_commands():
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[:2]
    assert [block.count("\n") for block in blocks] == [1, 1], "one line each"
    assert blocks[0].startswith("bash bin/setup && .venv/bin/bayes-planet train --config quickstart")
    assert blocks[1].startswith("bash bin/setup --test && .venv/bin/python -m pytest")
