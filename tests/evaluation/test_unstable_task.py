"""What docs/evaluation.md says of calibration where an agent balances something: even the true simulator misses."""

import gymnasium
import numpy as np
import pytest

from bayes_planet.evaluation.calibration import calibrate

STARTS, DRAWS, STEPS, REPEAT = 12, 24, 50, 2


def rollout(env, state: np.ndarray, actions) -> np.ndarray:
    """Rewards [T] from (angle, velocity), each action held twice."""
    env.reset()
    env.unwrapped.state = state.copy()
    rewards = []
    for step in range(STEPS):
        action = actions(env.unwrapped.state) if callable(actions) else actions[step]
        rewards.append(sum(env.unwrapped.step(np.array([action]))[1] for _ in range(REPEAT)))
    return np.array(rewards)


@pytest.mark.parametrize("error", [0.001, 0.03])
def test_actions_that_balance_do_not_balance_a_state_nearly_the_same(error):
    env, random = gymnasium.make("Pendulum-v1"), np.random.default_rng(0)
    samples, truths = [], []
    for _ in range(STARTS):
        start, taken = random.normal(0, [0.1, 0.3]), []

        def balance(state, taken=taken):
            taken.append(np.clip(-12 * state[0] - 3 * state[1], -2, 2))
            return taken[-1]

        truths.append(rollout(env, start, balance))
        np.testing.assert_allclose(rollout(env, start, taken)[:12], truths[-1][:12], atol=1e-6)
        near = start + error * random.normal(size=(DRAWS, 2))
        samples.append([rollout(env, state, taken) for state in near])
    predicted, true = np.array(samples), np.array(truths)  # [starts, draws, T], [starts, T]
    assert true.sum(1).min() > -15  # it stands

    def coverage(steps: int) -> float:
        return calibrate(predicted[..., :steps].sum(-1).T, true[:, :steps].sum(-1), levels=(0.9,)).coverage[0]

    assert coverage(1) >= 0.7 and coverage(50) <= 0.1
    assert (np.median(predicted.sum(-1), 1) - true.sum(1)).mean() < -100
