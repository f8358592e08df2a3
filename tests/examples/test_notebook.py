"""examples/quickstart.ipynb runs from its first cell to its last, and shows a video and a page."""

import ast
import json
import os
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


def test_cells_are_python_and_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) == 4
    for cell in code:
        ast.parse("".join(cell["source"]))
        assert cell["outputs"] == [] and cell["execution_count"] is None


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_runs(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("BAYES_PLANET_LOGDIR", str(tmp_path / "run"))
    monkeypatch.setenv("BAYES_PLANET_SETTINGS", "quickstart debug train.seed_episodes=2 train.episodes=3")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(NOTEBOOK.parents[1]), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=800, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    data = {kind: value for output in outputs for kind, value in output.get("data", {}).items()}
    assert data["image/gif"] and data["text/html"].startswith("<iframe srcdoc=") and len(data["text/html"]) > 100_000
    assert "Done: 3 episodes" in "".join(output.get("text", "") for output in outputs)
