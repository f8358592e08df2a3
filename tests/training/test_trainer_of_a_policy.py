"""A run with an actor goes on as if it had never been stopped.

In a file of its own: what it compiles takes 0.7 GB (`tests/processes.py`).
"""

import numpy as np
import pytest

from tests.training.parts import (  # noqa: F401
    config_of,
    no_model_is_left,
    stop_at_third_update,
    trainer_in,
    weights,
)

WITH_A_POLICY = ("evaluation.every_episodes=0", "model.value=true", "model.policy=true", "planner.policy_candidates=2")


@pytest.mark.thorough
def test_a_policy_goes_on_as_if_never_stopped(tmp_path):
    config = config_of(*WITH_A_POLICY)
    with trainer_in(tmp_path / "whole", config) as trainer:
        trainer.run()
        expected = weights(trainer)
    stop_at_third_update(tmp_path / "stopped", config)
    with trainer_in(tmp_path / "stopped", config) as trainer:
        trainer.run()
        for value, other in zip(weights(trainer), expected, strict=True):
            np.testing.assert_array_equal(value, other)
        assert trainer.counters.updates > 3
