"""One update on two mirrored devices against its parts computed alone. A program: two logical CPUs need a process."""

import gymnasium
import numpy as np
import tensorflow as tf

from bayes_planet.config import presets
from bayes_planet.training import learner as learner_module
from bayes_planet.training.build import build
from bayes_planet.training.learner import Learner
from tests.world_model.tiny import ACTION_VALUES, DENSE_LAYERS, tiny_batch, tiny_config, tiny_model

FOLD = tf.random.experimental.stateless_fold_in


def check(strategy: tf.distribute.Strategy) -> None:
    learner_module.CLIP_NORM = 2.0
    config = tiny_config(
        bayesian={"layers": DENSE_LAYERS, "initial_stddev": 0.2},
        loss={"free_nats": 0.0},
        train={"learning_rate": 1e-2},
    )
    with strategy.scope():
        model = tiny_model(config)
    learner = Learner(model, config, strategy)
    alone = tiny_model(config)
    for theirs, ours in zip(alone.variables, model.variables, strict=True):
        theirs.assign(ours)
    batch = tiny_batch(4, 3)
    batch["mask"][0, 1:] = False  # unequal rows: replica 0 has 4, replica 1 has 6

    # The parts: each half with its replica's seeds, the rows of both, and half of the weight KL.
    seed, weight_seed = learner.seeds(0)
    rows, gradients, expected = tf.constant(10.0), None, {}
    for replica in range(2):
        half = {key: value[2 * replica : 2 * replica + 2] for key, value in batch.items()}
        with tf.GradientTape() as tape:
            terms = alone.loss(
                half,
                seed=FOLD(seed, replica),
                weight_seed=FOLD(weight_seed, replica),
                num_data=tf.constant(50.0),
                weight_kl_scale=tf.constant(1.0),
                valid_steps=rows,
                replicas=2,
            )
        share = tape.gradient(terms.total, alone.trainable_variables)
        gradients = share if gradients is None else [a + b for a, b in zip(gradients, share, strict=True)]
        expected = {key: expected.get(key, 0.0) + float(value) for key, value in terms.metrics.items()}
    norm = float(tf.linalg.global_norm(gradients))
    assert norm > 2.0, norm  # so that clipping matters, on the summed gradient

    metrics = learner.update(batch, 50)
    for key, value in expected.items():
        np.testing.assert_allclose(metrics[key], value, rtol=1e-4, err_msg=key)
    np.testing.assert_allclose(metrics["gradient_norm"], norm, rtol=1e-4)
    assert float(metrics["skipped"]) == 0.0
    kl = sum(float(value) for value in alone.weight_kl().values())
    np.testing.assert_allclose(metrics["loss/weight_kl"], kl / 50.0, rtol=1e-4)
    # The belief as the update leaves it.
    kl = sum(float(value) for value in model.weight_kl().values())
    np.testing.assert_allclose(metrics["weight_kl/total"], kl, rtol=1e-4)

    epsilon = config.train.adam_epsilon
    optimizer = tf.keras.optimizers.legacy.Adam(1e-2, epsilon=epsilon)
    gradients, _ = tf.clip_by_global_norm(gradients, 2.0)
    optimizer.apply_gradients(zip(gradients, alone.trainable_variables, strict=True))
    for ours, theirs in zip(model.trainable_variables, alone.trainable_variables, strict=True):
        np.testing.assert_allclose(ours.values[0], theirs, atol=2e-4, err_msg=theirs.name)
        np.testing.assert_array_equal(ours.values[0], ours.values[1])

    check_second_update(learner, batch)
    print("same with two replicas")


def check_average(strategy: tf.distribute.Strategy) -> None:
    """Both devices hold the average that the recurrence gives."""
    config = tiny_config(bayesian={"layers": DENSE_LAYERS}, train={"average_decay": 0.6, "learning_rate": 1e-2})
    with strategy.scope():
        trained, average = tiny_model(config), tiny_model(config)
    learner = Learner(trained, config, strategy, average)
    expected = [variable.numpy() for variable in trained.variables]
    for update in range(1, 4):
        learner.update(tiny_batch(4, 3, seed=update), 50)
        decay = (1 + update) / (10 + update)
        expected = [
            decay * old + (1 - decay) * new.numpy() for old, new in zip(expected, trained.variables, strict=True)
        ]
    for ours, value in zip(average.variables, expected, strict=True):
        np.testing.assert_allclose(ours.values[0], value, rtol=1e-5, atol=1e-6, err_msg=ours.name)
        np.testing.assert_array_equal(ours.values[0], ours.values[1])
    print("same average")


def check_action_values(strategy: tf.distribute.Strategy) -> None:
    """Targets are the same on both devices, and follow what both have learnt."""
    config = tiny_config(
        model=ACTION_VALUES, train={"sequence_length": 7, "behaviour_updates": 2, "learning_rate": 1e-2}
    )
    with strategy.scope():
        model = tiny_model(config)
    learner = Learner(model, config, strategy)
    first = [variable.numpy() for variable in model.behaviour_variables]
    targets = [each for head in model.target_heads for layer in head.layers for each in (layer.kernel, layer.bias)]
    starts = [target.numpy() for target in targets]
    batch = tiny_batch(4, 7)
    learner.update(batch, 50)
    for bound, expected in ((model.least_reward, batch["reward"].min()), (model.largest_reward, batch["reward"].max())):
        assert [float(value) for value in bound.values] == [expected, expected]
    for variable in (*model.behaviour_variables, *targets):
        np.testing.assert_array_equal(variable.values[0], variable.values[1], err_msg=variable.name)
    changed = [np.abs(new.numpy() - old).max() for new, old in zip(model.behaviour_variables, first, strict=True)]
    assert max(changed) > 0
    # Two updates went 1% of the way each.
    for target, old, new in zip(targets, starts, model.value_variables, strict=True):
        bound = 0.02 * np.abs(new.numpy() - old) + 3e-4
        assert np.all(np.abs(target.numpy() - old) <= bound), target.name
    print("same targets")


def check_second_update(learner: Learner, batch: dict) -> None:
    """A second update does not trace again, and a broken half is skipped on both devices."""
    model = learner.world_model
    before = [variable.numpy() for variable in model.trainable_variables]
    optimizer = [variable.numpy() for variable in learner.optimizer.variables()]
    batch["reward"][3, 0] = np.inf
    assert float(learner.update(batch, 50)["skipped"]) == 1.0
    for variable, old in zip(learner.optimizer.variables(), optimizer, strict=True):
        np.testing.assert_array_equal(variable.numpy(), old)
    assert learner.traces == 1
    assert int(learner.updates.numpy()) == 2
    for variable, old in zip(model.trainable_variables, before, strict=True):
        for value in variable.values:
            np.testing.assert_array_equal(value, old)
    odd = {key: value[:3] for key, value in batch.items()}
    try:
        learner.update(odd, 50)
    except ValueError as error:
        assert "multiple of the 2 replicas" in str(error)
    else:
        raise AssertionError("3 sequences were split over 2 replicas")


def check_acting_beside_a_learner() -> None:
    """A learner on another device than the host's, as on a TPU: XLA would refuse to plan with its variables."""
    config = presets.load(["bayes_planet", "debug"], ["env.observations=state", "train.xla=always"])
    observations = gymnasium.spaces.Dict({"state": gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)})
    actions = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    for strategy, compiled in ((None, True), (tf.distribute.OneDeviceStrategy("CPU:1"), False)):
        actor = build(config, observations, actions, strategy).actor
        assert actor.compile == compiled
        arguments = {"state": tf.zeros([1, 3])}, actor.initial_state(1), tf.constant([True]), tf.constant([1, 2])
        assert np.abs(actor(*arguments)[0]).max() > 0
    print("acts beside a learner elsewhere")


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # One for all: those of a second one would be taken for collectives of the first, of other shapes.
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    check(strategy)
    check_average(strategy)
    check_action_values(strategy)
    check_acting_beside_a_learner()


if __name__ == "__main__":
    main()
