"""Running statistics of states, and what the world model does with them."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.training.learner import Learner
from bayes_planet.world_model.networks.normaliser import StateNormaliser
from tests.world_model.tiny import IMAGE_SHAPES, STATE_SHAPES, STATE_SIZE, seed, tiny_batch, tiny_config, tiny_model

EPISODES = dict(enumerate((7, 2, 30, 11)))


def states(index: int) -> np.ndarray:
    """Episodes of different lengths; the second entry is far from 0, the third one never changes."""
    generator = np.random.default_rng(index)
    values = generator.normal([0.0, 1000.0, 5.0], [3.0 + index, 0.1, 0.0], (EPISODES[index], STATE_SIZE))
    return values.astype(np.float32)


def caught_up(*indices: int) -> StateNormaliser:
    normaliser = StateNormaliser(STATE_SIZE)
    for count in range(1, len(indices) + 1):
        normaliser.catch_up(indices[:count], states)
    return normaliser


def values(normaliser: StateNormaliser) -> list[np.ndarray]:
    return [variable.numpy() for variable in normaliser.variables]


def test_statistics_are_those_of_all_states():
    normaliser = caught_up(0, 1, 2, 3)
    every = np.concatenate([states(index) for index in EPISODES]).astype(np.float64)
    np.testing.assert_allclose(normaliser.mean, every.mean(0), rtol=1e-6)
    np.testing.assert_allclose(normaliser.variance, every.var(0), rtol=1e-4)  # 1000 +- 0.1 in float32
    assert (int(normaliser.rows), int(normaliser.episodes), int(normaliser.last)) == (50, 4, 3)
    scaled = normaliser.normalise(every).numpy()
    np.testing.assert_allclose(scaled.mean(0), 0.0, atol=2e-3)
    np.testing.assert_allclose(scaled.std(0), [1.0, 1.0, 0.0], atol=1e-3)


def test_they_are_a_function_of_the_episodes_not_of_the_calls():
    """As after a resumed run, which takes in at once what the uninterrupted one took in one by one."""
    at_once = StateNormaliser(STATE_SIZE)
    at_once.catch_up([0, 1, 2, 3], states)
    for ours, theirs in zip(values(at_once), values(caught_up(0, 1, 2, 3))):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("history", "now"), [([0, 1, 2, 3], [0, 2, 3]), ([0, 2, 3], [0, 1, 2, 3]), ([0, 1, 2], [0, 1]), ([0, 1], [2, 3])]
)
def test_an_episode_that_is_lost_or_late_starts_them_anew(history, now):
    normaliser = caught_up(*history)
    normaliser.catch_up(now, states)
    expected = StateNormaliser(STATE_SIZE)
    expected.catch_up(now, states)
    for ours, theirs in zip(values(normaliser), values(expected)):
        np.testing.assert_array_equal(ours, theirs)


def test_before_the_first_episode_nothing_is_scaled():
    state = np.array([[1.0, -2.0, 0.5]], np.float32)
    normaliser = StateNormaliser(STATE_SIZE)
    np.testing.assert_array_equal(normaliser.normalise(state), state)
    np.testing.assert_array_equal(normaliser.restore_units(state), state)


def test_what_is_far_away_is_clipped_and_the_way_back_restores_units():
    normaliser = caught_up(0, 1, 2, 3)
    far = normaliser.restore_units(tf.constant([[3.0, -25.0, 0.0]]))
    np.testing.assert_allclose(normaliser.normalise(far), [[3.0, -10.0, 0.0]], atol=2e-3)
    assert np.isfinite(normaliser.normalise([[0.0, 0.0, 1e9]])).all()


@pytest.mark.parametrize("wrong", [np.zeros((0, 3)), np.zeros(3), np.zeros((2, 4))])
def test_states_of_another_shape_are_refused(wrong):
    with pytest.raises(ValueError, match=r"shape .*Accepted: \[N, 3\]"):
        StateNormaliser(STATE_SIZE).add(wrong)


def test_the_model_sees_and_predicts_normalised_states():
    """Shifted and scaled states, with their statistics, are the same to the model as standard ones without."""
    plain, scaled = tiny_model(), tiny_model()
    batch = tiny_batch()
    rows = batch["state"].reshape(-1, STATE_SIZE)
    batch["state"] = ((batch["state"] - rows.mean(0)) / rows.std(0)).astype(np.float32)
    other = {**batch, "state": batch["state"] * np.float32([2.0, 0.01, 300.0]) + np.float32([5.0, -1.0, 0.0])}
    scaled.normaliser.add(other["state"].reshape(-1, STATE_SIZE))
    arguments = {"num_data": tf.constant(9.0), "weight_kl_scale": tf.constant(1.0)}
    ours, theirs = (
        model.loss(data, seed=seed(1), weight_seed=seed(2), **arguments)
        for model, data in ((scaled, other), (plain, batch))
    )
    for key, value in theirs.metrics.items():
        np.testing.assert_allclose(ours.metrics[key], value, rtol=1e-4, err_msg=key)
    features = tf.random.stateless_normal([4, plain.rssm.feature_size], [1, 2])
    decoded = plain.decode(features)["state"]
    np.testing.assert_allclose(scaled.decode(features, normalised=True)["state"], decoded, rtol=1e-5)
    expected = decoded * [2.0, 0.01, 300.0] + [5.0, -1.0, 0.0]
    np.testing.assert_allclose(scaled.decode(features)["state"], expected, rtol=1e-3, atol=1e-3)


def test_only_models_of_states_have_statistics():
    pixels = tiny_model(shapes=IMAGE_SHAPES)
    assert pixels.normaliser is None
    assert not [variable.name for variable in pixels.variables if "normaliser" in variable.name]
    assert tiny_model(shapes=STATE_SHAPES | IMAGE_SHAPES).normaliser is not None


def test_they_are_saved_and_not_trained(tmp_path):
    model, other = tiny_model(), tiny_model(seed=1)
    model.normaliser.catch_up([0, 2], states)
    assert not {id(variable) for variable in model.normaliser.variables} & {id(v) for v in model.trainable_variables}
    tf.train.Checkpoint(model=model).write(str(tmp_path / "saved"))
    tf.train.Checkpoint(model=other).read(str(tmp_path / "saved")).assert_consumed()
    for ours, theirs in zip(values(model.normaliser), values(other.normaliser)):
        np.testing.assert_array_equal(ours, theirs)


def test_on_a_strategys_devices_and_without_tracing_again():
    """A mirrored variable on each device; the compiled update sees the new statistics."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        model = tiny_model()
    learner = Learner(model, tiny_config(), strategy)
    batch = tiny_batch()
    first = learner.update(batch, 12)["loss/state"]
    traces = learner.traces
    model.normaliser.add(100.0 * batch["state"].reshape(-1, STATE_SIZE))
    shrunk = learner.update(batch, 12)["loss/state"]
    # States that are 100 times smaller than usual are all alike.
    assert learner.traces == traces
    assert abs(float(first) - float(shrunk)) > 0.1
