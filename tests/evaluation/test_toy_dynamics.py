"""An epistemic signal that means something: a Bayesian dynamics model trained on half of its state space."""

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.evaluation.uncertainty import total_variance

NOISE = 0.05
LEFT, RIGHT = (-2.0, -0.2), (0.2, 2.0)


class Dynamics(tf.Module):
    """Change of (position, velocity) by a small relu network with random weights; samples have a leading axis."""

    def __init__(self):
        super().__init__("dynamics")

        def dense(units, activation):
            return bayesian_layers.DenseReparameterization(
                units,
                activation,
                kernel_initializer=initializers.TrainableNormal("he_uniform", 0.05),
                kernel_regularizer=regularizers.FanInNormalKLDivergence(stddev=1.4),
            )

        self.layers = [dense(50, "relu"), dense(2, None)]
        for layer, size in zip(self.layers, (3, 50)):
            layer.build([None, size])

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    """A pendulum-like world: states (position, velocity) [..., 2], actions [..., 1]."""
    velocity = 0.9 * state[..., 1] - 0.3 * np.sin(2 * state[..., 0]) + 0.2 * action[..., 0]
    return np.stack([state[..., 0] + 0.3 * velocity, velocity], -1)


def inputs(count: int, positions: tuple[float, float], generator: np.random.Generator) -> np.ndarray:
    draws = [generator.uniform(*positions, count), *generator.uniform(-1, 1, (2, count))]
    return np.stack(draws, -1).astype(np.float32)


def trained(x: np.ndarray, updates: int = 800) -> Dynamics:
    """Fitted to noisy transitions from states and actions `x` by the negative ELBO, four weight draws an update."""
    tf.keras.utils.set_random_seed(0)
    model, optimizer = Dynamics(), tf.keras.optimizers.legacy.Adam(0.01)
    generator = np.random.default_rng(1)
    change = step(x[:, :2], x[:, 2:]) - x[:, :2] + NOISE * generator.normal(size=(len(x), 2))
    targets = change.astype(np.float32)

    @tf.function(autograph=False)
    def update(batch, target, seed):
        with tf.GradientTape() as tape:
            with bayesian_layers.use_weights(bayesian_layers.sample_weights(model, seed, samples=4)):
                error = (model(batch[None]) - target) / NOISE
            divergence = tf.add_n([value for layer in model.layers for value in layer.kl_terms().values()])
            loss = 0.5 * tf.reduce_mean(tf.reduce_sum(tf.square(error), -1)) + divergence / len(x)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    for number in range(updates):
        rows = generator.integers(len(x), size=min(len(x), 128))
        update(tf.constant(x[rows]), tf.constant(targets[rows]), tf.constant([number, 1]))
    return model


def epistemic(model: Dynamics, positions: tuple[float, float], draws: int = 64) -> float:
    """Mean epistemic variance of the next state, predicted with the world's noise on top of the network."""
    generator = np.random.default_rng(2)
    x = inputs(200, positions, generator)
    weights = bayesian_layers.sample_weights(model, tf.constant([9, 9]), samples=draws)
    with bayesian_layers.use_weights(weights):
        means = model(tf.constant(x)[None]).numpy()
    noise = NOISE * generator.normal(size=(1, 4, *means.shape[1:]))
    parts = total_variance(means[:, None] + noise)
    np.testing.assert_allclose(parts.aleatoric.mean(), NOISE**2, rtol=0.1)
    return float(parts.epistemic.mean())


@pytest.mark.thorough
def test_epistemic_part_is_larger_where_there_was_no_data_and_falls_as_there_is():
    """On one machine: 0.003 and 0.002 on the left with 40 and 400 transitions from there, about 0.2 on the right."""
    generator = np.random.default_rng(0)
    left, right = inputs(400, LEFT, generator), inputs(400, RIGHT, generator)
    few, many, both = trained(left[:40]), trained(left), trained(np.concatenate([left, right]))
    for model in (few, many):
        assert epistemic(model, RIGHT) > 3 * epistemic(model, LEFT)
    # More data of the same half, then data of the other half.
    assert epistemic(many, LEFT) < 0.7 * epistemic(few, LEFT)
    assert epistemic(both, RIGHT) < 0.1 * epistemic(many, RIGHT)
    assert epistemic(both, RIGHT) < 3 * epistemic(both, LEFT)


def test_it_is_not_the_side():
    """Trained on the other half, the larger part changes sides."""
    model = trained(inputs(400, RIGHT, np.random.default_rng(3)))
    assert epistemic(model, LEFT) > 3 * epistemic(model, RIGHT)
