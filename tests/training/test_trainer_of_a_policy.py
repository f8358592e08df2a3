"""A run with an actor that is cautious, and draws of drops, goes on as if it had never been stopped.

In a file of its own: what it compiles takes 0.7 GB (`tests/processes.py`).
"""

import numpy as np

from bayes_planet.runs.metrics import read_metrics
from tests.training.parts import (  # noqa: F401
    config_of,
    no_model_is_left,
    stop_at_third_update,
    trainer_in,
    weights,
)

CAUTIOUS = (
    "env.episode_env_steps=320",  # 40 rows, in which rewards can drop
    "evaluation.every_episodes=0",
    "model.value=true",
    "model.policy=true",
    "planner.policy_candidates=2",
    "loss.policy_uncertainty_bonus=-1",
)


def test_a_policy_and_drawn_drops_go_on_as_if_never_stopped(tmp_path):
    """And what is drawn does matter to what is learnt."""
    found = {}
    for name, fraction in (("uniform", 0.0), ("drops", 0.5)):
        with trainer_in(tmp_path / name, config_of(*CAUTIOUS, f"replay.drop_fraction={fraction}")) as trainer:
            trainer.run()
            found[name] = weights(trainer)
    assert any(np.any(one != other) for one, other in zip(found["uniform"], found["drops"], strict=True))
    config = config_of(*CAUTIOUS, "replay.drop_fraction=0.5")
    stop_at_third_update(tmp_path / "stopped", config)
    with trainer_in(tmp_path / "stopped", config) as trainer:
        trainer.run()
        for value, other in zip(weights(trainer), found["drops"], strict=True):
            np.testing.assert_array_equal(value, other)
        assert trainer.counters.updates > 3
    rows = read_metrics(tmp_path / "stopped" / "metrics.jsonl")
    assert all(row["policy/uncertainty"] > 0 for row in rows if "policy/reward" in row)
