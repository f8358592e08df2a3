"""Variational Bayesian last layers: a normal posterior of the last weights, trained with the features, no sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd
from tensorflow_probability import util as tfp_util

from bayes_planet.bayesian_layers.distributions import regularizers
from bayes_planet.bayesian_layers.distributions.arguments.labels import labels_for
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.distributions.initializers import TrainableDistribution
from bayes_planet.bayesian_layers.layers.products.projection import project
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.random_variables import tracing
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry


class VBLLNormal(tfd.Normal):
    """Normal predictive distribution that knows which part of its variance is the weights'."""

    def __init__(self, loc: Any, epistemic_variance: Any, noise_variance: Any, name: str = "VBLLNormal") -> None:
        parameters = dict(locals())
        super().__init__(loc, tf.sqrt(epistemic_variance + noise_variance), name=name)
        self._parameters = self._no_dependency(
            {key: value for key, value in parameters.items() if key not in ("self", "__class__")}
        )
        self.epistemic_variance, self.noise_variance = epistemic_variance, noise_variance

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict:
        names = ("loc", "epistemic_variance", "noise_variance")
        return {name: tfp_util.ParameterProperties() for name in names}

    def expected_log_prob(self, y: Any) -> tf.Tensor:
        """`E_q log p(y | w)`: log N(y; loc, noise) - epistemic variance / (2 noise), of the shape of `loc`."""
        exact = tfd.Normal(self.loc, tf.sqrt(self.noise_variance)).log_prob(y)
        return exact - 0.5 * self.epistemic_variance / self.noise_variance


class VBLLCategorical(tfd.Categorical):
    """Predictive distribution over classes whose logits are normal, `softmax(mean / sqrt(1 + pi variance / 8))`."""

    def __init__(self, logits_mean: Any, logits_variance: Any, name: str = "VBLLCategorical") -> None:
        parameters = dict(locals())
        super().__init__(logits=logits_mean * tf.math.rsqrt(1 + np.pi / 8 * logits_variance), name=name)
        self._parameters = self._no_dependency(
            {key: value for key, value in parameters.items() if key not in ("self", "__class__")}
        )
        self.logits_mean, self.logits_variance = logits_mean, logits_variance

    @classmethod
    def _parameter_properties(cls, dtype: Any, num_classes: Any = None) -> dict:
        return {name: tfp_util.ParameterProperties(event_ndims=1) for name in ("logits_mean", "logits_variance")}

    def expected_log_prob(self, y: Any) -> tf.Tensor:
        """Lower bound of `E_q log p(y | w)` (Jensen): mean of y's logit - logsumexp(mean + variance / 2), [...]."""
        y = tf.cast(y, tf.int32)
        normalizer = tf.reduce_logsumexp(self.logits_mean + 0.5 * self.logits_variance, -1)
        return tf.gather(self.logits_mean, y, axis=-1, batch_dims=y.shape.rank) - normalizer


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
def vbll_loss(y: Any, output: Any) -> tf.Tensor:
    """`-E_q log p(y | w)` of a VBLL head's output, [B]: the data term of the ELBO, for `compile(loss=vbll_loss)`.

    Args:
        y: targets, [B, K] (or [B] for K = 1) for VBLLRegression; classes, integers [B] or [B, 1], for
            VBLLClassification. An array or a tensor.
        output: what the head returned.

    Raises:
        ValueError: an output of another layer, a y of another shape.

    Source: Harrison et al. 2024, "Variational Bayesian Last Layers", Theorems 1 and 2.
    """
    distribution: Any = getattr(output, "distribution", None)
    if not hasattr(distribution, "expected_log_prob"):
        raise ValueError(
            f"vbll_loss was given an output of {type(output).__name__}. Accepted: that of a VBLLRegression or "
            "VBLLClassification at the end of the model."
        )
    terms = -distribution.expected_log_prob(labels_for(distribution, y))
    return tf.reduce_sum(terms, -1) if isinstance(distribution, VBLLNormal) else terms


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LastLayerNormal(TrainableDistribution):
    """Posterior of a weight [K, F] whose rows are independent, each normal with a full or a diagonal covariance.

    Args:
        covariance: 'full' (a triangular factor [K, F, F]) or 'diagonal'.
        mean_initializer: Keras initializer. The stddevs start at 1 / sqrt(F).
    """

    def __init__(self, covariance: str = "full", mean_initializer: Any = "glorot_normal", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if covariance not in ("full", "diagonal"):
            raise ValueError(f"covariance is {covariance!r}. Accepted: 'full', 'diagonal'.")
        self.covariance = covariance
        self.mean_initializer = tf.keras.initializers.get(mean_initializer)
        self.mean_regularizer = self.factor_regularizer = None

    def build(self, shape: Sequence[int], dtype: Any = None) -> None:
        start = float(np.log(np.expm1(shape[-1] ** -0.5)))  # softplus of it is 1 / sqrt(F)
        self.mean = self._parameter("mean", shape, dtype)
        self.factor_initializer = tf.keras.initializers.Constant(start)
        if self.covariance == "full":
            self.factor_initializer = tf.keras.initializers.Constant(
                start * np.eye(shape[-1])[None].repeat(shape[0], 0)
            )
        self.factor = self._parameter("factor", (*shape, shape[-1]) if self.covariance == "full" else shape, dtype)
        self.built = True

    def scale(self) -> tf.Tensor:
        """The triangular factors [K, F, F], or the stddevs [K, F]."""
        raw = tf.convert_to_tensor(self.factor)
        if self.covariance == "diagonal":
            return tf.nn.softplus(raw)
        lower = tf.linalg.band_part(raw, -1, 0)
        return tf.linalg.set_diag(lower, tf.nn.softplus(tf.linalg.diag_part(raw)))

    def distribution(self) -> tfd.Distribution:
        mean, scale = tf.convert_to_tensor(self.mean), self.scale()
        if self.covariance == "diagonal":
            return tfd.Independent(tfd.Normal(mean, scale), 2)
        return tfd.Independent(tfd.MultivariateNormalTriL(mean, scale), 1)

    def draw(self, seed: tf.Tensor, samples: int | None = None) -> tf.Tensor:
        shape = self.mean.shape if samples is None else [samples, *self.mean.shape]
        noise, scale = tf.random.stateless_normal(shape, seed, dtype=self.mean.dtype), self.scale()
        if self.covariance == "diagonal":
            return self.mean + scale * noise
        return self.mean + tf.linalg.matvec(scale, noise)

    def mean_value(self) -> tf.Tensor:
        return tf.convert_to_tensor(self.mean)

    def variance_along(self, features: tf.Tensor) -> tf.Tensor:
        """Variance of `features` [..., F] times each row: [..., K]."""
        scale = self.scale()
        if self.covariance == "diagonal":
            return project(tf.square(features), tf.transpose(tf.square(scale)))
        return tf.reduce_sum(tf.square(tf.tensordot(features, scale, [[-1], [1]])), -1)

    def get_config(self) -> dict[str, Any]:
        return {
            "covariance": self.covariance,
            "mean_initializer": tf.keras.initializers.serialize(self.mean_initializer),
        }


class _VBLL(VariationalLayer, tf.keras.layers.Layer):
    """What the two heads share: the weight `kernel` [units, F (+ 1)] and moments of its products with features."""

    weight_fields = {"kernel": ("kernel_initializer", "kernel_regularizer")}
    kernel = WeightAttribute()

    def __init__(
        self,
        units: int,
        covariance: str = "full",
        use_bias: bool = True,
        kernel_regularizer: Any = "normal_kl_divergence",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = positive_integer(units, f"units of {type(self).__name__}")
        self.covariance, self.use_bias = covariance, bool(use_bias)
        self.kernel_initializer = LastLayerNormal(covariance)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)

    def build(self, input_shape: Any) -> None:
        size = tf.TensorShape(input_shape)[-1]
        if size is None:
            raise ValueError(f"Layer {self.name!r} was built for {input_shape}. Accepted: a last axis of known size.")
        self.kernel = self.add_weight(
            "kernel",
            (self.units, size + self.use_bias),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
        )
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2, axes={-1: size})
        self.built = True

    def _moments(self, inputs: tf.Tensor, seed: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and variance of `kernel . features`, [..., K]: of one draw (or S) where weights are in use or traced."""
        features = tf.cast(inputs, self.variable_dtype)
        if self.use_bias:
            features = tf.concat([features, tf.ones_like(features[..., :1])], -1)
        if active_entry(self) is None and not tracing.active():
            mean = project(features, tf.transpose(self.kernel_initializer.mean_value()))
            return mean, self.kernel_initializer.variance_along(features)
        kernel = tf.cast(self.current_weights(seed)["kernel"], self.variable_dtype)
        mean = project(features, tf.linalg.matrix_transpose(kernel))
        return mean, tf.zeros_like(mean)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "covariance": self.covariance,
            "use_bias": self.use_bias,
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class VBLLRegression(_VBLL):
    """Regression head with a normal posterior of its weights, integrated in closed form: no draws in training.

    `y = w . (phi, 1) + N(0, noise)`, w_k ~ N(m_k, S_k): a call returns `N(m . phi, phi^T S phi + noise)`. Train with
    `loss=vbll_loss`, whose `E_q log p(y | w)` is exact, and the layer's KL in `losses` over the number of examples.
    Inside `use_weights(sample)` it is the normal about the sample's line.

    Args:
        units: K, numbers to predict.
        covariance: 'full' (F^2 numbers for each of K rows) or 'diagonal'.
        use_bias: whether w has an element for a constant 1, under the same prior.
        kernel_regularizer: the prior's KL; default N(0, 1).
        noise_variance: where the K noise variances start; they are learned as points.

    Call arguments:
        inputs: features [..., F]; with a sample of S draws in force [S, ..., F] or [1, ..., F].
        seed: int32 [2], for a draw where a tracer asks for one.

    Returns:
        normal random variable [..., K], whose distribution also has `epistemic_variance`, `noise_variance` and
        `expected_log_prob(y)`.

    Raises:
        ValueError: numbers out of range, an unknown covariance, a sample of other shapes.

    Source: Harrison et al. 2024, "Variational Bayesian Last Layers", section 3.1 (without its prior on the noise).
    """

    def __init__(
        self,
        units: int,
        covariance: str = "full",
        use_bias: bool = True,
        kernel_regularizer: Any = "normal_kl_divergence",
        noise_variance: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, covariance, use_bias, kernel_regularizer, **kwargs)
        if not noise_variance > 0:
            raise ValueError(f"noise_variance is {noise_variance!r}. Accepted: a positive number.")
        self.noise_variance = float(noise_variance)

    def build(self, input_shape: Any) -> None:
        self.log_noise = self.add_weight(
            "log_noise",
            [self.units],
            initializer=tf.keras.initializers.Constant(np.log(self.noise_variance)),
            experimental_autocast=False,
        )
        super().build(input_shape)

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> RandomVariable:
        mean, variance = self._moments(inputs, seed)
        noise = tf.exp(tf.convert_to_tensor(self.log_noise))
        return RandomVariable(VBLLNormal(mean, variance, tf.broadcast_to(noise, tf.shape(mean))))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise_variance": self.noise_variance}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class VBLLClassification(_VBLL):
    """Classification head with a normal posterior of its weights: no draws in training or in predictions.

    The logits are `w_k . (phi, 1)`, w_k ~ N(m_k, S_k), so normal: a call returns the classes' distribution
    `softmax(mean / sqrt(1 + pi variance / 8))`. Train with `loss=vbll_loss`, a lower bound of `E_q log p(y | w)`, and
    the layer's KL in `losses` over the number of examples. Inside `use_weights(sample)` it is the softmax of the
    sample's logits; the mean over samples is the predictive distribution without approximation.

    Args:
        units: number of classes. covariance, use_bias, kernel_regularizer: as `VBLLRegression`.

    Call arguments:
        inputs: features [..., F]; with a sample of S draws in force [S, ..., F] or [1, ..., F].
        seed: int32 [2], for a draw where a tracer asks for one.

    Returns:
        categorical random variable [...], whose distribution also has `logits_mean`, `logits_variance` and
        `expected_log_prob(y)`.

    Raises:
        ValueError: as `VBLLRegression`.

    Source: Harrison et al. 2024, section 3.2 (discriminative, without noise on the logits); MacKay 1992.
    """

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> RandomVariable:
        return RandomVariable(VBLLCategorical(*self._moments(inputs, seed)))
