"""The yardstick: PlaNet as a TensorFlow user would write it, with Keras layers, tf.function and float32.

Deterministic weights, pixels, every row of a batch valid. Kept to what makes a good program: all frames go through the
encoder and decoder at once, only the filter is a loop (unrolled), and the prior is one product over all time steps.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.speed.yardsticks.sizes import DECODER_KERNELS, Sizes

Noise = Sequence[tuple[tf.Tensor, tf.Tensor]]


class PlainPlaNet(tf.Module):
    """The `planet` configuration: `update(batch)` trains, `plan(sample, belief)` searches.

    Args:
      sizes: see `Sizes`.
      weights: NumPy arrays by name, as `benchmarks.speed.ours.weights_of` gives them.
    """

    def __init__(self, sizes: Sizes, weights: Mapping[str, np.ndarray]):
        super().__init__("plain")
        self.sizes = sizes
        layers = tf.keras.layers
        channels = sizes.decoder_channels
        self.layers: dict[str, tf.keras.layers.Layer] = {}
        for index, depth in enumerate(sizes.encoder_channels[1:]):
            self.layers[f"convolution_{index}"] = layers.Conv2D(depth, 4, 2, activation="relu")
        self.layers["dense"] = layers.Dense(sizes.embedding)
        for index, kernel in enumerate(DECODER_KERNELS):
            activation = "relu" if index < 3 else None
            self.layers[f"deconvolution_{index}"] = layers.Conv2DTranspose(
                channels[index + 1], kernel, 2, activation=activation
            )
        self.layers["gru"] = layers.GRUCell(sizes.belief, reset_after=False)
        self.layers["prior_input"] = layers.Dense(sizes.hidden, "relu")
        for name in ("prior", "posterior"):
            self.layers[f"{name}_hidden"] = layers.Dense(sizes.hidden, "relu")
            self.layers[f"{name}_mean"] = layers.Dense(sizes.stochastic)
            self.layers[f"{name}_stddev"] = layers.Dense(sizes.stochastic)
        for index in range(sizes.reward_layers):
            self.layers[f"dense_{index}"] = layers.Dense(sizes.reward_units, "relu")
        self.layers["output"] = layers.Dense(1)
        self._build(weights)
        self.variables_in_order = [
            variable for _, layer in sorted(self.layers.items()) for variable in layer.trainable_variables
        ]
        self.optimizer = tf.keras.optimizers.Adam(sizes.learning_rate, epsilon=sizes.adam_epsilon)
        self.optimizer.build(self.variables_in_order)
        self.update = tf.function(self._update, autograph=False)
        self.plan = tf.function(self.search, autograph=False)

    def _build(self, weights: Mapping[str, np.ndarray]) -> None:
        sizes = self.sizes
        noise = tf.zeros([1, 1, sizes.stochastic])
        action, reward = tf.zeros([1, 1, sizes.action]), tf.zeros([1, 1])
        self.loss(tf.zeros([1, 1, 64, 64, 3]), action, reward, noise)
        for name, layer in self.layers.items():
            layer.set_weights([weights[f"{name}/{part}"] for part in _parts(name)])

    def preprocess(self, image: tf.Tensor) -> tf.Tensor:
        """uint8 to float32 in [-0.5, 0.5], at `image_bits` bits with uniform noise between their levels."""
        levels = 2.0**self.sizes.image_bits
        image = tf.floor(tf.cast(image, tf.float32) / (256.0 / levels)) / levels
        return image + tf.random.uniform(tf.shape(image)) / levels - 0.5

    def loss(self, image: tf.Tensor, action: tf.Tensor, reward: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        """The loss of arXiv:1811.04551 as google-research/planet has it.

        Args:
          image: float32 [B, T, 64, 64, 3], preprocessed.
          action: float32 [B, T, A] that led to the row.
          reward: float32 [B, T].
          noise: float32 [T, B, Z], standard normal, of the posterior's samples.
        """
        sizes, layers = self.sizes, self.layers
        batch, steps = image.shape[:2]
        x = tf.reshape(image, [-1, 64, 64, 3])
        for index in range(4):
            x = layers[f"convolution_{index}"](x)
        embedded = tf.reshape(x, [batch, steps, sizes.embedding])

        sample, belief = tf.zeros([batch, sizes.stochastic]), tf.zeros([batch, sizes.belief])
        rows = []
        for time in range(steps):
            belief = self._belief(sample, belief, action[:, time])
            mean, stddev = self._gaussian("posterior", tf.concat([belief, embedded[:, time]], -1))
            sample = mean + stddev * noise[time]
            rows.append((mean, stddev, sample, belief))
        mean, stddev, sample, belief = (tf.stack(values, 1) for values in zip(*rows, strict=True))
        prior_mean, prior_stddev = self._gaussian("prior", belief)

        features = tf.concat([sample, belief], -1)
        x = layers["dense"](tf.reshape(features, [-1, sizes.features]))[:, None, None, :]
        for index in range(4):
            x = layers[f"deconvolution_{index}"](x)
        image_loss = _nll(tf.reshape(x, tf.shape(image)), image, 3)
        reward_loss = _nll(self._reward(features), reward[..., None], 1)
        ratio = tf.square(stddev / prior_stddev)
        distance = tf.square((mean - prior_mean) / prior_stddev)
        kl = 0.5 * tf.reduce_sum(ratio + distance - 1.0 - tf.math.log(ratio), -1)
        kl = tf.maximum(kl - sizes.free_nats, 0.0)
        return tf.reduce_mean(image_loss + sizes.reward_scale * reward_loss + kl)

    def gradients(self, *arguments: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The loss and its gradients, in the order of `variables_in_order`."""
        with tf.GradientTape() as tape:
            loss = self.loss(*arguments)
        return loss, tape.gradient(loss, self.variables_in_order)

    def _update(self, batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        sizes = self.sizes
        noise = tf.random.normal([sizes.steps, sizes.batch, sizes.stochastic])
        loss, gradients = self.gradients(self.preprocess(batch["image"]), batch["action"], batch["reward"], noise)
        gradients, _ = tf.clip_by_global_norm(gradients, sizes.clip_norm)
        self.optimizer.apply_gradients(zip(gradients, self.variables_in_order, strict=True))
        return loss

    def search(self, sample: tf.Tensor, belief: tf.Tensor, noise: Noise | None = None) -> tf.Tensor:
        """One plan, float32 [T, A], by the cross-entropy method (google-research/planet, control/planning.py).

        Args:
          sample, belief: float32 [1, Z] and [1, H], the state to plan from.
          noise: for each iteration, standard normals of the actions [N, T, A] and of the states [T, N, Z]; None:
            fresh ones.
        """
        sizes = self.sizes
        count, horizon = sizes.candidates, sizes.horizon
        sample, belief = tf.repeat(sample, count, 0), tf.repeat(belief, count, 0)
        mean, stddev = tf.zeros([horizon, sizes.action]), tf.ones([horizon, sizes.action])
        for iteration in range(sizes.iterations):
            if noise is None:
                action_noise = tf.random.normal([count, horizon, sizes.action])
                state_noise = tf.random.normal([horizon, count, sizes.stochastic])
            else:
                action_noise, state_noise = noise[iteration]
            actions = tf.clip_by_value(mean + stddev * action_noise, -1.0, 1.0)
            returns = self._returns(sample, belief, actions, state_noise)
            best = tf.gather(actions, tf.math.top_k(returns, sizes.elites, sorted=False).indices)
            mean, variance = tf.nn.moments(best, 0)
            stddev = tf.sqrt(variance + 1e-6)
        return mean

    def _returns(self, sample: tf.Tensor, belief: tf.Tensor, actions: tf.Tensor, noise: tf.Tensor) -> tf.Tensor:
        features = []
        for time in range(self.sizes.horizon):
            belief = self._belief(sample, belief, actions[:, time])
            mean, stddev = self._gaussian("prior", belief)
            sample = mean + stddev * noise[time]
            features.append(tf.concat([sample, belief], -1))
        return tf.reduce_sum(self._reward(tf.stack(features)), [0, 2])

    def _belief(self, sample: tf.Tensor, belief: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        hidden = self.layers["prior_input"](tf.concat([sample, action], -1))
        return self.layers["gru"](hidden, [belief])[0]

    def _gaussian(self, name: str, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        hidden = self.layers[f"{name}_hidden"](x)
        stddev = tf.nn.softplus(self.layers[f"{name}_stddev"](hidden)) + self.sizes.min_stddev
        return self.layers[f"{name}_mean"](hidden), stddev

    def _reward(self, x: tf.Tensor) -> tf.Tensor:
        for index in range(self.sizes.reward_layers):
            x = self.layers[f"dense_{index}"](x)
        return self.layers["output"](x)


def _parts(name: str) -> tuple[str, ...]:
    return ("kernel", "recurrent_kernel", "bias") if name == "gru" else ("kernel", "bias")


def _nll(mean: tf.Tensor, target: tf.Tensor, axes: int) -> tf.Tensor:
    """-log N(target; mean, 1), summed over the last `axes` axes."""
    terms = 0.5 * tf.square(target - mean) + 0.5 * math.log(2 * math.pi)
    return tf.reduce_sum(terms, list(range(-axes, 0)))
