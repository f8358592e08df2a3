"""Training on trajectories."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.drivers import py_driver
from tf_agents.policies import random_py_policy
from tf_agents.replay_buffers import tf_uniform_replay_buffer
from tf_agents.utils import common, nest_utils

from bayes_planet.agents import GymnasiumPyEnvironment, model_batch
from tests.agents import toy
from tests.world_model.tiny import ACTION_VALUES

LENGTH = 6


def make_agent(config=None, **arguments):
    return toy.make_agent(config or toy.config(), **{"num_data": 60, **arguments})


@pytest.fixture(scope="module")
def agent():
    return make_agent()


@pytest.fixture(scope="module")
def buffer(agent):
    """A TFUniformReplayBuffer with 60 rows of about 12 episodes."""
    buffer = tf_uniform_replay_buffer.TFUniformReplayBuffer(agent.collect_data_spec, batch_size=1, max_length=60)
    environment = GymnasiumPyEnvironment(toy.Echo())
    policy = random_py_policy.RandomPyPolicy(environment.time_step_spec(), environment.action_spec(), seed=0)

    def add(row):
        buffer.add_batch(nest_utils.batch_nested_array(row))

    py_driver.PyDriver(environment, policy, [add], max_steps=60).run(environment.reset())
    return buffer


@pytest.fixture(scope="module")
def experience(buffer):
    tf.random.set_seed(0)
    return next(iter(buffer.as_dataset(sample_batch_size=16, num_steps=LENGTH)))[0]


@pytest.mark.thorough
def test_values_are_learnt_from_trajectories(experience):
    """There is no reward after the end of an episode, 0.5 a step on average before it."""
    base = toy.config(value_scale=0.0)
    config = dataclasses.replace(
        base,
        model=dataclasses.replace(base.model, value=True),
        loss=dataclasses.replace(base.loss, value_discount=0.9),
        train=dataclasses.replace(base.train, learning_rate=0.01),
    )
    agent = make_agent(config)
    train = common.function(agent.train)
    for _ in range(250):
        train(experience)
    batch = model_batch(experience)
    posterior, _ = agent.world_model.observe(batch, tf.constant([1, 2]))
    value = agent.world_model.value(posterior.features).numpy()
    ended, mask = batch["is_terminal"].numpy(), batch["mask"].numpy()
    assert ended.sum() > 5
    assert abs(value[ended].mean()) < 0.25
    assert value[mask & ~ended].mean() > 0.75


@pytest.mark.thorough
def test_values_of_actions_are_learnt_from_trajectories(experience):
    """They lie between the rewards of the experience, and its batch is learnt."""
    base = toy.config(value_scale=0.0)
    config = dataclasses.replace(
        base,
        model=dataclasses.replace(base.model, **ACTION_VALUES),
        train=dataclasses.replace(base.train, sequence_length=LENGTH, behaviour_updates=2, learning_rate=0.01),
    )
    agent = make_agent(config)
    train = common.function(agent.train)
    losses = [float(train(experience).extra["loss/value"]) for _ in range(60)]
    batch = model_batch(experience)
    rewards = batch["reward"][batch["mask"]]
    model = agent.world_model
    np.testing.assert_array_equal(model.least_reward, rewards.numpy().min())
    np.testing.assert_array_equal(model.largest_reward, rewards.numpy().max())
    constant = 0.5 * np.log(2 * np.pi)
    assert np.mean(losses[-5:]) - constant < 0.5 * (losses[0] - constant)


def test_what_the_uniform_buffer_samples_is_aligned(experience):
    batch = {key: value.numpy() for key, value in model_batch(experience).items()}
    inside = batch["mask"] & (batch["state"][..., 1] > 0)
    assert inside.sum() > 10 and (~batch["mask"]).sum() > 10  # chunks that cross boundaries are among them
    np.testing.assert_allclose(batch["action"][..., 0][inside], batch["state"][..., 2][inside])
    np.testing.assert_allclose(batch["reward"][inside], toy.reward_of(batch["state"][..., 2][inside]), rtol=1e-6)


def test_training_on_a_fixed_batch_lowers_the_loss(experience):
    config = toy.config()
    config = dataclasses.replace(config, train=dataclasses.replace(config.train, learning_rate=0.01))
    agent = make_agent(config, num_data=10_000)
    train = common.function(agent.train)
    before = agent.loss(experience)
    losses = [train(experience) for _ in range(60)]
    # `loss` is what `train` minimises next, to the random numbers.
    np.testing.assert_allclose(before.loss, losses[0].loss, rtol=1e-5)
    for name, value in before.extra.items():
        np.testing.assert_allclose(value, losses[0].extra[name], rtol=1e-5, atol=1e-6, err_msg=name)
    for name in ("loss/reward", "loss/state"):
        values = [float(info.extra[name]) for info in losses]
        assert np.mean(values[-5:]) < 0.8 * values[0]
    assert int(agent.train_step_counter) == 60
    metrics = losses[-1].extra
    layers = metrics["weight_kl/prior_hidden"] + metrics["weight_kl/prior_mean"]
    np.testing.assert_allclose(metrics["weight_kl/total"], layers, rtol=1e-6)
    np.testing.assert_allclose(metrics["weight_kl/total"], sum(agent.world_model.weight_kl().values()), rtol=1e-6)
    assert metrics["valid_steps"] == tf.math.count_nonzero(model_batch(experience)["mask"]).numpy()
    assert all(np.isfinite(value) for value in metrics.values())


def test_eager_and_traced_training_agree(experience):
    results = []
    for wrap in (lambda function: function, common.function):
        agent = make_agent()
        train = wrap(agent.train)
        for _ in range(2):
            train(experience)
        assert int(agent.train_step_counter) == 2
        results.append([variable.numpy() for variable in agent.world_model.trainable_variables])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_loss_moves_nothing_and_repeats(agent, experience):
    before = [variable.numpy() for variable in agent.variables]
    losses = [agent.loss(experience).loss.numpy() for _ in range(2)]
    assert losses[0] == losses[1]
    for value, variable in zip(before, agent.variables, strict=True):
        np.testing.assert_array_equal(value, variable)


def test_masked_rows_do_not_count(agent, experience):
    """Nothing after the first boundary of a chunk changes the loss."""
    mask = model_batch(experience)["mask"].numpy()
    after = ~mask
    after[:, 0] = False  # the first row warms the filter up
    assert after.any()
    spoilt = experience._replace(
        observation=tf.where(after[..., None], 100.0, experience.observation),
        action=tf.where(after[..., None], 1.0, experience.action),
        reward=tf.where(after & np.roll(after, 1, 1), 100.0, experience.reward),
    )
    np.testing.assert_allclose(agent.loss(spoilt).loss, agent.loss(experience).loss, rtol=1e-6)


def test_weights_multiply_the_sequences(experience):
    agent = make_agent(toy.config(bayesian=False), num_data=None)
    names = ("loss/state", "loss/reward", "state_kl")
    full = agent.loss(experience).extra
    half = agent.loss(experience, weights=tf.constant(0.5)).extra
    chosen = tf.cast(tf.range(16) < 8, tf.float32)
    parts = [agent.loss(experience, weights=weights).extra for weights in (chosen, 1 - chosen)]
    for name in names:
        np.testing.assert_allclose(half[name], 0.5 * full[name], rtol=1e-5)
        np.testing.assert_allclose(parts[0][name] + parts[1][name], full[name], rtol=1e-5)


def test_num_data_divides_the_weight_kl(experience):
    agent = make_agent()
    total = sum(agent.world_model.weight_kl().values())
    for rows in (60, 600):
        agent.num_data.assign(rows)
        np.testing.assert_allclose(agent.loss(experience).extra["loss/weight_kl"], total / rows, rtol=1e-5)


def test_the_scale_weighs_the_kl(experience):
    config = toy.config()
    bayesian = dataclasses.replace(config.model.bayesian, kl_scale=2.0)
    agent = make_agent(dataclasses.replace(config, model=dataclasses.replace(config.model, bayesian=bayesian)))
    total = float(sum(agent.world_model.weight_kl().values()))
    np.testing.assert_allclose(agent.loss(experience).extra["loss/weight_kl"], 2.0 * total / 60, rtol=1e-5)


def test_a_batch_without_a_valid_row_is_harmless(experience):
    """All chunks begin with a boundary: only the weight KL is left of the loss."""
    agent = make_agent()
    ended = experience._replace(step_type=tf.fill([16, LENGTH], 2))
    info = agent.train(ended)
    assert info.extra["valid_steps"] == 0 and info.extra["skipped"] == 0
    np.testing.assert_allclose(info.loss, info.extra["loss/weight_kl"], rtol=1e-6)
    assert all(np.isfinite(variable).all() for variable in agent.world_model.trainable_variables)


def test_a_preprocessed_batch_is_taken_as_it_is(agent, experience):
    np.testing.assert_array_equal(agent.loss(agent.preprocess_sequence(experience)).loss, agent.loss(experience).loss)


@pytest.mark.thorough
def test_an_unknown_number_of_sequences_trains_as_a_known_one(experience):
    """With the term of the loss that takes a share of the rows."""
    base = toy.config()
    loss = dataclasses.replace(base.loss, image_fraction=0.5)
    config = dataclasses.replace(base, loss=loss)
    signature = tf.nest.map_structure(lambda value: tf.TensorSpec([None, *value.shape[1:]], value.dtype), experience)
    one, other = make_agent(config), make_agent(config)
    open_train = tf.function(other.train, input_signature=[signature], autograph=False)
    for part in (experience, tf.nest.map_structure(lambda value: value[:5], experience)):
        known, unknown = common.function(one.train)(part).extra, open_train(part).extra
        assert set(known) == set(unknown)
        for name, value in known.items():
            np.testing.assert_allclose(unknown[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_an_unknown_length_needs_to_be_told(experience):
    spec = tf.nest.map_structure(lambda value: tf.TensorSpec([None, None, *value.shape[2:]], value.dtype), experience)
    with pytest.raises(ValueError, match="train_sequence_length"):
        common.function(make_agent().loss).get_concrete_function(spec)
    told = make_agent(train_sequence_length=LENGTH)
    loss = common.function(told.loss, input_signature=[spec])
    np.testing.assert_allclose(loss(experience).loss, told.loss(experience).loss, rtol=1e-5)


@pytest.mark.parametrize("num_data", [None, 0])
def test_variational_layers_need_the_size_of_the_replay(num_data):
    with pytest.raises(ValueError, match=r"num_data.*Accepted"):
        make_agent(num_data=num_data)


def test_an_agent_of_another_strategy_is_refused(agent, experience):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope(), pytest.raises(ValueError, match=r"strategy\.run"):
        agent.train(experience)
