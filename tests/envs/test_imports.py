import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("module", ["bayes_planet.envs", "bayes_planet.envs.worker", "bayes_planet.envs.control_suite"])
def test_tensorflow_is_never_imported(module):
    answer = run(f"import sys, {module}; assert 'tensorflow' not in sys.modules; assert 'keras' not in sys.modules")
    assert answer.returncode == 0, answer.stderr


def test_importing_the_package_does_not_fix_the_gl_backend():
    answer = run(
        "import sys, os, bayes_planet.envs as e; assert len(e.dm_control_tasks()) > 40; "
        "assert 'dm_control' not in sys.modules; assert 'mujoco' not in sys.modules"
    )
    assert answer.returncode == 0, answer.stderr


def test_the_second_copy_is_refused():
    answer = run("import envs")
    assert answer.returncode != 0
    assert "import bayes_planet.envs" in answer.stderr
