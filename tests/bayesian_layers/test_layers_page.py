"""The snippets of docs/bayesian_layers.md run as written."""

import pathlib
import re

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "bayesian_layers.md").read_text()


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
