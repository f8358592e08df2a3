"""Actor and Learner of TF-Agents, on a real task and on two replicas."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.policies import py_tf_eager_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.train import actor, learner, triggers
from tf_agents.train.utils import train_utils
from tf_agents.utils import nest_utils

from bayes_planet.agents import GymnasiumPyEnvironment
from tests.agents import toy

ROOT = Path(__file__).parents[2]


def make_learner(root, environment, buffer=None, **arguments):
    """An agent, its replay buffer and its learner, which saves into `root` every second step."""
    step = train_utils.create_train_step()
    agent = toy.make_agent(toy.config(), environment, num_data=1, train_step_counter=step)
    buffer = buffer or tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, 1, max_length=100)
    trainer = learner.Learner(
        str(root), step, agent, lambda: buffer.as_dataset(sample_batch_size=2, num_steps=5),
        checkpoint_interval=2, summary_interval=1, **arguments,
    )  # fmt: skip
    return agent, buffer, trainer


def collect(environment, agent, buffer):
    """Two episodes under the collecting policy; returns the actor."""
    collector = actor.Actor(
        environment,
        py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True),
        agent.train_step_counter,
        episodes_per_run=2,
        metrics=actor.collect_metrics(10),
        observers=[lambda row: buffer.add_batch(nest_utils.batch_nested_array(row))],
    )
    collector.run()
    return collector


def test_collect_train_save_and_go_on(tmp_path):
    environment = GymnasiumPyEnvironment.make(toy.config().env, seed=0)
    agent, buffer, trainer = make_learner(tmp_path, environment)
    collector = collect(environment, agent, buffer)
    assert int(buffer.num_frames()) == 2 * 11
    assert {metric.name: metric.result() for metric in collector.metrics}["EnvironmentSteps"] == 2 * 10

    agent.num_data.assign(buffer.num_frames())
    before = [variable.numpy() for variable in agent.world_model.trainable_variables]
    info = trainer.run(iterations=2)
    assert int(agent.train_step_counter) == 2
    assert np.isfinite(info.loss.numpy()) and info.extra["skipped"] == 0
    after = [variable.numpy() for variable in agent.world_model.trainable_variables]
    assert any(np.abs(one - other).max() > 0 for one, other in zip(before, after, strict=True))

    # A second agent goes on from the learner's checkpoint: weights, optimizer, N and step.
    other, _, _ = make_learner(tmp_path, environment, buffer)
    assert int(other.train_step_counter) == 2 and int(other.num_data) == 22
    for one, two in zip(agent.variables, other.variables, strict=True):
        np.testing.assert_array_equal(one, two)
    moments = [member._optimizer.variables() for member in (agent, other)]
    assert len(moments[0]) == 1 + 2 * len(before)  # Adam's count, and two for each weight
    for one, two in zip(*moments, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.slow
def test_the_trigger_saves_policies_that_run(tmp_path):
    environment = GymnasiumPyEnvironment.make(toy.config().env, seed=0)
    agent, buffer, trainer = make_learner(tmp_path, environment)
    collect(environment, agent, buffer)
    trainer.triggers.append(
        triggers.PolicySavedModelTrigger(str(tmp_path / "policies"), agent, agent.train_step_counter, interval=1)
    )
    trainer.run(iterations=1)
    step = tf.nest.map_structure(lambda value: tf.convert_to_tensor(value)[None], environment.reset())
    for name in ("greedy_policy", "collect_policy"):
        policy = tf.saved_model.load(str(tmp_path / "policies" / name))
        assert policy.action(step, policy.get_initial_state(1)).action.shape == [1, 6]


@pytest.mark.slow
def test_two_replicas_train_as_one(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "tests.agents.mirrored_program", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen = json.loads(ended.stdout.splitlines()[-1])
    metrics = seen["metrics"]
    assert seen["keras"].startswith("tf_keras")
    assert seen["step"] == 2 and seen["replicas"] == 2 and seen["apart"] == 0
    # Sums over the replicas' shares: every row, and the weight KL once.
    assert metrics["valid_steps"] == seen["valid_rows"]
    assert metrics["weight_kl/total"] == pytest.approx(seen["weight_kl"], rel=1e-5)
    assert metrics["weight_kl/scale"] == pytest.approx(1.0) and metrics["skipped"] == 0
    terms = ("loss/state", "loss/state_kl", "loss/weight_kl")
    assert seen["loss"] == pytest.approx(sum(metrics[name] for name in terms) + 10 * metrics["loss/reward"], rel=1e-4)
