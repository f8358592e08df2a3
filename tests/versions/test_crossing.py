"""What one Python and TensorFlow write, the others load, with equal outputs. BAYES_PLANET_PYTHONS names the others:
paths of interpreters that have this package's dependencies, separated by colons."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = [path for path in os.environ.get("BAYES_PLANET_PYTHONS", "").split(":") if path]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not OTHERS, reason="BAYES_PLANET_PYTHONS names no other Python"),
]


def crossing(python: str, what: str, folder: Path) -> None:
    ended = subprocess.run(
        [python, "-m", "tests.versions.crossing", what, folder],
        cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=900,
    )  # fmt: skip
    assert ended.returncode == 0, f"{python} {what}: {ended.stdout[-1000:]}{ended.stderr[-3000:]}"


@pytest.mark.parametrize("other", OTHERS or ["none"])
def test_what_one_writes_the_other_loads(tmp_path, other):
    for writer, reader in ((sys.executable, other), (other, sys.executable)):
        folder = tmp_path / f"written_by_{Path(writer).parents[1].name}_{writer == other}"
        crossing(writer, "write", folder)
        crossing(reader, "read", folder)


@pytest.mark.parametrize("other", OTHERS or ["none"])
def test_the_other_is_another_version(other):
    program = "import json, sys, tensorflow as tf; print(json.dumps([sys.version_info[:2], tf.__version__]))"
    here, there = (
        json.loads(subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=240).stdout)
        for python in (sys.executable, other)
    )
    assert here != there
