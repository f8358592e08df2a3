"""Gaussian process by random projection, and the Bayesian linear model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.layers.dense import DenseReparameterization
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class RandomFourierFeatures(DenseReparameterization):
    """Approximate Gaussian process: `y = phi(x) W`, `phi(x) = sqrt(2 variance / F) cos(x Omega / lengthscale + b)`.

    Omega ~ N(0, 1) and b ~ U(0, 2 pi) are drawn once and stay. With W ~ N(0, 1), y is a draw from a GP whose covariance
    approaches `variance exp(-|x - x'|^2 / (2 lengthscale^2))` with F. The posterior over W and its KL are those of
    DenseReparameterization, as are weight samples: each is one function.

    Args:
        units: number of functions.
        num_features: F.
        variance, lengthscale: of the kernel; positive numbers.
        feature_seed: integer seed of Omega and b; None draws one, which the config keeps.
        use_bias: adds a bias to y.
        Others as DenseReparameterization.

    Call arguments and returns as DenseReparameterization: [..., D] to [..., units].

    Raises:
        ValueError: a number that is not positive, `num_features` that is not whole.

    Source: Rahimi and Recht 2007, "Random Features for Large-Scale Kernel Machines".
    """

    def __init__(
        self,
        units: int,
        num_features: int = 256,
        variance: float = 1.0,
        lengthscale: float = 1.0,
        feature_seed: int | None = None,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, use_bias=use_bias, **kwargs)
        if not (variance > 0 and lengthscale > 0):
            raise ValueError(f"Got variance={variance}, lengthscale={lengthscale}. Accepted: positive.")
        self.num_features = positive_integer(num_features, "num_features")
        self.variance, self.lengthscale = float(variance), float(lengthscale)
        self.feature_seed = int(np.random.default_rng().integers(2**31)) if feature_seed is None else int(feature_seed)

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        seed, size = self.feature_seed, shape[-1]
        self.frequencies = self.add_weight(
            "frequencies",
            (size, self.num_features),
            trainable=False,
            experimental_autocast=False,
            initializer=tf.keras.initializers.RandomNormal(stddev=1.0, seed=seed),
        )
        self.phases = self.add_weight(
            "phases",
            (self.num_features,),
            trainable=False,
            experimental_autocast=False,
            initializer=tf.keras.initializers.RandomUniform(0.0, 2 * np.pi, seed=seed + 1),
        )
        super().build([*shape[:-1], self.num_features])
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2, axes={-1: size})

    def features(self, inputs: tf.Tensor) -> tf.Tensor:
        """phi(x): [..., D] to [..., F], in the compute dtype."""
        inputs = tf.cast(tf.convert_to_tensor(inputs), self.variable_dtype)
        angles = tf.tensordot(inputs / self.lengthscale, tf.convert_to_tensor(self.frequencies), [[-1], [0]])
        scale = (2.0 * self.variance / self.num_features) ** 0.5
        return tf.cast(scale * tf.cos(angles + self.phases), self.compute_dtype)

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        return super().call(self.features(inputs), seed=seed)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "variance": self.variance,
            "lengthscale": self.lengthscale,
            "feature_seed": self.feature_seed,
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class BayesianLinearModel(tf.keras.Model):
    """Linear regression with the exact posterior: `y = x w + noise`, `w ~ N(0, I)`, noise of a known variance.

    `model(x)` is the distribution of `x w`, without the noise: the prior predictive before `fit`, the posterior one
    after. `fit(x, y)` is a closed form on all data at once; fitting again starts afresh.

    Args:
        noise_variance: of the labels about the line; positive.

    Call arguments:
        inputs: [N, D].

    Returns:
        Normal random variable [N], in the variable dtype.

    Raises:
        ValueError: `noise_variance` is not positive, or labels that are not [N].

    Source: Bishop 2006, equations 3.53 and 3.54.
    """

    def __init__(self, noise_variance: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not noise_variance > 0:
            raise ValueError(f"noise_variance is {noise_variance!r}. Accepted: positive.")
        self.noise_variance = float(noise_variance)

    def build(self, input_shape: Any) -> None:
        size = tf.TensorShape(input_shape)[-1]
        # Of the prior, until fit assigns the posterior's.
        options = {"trainable": False, "experimental_autocast": False}
        self.coeffs_mean = self.add_weight("coeffs_mean", [size], initializer="zeros", **options)
        self.coeffs_precision_tril = self.add_weight(
            "coeffs_precision_tril", [size, size], initializer="identity", **options
        )
        self.built = True

    def call(self, inputs: tf.Tensor) -> RandomVariable:
        inputs = tf.cast(tf.convert_to_tensor(inputs), self.coeffs_mean.dtype)
        white = tf.linalg.triangular_solve(tf.convert_to_tensor(self.coeffs_precision_tril), tf.transpose(inputs))
        stddev = tf.sqrt(tf.reduce_sum(tf.square(white), 0))
        normal = tfp.distributions.Normal(tf.linalg.matvec(inputs, self.coeffs_mean), stddev)
        return RandomVariable(normal, name=self.name)

    def fit(self, x: Any, y: Any) -> tf.keras.callbacks.History:  # type: ignore[override]
        """Computes the posterior of the coefficients from x [N, D] and y [N].

        Returns:
            A Keras History whose 'loss' is the negative log evidence, -log N(y; 0, x x^T + noise I).
        """
        x, y = tf.cast(x, tf.float64), tf.cast(y, tf.float64)
        if x.shape.rank != 2 or y.shape.rank != 1 or x.shape[0] != y.shape[0]:
            raise ValueError(f"Got x of shape {x.shape} and y of shape {y.shape}. Accepted: [N, D] and [N].")
        if not self.built:
            self.build(x.shape)
        count, size = x.shape
        precision = tf.matmul(x, x, transpose_a=True) / self.noise_variance + tf.eye(size, dtype=tf.float64)
        tril = tf.linalg.cholesky(precision)
        projected = tf.linalg.matvec(x, y, transpose_a=True) / self.noise_variance
        mean = tf.linalg.cholesky_solve(tril, projected[:, None])[:, 0]
        self.coeffs_mean.assign(tf.cast(mean, self.coeffs_mean.dtype))
        self.coeffs_precision_tril.assign(tf.cast(tril, self.coeffs_mean.dtype))
        log_det = 2 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(tril))) + count * np.log(self.noise_variance)
        misfit = tf.reduce_sum(tf.square(y)) / self.noise_variance - tf.reduce_sum(mean * projected)
        history = tf.keras.callbacks.History()
        history.history = {"loss": [float(0.5 * (log_det + misfit + count * np.log(2 * np.pi)))]}
        history.epoch = [0]
        return history

    def get_config(self) -> dict[str, Any]:
        return {**tf.keras.layers.Layer.get_config(self), "noise_variance": self.noise_variance}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> BayesianLinearModel:
        return cls(**config)
