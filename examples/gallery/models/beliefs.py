"""Five kinds of belief over one network of dynamics: how each is trained, and functions drawn from it.

Source: Chua et al. 2018 (ensembles); Wen et al. 2018 (Flipout); Harrison et al. 2024 (VBLL); Shen et al. 2024 (IVON).
"""

from typing import Any

from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

UNITS, DRAWS = 64, 5
KINDS = ("point", "ensemble", "variational", "VBLL", "IVON")


def network(size: int, targets: int, kind: str) -> tf.keras.Sequential:
    """Inputs [N, size] to means of targets [N, targets], all of mean 0 and stddev 1; of VBLL to their distribution."""
    dense: Any = tf.keras.layers.Dense
    belief: dict = {}
    if kind == "variational":
        dense = bl.DenseFlipout
        belief["kernel_initializer"] = bl.initializers.TrainableNormal("glorot_uniform", 0.01)
        belief["kernel_regularizer"] = bl.regularizers.FanInNormalKLDivergence()
    last = bl.VBLLRegression(targets) if kind == "VBLL" else dense(targets, **belief)
    layers = [tf.keras.Input([size]), dense(UNITS, "swish", **belief), dense(UNITS, "swish", **belief), last]
    return tf.keras.Sequential(layers)


class Belief:
    """Networks of one kind, their noise, and how they are trained."""

    def __init__(self, kind: str, size: int, targets: int, steps: int) -> None:
        self.kind = kind
        self.networks = [network(size, targets, kind) for _ in range(DRAWS if kind == "ensemble" else 1)]
        self.log_noise = tf.Variable(tf.fill([targets], -1.0))
        self.data_size = tf.Variable(1.0, trainable=False)
        self.optimizers = [self._optimizer(steps) for _ in self.networks]
        self.noise_optimizer = tf.keras.optimizers.Adam(3e-3)
        self.step = tf.function(self._step)

    def _optimizer(self, steps: int) -> tf.keras.optimizers.Optimizer:
        if self.kind != "IVON":
            return tf.keras.optimizers.Adam(3e-3)
        return bl.IVON(0.03, ess=2000, hess_init=0.1, beta2=1 - 1 / steps, clip_radius=1.0)

    def _step(self, inputs: tf.Tensor, targets: tf.Tensor) -> None:
        """Each network's step on its own rows: inputs [networks, B, I], targets [networks, B, K]."""
        gradient = 0.0
        for index, (model, optimizer) in enumerate(zip(self.networks, self.optimizers, strict=True)):
            variables = model.trainable_variables
            if self.kind == "IVON":
                with optimizer.sampled_weights(variables):
                    gradients = self._gradients(model, variables, inputs[index], targets[index])
            else:
                gradients = self._gradients(model, variables, inputs[index], targets[index])
            optimizer.apply_gradients(zip(gradients[:-1], variables, strict=True))
            gradient += gradients[-1] / len(self.networks)
        if self.kind != "VBLL":
            self.noise_optimizer.apply_gradients([(gradient, self.log_noise)])

    def _gradients(self, model: tf.keras.Sequential, variables: list, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            outputs = model(x)
            if self.kind == "VBLL":
                loss = tf.reduce_mean(bl.vbll_loss(y, outputs))
            else:
                loss = -tf.reduce_mean(tf.reduce_sum(tfd.Normal(outputs, tf.exp(self.log_noise)).log_prob(y), -1))
            if model.losses:
                loss += tf.add_n(model.losses) / self.data_size
        return tape.gradient(loss, [*variables, self.log_noise], unconnected_gradients="zero")

    def draw(self, seed: list[int], count: int) -> list[tf.Tensor]:
        """`count` functions as kernels [S, I, O] and biases [S, O] of three dense layers, and the noise [K]."""
        first = self.networks[0]
        noise = tf.exp(first.layers[-1].log_noise / 2 if self.kind == "VBLL" else self.log_noise)
        rows = []
        for index in range(count):
            own = [seed[0], 100 * seed[1] + index]
            if self.kind == "IVON":
                rows.append(self.optimizers[0].draw(first.trainable_variables, own))
            elif self.kind in ("point", "ensemble"):
                rows.append([tf.convert_to_tensor(w) for w in self.networks[index % len(self.networks)].weights])
            else:
                drawn = bl.sample_weights(first, own, shared=True)
                parts = []
                for layer in first.layers:
                    kernel = drawn.get(bl.layer_key(layer), {}).get("kernel")
                    if self.kind == "VBLL" and kernel is not None:  # [K, F + 1], the last column the bias
                        parts += [tf.transpose(kernel[:, :-1]), kernel[:, -1]]
                    else:
                        parts += [layer.kernel if kernel is None else kernel, layer.bias]
                rows.append(parts)
        return [*(tf.stack([tf.convert_to_tensor(row[part]) for row in rows]) for part in range(6)), noise]


def means(weights: list[tf.Tensor], x: tf.Tensor) -> tf.Tensor:
    """Inputs [S or 1, N, I] under S functions: [S, N, K]."""
    for layer in range(3):
        x = tf.matmul(x, weights[2 * layer]) + weights[2 * layer + 1][:, None]
        x = tf.nn.swish(x) if layer < 2 else x
    return x
