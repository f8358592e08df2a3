"""`model.action_value`: values of actions from the replay, targets that follow, an actor that climbs them."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.behaviour.action_values import action_value_nll, actor_loss, transitions, value_targets
from bayes_planet.behaviour.learning import loss_and_gradients
from bayes_planet.config import Config, ModelConfig, PlannerConfig, TrainConfig
from bayes_planet.config.constants import RETURN_STEPS, SKIPPED_ROWS
from bayes_planet.training.learner import Learner
from tests.world_model.tiny import seed, tiny_batch, tiny_config, tiny_model

ACTS = {"value": True, "policy": True, "action_value": True, "value_heads": 2}
ROWS = 9


def acting(**changes):
    return tiny_config(model={**ACTS, **changes.pop("model", {})}, train={"sequence_length": ROWS}, **changes)


@pytest.fixture(scope="module")
def model():
    return tiny_model(acting())


def seen_by(model, batch):
    """What values and actor read of a batch: means of the latent state and embeddings."""
    embedded = model.embed(model.prepare(batch, seed(0)))
    return model.behaviour_features(model.observe(batch, seed(1))[0], embedded)


def test_no_noise_is_in_what_values_and_actor_read(model):
    """In the first row, where no noise of an earlier row has an effect: another sample of the state, the same features."""
    batch = tiny_batch(4, ROWS)
    embedded = model.embed(model.prepare(batch, seed(0)))
    ours, other = (model.observe(batch, seed(number))[0] for number in (1, 2))
    assert not np.allclose(ours.sample[:, 0], other.sample[:, 0])
    read = [model.behaviour_features(state, embedded)[:, 0] for state in (ours, other)]
    assert read[0].shape[-1] == model.behaviour_size
    np.testing.assert_allclose(read[0], tf.concat([ours.mean[:, 0], embedded[:, 0]], -1))
    np.testing.assert_allclose(*read, rtol=1e-5, atol=1e-6)


def by_hand(batch, features, discount):
    """Row by row: {(sequence, row): (reward, factor of the value, row of the value)} of what is known."""
    found = {}
    for sequence in range(len(batch["reward"])):
        for row in range(SKIPPED_ROWS, features.shape[1] - RETURN_STEPS):
            mask, end = batch["mask"][sequence], batch["is_terminal"][sequence]
            if not mask[row] or end[row]:
                continue
            total, factor = 0.0, 1.0
            for step in range(1, RETURN_STEPS + 1):
                if factor and not mask[row + step]:
                    break
                total += factor * batch["reward"][sequence, row + step]
                factor *= 0.0 if end[row + step] else discount
            else:
                found[sequence, row] = total, factor
    return found


def test_transitions_are_what_a_loop_over_rows_finds():
    """With an end of a task, an episode that a time limit cut, and padding after both."""
    batch = tiny_batch(4, ROWS)
    batch["is_terminal"][1, 5] = True
    batch["mask"][1, 6:] = False
    batch["mask"][2, 7:] = False
    batch["is_terminal"][3, 8] = True
    features = np.random.default_rng(0).normal(size=(4, ROWS, 6)).astype(np.float32)
    found = transitions(batch, tf.constant(features), 0.9)
    expected = by_hand(batch, features, 0.9)
    count = ROWS - SKIPPED_ROWS - RETURN_STEPS
    assert found.known.shape == (4 * count,) and len(expected) == int(np.sum(found.known)) == 13
    for (sequence, row), (reward, factor) in expected.items():
        place = sequence * count + row - SKIPPED_ROWS
        assert found.known[place] == 1.0
        np.testing.assert_allclose(found.reward[place], reward, rtol=1e-5)
        np.testing.assert_allclose(found.discount[place], factor, rtol=1e-6)
        np.testing.assert_array_equal(found.features[place], features[sequence, row])
        np.testing.assert_array_equal(found.following[place], features[sequence, row + RETURN_STEPS])
        np.testing.assert_array_equal(found.action[place], batch["action"][sequence, row + 1])


def test_a_value_is_the_rewards_and_the_least_of_two_targets_of_what_the_actor_does(model):
    batch = tiny_batch(3, ROWS)
    features = seen_by(model, batch)
    after = transitions(batch, features, model.config.loss.value_discount)
    model.see_rewards(batch)
    found = value_targets(model, after, seed(2))
    noise = np.clip(0.2 * tf.random.stateless_normal([*after.action.shape], seed(2)).numpy(), -0.3, 0.3)
    action = np.clip(np.clip(model.policy(after.following)[0], -1, 1) + noise, -1, 1)
    heads = [head(tf.concat([after.following, action], -1)).numpy() for head in model.target_heads]
    discount = model.config.loss.value_discount
    expected = (1 - discount) * after.reward + after.discount * np.minimum(*heads)
    least, largest = batch["reward"].min(), batch["reward"].max()
    np.testing.assert_allclose(found, np.clip(expected, least, largest), atol=1e-4)


def test_values_stay_between_the_rewards_that_were_seen(model):
    batch = tiny_batch(2, ROWS)
    batch["reward"][:] = 0.25
    batch["reward"][0, 0] = np.nan
    batch["reward"][1, 8] = 7.0
    batch["mask"][1, 8] = False
    fresh = tiny_model(acting())
    fresh.see_rewards(batch)
    assert float(fresh.least_reward) == float(fresh.largest_reward) == 0.25
    batch = tiny_batch(2, ROWS)
    batch["reward"][:] = 0.25
    after = transitions(batch, seen_by(fresh, batch), 0.97)
    np.testing.assert_array_equal(value_targets(fresh, after, seed(2)), np.full(after.reward.shape, 0.25, np.float32))


def test_what_is_not_known_does_not_count(model):
    batch = tiny_batch(2, ROWS)
    features = seen_by(model, batch)
    whole = transitions(batch, features, 0.97)
    target = tf.random.stateless_normal(whole.reward.shape, seed(3))
    batch["mask"][1, 4:] = False
    half = transitions(batch, features, 0.97)
    count = len(whole.known) // 2
    first = whole._replace(**{name: value[:count] for name, value in whole._asdict().items()})
    np.testing.assert_allclose(
        action_value_nll(model, half, target), action_value_nll(model, first, target[:count]), rtol=1e-5
    )


def test_the_actor_climbs_the_value_of_its_actions():
    """On a value that is highest at an action of 0.4 and -0.7."""
    model = tiny_model(acting())
    best = tf.constant([0.4, -0.7])
    model.action_rate = lambda features, action: -tf.reduce_sum(tf.square(action - best), -1)
    batch = tiny_batch(3, ROWS)
    after = transitions(batch, seen_by(model, batch), 0.97)
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
    np.testing.assert_allclose(model.policy(after.features)[0], np.tile(best, [len(after.known), 1]), atol=0.1)


def test_a_learner_moves_targets_after_every_update_of_the_values():
    learner = Learner(tiny_model(acting()), acting())
    model = learner.trained
    frozen = [
        variable for head in model.target_heads for layer in head.layers for variable in (layer.kernel, layer.bias)
    ]
    assert not {id(each) for each in frozen} & {id(each) for each in learner.variables}
    before = [variable.numpy() for variable in frozen]
    learner.update(tiny_batch(3, ROWS), 100)
    for target, old, value in zip(frozen, before, model.value_variables, strict=True):
        np.testing.assert_allclose(target, old + 0.01 * (value.numpy() - old), atol=1e-7, err_msg=target.name)
    changed = [
        np.abs(variable.numpy() - old).max() for variable, old in zip(model.value_variables, before, strict=True)
    ]
    assert min(changed) > 0


def test_the_value_of_a_state_is_that_of_the_actors_action(model):
    features = tf.random.stateless_normal([4, model.behaviour_size], seed(5))
    action = tf.clip_by_value(model.policy(features)[0], -1.0, 1.0)
    rates = [model.heads[name](tf.concat([features, action], -1)) for name in ("value", "value_2")]
    np.testing.assert_allclose(model.reward_rate(features), np.minimum(*rates), atol=1e-4)


def test_a_batch_of_short_sequences_is_refused(model):
    batch = tiny_batch(2, 5)
    with pytest.raises(ValueError, match=r"sequences of 5 rows\. Accepted with model\.action_value=true: 6 or more"):
        transitions(batch, tf.zeros([2, 5, 8]), 0.9)


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"model\.action_value is True\. Accepted: false without model\.policy=true"):
        Config(model=ModelConfig(value=True, action_value=True))
    acts = ModelConfig(**ACTS)
    with pytest.raises(ValueError, match=r"planner\.value_scale is 0\.5\. Accepted: 0 with model\.action_value=true"):
        Config(model=acts, planner=PlannerConfig(value_scale=0.5))
    with pytest.raises(
        ValueError, match=r"planner\.policy_candidates is 4\. Accepted: 0 with model\.action_value=true"
    ):
        Config(model=acts, planner=PlannerConfig(method="icem", policy_candidates=4))
    with pytest.raises(ValueError, match=r"train\.sequence_length is 5\. Accepted: 6 or more with model\.action_value"):
        Config(model=ModelConfig(**ACTS), train=TrainConfig(sequence_length=5))


def test_the_values_error_reaches_the_encoder_and_nothing_else_of_the_world_model(model):
    """The gradient of the sum of losses, less that of the world model's loss, against the values' error by itself."""
    batch = tiny_batch(4, ROWS)
    variables = list(model.trainable_variables)
    options = {
        "seed": seed(1),
        "weight_seed": seed(2),
        "num_data": tf.constant(100.0),
        "weight_kl_scale": tf.constant(1.0),
    }
    with tf.GradientTape() as tape:
        terms = model.loss(batch, **options)
    alone = tape.gradient(terms.total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    _, together = loss_and_gradients(model, variables, batch, **options)
    with tf.GradientTape() as tape:
        embedded = model.embed(model.prepare(batch, tf.random.experimental.stateless_fold_in(seed(1), 0)))
        after = transitions(
            batch, model.behaviour_features(terms.seen.posterior, embedded), model.config.loss.value_discount
        )
        target = value_targets(model, after, tf.random.experimental.stateless_fold_in(seed(1), 6))
        error = model.config.loss.reward_scale * action_value_nll(model, after, target)
    encoder = [
        variable for each in model.encoders.values() for layer in each.layers for variable in layer.trainable_variables
    ]
    expected = {id(each): value for each, value in zip(encoder, tape.gradient(error, encoder), strict=True)}
    assert all(float(tf.norm(value)) > 0 for value in expected.values())
    own = {id(variable) for variable in model.behaviour_variables}
    for variable, sum_of_both, part in zip(variables, together, alone, strict=True):
        if id(variable) not in own:
            added = expected.get(id(variable), 0.0)
            np.testing.assert_allclose(sum_of_both - part, added, rtol=1e-3, atol=1e-4, err_msg=variable.name)
