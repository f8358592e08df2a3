"""Gaussian process layers: distributions over functions by their values.

Linear algebra runs in float64 whatever the layer's dtype, and each covariance gets a jitter of `jitter` times its mean
variance on the diagonal before it is decomposed, so that coinciding positions are no error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import plain, positive_integer
from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.processes.kernels import ExponentiatedQuadratic
from bayes_planet.bayesian_layers.processes.mean_functions import Zeros, mean_values
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples import nested
from bayes_planet.bayesian_layers.samples.seeds import as_seed


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GaussianProcess(tf.keras.layers.Layer):
    """Exact Gaussian process, `f ~ GP(mean_fn, covariance_fn)`, prior or given data; `units` independent functions.

    Without data the output is the prior at the inputs. With `conditional_inputs` Z and `conditional_outputs` Y it is
    the posterior, mean `m(x) + K_xZ (K_ZZ + noise I)^-1 (Y - m(Z))`, covariance `K_xx - K_xZ (K_ZZ + noise I)^-1 K_Zx`.

    Args:
        units: number of functions.
        mean_fn: positions [N, D] to [N], or [N, units]; such as IdentityMean(), LinearMean(), ConstantMean().
        covariance_fn: positions [N, D] and [M, D] to [N, M]; default ExponentiatedQuadratic().
        conditional_inputs, conditional_outputs: [M, D] and [M, units]; both or neither. Tensors, arrays or variables.
        noise_variance: of the conditional outputs about the function.
        jitter: relative to the mean variance.

    Call arguments:
        inputs: [N, D].
        seed: stateless seed, int32 [2], of the value.

    Returns:
        Random variable [N, units]; one event is the whole matrix, so its `log_prob` is a scalar.

    Raises:
        ValueError: one conditional without the other, shapes that do not match, or inputs of another size D.

    Source: Rasmussen and Williams 2006, equations 2.23 and 2.24; Tran et al. 2018, "Bayesian Layers", section 2.2.
    """

    def __init__(
        self,
        units: int,
        mean_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
        covariance_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        conditional_inputs: Any = None,
        conditional_outputs: Any = None,
        noise_variance: float = 0.0,
        jitter: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = positive_integer(units, "units")
        self.mean_fn = Zeros() if mean_fn is None else mean_fn
        self.covariance_fn = ExponentiatedQuadratic() if covariance_fn is None else covariance_fn
        self.noise_variance, self.jitter = noise_variance, float(jitter)
        if not self.jitter >= 0 or not np.all(np.asarray(noise_variance) >= 0):
            raise ValueError(f"Got jitter={jitter}, noise_variance={noise_variance}. Accepted: 0 or more.")
        if (conditional_inputs is None) != (conditional_outputs is None):
            raise ValueError("One of conditional_inputs and conditional_outputs was given. Accepted: both or none.")
        if conditional_inputs is not None:
            given = tf.TensorShape(np.shape(conditional_inputs)), tf.TensorShape(np.shape(conditional_outputs))
            if given[0].rank != 2 or given[1].rank != 2 or given[0][0] != given[1][0] or given[1][1] != self.units:
                raise ValueError(
                    f"conditional_inputs have shape {given[0]}, conditional_outputs {given[1]}. Accepted: [M, D] and "
                    f"[M, {self.units}] with the same M."
                )
        self.conditional_inputs, self.conditional_outputs = conditional_inputs, conditional_outputs
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        if hasattr(self.mean_fn, "build_for"):
            self.mean_fn.build_for(tf.TensorShape(input_shape)[-1], self.units)
        self.built = True

    def call(self, inputs: tf.Tensor, seed: Any = None) -> RandomVariable:
        x = tf.cast(tf.convert_to_tensor(inputs), tf.float64)
        given = None if self.conditional_inputs is None else np.shape(self.conditional_inputs)[-1]
        if given is not None and x.shape[-1] not in (None, given):
            raise ValueError(
                f"GaussianProcess {self.name!r} was given inputs of shape {x.shape}, but its conditional_inputs have "
                f"{given} columns. Accepted: [N, {given}]."
            )
        loc = mean_values(self.mean_fn, x, self.units)
        covariance = prior = self.covariance_fn(x, x)
        if self.conditional_inputs is not None:
            z, y = tf.cast(self.conditional_inputs, tf.float64), tf.cast(self.conditional_outputs, tf.float64)
            noise = tf.cast(self.noise_variance, tf.float64)
            tril = safe_cholesky(self.covariance_fn(z, z), self.jitter, noise)
            between = tf.linalg.triangular_solve(tril, self.covariance_fn(z, x))
            white = tf.linalg.triangular_solve(tril, y - mean_values(self.mean_fn, z, self.units))
            loc += tf.matmul(between, white, transpose_a=True)
            covariance -= tf.matmul(between, between, transpose_a=True)
        loc = tf.ensure_shape(loc, [inputs.shape[0], self.units])
        jitter = self.jitter * tf.reduce_mean(tf.linalg.diag_part(prior))
        distribution = FunctionValues(loc, covariance[None], jitter=jitter, dtype=self.variable_dtype)
        return RandomVariable(distribution, seed=None if seed is None else as_seed(seed), name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "mean_fn": nested.serialize(self.mean_fn),
            "covariance_fn": nested.serialize(self.covariance_fn),
            "conditional_inputs": plain(self.conditional_inputs),
            "conditional_outputs": plain(self.conditional_outputs),
            "noise_variance": plain(self.noise_variance),
            "jitter": self.jitter,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**with_functions(config))


def safe_cholesky(covariance: tf.Tensor, jitter: float, noise: Any = 0.0) -> tf.Tensor:
    """Cholesky factor of `covariance + (noise + jitter mean(diagonal)) I`."""
    diagonal = tf.linalg.diag_part(covariance)
    return tf.linalg.cholesky(tf.linalg.set_diag(covariance, diagonal + noise + jitter * tf.reduce_mean(diagonal)))


def with_functions(config: dict[str, Any]) -> dict[str, Any]:
    """`config` with its mean and covariance functions made from their configs."""
    functions = {name: nested.deserialize(config[name]) for name in ("mean_fn", "covariance_fn")}
    return {**config, **functions}
