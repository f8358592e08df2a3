"""The snippets of docs/python_api.md run as written, and the page has every callback, hook and argument."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import BayesPlanet
from bayes_planet.agents import callbacks

PAGE = (Path(__file__).parents[2] / "docs" / "python_api.md").read_text()
SNIPPETS = re.findall(r"```python( sb3)?\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.thorough
def test_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    assert len(SNIPPETS) >= 8
    run_sb3 = True
    try:
        import stable_baselines3  # noqa: F401
    except ImportError:
        run_sb3 = False
    code = "\n".join(text for kind, text in SNIPPETS if run_sb3 or not kind)
    exec(compile(code, "python_api.md", "exec"), names)
    assert names["model"].num_episodes == 5 and names["model"].num_env_steps == 400
    assert names["future"]["state"].shape == (3, 7, 5) and names["mine"]["reward"].shape == (1, 6)
    assert names["longest"].steps == 10 and (tmp_path / "best" / "best_model" / "config.yaml").exists()
    assert np.isfinite(names["analysis"].numbers["open_loop"]["reward"]["model"]["squared_error"])
    assert (tmp_path / "runs" / "cartpole" / "analysis" / "analysis.npz").exists()
    assert np.isfinite(names["total"]) and names["sure"]["reward"].mean.shape == (7,)


def test_page_names_every_callback_and_hook():
    found = [
        name
        for name, each in vars(callbacks).items()
        if inspect.isclass(each) and issubclass(each, callbacks.BaseCallback)
    ]
    assert len(found) >= 7 and [name for name in found if f"`{name}" not in PAGE] == []
    hooks = [name for name in vars(callbacks.BaseCallback) if name.startswith(("_on_", "_init_"))]
    assert [name for name in hooks if f"`{name}(" not in PAGE] == []


@pytest.mark.parametrize("name", ["", "learn", "predict", "imagine", "analyse", "load"])
def test_page_names_every_argument(name):
    called = getattr(BayesPlanet, name) if name else BayesPlanet
    arguments = set(inspect.signature(called).parameters) - {"self", "path"}
    assert [argument for argument in arguments if not re.search(rf"\b{argument}\b", PAGE)] == []


def test_public_methods_have_help():
    methods = [method for name, method in inspect.getmembers(BayesPlanet, callable) if not name.startswith("_")]
    assert len(methods) >= 12 and all(len(inspect.getdoc(method) or "") > 40 for method in methods)
