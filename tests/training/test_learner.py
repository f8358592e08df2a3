"""One update: gradients, clipping, Adam, seeds, annealing, broken batches, XLA, several devices."""

import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.behaviour.learning import further_gradients, loss_and_gradients
from bayes_planet.config.constants import CLIP_NORM
from bayes_planet.planning import Actor
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.training.build import build
from bayes_planet.training.learner import Learner, clip_by_ratio
from tests.planning.portable_noise import portable_noise  # noqa: F401
from tests.world_model.tiny import (
    ACTION_SIZE,
    DENSE_LAYERS,
    IMAGE_SHAPES,
    STATE_SHAPES,
    tiny_batch,
    tiny_config,
    tiny_model,
)

FOLD = tf.random.experimental.stateless_fold_in
BAYESIAN = {"layers": DENSE_LAYERS, "initial_stddev": 0.1}


def make(shapes=STATE_SHAPES, **changes) -> Learner:
    config = tiny_config(**{"bayesian": BAYESIAN, **changes})
    return Learner(tiny_model(config, shapes), config)


def values(learner: Learner) -> list[np.ndarray]:
    return [variable.numpy() for variable in (*learner.variables, *learner.optimizer.variables())]


def test_an_update_is_a_clipped_step_of_adam(monkeypatch):
    """Loss, gradients and Adam's arithmetic (Kingma and Ba 2014; TensorFlow's epsilon-hat form) by hand, twice."""
    monkeypatch.setattr("bayes_planet.training.learner.CLIP_NORM", 3.0)
    learner = make(train={"learning_rate": 1e-2, "adam_epsilon": 1e-3}, loss={"free_nats": 0.0})
    model = learner.world_model
    first = [np.zeros(variable.shape) for variable in learner.variables]
    second = [np.zeros(variable.shape) for variable in learner.variables]
    for update in range(2):
        batch = tiny_batch(seed=update)
        seed, weight_seed = learner.seeds(update)
        with tf.GradientTape() as tape:
            # Replica 0 of 1.
            terms = model.loss(
                batch,
                seed=FOLD(seed, 0),
                weight_seed=FOLD(weight_seed, 0),
                num_data=tf.constant(70.0),
                weight_kl_scale=tf.constant(1.0),
            )
        gradients = [np.asarray(value, np.float64) for value in tape.gradient(terms.total, learner.variables)]
        norm = np.sqrt(sum(np.sum(gradient**2) for gradient in gradients))
        assert norm > 3.0
        expected = []
        for i, (variable, gradient) in enumerate(zip(learner.variables, gradients, strict=True)):
            gradient = gradient * 3.0 / norm
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.999 * second[i] + 0.001 * gradient**2
            rate = 1e-2 * np.sqrt(1 - 0.999 ** (update + 1)) / (1 - 0.9 ** (update + 1))
            expected.append(variable.numpy() - rate * first[i] / (np.sqrt(second[i]) + 1e-3))
        metrics = learner.update(batch, 70)
        np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-4)
        for key, value in terms.metrics.items():
            np.testing.assert_allclose(metrics[key], value, rtol=1e-4, err_msg=key)
        for variable, value in zip(learner.variables, expected, strict=True):
            np.testing.assert_allclose(variable, value, atol=2e-5, err_msg=variable.name)
    assert int(learner.updates.numpy()) == 2


@pytest.mark.thorough
def test_actor_and_value_may_learn_more_often_than_the_model():
    """The further steps by hand: Adam's arithmetic on gradients of rollouts with seeds of their own."""
    acting = {"model": {"value": True, "policy": True}, "loss": {"policy_horizon": 2}}
    thrice, once = (make(**acting, train={"behaviour_updates": each, "learning_rate": 1e-2}) for each in (3, 1))
    batch, model = tiny_batch(), once.trained
    seed, weight_seed = (FOLD(each, 0) for each in once.seeds(0))
    scales = {"num_data": tf.constant(70.0), "weight_kl_scale": tf.constant(1.0)}
    terms, _ = loss_and_gradients(model, [], batch, seed=seed, weight_seed=weight_seed, **scales)
    for learner in (thrice, once):
        learner.update(batch, 70)
    slots = [
        [once.optimizer.get_slot(variable, name).numpy() for name in "mv"] for variable in model.behaviour_variables
    ]
    for number in range(2):
        gradients = further_gradients(model, terms.seen, FOLD(seed, 100 + number))
        for place, (variable, gradient) in enumerate(zip(model.behaviour_variables, gradients, strict=True)):
            first, second = slots[place]
            first, second = slots[place] = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            rate = 1e-2 * np.sqrt(1 - 0.999**2) / (1 - 0.9**2)
            variable.assign_sub(rate * first / (np.sqrt(second) + once.config.train.adam_epsilon))
    assert int(thrice.optimizer.iterations) == 1
    for found, expected in zip(thrice.variables, once.variables, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=found.name)
    changed = [
        not np.allclose(*pair, atol=1e-5)
        for pair in zip(model.behaviour_variables, make(**acting).trained.behaviour_variables, strict=True)
    ]
    assert all(changed)


def test_gradients_are_clipped_to_a_share_of_their_variables():
    """Matrices alone, each by its own norm, and no variable's direction changes."""
    generator = np.random.default_rng(0)
    variables = [tf.Variable(generator.normal(size=shape), dtype=tf.float32) for shape in ([3, 4], [2, 5], [4], [])]
    gradients = [tf.constant(generator.normal(size=each.shape), tf.float32) for each in variables]
    gradients[1] *= 1e-3
    found = clip_by_ratio(gradients, variables, 0.3)
    bound = 0.3 * np.linalg.norm(variables[0])
    assert np.linalg.norm(gradients[0]) > bound
    np.testing.assert_allclose(found[0], gradients[0] * bound / np.linalg.norm(gradients[0]), rtol=1e-5)
    for place in (1, 2, 3):
        np.testing.assert_array_equal(found[place], gradients[place])
    still = clip_by_ratio([tf.ones([2, 2])], [tf.Variable(tf.zeros([2, 2]))], 0.3)
    np.testing.assert_allclose(np.linalg.norm(still[0]), 3e-4, rtol=1e-5)  # a layer of zeros can begin to learn


def test_defaults_are_the_papers():
    learner = Learner(tiny_model(), tiny_config())
    adam = learner.optimizer.get_config()
    assert (adam["learning_rate"], adam["epsilon"], adam["beta_1"], adam["beta_2"]) == (1e-3, 1e-4, 0.9, 0.999)
    assert CLIP_NORM == 1000.0


@pytest.mark.thorough
def test_metrics_say_what_the_belief_is():
    learner = make()
    metrics = learner.update(tiny_batch(), 100)
    kl = {key: float(value) for key, value in metrics.items() if key.startswith("weight_kl/")}
    scale, total = kl.pop("weight_kl/scale"), kl.pop("weight_kl/total")
    assert scale == 1.0 and len(kl) == len(DENSE_LAYERS)
    # Names of layers; a number follows where models of other tests are alive.
    assert all(any(key.startswith(f"weight_kl/{name}") for key in kl) for name in DENSE_LAYERS)
    np.testing.assert_allclose(total, sum(kl.values()), rtol=1e-6)
    stddevs = [float(value) for key, value in metrics.items() if key.startswith("weight_stddev/")]
    np.testing.assert_allclose(stddevs, [0.1] * len(DENSE_LAYERS), rtol=0.02)
    assert all(np.isfinite(value) and value.shape == () for value in metrics.values())
    plain = Learner(tiny_model(), tiny_config()).update(tiny_batch(), 100)
    assert not any("weight" in key for key in plain)


def test_a_broken_batch_is_skipped_counted_and_changes_nothing():
    learner = make()
    before = [variable.numpy() for variable in learner.variables]
    for value in (np.inf, np.nan):
        batch = tiny_batch()
        batch["reward"][0, 0] = value
        metrics = learner.update(batch, 100)
        assert float(metrics["skipped"]) == 1.0 and not np.isfinite(metrics["gradient_norm"])
    for variable, old in zip(learner.variables, before, strict=True):
        np.testing.assert_array_equal(variable, old)
    assert int(learner.updates.numpy()) == 2
    metrics = learner.update(tiny_batch(), 100)
    assert float(metrics["skipped"]) == 0.0 and np.isfinite(metrics["loss/total"])
    assert any(np.abs(variable - old).max() > 0 for variable, old in zip(learner.variables, before, strict=True))
    # In the middle of training too, where Adam has momentum, and its next step is the one that it would have been.
    optimizer = [variable.numpy() for variable in learner.optimizer.variables()]
    before = [variable.numpy() for variable in learner.variables]
    broken = tiny_batch()
    broken["reward"][0, 0] = np.inf
    for _ in range(3):
        learner.update(broken, 100)
    for now, old in zip([*learner.optimizer.variables(), *learner.variables], [*optimizer, *before], strict=True):
        np.testing.assert_array_equal(now, old)
    assert int(learner.optimizer.iterations) == 1 and int(learner.updates.numpy()) == 6


def test_seeds_are_a_function_of_run_and_update():
    learner = make(seed=5)
    for update in (0, 1, 1000):
        words = np.concatenate(learner.seeds(update))
        np.testing.assert_array_equal(words, seed_words(5, Stream.UPDATE, update, words=4))
    assert len({tuple(np.concatenate(learner.seeds(update))) for update in range(500)}) == 500
    other = make(seed=6)
    assert tuple(other.seeds(0)[0]) != tuple(learner.seeds(0)[0])


def test_the_scale_weighs_the_kl_and_no_value_traces_again():
    learner = make(bayesian={**BAYESIAN, "kl_scale": 0.375})
    for update in range(3):
        batch = tiny_batch(seed=update)
        batch["mask"][0, update + 1 :] = False
        np.testing.assert_allclose(learner.update(batch, 100 + update)["weight_kl/scale"], 0.375)
    kl = sum(float(value) for value in learner.world_model.weight_kl().values())
    metrics = learner.update(tiny_batch(), 200)
    np.testing.assert_allclose(metrics["loss/weight_kl"], 0.375 * kl / 200, rtol=1e-4)
    assert learner.traces == 1


def spaces(*names: str) -> tuple[gymnasium.spaces.Dict, gymnasium.spaces.Box]:
    known = {
        "image": gymnasium.spaces.Box(0, 255, (64, 64, 3), np.uint8),
        "state": gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32),
    }
    return (
        gymnasium.spaces.Dict({name: known[name] for name in names}),
        gymnasium.spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32),
    )


def test_the_same_seed_is_the_same_run():
    other = build(tiny_config(bayesian=BAYESIAN, seed=8), *spaces("state"))
    initial, runs = [], []
    for _ in range(2):
        parts = build(tiny_config(bayesian=BAYESIAN, seed=7), *spaces("state"))
        initial.append(values(parts.learner))
        assert parts.actor.planner.world_model is parts.learner.world_model is parts.world_model
        metrics = [parts.learner.update(tiny_batch(seed=update), 100) for update in range(2)]
        action, _ = parts.actor(
            {"state": tf.ones([1, 3])}, parts.actor.initial_state(1), tf.constant([True]), tf.constant([1, 2])
        )
        runs.append((values(parts.learner), [float(value) for value in metrics[-1].values()], action))
    for ours, theirs in zip(runs[0][0], runs[1][0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-5)
    np.testing.assert_allclose(runs[0][2], runs[1][2], atol=1e-4)
    for ours, theirs in zip(*initial, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert any(
        np.abs(ours - theirs).max() > 0.01 for ours, theirs in zip(initial[0], values(other.learner), strict=True)
    )


def test_build_reads_the_spaces_and_the_precision():
    parts = build(tiny_config(train={"precision": "bfloat16"}), *spaces("image", "state"))
    assert parts.world_model.observation_shapes == {"image": (64, 64, 3), "state": (3,)}
    assert parts.world_model.rssm.action_size == ACTION_SIZE
    assert parts.world_model.rssm.prior_hidden.compute_dtype == "bfloat16"
    assert isinstance(parts.actor, Actor)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("shapes", "bayesian"),
    [
        pytest.param({**IMAGE_SHAPES, **STATE_SHAPES}, {**BAYESIAN, "layers": ["gru", *DENSE_LAYERS]}, id="image"),
        pytest.param(
            STATE_SHAPES,
            {**BAYESIAN, "layers": ["prior_input", "prior_mean"], "estimator": "flipout"},
            id="flipout",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_whole_update_compiles_and_is_the_uncompiled_one(shapes, bayesian, portable_noise):  # noqa: F811
    """Loss, gradients and metrics as one XLA program; noise that both compute alike."""
    learners = [
        make(shapes, bayesian=bayesian, train={"xla": jit, "precision": "float32"}, loss={"free_nats": 0.0})
        for jit in ("never", "always")
    ]
    for update in range(2):
        batch = tiny_batch(2, 2, shapes, seed=update)
        expected, compiled = (learner.update(batch, 100) for learner in learners)
        for (name, value), (_, wanted) in zip(compiled.items(), expected.items(), strict=True):
            np.testing.assert_allclose(value, wanted, rtol=2e-3, atol=1e-4, err_msg=name)
    for ours, theirs in zip(*(learner.variables for learner in learners), strict=True):
        # A step of Adam is at most about the learning rate, 1e-3, in either direction; near-zero gradients may differ.
        np.testing.assert_allclose(ours, theirs, atol=1.5e-3, err_msg=ours.name)
        assert np.mean(np.abs(ours - theirs)) < 1e-4, ours.name


@pytest.mark.thorough
def test_two_devices_are_the_sum_of_their_parts():
    result = subprocess.run(
        [sys.executable, "-m", "tests.training.mirrored_learner"],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines() == [
        "same with two replicas",
        "same average",
        "same targets",
        "acts beside a learner elsewhere",
    ]


@pytest.mark.thorough
def test_loss_gradients_clipping_and_optimizer_are_one_xla_program():
    """What a TPU needs: one replica's whole step without a host call or a dynamic shape."""
    learner = make()
    step = tf.function(learner.replica_step, jit_compile=True, autograph=False)
    batch = learner.distribute(tiny_batch(2, 2, STATE_SHAPES, seed=0))
    before = [variable.numpy() for variable in learner.variables]
    for seed in range(2):
        words = tf.constant([1, seed])
        metrics = step(batch, words, words, tf.constant(100.0), tf.constant(1.0), tf.constant(4.0))
        assert np.isfinite(float(metrics["loss/total"]))
    assert step.experimental_get_tracing_count() == 1
    assert int(learner.optimizer.iterations) == 2
    after = [variable.numpy() for variable in [*learner.variables, *learner.optimizer.variables()]]
    broken = batch | {"reward": batch["reward"] * np.inf}
    metrics = step(broken, words, words, tf.constant(100.0), tf.constant(1.0), tf.constant(4.0))
    assert float(metrics["skipped"]) == 1.0 and step.experimental_get_tracing_count() == 1
    for variable, old in zip([*learner.variables, *learner.optimizer.variables()], after, strict=True):
        np.testing.assert_array_equal(variable, old)
    moved = [np.abs(ours - theirs).max() for ours, theirs in zip(learner.variables, before, strict=True)]
    assert np.mean(np.array(moved) > 0) > 0.9 and max(moved) < 1e-2
