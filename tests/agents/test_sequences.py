"""Time alignment, against an environment whose observations and rewards tell which action led to them."""

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.drivers import py_driver
from tf_agents.policies import random_py_policy

from bayes_planet.agents import GymnasiumPyEnvironment, model_batch
from tests.agents.toy import Echo, reward_of

STEPS = 40


@pytest.fixture(scope="module")
def stream():
    """Consecutive trajectory rows [STEPS, ...] of about eight episodes, as a driver hands them to a replay buffer."""
    environment = GymnasiumPyEnvironment(Echo())
    policy = random_py_policy.RandomPyPolicy(environment.time_step_spec(), environment.action_spec(), seed=0)
    rows = []
    driver = py_driver.PyDriver(environment, policy, [rows.append], max_steps=STEPS, end_episode_on_boundary=False)
    driver.run(environment.reset())
    return tf.nest.map_structure(lambda *values: tf.stack(values), *rows)


def expected_mask(step_type):
    """Row by row: an unknown past is false, and so is all that follows the first seam."""
    mask = [step_type[0] == 0]
    for time in range(1, len(step_type)):
        seam = step_type[time] == 0 or step_type[time - 1] == 2
        mask.append(not seam and (time == 1 or mask[-1]))
    return mask


@pytest.mark.parametrize("length", [2, 3, 7])
def test_every_row_has_the_action_and_reward_that_led_to_its_observation(stream, length):
    starts = range(len(stream.reward) - length + 1)
    chunks = tf.nest.map_structure(lambda value: tf.stack([value[start : start + length] for start in starts]), stream)
    batch = {key: value.numpy() for key, value in model_batch(chunks).items()}

    mask, state = batch["mask"], batch["state"]
    np.testing.assert_array_equal(mask, [expected_mask(row) for row in chunks.step_type.numpy()])
    episode, step, led_here = np.moveaxis(state, -1, 0)
    begins = mask & (step == 0)
    inside = mask & (step > 0)
    assert begins.sum() > 0 and inside.sum() > 0 and (~mask[:, 1:]).sum() > 0
    assert not begins[:, 1:].any()
    np.testing.assert_array_equal(batch["action"][..., 0][inside], led_here[inside])
    np.testing.assert_allclose(batch["reward"][inside], reward_of(led_here[inside]), rtol=1e-6)
    for nothing in (~mask, begins):
        assert not batch["action"][nothing].any() and not batch["reward"][nothing].any()
    length = 3 + episode % 3
    np.testing.assert_array_equal(batch["is_terminal"], mask & (step == length) & (length != 4))
    # Apart from a first row that only warms the filter up, one sequence is one episode, step by step.
    for row in range(len(mask)):
        times = np.flatnonzero(mask[row])
        assert (np.diff(times) == 1).all() and (np.diff(step[row, times]) == 1).all()
        assert len(set(episode[row, times])) <= 1


def test_the_last_observation_of_an_episode_is_learnt(stream):
    """An episode of n actions is n + 1 valid rows, the boundary row among them."""
    last = int(np.flatnonzero(stream.step_type.numpy() == 2)[0])
    batch = model_batch(tf.nest.map_structure(lambda value: value[None, : last + 3], stream))
    np.testing.assert_array_equal(batch["mask"].numpy()[0], [True] * (last + 1) + [False] * 2)
    assert last == 3  # the first episode has three actions


def test_one_sequence_without_a_batch_axis_gives_the_same_rows(stream):
    alone = model_batch(stream)
    batched = model_batch(tf.nest.map_structure(lambda value: value[None], stream))
    for key, value in alone.items():
        np.testing.assert_array_equal(value, batched[key][0])
