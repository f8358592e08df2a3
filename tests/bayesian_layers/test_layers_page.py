"""The snippets of docs/bayesian_layers.md run as written; each public thing is explained there and in its help."""

import inspect
import pathlib
import re

import pytest

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "bayesian_layers.md").read_text()


@pytest.mark.thorough
def test_snippets_run(tmp_path):
    names: dict = {}
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) >= 8
    # tf.function reads the source of what it compiles, so the snippets must be a file.
    module = tmp_path / "snippets.py"
    module.write_text("\n".join(snippets))
    exec(compile(module.read_text(), str(module), "exec"), names)
    assert names["y"].shape == [6, 8, 3] and names["epistemic"].shape == [8, 3]
    assert all(gradient is not None for gradient in names["gradients"])


def test_page_names_every_public_thing():
    hidden = {"VariationalLayer", "layer_key", "constraints", "initializers", "regularizers"}
    assert all(name in PAGE for name in set(bl.__all__) - hidden)


# Sections that are about all layers, not about a family of them.
ABOUT_ALL = ("What makes", "Weight samples", "Saving", "Posteriors", "Priors", "Other posteriors", "Programs")


def test_page_has_equation_reference_and_use_for_each_family():
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    families = [section for section in sections if not section.startswith(ABOUT_ALL)]
    assert len(families) >= 16
    for section in families:
        title = section.splitlines()[0]
        assert "```python" in section, f"no snippet: {title}"
        assert "$$" in section, f"no equation: {title}"
        assert re.search(r"\b(19|20)\d\d\b", section), f"no reference: {title}"
        assert re.search(r"\b(use|start|take|explore)\b", section, re.IGNORECASE), f"no use: {title}"


CLASSES = sorted(
    {getattr(bl, name) for name in bl.__all__ if inspect.isclass(getattr(bl, name))}, key=lambda c: c.__name__
)
PARTS = {
    "arguments": r"Args|[Aa]rguments",
    "shapes": r"\[[^\]]*[A-Z.\d][^\]]*\]|[Ss]hape",
    "errors": r"Raises|[Ee]rrors",
    "source": r"Source|et al",
}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_help_states_arguments_shapes_errors_and_source(cls):
    text = cls.__dict__.get("__doc__") or ""
    assert not [part for part, pattern in PARTS.items() if not re.search(pattern, text)]


@pytest.mark.parametrize("module", [bl.initializers, bl.regularizers, bl.constraints], ids=lambda m: m.__name__)
def test_help_of_what_layers_are_given(module):
    """Posteriors, priors and constraints: each has help of its own, and with arguments says which."""
    found = [cls for name, cls in vars(module).items() if inspect.isclass(cls) and name == cls.__name__]
    own = [cls for cls in found if cls.__module__.startswith("bayes_planet") and not cls.__name__.startswith("_")]
    assert len(own) >= 3
    assert not [cls.__name__ for cls in own if not cls.__dict__.get("__doc__")]


@pytest.mark.parametrize("name", [name for name in bl.__all__ if inspect.isfunction(getattr(bl, name))])
def test_help_of_functions(name):
    assert len(inspect.getdoc(getattr(bl, name)) or "") > 40
