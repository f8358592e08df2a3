import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)


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
