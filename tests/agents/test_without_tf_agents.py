"""What works where TF-Agents is not installed, and what says how to get it: a process in which it cannot be found."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import importlib.machinery, sys
from pathlib import Path

found = importlib.machinery.PathFinder.find_spec

def find_spec(fullname, path=None, target=None):
    return None if fullname.partition(".")[0] in ("tf_agents", "gym", "pygame") else found(fullname, path, target)

importlib.machinery.PathFinder.find_spec = find_spec

import tensorflow as tf
from bayes_planet import agents, bayesian_layers, cli
from tests.agents.small import model_in

folder = Path(sys.argv[1])
with model_in(folder / "run") as model:
    model.learn(episodes=3)
    model.save(folder / "model")
    print("predicted", model.predict(model.get_env().reset(seed=0)[0])[0].shape)
print("layer", bayesian_layers.DenseFlipout(2)(tf.ones([1, 3])).shape)
run, debug = str(folder / "run"), str(folder / "debug")
assert cli.main(["train", "--config", "pendulum", "debug", "--logdir", debug, "env.observations=state",
                 "train.episodes=2", "evaluation.videos=0"]) == 0
assert cli.main(["evaluate", debug, "--episodes", "1"]) == 0
assert cli.main(["report", debug]) == 0
print("exported", cli.main(["export", debug, "--out", str(folder / "out")]))
for name in agents.__all__:
    try:
        getattr(agents, name)
    except ImportError as error:
        print("refused", name, error)
assert not {"tf_agents", "gym"} & set(sys.modules)
"""
NEEDS_IT = ("BayesPlanetAgent", "BayesPlanetPolicy", "GymnasiumPyEnvironment", "SeededPolicy", "model_batch")


@pytest.mark.thorough
def test_all_but_its_face_and_export_work_without_tf_agents(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = ended.stdout.splitlines()
    assert "layer (1, 2)" in lines and "exported 2" in lines
    assert (
        "bayes-planet export needs TF-Agents, which is not installed. Run: bayes-planet install tf-agents"
        in ended.stderr
    )
    refused = [line.split()[1] for line in lines if line.startswith("refused")]
    assert refused == list(NEEDS_IT)
    assert all("bayes-planet install tf-agents" in line for line in lines if line.startswith("refused"))
