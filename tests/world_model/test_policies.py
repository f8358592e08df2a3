"""The policy: its bounds, its rollouts, what it learns in imagination, and that the world model learns nothing from it."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_planet import bayesian_layers
from bayes_planet.behaviour import actor_loss
from bayes_planet.behaviour.actor import act_ahead, bounded
from bayes_planet.behaviour.actor_loss import actor_terms, imagine_behaviour
from bayes_planet.behaviour.learning import loss_and_gradients
from bayes_planet.behaviour.returns import lambda_returns
from bayes_planet.behaviour.value_loss import imagined_value_nll
from bayes_planet.config import Config, LossConfig, ModelConfig, PlannerConfig
from bayes_planet.world_model import State
from tests.planning.crafted import crafted_model, crafted_state
from tests.world_model.heads import learnt
from tests.world_model.tiny import DENSE_LAYERS, seed, tiny_batch, tiny_config, tiny_model

POLICY = {"value": True, "policy": True}
FOLD = tf.random.experimental.stateless_fold_in


def policy_model(loss: dict | None = None, bayesian: dict | None = None, **model):
    return tiny_model(tiny_config(model={**POLICY, **model}, loss=loss or {}, bayesian=bayesian or {}))


@given(st.floats(-3, 3), st.floats(-2, 2))
@settings(deadline=None, max_examples=60)
def test_an_action_at_its_bound_can_only_learn_to_come_back(action, slope):
    variable = tf.Variable(action, dtype=tf.float32)
    with tf.GradientTape() as tape:
        cost = slope * bounded(variable)
    gradient = float(tape.gradient(cost, variable))
    assert float(bounded(variable)) == pytest.approx(np.clip(action, -1, 1), rel=1e-6)
    after = action - 0.01 * slope  # a step of descent
    leaves = abs(action) > 1 and abs(after) > abs(action)
    assert gradient == pytest.approx(0.0 if leaves else slope, rel=1e-6)


def test_a_rollout_is_the_policy_and_the_transition_in_turn():
    model = policy_model(bayesian={"layers": DENSE_LAYERS, "initial_stddev": 0.3})
    weights = bayesian_layers.sample_weights(model.rssm, seed(3))
    start = State(*(tf.random.stateless_normal(shape, seed(9)) for shape in ([4, 3], [4, 3], [4, 3], [4, 5])))
    noise = 2.0 * tf.random.stateless_normal([4, 3, 2], seed(5))
    ahead = act_ahead(model.rssm, model.policy, start, noise, seed=seed(6), weights=weights)
    state = start
    for step in range(3):
        np.testing.assert_array_equal(ahead.features[:, step], state.features)
        mean, stddev = model.policy(state.features)
        action = tf.clip_by_value(mean + stddev * noise[:, step], -1.0, 1.0)
        np.testing.assert_allclose(ahead.actions[:, step], action, rtol=1e-6)
        np.testing.assert_array_equal(ahead.stddev[:, step], stddev)
        following = model.rssm.imagine(action[:, None], state, seed=FOLD(seed(6), step), weights=weights)
        state = State(*(value[:, 0] for value in following))
    np.testing.assert_allclose(ahead.features[:, 3], state.features, rtol=1e-5, atol=1e-6)
    assert np.abs(ahead.actions).max() == 1.0 and np.min(ahead.stddev) >= 0.1 and np.max(ahead.stddev) <= 1.0


def filtered(model, batch: dict) -> State:
    return model.observe(batch, seed(1))[0]


def imagined_by(model, posterior: State, words: tf.Tensor | None = None):
    weights = bayesian_layers.posterior_mean(model.rssm)
    return imagine_behaviour(model, posterior, weights, seed(4) if words is None else words)


def imagined_terms(model, posterior: State):
    return actor_terms(model, imagined_by(model, posterior))


@pytest.fixture
def constants(monkeypatch):
    """Sets constants of the actor's loss for one test: other values than the ones that are used show each of them."""

    def set_them(**values: float) -> None:
        for name, value in values.items():
            monkeypatch.setattr(actor_loss, name, value)

    return set_them


@pytest.mark.parametrize("continuation", [False, True])
def test_its_gradient_is_that_of_its_return(continuation, constants):
    """Against finite differences of the mean return and the entropy, written out once more."""
    constants(START_FRACTION=0.5, ENTROPY_SCALE=0.3, VALUE_TRACE=0.6)
    # Smooth: a difference over the kink of a ReLU is no derivative.
    model = policy_model({"policy_horizon": 3, "value_discount": 0.8}, continuation=continuation, activation="elu")
    posterior = filtered(model, tiny_batch())
    bias, kernel = model.require_policy().trainable_variables[-1:-3:-1]
    kernel.assign(0.2 * kernel)  # so that no action is clipped
    bias.assign([0.1, -0.1, -4.0, -3.5])

    def objective() -> tuple[float, float]:
        chosen = tf.math.top_k(tf.random.stateless_uniform([12], FOLD(seed(4), 0)), 6).indices
        start = State(*(tf.gather(tf.reshape(value, [12, -1]), chosen) for value in posterior))
        noise = tf.random.stateless_normal([6, 3, 2], FOLD(seed(4), 1))
        ahead = act_ahead(model.rssm, model.policy, start, noise, seed=FOLD(seed(4), 2))
        assert np.abs(ahead.actions).max() < 1.0
        goes_on = model.continuation(ahead.features) if continuation else tf.ones([6, 4])
        returns = lambda_returns(
            model.reward(ahead.features), model.value(ahead.features), tf.ones([6, 4]), goes_on, 0.8, 0.6
        ).numpy()
        reward = 0.2 * returns[:, :3].astype(np.float64).mean()
        return reward, reward + 0.3 * np.log(ahead.stddev.numpy().astype(np.float64)).sum(-1).mean()

    with tf.GradientTape() as tape:
        found = imagined_terms(model, posterior)
    gradient = tape.gradient(found.loss, bias).numpy()
    np.testing.assert_allclose(found.reward, objective()[0], rtol=1e-5)
    before = bias.numpy()
    for place in range(4):
        values = []
        for change in (1e-2, -1e-2):
            bias.assign(before + change * np.eye(4, dtype=np.float32)[place])
            values.append(objective()[1])
        bias.assign(before)
        np.testing.assert_allclose(gradient[place], -(values[0] - values[1]) / 2e-2, rtol=0.02, atol=1e-4)


def test_the_value_learns_what_the_policy_earns(constants):
    """The value's term against its definition, and its gradient: that of a regression whose target stands still."""
    constants(START_FRACTION=1.0, VALUE_TRACE=0.6)
    model = policy_model({"policy_horizon": 2, "value_discount": 0.8})
    posterior = filtered(model, tiny_batch())
    head = list(model.heads["value"].trainable_variables)
    with tf.GradientTape(persistent=True) as tape:
        value_nll = imagined_value_nll(model, imagined_by(model, posterior))
        start = State(*(tf.reshape(value, [12, value.shape[-1]]) for value in posterior))
        noise = tf.random.stateless_normal([12, 2, 2], FOLD(seed(4), 1))
        ahead = act_ahead(model.rssm, model.policy, start, noise, seed=FOLD(seed(4), 2))
        value = model.value(ahead.features)
        ones = tf.ones([12, 3])
        target = tf.stop_gradient(lambda_returns(model.reward(ahead.features), value, ones, ones, 0.8, 0.6))
        error = 0.2 * (value - target)[:, :2]
        expected = 0.5 * (tf.reduce_mean(tf.square(error)) + np.log(2 * np.pi))
    np.testing.assert_allclose(value_nll, expected, rtol=1e-4)
    for ours, theirs in zip(tape.gradient(value_nll, head), tape.gradient(expected, head), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-6)
    rest = {id(variable) for variable in head}
    others = [variable for variable in model.trainable_variables if id(variable) not in rest]
    assert tape.gradient(value_nll, others) == [None] * len(others)


def test_several_values_learn_each_their_own_returns_and_the_policy_their_mean_less_stddev(constants):
    """Against the definition, and the policy's gradient against finite differences."""
    constants(START_FRACTION=1.0, ENTROPY_SCALE=0.0, VALUE_TRACE=0.6)
    model = policy_model({"policy_horizon": 2, "value_discount": 0.8}, value_heads=3)
    posterior = filtered(model, tiny_batch())
    bias, kernel = model.require_policy().trainable_variables[-1:-3:-1]
    kernel.assign(0.2 * kernel)
    bias.assign([0.1, -0.1, -4.0, -3.5])
    heads = [
        model.heads["value"],
        *(model.heads[f"value_{number}"] for number in range(2, model.config.model.value_heads + 1)),
    ]
    assert len(heads) == 3

    def returns() -> tuple[np.ndarray, np.ndarray]:
        """Of each head [3, 12, 3], discounted rates, and the heads' rates."""
        start = State(*(tf.reshape(value, [12, value.shape[-1]]) for value in posterior))
        noise = tf.random.stateless_normal([12, 2, 2], FOLD(seed(4), 1))
        features = act_ahead(model.rssm, model.policy, start, noise, seed=FOLD(seed(4), 2)).features
        ones, rates = tf.ones([12, 3]), [head(features) for head in heads]
        each = [0.2 * lambda_returns(model.reward(features), rate / 0.2, ones, ones, 0.8, 0.6) for rate in rates]
        return np.stack(each), np.stack(rates)

    with tf.GradientTape() as tape:
        found = imagined_terms(model, posterior)
    gradient = tape.gradient(found.loss, bias).numpy()
    each, rates = returns()
    together = each.mean(0) - each.std(0)
    np.testing.assert_allclose(found.reward, together[:, :2].mean(), rtol=1e-5)
    expected = 0.5 * (np.square(each - rates)[:, :, :2].mean() + np.log(2 * np.pi))
    np.testing.assert_allclose(imagined_value_nll(model, imagined_by(model, posterior)), expected, rtol=1e-4)
    before = bias.numpy()
    for place in range(4):
        values = []
        for change in (4e-3, -4e-3):
            bias.assign(before + change * np.eye(4, dtype=np.float32)[place])
            each, _ = returns()
            values.append((each.mean(0) - each.std(0))[:, :2].astype(np.float64).mean())
        bias.assign(before)
        np.testing.assert_allclose(gradient[place], -(values[0] - values[1]) / 8e-3, rtol=0.05, atol=5e-5)


@pytest.mark.parametrize("sampling", ["per_sequence", "per_step", "mean"])
def test_the_world_model_learns_nothing_from_it(sampling):
    """Every gradient but the two heads' is that of the same model without them, and its loss less their term."""
    bayesian = {"layers": DENSE_LAYERS, "weight_sampling": sampling}
    ours = policy_model({}, bayesian)
    theirs = tiny_model(tiny_config(bayesian=bayesian))
    heads = [*ours.require_policy().trainable_variables, *ours.heads["value"].trainable_variables]
    known = {id(variable) for variable in heads}
    others = [variable for variable in ours.trainable_variables if id(variable) not in known]
    for variable, other in zip(others, theirs.trainable_variables, strict=True):
        other.assign(variable)
    with_policy, gradients = learnt(ours, tiny_batch(), [*others, *heads])
    assert all(float(tf.norm(gradient)) > 0 for gradient in gradients[len(others) :])
    without, expected = learnt(theirs, tiny_batch(), list(theirs.trainable_variables))
    for gradient, other in zip(gradients[: len(others)], expected, strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-4, atol=1e-6)
    metrics = with_policy.metrics
    np.testing.assert_allclose(with_policy.total - without.total, 10.0 * metrics["loss/value"], rtol=1e-3)
    np.testing.assert_allclose(metrics["elbo"], without.metrics["elbo"], rtol=1e-6)


def test_replicas_share_its_terms(constants):
    constants(START_FRACTION=1.0)
    model = policy_model()
    batch, arguments = tiny_batch(), {"seed": seed(1), "weight_seed": seed(2)}
    arguments |= {"num_data": tf.constant(9.0), "weight_kl_scale": tf.constant(1.0)}
    variables = list(model.require_policy().trainable_variables) + model.value_variables
    (one, gradients), (half, halves) = (
        loss_and_gradients(model, variables, batch, **arguments, replicas=count) for count in (1, 2)
    )
    one, half = one.metrics, half.metrics
    for whole, share in zip(gradients, halves, strict=True):
        np.testing.assert_allclose(share, whole / 2, rtol=1e-5, atol=1e-9)
    for name in ("loss/value", "policy/reward", "policy/stddev"):
        np.testing.assert_allclose(half[name], one[name] / 2, rtol=1e-6)


@pytest.mark.thorough
def test_it_learns_the_best_action_of_either_state(constants):
    """In the crafted model the reward grows with action times state: +1 for the state 1, -1 for the state -1."""
    constants(START_FRACTION=1.0)
    model = crafted_model(model=POLICY, loss={"policy_horizon": 3, "value_discount": 0.5})
    posterior = crafted_state(1.0, -1.0)
    actor = list(model.require_policy().trainable_variables)
    optimizer = tf.keras.optimizers.legacy.Adam(0.02)

    @tf.function
    def update(number):
        rows = State(*(value[:, None] for value in posterior))
        with tf.GradientTape() as tape:
            imagined = imagined_by(model, rows, FOLD(seed(1), number))
            loss = actor_terms(model, imagined).loss
        with tf.GradientTape() as value_tape:
            value = imagined_value_nll(model, imagined)
        gradients = tape.gradient(loss, actor) + value_tape.gradient(value, model.value_variables)
        optimizer.apply_gradients(zip(gradients, [*actor, *model.value_variables], strict=True))

    for number in tf.range(300):
        update(number)
    mean, _ = model.policy(posterior.features)
    assert mean[0, 0] > 0.8 and mean[1, 0] < -0.8


def test_settings_that_need_a_policy_say_so():
    with pytest.raises(ValueError, match=r"model\.policy is True\. Accepted: false without model\.value=true"):
        Config(model=ModelConfig(policy=True))
    with pytest.raises(ValueError, match=r"planner\.policy_candidates is 4\. Accepted: 0 without model\.policy=true"):
        Config(planner=PlannerConfig(policy_candidates=4))
    with pytest.raises(
        ValueError, match=r"planner\.method is 'policy'\. Accepted: cem or icem without model\.policy=true"
    ):
        Config(planner=PlannerConfig(method="policy"))
    with pytest.raises(
        ValueError, match=r"planner\.method is 'polcy'\. Accepted: cem, icem, policy\. Did you mean 'policy'"
    ):
        PlannerConfig(method="polcy")
    with pytest.raises(ValueError, match=r"planner\.policy_candidates is 7\. Accepted: 0 to below .*, 7"):
        PlannerConfig("icem", candidates=10, elites=10, policy_candidates=7)
    with pytest.raises(ValueError, match=r"loss\.policy_horizon is 0\. Accepted: 1 or more"):
        LossConfig(policy_horizon=0)
    with pytest.raises(ValueError, match=r"has no policy\. Accepted: model\.policy=true"):
        tiny_model().policy(tf.zeros([1, 8]))
