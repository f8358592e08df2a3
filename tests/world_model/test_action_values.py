"""`model.action_value`: values of actions from the replay, targets that follow, an actor that climbs them."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.behaviour.action_values import (
    action_value_nll,
    actor_loss,
    observed,
    short_sequences,
    transitions,
    value_targets,
)
from bayes_planet.behaviour.actor import tanh_log_density
from bayes_planet.behaviour.learning import action_value_gradients, loss_and_gradients
from bayes_planet.config import Config, ModelConfig, PlannerConfig
from bayes_planet.config.constants import TRANSITION_ROWS, TRANSITIONS
from bayes_planet.training.learner import Learner
from tests.world_model.tiny import ACTION_VALUES, IMAGE_SHAPES, seed, tiny_batch, tiny_config, tiny_model

FOLD = tf.random.experimental.stateless_fold_in
DISCOUNT = 0.9


def acting(**changes):
    return tiny_config(model={**ACTION_VALUES, **changes.pop("model", {})}, **changes)


@pytest.fixture(scope="module")
def model():
    return tiny_model(acting())


def short(count=6, **changes):
    return tiny_batch(count, TRANSITION_ROWS, **changes)


def followed_in(model, batch, discount=DISCOUNT):
    here, following = observed(model, batch, seed(0))
    read = [model.embed(here), model.embed(following), model.embed_target(following)]
    return transitions(batch, *(tf.cast(each, tf.float32) for each in read), discount)


def test_values_and_actor_read_the_embedding_alone(model):
    batch = tiny_batch(4, 3)
    embedded = model.embed(model.prepare(batch, seed(0)))
    ours, other = (model.observe(batch, seed(number))[0] for number in (1, 2))
    for state in (ours, other):
        np.testing.assert_array_equal(model.behaviour_features(state, embedded), embedded)
    assert embedded.shape[-1] == model.behaviour_size


def test_transitions_are_what_followed_row_one():
    """With ends of the task in each row, episodes that a time limit cut, and padding after both."""
    batch = short(6)
    for sequence, row in ((1, 1), (2, 2)):
        batch["is_terminal"][sequence, row] = True
        batch["mask"][sequence, row + 1 :] = False
    batch["mask"][3, 2:] = False
    batch["mask"][4, 1:] = False
    features, following, target = np.random.default_rng(0).normal(size=(3, 6, 6)).astype(np.float32)
    found = transitions(batch, features, following, target, DISCOUNT)
    np.testing.assert_array_equal(found.known, [1, 0, 1, 0, 0, 1])
    np.testing.assert_allclose(found.discount.numpy()[[0, 2, 5]], [DISCOUNT, 0.0, DISCOUNT], rtol=1e-6)
    np.testing.assert_array_equal(found.reward, batch["reward"][:, 2])
    np.testing.assert_array_equal(found.features, features)
    np.testing.assert_array_equal(found.following, following)
    np.testing.assert_array_equal(found.target_following, target)
    np.testing.assert_array_equal(found.action, batch["action"][:, 2])


def test_short_sequences_lie_in_the_longer_ones_and_every_place_is_drawn():
    batch = tiny_batch(3, 7)
    numbers = np.arange(21).reshape(3, 7)
    found = short_sequences({**batch, "number": numbers}, 500, seed(3))
    assert found["action"].shape == (500, TRANSITION_ROWS, batch["action"].shape[-1])
    first = found["number"][:, 0].numpy()
    np.testing.assert_array_equal(found["number"], first[:, None] + np.arange(TRANSITION_ROWS))
    np.testing.assert_array_equal(found["reward"], batch["reward"].reshape(-1)[found["number"]])
    drawn, counts = np.unique(first, return_counts=True)
    assert drawn.tolist() == [*range(5), *range(7, 12), *range(14, 19)]
    assert counts.min() > 15  # 33 on average


def test_what_is_observed_is_row_one_and_the_last_each_with_the_image_before():
    config = acting(model={"image_encoder": "change"}, loss={"image_shift": 0})
    model = tiny_model(config, IMAGE_SHAPES)
    batch = short(2, shapes=IMAGE_SHAPES)
    here, after = observed(model, batch, seed(0))
    for end, row in ((here, 1), (after, 2)):
        np.testing.assert_array_equal(end["image"], batch["image"][:, row])
        np.testing.assert_array_equal(end["previous_image"], batch["image"][:, row - 1])
    moved = tiny_model(acting(model={"image_encoder": "change"}, loss={"image_shift": 3}), IMAGE_SHAPES)
    batch["image"][:, 0] = batch["image"][:, 1]
    shifted, _ = observed(moved, batch, seed(0))
    assert not np.array_equal(shifted["image"], here["image"])
    np.testing.assert_array_equal(shifted["image"], shifted["previous_image"])  # both by the same distance


def test_a_value_is_the_rewards_and_the_least_of_two_targets_of_what_the_actor_does():
    batch, model = short(), tiny_model(acting())
    model.encoders["state"].layers[0].kernel.assign_add(tf.fill(model.encoders["state"].layers[0].kernel.shape, 0.1))
    after = followed_in(model, batch, model.config.loss.value_discount)
    assert np.abs(after.following - after.target_following).max() > 0.01
    model.see_rewards(batch)
    found = value_targets(model, after, seed(2))
    action, log_density = drawn(model, after.following, seed(2))
    largest_size = np.abs(batch["reward"]).max()
    unit = (1 - model.config.loss.value_discount) * largest_size
    heads = [unit * head(tf.concat([after.target_following, action], -1)).numpy() for head in model.target_heads]
    discount = model.config.loss.value_discount
    temperature = np.float32(0.1)
    expected = (1 - discount) * after.reward + after.discount * (np.minimum(*heads) - unit * temperature * log_density)
    margin = temperature * largest_size * action.shape[-1]
    least, largest = batch["reward"].min() - margin, batch["reward"].max() + margin
    np.testing.assert_allclose(found, np.clip(expected, least, largest), atol=1e-4)


def drawn(model, features, draw):
    """The actor's action and its log density, by TensorFlow Probability."""
    mean, stddev = model.policy(features)
    normal = tfp.distributions.MultivariateNormalDiag(mean, stddev)
    before = mean + stddev * tf.random.stateless_normal(mean.shape, draw)
    slope = tfp.bijectors.Tanh().forward_log_det_jacobian(before, 1)
    return tf.tanh(before), (normal.log_prob(before) - slope).numpy()


def test_the_density_of_actions_near_their_bounds_is_finite():
    mean, stddev = tf.constant([[0.3, -30.0], [2.0, 9.0]]), tf.constant([[0.7, 0.5], [0.1, 2.0]])
    noise = tf.constant([[0.5, -1.0], [-2.0, 0.0]])
    found = tanh_log_density(mean + stddev * noise, stddev, noise).numpy()
    u = (mean + stddev * noise).numpy().astype(np.float64)
    log_slope = 2.0 * np.log(2.0) - 2.0 * np.abs(u) - 2.0 * np.log1p(np.exp(-2.0 * np.abs(u)))  # of tanh
    log_normal = -0.5 * np.square(noise) - np.log(stddev) - 0.5 * np.log(2.0 * np.pi)
    np.testing.assert_allclose(found, np.sum(log_normal - log_slope, -1), rtol=1e-5)


def the_same_everywhere(layer, bias):
    """The actor of two entries has means of 0, and stddevs of this logit."""
    layer.kernel.assign(tf.zeros_like(layer.kernel))
    layer.bias.assign([0.0, 0.0, bias, bias])


def test_the_temperature_rises_where_the_entropy_is_too_small_and_falls_where_it_is_large():
    model = tiny_model(acting())
    after = followed_in(model, short())
    for bias, sign in ((-2.0, -1.0), (0.5, 1.0)):  # of the stddev's logits
        the_same_everywhere(model.require_policy().layers[-1], bias)
        with tf.GradientTape() as tape:
            loss, metrics = actor_loss(model, after, seed(1))
        gradient = tape.gradient(loss, model.log_temperature)
        np.testing.assert_allclose(gradient, metrics["policy/entropy"] + 2.0, rtol=1e-5)  # two entries an action
        assert np.sign(gradient) == sign


@pytest.mark.parametrize(("bias", "sign"), [(-2.0, -1.0), (0.5, 0.0)])
def test_a_temperature_that_is_small_does_not_fall_further(bias, sign):
    model = tiny_model(acting())
    the_same_everywhere(model.require_policy().layers[-1], bias)
    model.log_temperature.assign(np.log(0.0099))
    with tf.GradientTape() as tape:
        loss, _ = actor_loss(model, followed_in(model, short()), seed(1))
    assert np.sign(tape.gradient(loss, model.log_temperature)) == sign


def test_values_stay_between_the_rewards_that_were_seen():
    batch = tiny_batch(2, 9)
    batch["reward"][:] = 0.25
    batch["reward"][0, 0] = np.nan
    batch["reward"][1, 8] = 7.0
    batch["mask"][1, 8] = False
    fresh = tiny_model(acting())
    fresh.see_rewards(batch)
    assert float(fresh.least_reward) == float(fresh.largest_reward) == 0.25
    np.testing.assert_allclose(fresh.value_unit, 0.25 * (1 - fresh.config.loss.value_discount), rtol=1e-5)
    batch = short()
    batch["reward"][:] = 0.25
    after = followed_in(fresh, batch)
    fresh.log_temperature.assign(-50.0)
    np.testing.assert_array_equal(value_targets(fresh, after, seed(2)), np.full(after.reward.shape, 0.25, np.float32))


def test_what_is_learnt_does_not_depend_on_the_unit_of_rewards():
    """The same gradients for rewards that are a thousandth, but for what rounding leaves."""
    found = []
    for factor in (1.0, 1e-3):
        model, batch = tiny_model(acting()), short()
        batch["reward"] *= np.float32(factor)
        assert float(model.value_unit) == np.float32(1 - model.config.loss.value_discount)  # nothing seen yet
        model.see_rewards(batch)
        found.append(action_value_gradients(model, batch, seed(4))[1])
    for ours, scaled in zip(*found, strict=True):
        np.testing.assert_allclose(ours, scaled, rtol=1e-3, atol=1e-4 * np.abs(ours).max())


def test_what_is_not_known_does_not_count(model):
    batch = short(6)
    whole = followed_in(model, batch)
    target = tf.random.stateless_normal(whole.reward.shape, seed(3))
    batch["mask"][4:, 2:] = False
    part = followed_in(model, batch)
    first = whole._replace(**{name: value[:4] for name, value in whole._asdict().items()})
    np.testing.assert_allclose(
        action_value_nll(model, part, target), action_value_nll(model, first, target[:4]), rtol=1e-5
    )


def test_the_actor_climbs_the_value_of_its_actions():
    """On a value that is highest at an action of 0.4 and -0.7."""
    model = tiny_model(acting())
    best = tf.constant([0.4, -0.7])
    model.action_rate = lambda features, action: -tf.reduce_sum(tf.square(action - best), -1)
    model.log_temperature.assign(-50.0)
    after = followed_in(model, short(9))
    variables = list(model.require_policy().trainable_variables)
    optimizer = tf.keras.optimizers.legacy.Adam(0.01)

    @tf.function
    def update(step):
        with tf.GradientTape() as tape:
            loss, _ = actor_loss(model, after, tf.stack([step, 0]))
        gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    for step in tf.range(600):
        update(step)
    np.testing.assert_allclose(model.act(after.features), np.tile(best, [len(after.known), 1]), atol=0.1)


def test_a_learner_moves_targets_after_every_update_of_the_values():
    learner = Learner(tiny_model(acting()), acting())
    model = learner.trained
    frozen, learning = model.target_variables, [*model.value_variables, *model.encoder_variables]
    assert not {id(each) for each in frozen} & {id(each) for each in learner.variables}
    before = [variable.numpy() for variable in frozen]
    learner.update(tiny_batch(3, 9), 100)
    for target, old, value in zip(frozen, before, learning, strict=True):
        np.testing.assert_allclose(target, old + 0.01 * (value.numpy() - old), atol=1e-7, err_msg=target.name)
    changed = [np.abs(variable.numpy() - old).max() for variable, old in zip(learning, before, strict=True)]
    assert min(changed) > 0


@pytest.mark.thorough
def test_each_update_of_values_has_short_sequences_of_its_own():
    """Two updates in a learner against two by hand, with the gradients of the halves of what was drawn."""
    config = acting(train={"behaviour_updates": 2, "learning_rate": 1e-2})
    learner, model = Learner(tiny_model(config), config), tiny_model(config)
    drawn = short(2 * TRANSITIONS)
    batch = {**tiny_batch(3, 9), "transitions": drawn}
    update_seed, _ = learner.seeds(0)
    model.see_rewards(batch)
    learner.update(batch, 100)
    variables = model.behaviour_variables
    adam = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=config.train.adam_epsilon)
    for number in range(2):
        half = {name: value[number * TRANSITIONS :][:TRANSITIONS] for name, value in drawn.items()}
        _, gradients = action_value_gradients(model, half, FOLD(FOLD(update_seed, 0), 100 + number))
        adam.apply_gradients(zip(gradients, variables, strict=True))
        model.move_targets()
    ours = [*learner.trained.behaviour_variables, *learner.trained.target_variables]
    assert not {id(each) for each in learner.variables} & {id(each) for each in learner.trained.behaviour_variables}
    for found, expected in zip(ours, [*variables, *model.target_variables], strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4, err_msg=expected.name)
    assert int(learner.behaviour_optimizer.iterations) == 2 and int(learner.optimizer.iterations) == 1


def test_the_value_of_a_state_is_that_of_the_actors_action(model):
    features = tf.random.stateless_normal([4, model.behaviour_size], seed(5))
    action = tf.tanh(model.policy(features)[0])
    rates = [model.value_unit * model.heads[name](tf.concat([features, action], -1)) for name in ("value", "value_2")]
    np.testing.assert_allclose(model.reward_rate(features), np.minimum(*rates), atol=1e-4)


def test_a_batch_of_shorter_sequences_is_refused():
    with pytest.raises(ValueError, match=r"sequences of 2 rows\. Accepted with model\.action_value=true: 3 or more"):
        short_sequences(tiny_batch(2, 2), 3, seed(0))


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"model\.action_value is True\. Accepted: false without model\.policy=true"):
        Config(model=ModelConfig(value=True, action_value=True))
    acts = ModelConfig(**ACTION_VALUES)
    with pytest.raises(ValueError, match=r"planner\.value_scale is 0\.5\. Accepted: 0 with model\.action_value=true"):
        Config(model=acts, planner=PlannerConfig(value_scale=0.5))
    with pytest.raises(
        ValueError, match=r"planner\.policy_candidates is 4\. Accepted: 0 with model\.action_value=true"
    ):
        Config(model=acts, planner=PlannerConfig(method="icem", policy_candidates=4))


def test_the_values_error_trains_values_and_encoder_and_the_actor_what_it_is_worth():
    """Gradients against finite differences of the two losses, along a direction of each kind of variable."""
    model = tiny_model(acting())
    batch = short()
    model.see_rewards(batch)
    metrics, gradients = action_value_gradients(model, batch, seed(4))
    here, following = observed(model, batch, FOLD(seed(4), 0))
    read = [model.embed(here), model.embed(following), model.embed_target(following)]
    fixed = transitions(batch, *(tf.cast(each, tf.float32) for each in read), model.config.loss.value_discount)
    target = value_targets(model, fixed, FOLD(seed(4), 1))

    def value_error():
        now = fixed._replace(features=tf.cast(model.embed(here), tf.float32))
        return action_value_nll(model, now, target)

    excess = actor_loss(model, fixed, FOLD(seed(4), 2))[1]["policy/entropy"] + 2.0  # has no gradient

    def actors():
        found = actor_loss(model, fixed, FOLD(seed(4), 2))[1]
        return -found["policy/reward"] / model.value_unit - 0.1 * found["policy/entropy"]

    def temperatures():
        return model.log_temperature * excess

    policy = list(model.require_policy().trainable_variables)
    kinds = [
        (policy, actors),
        ([model.log_temperature], temperatures),
        (model.value_variables, value_error),
        (model.encoder_variables, value_error),
    ]
    assert len(gradients) == sum(len(variables) for variables, _ in kinds)
    np.testing.assert_allclose(metrics["loss/value"], action_value_nll(model, fixed, target), rtol=1e-5)
    for variables, loss in kinds:
        own, gradients = gradients[: len(variables)], gradients[len(variables) :]
        length = float(tf.linalg.global_norm(own))
        assert length > 0
        step = 1e-3 / length

        def moved(by, variables=variables, own=own, loss=loss):
            for variable, gradient in zip(variables, own, strict=True):
                variable.assign_add(by * gradient)
            found = float(loss())
            for variable, gradient in zip(variables, own, strict=True):
                variable.assign_sub(by * gradient)
            return found

        slope = (moved(step) - moved(-step)) / (2 * step)
        np.testing.assert_allclose(slope, length**2, rtol=0.05, err_msg=str(len(variables)))


def test_the_world_models_gradients_are_those_of_its_loss_alone_and_none_reaches_what_the_values_train(model):
    variables, batch = list(model.trainable_variables), tiny_batch(4, 9)
    options = {
        "seed": seed(1),
        "weight_seed": seed(2),
        "num_data": tf.constant(100.0),
        "weight_kl_scale": tf.constant(1.0),
    }
    terms, gradients = loss_and_gradients(model, variables, batch, **options)
    with tf.GradientTape() as tape:
        alone = model.loss(batch, **options).total
    expected = tape.gradient(alone, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    np.testing.assert_allclose(terms.total, alone, rtol=1e-6)
    for found, value in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
    taught = {id(variable) for variable in model.behaviour_variables}
    assert {id(variable) for variable in model.encoder_variables} < taught and len(model.encoder_variables) > 0
    for variable, gradient in zip(variables, gradients, strict=True):
        if id(variable) in taught:
            np.testing.assert_array_equal(gradient, tf.zeros_like(variable), err_msg=variable.name)
