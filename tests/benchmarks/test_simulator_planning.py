"""The search on the true simulator: its predictions are what dm_control then does."""

import json

import numpy as np
import pytest

from benchmarks.planning import recovery
from benchmarks.planning.simulator_planning import CheetahSimulator, main


def test_imagined_rewards_are_those_of_dm_control():
    simulator = CheetahSimulator(action_repeat=4, threads=2)
    simulator.reset(3)
    generator = np.random.default_rng(0)
    for _ in range(20):  # away from the start, where the cheetah still falls
        simulator.step(generator.uniform(-1, 1, 6))
    plans = generator.uniform(-1, 1, (300, 7, 6))
    imagined = simulator.imagine(plans)
    again = simulator.imagine(plans)
    np.testing.assert_array_equal(imagined, again)  # imagining does not move the simulator
    best = imagined.sum(-1).argmax()
    done = np.array([simulator.step(action)[0] for action in plans[best]])
    assert done.max() > 0.1
    np.testing.assert_allclose(imagined[best], done, atol=1e-6)


def test_a_cheetah_laid_on_its_back_lies_still_there():
    simulator = CheetahSimulator(action_repeat=4, threads=1)
    simulator.reset(0)
    assert simulator.upright > 0.9
    simulator.reset_on_back(0)
    assert simulator.upright < -0.7
    rewards = [simulator.step(np.zeros(6))[0] for _ in range(10)]
    assert max(rewards) < 0.02  # of 4: it does not slide
    assert simulator.upright < -0.7


@pytest.mark.slow
def test_only_the_longer_horizon_gets_up_from_the_back(tmp_path):
    rows = recovery.main(["--horizons", "12", "20", "--episodes", "2", "--out", str(tmp_path / "r.json"),
                          "planner.candidates=128", "planner.elites=16"])  # fmt: skip
    assert [row["on_its_feet"] for row in rows] == [0, 2]


@pytest.mark.slow
def test_the_laptop_planner_runs_on_the_true_simulator(tmp_path):
    out = tmp_path / "rows.json"
    row = main(["--config", "planet", "laptop", "--episodes", "1", "--threads", "1", "--out", str(out)])
    assert json.loads(out.read_text()) == [json.loads(json.dumps(row))]
    assert row["mean"] > 500
