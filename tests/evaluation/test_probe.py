"""Probes: what is there is found, what is not is not, and no episode is judged by a probe that saw it."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.collecting.exploration import RandomPolicy
from bayes_planet.config import EnvConfig
from bayes_planet.envs import Workers
from bayes_planet.evaluation import probe as module
from bayes_planet.evaluation.held_out import collect, windows
from bayes_planet.evaluation.probe import fit_probe, latents, probe_velocities, r_squared
from bayes_planet.world_model import State
from tests.world_model.tiny import IMAGE_SHAPES, STATE_SHAPES, seed, silence, tiny_batch, tiny_config, tiny_model


def episodes_of(count: int, rows: int, size: int, random: np.random.Generator) -> list[np.ndarray]:
    return [random.normal(size=(rows, size)) for _ in range(count)]


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_linear_targets_are_found_and_shuffled_ones_are_not(kind):
    random = np.random.default_rng(0)
    features = episodes_of(6, 200, 4, random)
    matrix = random.normal(size=(4, 3))
    targets = [one @ matrix + 7.0 for one in features]
    assert fit_probe(features, targets, kind).r2.min() > {"linear": 0.999, "mlp": 0.98}[kind]
    shuffled = [random.permutation(one) for one in targets]
    assert np.abs(fit_probe(features, shuffled, kind).r2).max() < 0.1


def test_only_the_mlp_finds_what_is_not_linear():
    random = np.random.default_rng(1)
    features = episodes_of(5, 400, 2, random)
    targets = [np.abs(one[:, :1]) for one in features]
    assert fit_probe(features, targets, "linear").mean_r2 < 0.1
    assert fit_probe(features, targets, "mlp").mean_r2 > 0.9


def test_whole_episodes_are_held_out():
    """Features that name the episode, targets that are constant in it: known within, unknown outside."""
    random = np.random.default_rng(2)
    features = [np.eye(8)[[number] * 50] for number in range(8)]
    targets = [np.full((50, 1), random.normal()) for _ in range(8)]
    assert fit_probe(features, targets, "linear").mean_r2 < 0


def test_the_penalty_is_chosen_between_episodes():
    """Features that tell the episode explain targets within it; only a large penalty does no harm outside."""
    random = np.random.default_rng(5)
    features = [np.repeat(random.normal(size=(1, 5)), 40, 0) + 0.01 * random.normal(size=(40, 5)) for _ in range(8)]
    targets = [random.normal() + 0.01 * random.normal(size=(40, 1)) for _ in range(8)]
    assert fit_probe(features, targets, "linear").mean_r2 > -2.0  # -15 where it is chosen row by row


def test_predictions_are_in_their_place():
    random = np.random.default_rng(3)
    features = [random.normal(size=(rows, 2)) for rows in (60, 90, 30)]
    targets = [one[:, ::-1] for one in features]
    probe = fit_probe(features, targets)
    for predicted, true in zip(probe.predicted, targets):
        np.testing.assert_allclose(predicted, true, atol=0.05)


def test_r_squared_is_its_formula():
    random = np.random.default_rng(4)
    true, predicted = random.normal(size=(50, 3)), random.normal(size=(50, 3))
    expected = 1 - np.square(true - predicted).sum(0) / np.square(true - true.mean(0)).sum(0)
    true[:, 2] = 5.0
    np.testing.assert_allclose(r_squared(true, predicted)[:2], expected[:2], rtol=1e-10)
    assert r_squared(true, predicted)[2] == 0.0


def test_latents_are_those_of_the_filter():
    model = tiny_model()
    batch = tiny_batch(2, 6)
    found = latents(model, [{key: value[number] for key, value in batch.items()} for number in range(2)], seed(3))
    assert (
        found[0]["belief"].shape == (6, 5) and found[0]["sample"].shape == (6, 3) and found[1]["both"].shape == (6, 8)
    )
    posterior, _ = model.observe({key: value[:1] for key, value in batch.items()}, seed(8))
    # The first belief has seen no noise yet.
    np.testing.assert_allclose(found[0]["belief"][0], posterior.belief[0, 0], atol=1e-6)


def test_latents_of_episodes_of_any_length_are_those_of_each_alone_and_traced_once():
    shapes = {**IMAGE_SHAPES, **STATE_SHAPES}
    model, batch = tiny_model(shapes=shapes), tiny_batch(3, 9, shapes)
    episodes = [{key: value[number, :rows] for key, value in batch.items()} for number, rows in enumerate((4, 9, 6))]
    before = module._filter.experimental_get_tracing_count()
    found = latents(model, episodes, seed(3))
    assert module._filter.experimental_get_tracing_count() - before == 1
    fold = tf.random.experimental.stateless_fold_in
    for number, episode in enumerate(episodes):
        one = {key: value[None] for key, value in episode.items()}
        posterior, _ = model.observe(one, fold(seed(3), number))
        np.testing.assert_allclose(found[number]["belief"], posterior.belief[0], atol=1e-5)
        np.testing.assert_allclose(found[number]["sample"], posterior.sample[0], atol=1e-5)


@pytest.mark.thorough
def test_episodes_that_end_early_are_left_out():
    """Of 30, 3, 8, 6 and 30 rows: the first 5 do not count, and one row is too few."""
    random, model = np.random.default_rng(0), tiny_model()
    lengths = (30, 3, 8, 6, 30)
    batch = tiny_batch(5, 30)
    episodes = [{key: value[number, :rows] for key, value in batch.items()} for number, rows in enumerate(lengths)]
    velocities = [random.normal(size=(rows, 2)) for rows in lengths]
    result = probe_velocities(model, episodes, velocities, np.int32([0, 1]))
    assert result.episodes == (0, 2, 4) and result.skipped == 5
    for number, place in enumerate(result.episodes):
        np.testing.assert_array_equal(result.true[number], velocities[place][5:])
        assert result.probes["both"]["mlp"].predicted[number].shape == (lengths[place] - 5, 2)
    # The same as without the others.
    alone = probe_velocities(model, episodes[::2], velocities[::2], np.int32([0, 1]))
    for part in ("belief", "sample", "both"):
        for kind in ("linear", "mlp"):
            np.testing.assert_allclose(result.probes[part][kind].r2, alone.probes[part][kind].r2, rtol=1e-6)
    # Each with the velocities of the next: as many rows as both have.
    assert [len(one) for one in result.control.predicted] == [3, 3, 25]
    with pytest.raises(ValueError, match="1 of 3 episodes have 7 rows or more.* two or more"):
        probe_velocities(model, episodes[1:4], velocities[1:4], np.int32([0, 1]))
    # Two rows each are little, but no error.
    short = [{key: value[:7] for key, value in one.items()} for one in episodes[::4]]
    result = probe_velocities(model, short, [one[:7] for one in velocities[::4]], np.int32([0, 1]))
    assert result.episodes == (0, 1) and np.isfinite(result.control.r2).all()


class Fixed(tf.Module):
    """Its latent state is the first entries of the observation: first the sample, then the belief."""

    observation_shapes = STATE_SHAPES

    def __init__(self, sample: int, belief: int):
        super().__init__()
        self._sizes = sample, belief

    def observe(self, batch, seed, weights=None):
        sample, belief = (batch["state"][..., :size] for size in self._sizes)
        state = State(sample, tf.ones_like(sample), sample, belief)
        return state, state


@pytest.mark.parametrize(("sample", "belief", "left"), [(3, 0, "sample"), (0, 3, "belief")])
def test_a_part_of_size_0_is_left_out(sample, belief, left):
    batch = tiny_batch(3, 30)
    episodes = [{key: value[number] for key, value in batch.items()} for number in range(3)]
    velocities = [one["state"][:, :2] * 2.0 for one in episodes]
    result = probe_velocities(Fixed(sample, belief), episodes, velocities, np.int32([0, 1]))
    assert list(result.probes) == [left, "both"]
    expected = fit_probe([one["state"][5:] for one in episodes], [one[5:] for one in velocities], seed=0)
    for part in (left, "both"):
        np.testing.assert_allclose(result.probes[part]["linear"].r2, expected.r2, rtol=1e-6)
        assert expected.r2.min() > 0.99
    with pytest.raises(ValueError, match="belief and sample both have size 0. Accepted: a latent state of some size"):
        probe_velocities(Fixed(0, 0), episodes, velocities, np.int32([0, 1]))


def test_episodes_without_rows_count_for_nothing():
    random = np.random.default_rng(6)
    features = [random.normal(size=(rows, 2)) for rows in (0, 60, 90, 30)]
    targets = [one[:, ::-1] for one in features]
    probe = fit_probe(features, targets)
    assert [one.shape for one in probe.predicted] == [(0, 2), (60, 2), (90, 2), (30, 2)]
    np.testing.assert_array_equal(probe.r2, fit_probe(features[1:], targets[1:]).r2)
    with pytest.raises(ValueError, match="two or more with rows"):
        fit_probe(features[:2], targets[:2])


@pytest.fixture(scope="module")
def cartpole():
    """Held-out episodes of a simulator whose state observation ends with its velocities."""
    env = EnvConfig("dm_control/cartpole-swingup", observations="state", action_repeat=4, episode_env_steps=600)
    with Workers(env, 2, diagnostics=True) as workers:
        return collect(workers, lambda number, explore: RandomPolicy(1, 0, number), [3, 4, 5, 6, 7])


def test_collected_velocities_belong_to_their_rows(cartpole):
    assert cartpole.names == ("slider", "hinge_1") and cartpole.units == ("m/s", "rad/s")
    assert cartpole.noisy == (False, False, False, True, True)
    assert len(cartpole.episodes) == len(cartpole.velocities) == 5
    for episode, velocities in zip(cartpole.episodes, cartpole.velocities):
        assert velocities.shape == (151, 2)
        # bounded position, cos, sin, then the two velocities
        np.testing.assert_allclose(episode["state"][:, -2:], velocities, rtol=1e-5, atol=1e-6)
    assert len({round(value, 6) for value in cartpole.returns}) == 5


def test_a_simulator_state_with_the_velocity_gives_it_away(cartpole):
    states = [episode["state"] for episode in cartpole.episodes]
    assert fit_probe(states, cartpole.velocities, "linear").r2.min() > 0.99
    random = np.random.default_rng(0)
    shuffled = [random.permutation(one) for one in cartpole.velocities]
    assert np.abs(fit_probe(states, shuffled, "linear").r2).max() < 0.05
    # Positions alone do not tell.
    assert fit_probe([state[:, :3] for state in states], cartpole.velocities, "linear").r2.max() < 0.5


def test_probe_of_a_world_model(cartpole):
    model = tiny_model(tiny_config(), {"state": (5,)})
    silence(model.rssm)
    padded = [{**one, "action": np.repeat(one["action"], 2, 1)} for one in cartpole.episodes]
    result = probe_velocities(model, padded, cartpole.velocities, np.array([0, 1], np.int32), skip=4, kinds=("linear",))
    assert set(result.probes) == {"belief", "sample", "both"} and result.skipped == 4
    for true, predicted in zip(result.true, result.probes["both"]["linear"].predicted):
        assert true.shape == predicted.shape == (147, 2)
    for number, velocities in enumerate(cartpole.velocities):
        np.testing.assert_array_equal(result.true[number], velocities[4:])
    # Even a random filter keeps something of the velocities it is shown; the velocities of another episode are not there.
    assert result.probes["both"]["linear"].mean_r2 > 0.3
    assert result.control.mean_r2 < 0.1


def test_windows_are_rows_of_one_episode_at_the_stride():
    rows = [{"reward": 100 * number + np.arange(length)} for number, length in enumerate((10, 4, 13))]
    batch, owners = windows(rows, 6, 3)
    expected = [
        100 * number + np.arange(start, start + 6) for number, start in ((0, 0), (0, 3), (2, 0), (2, 3), (2, 6))
    ]
    np.testing.assert_array_equal(batch["reward"], expected)
    np.testing.assert_array_equal(owners, [0, 0, 2, 2, 2])
    some, owners = windows(rows, 6, 3, limit=2)
    np.testing.assert_array_equal(some["reward"], [expected[0], expected[4]])
    with pytest.raises(ValueError, match="longest episode's, 13"):
        windows(rows, 14, 1)


def test_bad_input_says_what_is_accepted():
    x = [np.zeros((5, 2))] * 2
    with pytest.raises(ValueError, match="linear or mlp"):
        fit_probe(x, x, "forest")
    with pytest.raises(ValueError, match="two or more"):
        fit_probe(x[:1], x[:1])
    with pytest.raises(ValueError, match="rows"):
        fit_probe(x, [np.zeros((5, 2)), np.zeros((4, 2))])
    with pytest.raises(ValueError, match="finite"):
        fit_probe(x, [np.full((5, 2), np.nan)] * 2)
    with pytest.raises(ValueError, match="No seeds"):
        collect(None, lambda number, explore: None, [])
