"""The snippets of docs/evaluation.md run as written, and the page has the names that training writes."""

import re
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.evaluation.posterior import histogram_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()


@pytest.mark.thorough
def test_snippets_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) >= 8
    exec(compile("\n".join(snippets), "evaluation.md", "exec"), names)
    assert names["error"].shape == names["likelihood"].shape == names["epistemic"].shape == names["repeated"].shape
    assert (tmp_path / "my_run" / "analysis" / "analysis.json").exists()
    # The first two entries of the state stand for velocities: a filter that reads the state passes some of them on.
    assert np.isfinite(names["probe"].probes["both"]["linear"].mean_r2)
    listed = set(re.findall(r"`(\w+)/", PAGE))
    assert {
        name.partition("/")[0] for name in [*names["live"].values, *histogram_metrics(names["model"].rssm)]
    } <= listed
