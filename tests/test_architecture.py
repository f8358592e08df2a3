"""The shape of the package: which part may import which, what stays free of TensorFlow, how long a file may be."""

import ast
import collections
import functools
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bayes_planet.config import presets

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bayes_planet"
LINKED = ("agents", "envs", "configs")

# In the order in which they build on each other: a part imports only from lines above its own.
_LIBRARY = [
    "files",
    "arguments",
    "config",
    "bayesian_layers",
    "envs",
    "replay",
    "report",
    "runs",
    "world_model",
    "behaviour",
    "planning",
]
MAY_IMPORT = {
    "": {"compatibility"},  # bayes_planet/__init__.py
    "compatibility": set(),
    "files": set(),
    "arguments": set(),
    "configs": set(),
    "config": {"files", "arguments", "configs"},
    "bayesian_layers": set(),
    "envs": {"compatibility", "files", "arguments", "config"},
    "replay": {"files"},
    "report": {"files", "config", "replay"},
    "runs": {"files", "arguments", "config", "envs", "replay", "report"},
    "world_model": {"config", "bayesian_layers"},
    "behaviour": {"config", "bayesian_layers", "world_model"},
    "planning": {"config", "bayesian_layers", "world_model", "behaviour"},
    "collecting": {"files", "config", "envs", "replay", "runs", "planning"},
    "evaluation": {*_LIBRARY, "collecting"},
    "training": {*_LIBRARY, "collecting", "evaluation"},
    "agents": {*_LIBRARY, "collecting", "evaluation", "training"},
    "commands": {*_LIBRARY, "configs", "collecting", "evaluation", "training", "agents"},
    "sweeps": {"files", "config", "runs", "training", "commands"},
    "completion": {"config", "commands", "sweeps"},
    "cli": {"files", "config", "commands", "sweeps", "completion"},
    "__main__": {"cli"},
}
LIBRARIES = {
    "bayesian_layers": {"numpy", "tensorflow", "tensorflow_probability", "tf_keras"},
    "files": {"numpy", "yaml"},
    "replay": {"numpy"},
}
# What a function imports when it is called, so that the part itself does without.
LIBRARIES_WHEN_CALLED = {"bayesian_layers.evaluation.picture": {"matplotlib"}}
TENSORFLOW = {"tensorflow", "tensorflow_probability", "tf_keras", "tf_agents", "keras", "tensorboard"}
NO_TENSORFLOW = ("", "arguments", "files", "config", "config.presets", "config.changes", "configs", "envs", "envs.worker", "envs.sources.control_suite", "replay",
                 "runs.metrics", "runs.run_directory", "runs.seeds", "runs.spaces", "runs.starts", "runs.tracking", "cli")  # fmt: skip
EXTRAS = ("ray", "submitit")
LINES = 400
FILES = 14
# What one reads from the command to the draws of the planner's candidates, each file imported by the one before.
PATH = (
    "cli.py",
    "commands/train.py",
    "training/trainer.py",
    "collecting/collector.py",
    "collecting/policies.py",
    "planning/actor.py",
    "planning/planner.py",
    "planning/cem.py",
)
PATH_FILES, PATH_LINES = 8, 1200


def sources(folder: Path) -> list[Path]:
    """Python files in a folder, links followed."""
    found = []
    for path, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        found += [Path(path) / name for name in sorted(names) if name.endswith(".py")]
    return found


MODULES = sources(PACKAGE)


def part(path: Path) -> str:
    """The part of the package a file belongs to; "" is the package's own __init__."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute dotted names a file imports, also inside functions; `from a import b` gives a.b."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write bayes_planet...."
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(names)


def parts_imported(path: Path) -> set[str]:
    own = {name.split(".")[1] for name in imports(path) if name.startswith("bayes_planet.")}
    return {name for name in own if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()}


def libraries_imported(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports(path)} - set(sys.stdlib_module_names) - {"bayes_planet"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_imports_point_one_way():
    unlisted = {part(path) for path in MODULES} - set(MAY_IMPORT)
    assert not unlisted, f"say in MAY_IMPORT what {sorted(unlisted)} may import"
    wrong = {path: parts_imported(path) - {part(path)} - MAY_IMPORT[part(path)] for path in MODULES}
    assert {name_of(path): names for path, names in wrong.items() if names} == {}


def test_the_allowed_imports_have_no_cycle():
    left = {name: set(others) for name, others in MAY_IMPORT.items()}
    while left:
        free = {name for name, others in left.items() if not others & set(left)}
        assert free, f"a cycle among {sorted(left)}"
        left = {name: others for name, others in left.items() if name not in free}


def imported_with_the_module(path: Path) -> set[str]:
    """Libraries that importing the file imports: not those inside of its functions."""
    found, left = set(), list(ast.parse(path.read_text(encoding="utf-8"), str(path)).body)
    while left:
        node = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
        left.extend(ast.iter_child_nodes(node))
    return found


def test_no_two_modules_import_each_other_in_a_circle():
    """Module by module. Imports inside functions and for type checkers count; a parent package's __init__ does not."""
    modules = {module_name(path): path for path in MODULES}
    left = {}
    for name, path in modules.items():
        found = {target if target in modules else target.rpartition(".")[0] for target in imports(path)}
        left[name] = (found & set(modules)) - {name}
    circles = set()
    while left:  # what imports nothing that is left, or is imported by nothing that is left, is in no circle
        ends = {name for name, others in left.items() if not others & set(left)}
        ends |= set(left) - set().union(*left.values())
        if not ends:
            start = min(left)
            ends = {name for name in reached(left, start) if start in reached(left, name)}
            circles |= {tuple(sorted(ends))} if len(ends) > 1 else set()
            ends = ends or {start}
        left = {name: others - ends for name, others in left.items() if name not in ends}
    assert circles == set()


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """What `start` imports, directly or not."""
    found, waiting = set(), [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def test_parts_use_only_the_libraries_they_may():
    wrong = {}
    for path in MODULES:
        if part(path) in LIBRARIES:
            when_called = LIBRARIES_WHEN_CALLED.get(".".join(path.relative_to(PACKAGE).with_suffix("").parts), set())
            wrong[path] = libraries_imported(path) - LIBRARIES[part(path)] - when_called
            wrong[path] |= imported_with_the_module(path) & when_called
    assert {name_of(path): names for path, names in wrong.items() if names} == {}


def test_files_of_workers_never_name_tensorflow():
    files = [path for path in MODULES if part(path) in ("", "files", "envs", "replay", "configs")]
    assert [name_of(path) for path in files if libraries_imported(path) & TENSORFLOW] == []


def test_linked_folders_are_imported_through_the_package():
    files = MODULES + [path for name in ("tests", "examples", "benchmarks") for path in sources(ROOT / name)]
    plain = {path: {name.partition(".")[0] for name in imports(path)} & set(LINKED) for path in files}
    assert {name_of(path): names for path, names in plain.items() if names} == {}, "that is a second copy of the module"


def test_these_import_without_tensorflow():
    """One after the other in one process: the first that imports it is named."""
    program = "import importlib, sys\n"
    for name in NO_TENSORFLOW:
        program += f"importlib.import_module({f'bayes_planet.{name}'.rstrip('.')!r})\n"
        program += f"assert not {TENSORFLOW!r} & set(sys.modules), {name!r}\n"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", LINKED)
def test_links_are_relative(name):
    assert (PACKAGE / name).is_symlink()
    assert os.readlink(PACKAGE / name) == f"../{name}"


def test_every_folder_of_the_package_is_a_regular_package():
    folders = {path.parent for path in MODULES}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_one_idea_a_file():
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES} == {}


def test_the_way_from_the_command_to_the_planner_is_short():
    lines = {name: len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in PATH}
    print(*(f"{count:5} {name}" for name, count in [*lines.items(), ("together", sum(lines.values()))]), sep="\n")
    for name, target in itertools.pairwise(PATH):
        module = module_name(PACKAGE / target)
        found = imports(PACKAGE / name) + through_package(PACKAGE / name)
        assert any(each == module or each.startswith(f"{module}.") for each in found), f"{name} imports no {target}"
    assert len(PATH) <= PATH_FILES and sum(lines.values()) <= PATH_LINES, lines
    assert "stateless_normal" in (PACKAGE / PATH[-1]).read_text(encoding="utf-8")


def through_package(path: Path) -> tuple[str, ...]:
    """Where the names come from that a file imports from a package, whose __init__ has them from elsewhere."""
    found: list[str] = []
    for name in imports(path):
        package, _, item = name.rpartition(".")
        init = ROOT.joinpath(*package.split("."), "__init__.py")
        if package.startswith("bayes_planet.") and init.exists():
            found += [each for each in imports(init) if each.endswith(f".{item}")]
    return tuple(found)


def test_no_folder_is_a_heap():
    """More files than one takes in at a look are several ideas: give each a folder."""
    counts = collections.Counter(name_of(path.parent) for path in MODULES)
    assert {folder: count for folder, count in counts.items() if count > FILES} == {}


def test_every_file_says_what_it_is_for():
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in MODULES}
    assert [name for name, text in texts.items() if text.strip() and not ast.get_docstring(ast.parse(text))] == []


def test_plain_import_of_a_linked_folder_is_refused():
    program = "import sys; sys.path.insert(0, '.'); import configs"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode != 0
    assert re.search(r"ImportError: Import bayes_planet\.configs", ended.stderr)


@pytest.mark.slow
def test_every_module_can_be_imported_first():
    """Each in a process of its own, forked before any TensorFlow operation: an order that works by luck is none."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in MODULES]
    program = f"""
import os, traceback
import bayes_planet, tensorflow, tensorflow_probability
for name in {names!r}:
    child = os.fork()
    if child == 0:
        try:
            __import__(name)
        except ModuleNotFoundError as error:  # of an extra that is not installed
            os._exit(error.name not in {EXTRAS!r})
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_what_must_not_grow_again():
    """Bytes of the tree, words of the README, settings. To change a bound is a decision: say why in docs/decisions.md."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    tracked = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    sizes = [path.lstat().st_size for path in tracked if path.exists() and ROOT / "pretrained" not in path.parents]
    found = {
        "megabytes": sum(sizes) / 1e6,
        "words of the README": len((ROOT / "README.md").read_text(encoding="utf-8").split()),
        "settings": len(presets.flatten(presets.load(["bayes_planet"]))),
    }
    print(found)
    most = {"megabytes": 20, "words of the README": 700, "settings": 71}
    assert {name: value for name, value in found.items() if value > most[name]} == {}
