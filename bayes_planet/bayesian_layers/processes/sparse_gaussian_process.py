"""A variational Gaussian process on inducing points (Titsias 2009; Hensman et al. 2013), whitened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution
from bayes_planet.bayesian_layers.layers.products.flipout import per_sample
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.processes.gaussian_process import safe_cholesky, with_functions
from bayes_planet.bayesian_layers.processes.kernels import ExponentiatedQuadratic
from bayes_planet.bayesian_layers.processes.mean_functions import Zeros, mean_values
from bayes_planet.bayesian_layers.processes.start_points import k_means
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples import nested
from bayes_planet.bayesian_layers.samples.module_walk import modules_in
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, fresh_seed
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry, samples_in


class _Starting(threading.local):
    """The seed of the `start_from_data` that is under way in this thread."""

    seed: int | None = None


_starting = _Starting()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class SparseGaussianProcess(VariationalLayer, tf.keras.layers.Layer):
    """Variational Gaussian process through `num_inducing` points, with all its parameters trainable.

    The function's values at the inducing inputs Z are `u = m(Z) + L v`, `K_ZZ = L L^T`, and the posterior is over the
    whitened v: its prior is N(0, I), so the regularizer `KL(q(v) || N(0, I))` is exactly KL(q(u) || p(u)) of the GP
    prior. The output is the analytic q(f(x)), u integrated out:
    mean `m(x) + A^T E[v]`, covariance `K_xx - A^T A + A^T Cov[v] A`, `A = L^-1 K_Zx`.

    In force, a weight sample is one *function*: calls inside `use_weights` return its values, a tensor, the same
    function at every step of a rollout. `sample(seed)` returns such a function directly. Its draw from the prior is by
    `num_features` random features where the kernel has them (ExponentiatedQuadratic); with other kernels the function
    is the conditional mean given the draw of u, which leaves out the variance that u does not explain.

    Args:
        units: number of functions, independent given the kernel.
        num_inducing: number of inducing points.
        mean_fn: positions [N, D] to [N], or [N, units]; inner layers need IdentityMean() or LinearMean().
        covariance_fn: positions [N, D] and [M, D] to [N, M]; default ExponentiatedQuadratic(trainable=True).
        inducing_inputs_initializer: of Z [num_inducing, D]; default standard normal (edward2's stddev of 0.05 crowds
            the points). In more than three dimensions start from the data: `start_from_data(model, x)`.
        inducing_outputs_initializer: of v [num_inducing, units]: 'trainable_normal', or TrainableTriangularNormal()
            for a full covariance.
        inducing_inputs_regularizer, inducing_outputs_regularizer: the latter 'normal_kl_divergence', see above.
        inducing_inputs_constraint: Keras constraint of Z.
        full_covariance: False returns the marginals at each position, Independent(Normal), for large batches and the
            inner layers of a deep GP (Salimbeni and Deisenroth 2017).
        num_features: random features of a weight sample.
        jitter: relative to the mean variance.

    Call arguments:
        inputs: [N, D]; with a weight sample in force [..., D], and with S samples [S, ..., D] or [1, ..., D].
        seed: stateless seed, int32 [2], of the value.

    Returns:
        Random variable [N, units] in the variable dtype; with a weight sample in force a tensor [..., units].

    Raises:
        ValueError: numbers that are not positive, a sample of another model.

    Source: Titsias 2009; Hensman et al. 2013; Wilson et al. 2020, "Efficiently Sampling Functions from Gaussian
    Process Posteriors"; Tran et al. 2018, "Bayesian Layers", Figure 5.
    """

    weight_fields = {
        "inducing_outputs": ("inducing_outputs_initializer", "inducing_outputs_regularizer"),
        "inducing_inputs": ("inducing_inputs_initializer", "inducing_inputs_regularizer"),
    }
    inducing_outputs = WeightAttribute()
    inducing_inputs = WeightAttribute()

    def __init__(
        self,
        units: int,
        num_inducing: int,
        mean_fn: Callable[[tf.Tensor], tf.Tensor] | None = None,
        covariance_fn: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
        inducing_inputs_initializer: Any = None,
        inducing_outputs_initializer: Any = "trainable_normal",
        inducing_inputs_regularizer: Any = None,
        inducing_outputs_regularizer: Any = "normal_kl_divergence",
        inducing_inputs_constraint: Any = None,
        full_covariance: bool = True,
        num_features: int = 256,
        jitter: float = 1e-6,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not jitter >= 0:
            raise ValueError(f"jitter is {jitter!r}. Accepted: 0 or more.")
        self.units = positive_integer(units, "units")
        self.num_inducing = positive_integer(num_inducing, "num_inducing")
        self.num_features = positive_integer(num_features, "num_features")
        self.mean_fn = Zeros() if mean_fn is None else mean_fn
        if covariance_fn is None:
            covariance_fn = ExponentiatedQuadratic(trainable=True, dtype=self.variable_dtype)
        self.covariance_fn = covariance_fn
        if inducing_inputs_initializer is None:
            inducing_inputs_initializer = tf.keras.initializers.RandomNormal(stddev=1.0)
        self.inducing_inputs_initializer = initializers.own(nested.registered(inducing_inputs_initializer))
        self.inducing_outputs_initializer = initializers.own(nested.registered(inducing_outputs_initializer))
        self.inducing_inputs_regularizer = regularizers.get(inducing_inputs_regularizer)
        self.inducing_outputs_regularizer = regularizers.get(nested.registered(inducing_outputs_regularizer))
        self.inducing_inputs_constraint = constraints.get(inducing_inputs_constraint)
        self.full_covariance = bool(full_covariance)
        self.jitter = float(jitter)
        self.input_spec = tf.keras.layers.InputSpec(min_ndim=2)

    def posterior(self, weight: str) -> TrainableDistribution | None:
        return super().posterior(weight) if weight in self.weight_fields else None

    def build(self, input_shape: Any) -> None:
        size = tf.TensorShape(input_shape)[-1]
        if size is None:
            raise ValueError(f"{self.name!r} was given shape {input_shape}. Accepted: [N, D] with D known.")
        self.inducing_inputs = self.add_weight(
            "inducing_inputs",
            (self.num_inducing, size),
            initializer=self.inducing_inputs_initializer,
            regularizer=self.inducing_inputs_regularizer,
            constraint=self.inducing_inputs_constraint,
        )
        self.inducing_outputs = self.add_weight(
            "inducing_outputs",
            (self.num_inducing, self.units),
            initializer=self.inducing_outputs_initializer,
            regularizer=self.inducing_outputs_regularizer,
        )
        if hasattr(self.mean_fn, "build_for"):
            self.mean_fn.build_for(size, self.units)
        self._dimensions = size
        self.built = True

    def call(self, inputs: tf.Tensor, seed: Any = None) -> RandomVariable | tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        entry = active_entry(self)
        if entry is not None:
            self._check_entry(entry)
            return tf.cast(self._function_values(entry, inputs), self.compute_dtype)
        if _starting.seed is not None:
            self.start_from(inputs.numpy(), _starting.seed)
        seed = fresh_seed() if seed is None else as_seed(seed)
        return RandomVariable(self._marginal(tf.cast(inputs, tf.float64), seed), seed=fold(seed, 9), name=self.name)

    def sample(self, seed: Any = None) -> Callable[[tf.Tensor], tf.Tensor]:
        """One function drawn from the posterior: a callable, positions [..., D] to values [..., units].

        All that does not depend on the positions is computed here, once; use the function in the graph it was drawn
        in. To carry draws across `tf.function` borders use `sample_weights` and `use_weights`.
        """
        self._require_built()
        seed = fresh_seed() if seed is None else as_seed(seed)
        return self._function(self.draw_weights(seed))

    def start_from(self, x: Any, seed: int = 0) -> None:
        """Fits the untrained layer to its inputs x [N, D], eagerly.

        The inducing points become the centres of k-means, the lengthscale of a kernel that has one the median distance,
        the matrix of a LinearMean the principal axes.

        Raises:
            ValueError: fewer rows than inducing points.
        """
        self._require_built()
        x = np.asarray(x, np.float64)
        points = k_means(x, self.num_inducing, seed)
        posterior = self.posterior("inducing_inputs")
        variable = self.inducing_inputs if posterior is None else posterior.mean
        variable.assign(points)
        for function in (self.covariance_fn, self.mean_fn):
            if hasattr(function, "start_from"):
                function.start_from(x, seed)

    def draw_weights(self, seed: Any, samples: int | None = None) -> dict[str, tf.Tensor]:
        """A function as a value: v, and the random features of the prior's draw, in the variable dtype."""
        self._require_built()
        seed = as_seed(seed)
        order = list(self.weight_fields)
        entry = {
            weight: posterior.draw(fold(seed, order.index(weight)), samples)
            for weight, posterior in self.posteriors().items()
        }
        if not hasattr(self.covariance_fn, "features"):
            return entry
        count = self.num_features if samples is None else samples * self.num_features
        features = self._features(fold(seed, len(order)), count)
        weights = tf.random.stateless_normal([count, self.units], fold(seed, len(order) + 1), dtype=self.variable_dtype)
        if samples is not None:
            frequencies = tf.reshape(features["frequencies"], [self._dimensions, samples, self.num_features])
            features["frequencies"] = tf.transpose(frequencies, [1, 0, 2])
            features["phases"] = tf.reshape(features["phases"], [samples, self.num_features])
            weights = tf.reshape(weights, [samples, self.num_features, self.units])
        return {**entry, **features, "feature_weights": weights}

    def mean_weights(self, compact: bool = False) -> dict[str, tf.Tensor]:
        """The posterior mean function: v at its mean, the prior's draw 0 (or left out, if `compact`)."""
        self._require_built()
        entry = {weight: posterior.mean_value() for weight, posterior in self.posteriors().items()}
        if compact or not hasattr(self.covariance_fn, "features"):
            return entry
        features = self._features(tf.zeros([2], tf.int32), self.num_features)
        return {**entry, **features, "feature_weights": tf.zeros([self.num_features, self.units], self.variable_dtype)}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "num_inducing": self.num_inducing,
            "mean_fn": nested.serialize(self.mean_fn),
            "covariance_fn": nested.serialize(self.covariance_fn),
            "inducing_inputs_initializer": initializers.serialize(self.inducing_inputs_initializer),
            "inducing_outputs_initializer": initializers.serialize(self.inducing_outputs_initializer),
            "inducing_inputs_regularizer": regularizers.serialize(self.inducing_inputs_regularizer),
            "inducing_outputs_regularizer": regularizers.serialize(self.inducing_outputs_regularizer),
            "inducing_inputs_constraint": constraints.serialize(self.inducing_inputs_constraint),
            "full_covariance": self.full_covariance,
            "num_features": self.num_features,
            "jitter": self.jitter,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return cls(**with_functions(config))

    def _features(self, seed: tf.Tensor, count: int) -> dict[str, tf.Tensor]:
        kernel: Any = self.covariance_fn
        return dict(kernel.features(seed, count, self._dimensions, tf.as_dtype(self.variable_dtype)))

    def _marginal(self, x: tf.Tensor, seed: tf.Tensor) -> tfd.Distribution:
        """The analytic q(f(x))."""
        if self.posterior("inducing_inputs") is None:
            z = tf.cast(self.inducing_inputs, tf.float64)
        else:
            z = tf.cast(self.inducing_inputs_initializer.draw(fold(seed, 1)), tf.float64)
        tril = safe_cholesky(self.covariance_fn(z, z), self.jitter)
        between = tf.linalg.triangular_solve(tril, self.covariance_fn(z, x))
        mean, root = self._white_posterior()
        loc = mean_values(self.mean_fn, x, self.units) + tf.matmul(between, mean, transpose_a=True)
        loc = tf.ensure_shape(loc, [x.shape[0], self.units])
        # [units or 1, N, M]: deviations of f(x) per unit of v's noise
        explained = None if root is None else tf.linalg.matrix_transpose(tf.matmul(root, between, transpose_a=True))
        if self.full_covariance:
            prior = self.covariance_fn(x, x)
            covariance = (prior - tf.matmul(between, between, transpose_a=True))[None]
            if explained is not None:
                covariance += tf.matmul(explained, explained, transpose_b=True)
            jitter = self.jitter * tf.reduce_mean(tf.linalg.diag_part(prior))
            return FunctionValues(loc, covariance, jitter=jitter, dtype=self.variable_dtype)
        diagonal = getattr(self.covariance_fn, "diag", None)
        prior = tf.linalg.diag_part(self.covariance_fn(x, x)) if diagonal is None else diagonal(x)
        variance = (prior - tf.reduce_sum(tf.square(between), 0))[:, None]
        if explained is not None:
            variance += tf.transpose(tf.reduce_sum(tf.square(explained), -1))
        variance = tf.maximum(variance, self.jitter * tf.reduce_mean(prior)) + tf.zeros_like(loc)
        normal = tfd.Normal(tf.cast(loc, self.variable_dtype), tf.cast(tf.sqrt(variance), self.variable_dtype))
        return tfd.Independent(normal, reinterpreted_batch_ndims=2)

    def _white_posterior(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Mean [M, units] of v and a root [units, M, M] of its covariance; no root for a deterministic v."""
        posterior = self.posterior("inducing_outputs")
        if posterior is None:
            return tf.cast(self.inducing_outputs, tf.float64), None
        distribution = posterior.distribution()
        if isinstance(distribution, FunctionValues):
            return tf.cast(distribution.loc, tf.float64), tf.cast(distribution.scale_tril(), tf.float64)
        stddev = tf.linalg.matrix_transpose(tf.cast(distribution.stddev(), tf.float64))
        return tf.cast(distribution.mean(), tf.float64), tf.linalg.diag(stddev)

    def _function_values(self, entry: Mapping[str, tf.Tensor], inputs: tf.Tensor) -> tf.Tensor:
        if samples_in(self, entry) is None:
            return self._function(entry)(inputs)
        shared = None
        if self.posterior("inducing_inputs") is None:
            z = tf.cast(self.inducing_inputs, tf.float64)
            shared = safe_cholesky(self.covariance_fn(z, z), self.jitter)
        return per_sample(lambda x, one: self._function(one, shared)(x), inputs, entry, self.variable_dtype)

    def _function(
        self, entry: Mapping[str, tf.Tensor], tril: tf.Tensor | None = None
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        """f(x) = m(x) + phi(x) w + K_xZ c: the prior's draw, corrected to pass through the draw of u."""
        exact = {name: tf.cast(value, tf.float64) for name, value in entry.items()}
        kernel: Any = self.covariance_fn
        z = exact.get("inducing_inputs")
        z = tf.cast(self.inducing_inputs, tf.float64) if z is None else z
        v = exact.get("inducing_outputs")
        v = tf.cast(self.inducing_outputs, tf.float64) if v is None else v
        tril = safe_cholesky(self.covariance_fn(z, z), self.jitter) if tril is None else tril
        prior: Callable[[tf.Tensor], Any] = lambda x: 0.0  # noqa: E731
        if "feature_weights" in exact:

            def prior(x: tf.Tensor) -> tf.Tensor:
                features = kernel.apply_features(x, exact["frequencies"], exact["phases"])
                return tf.matmul(features, exact["feature_weights"])

            v = v - tf.linalg.triangular_solve(tril, prior(z))
        coefficients = tf.linalg.triangular_solve(tril, v, adjoint=True)

        def function(positions: tf.Tensor) -> tf.Tensor:
            positions = tf.convert_to_tensor(positions)
            x = tf.reshape(tf.cast(positions, tf.float64), [-1, z.shape[-1]])
            values = (
                mean_values(self.mean_fn, x, self.units) + prior(x) + tf.matmul(self.covariance_fn(x, z), coefficients)
            )
            shape = tf.concat([tf.shape(positions)[:-1], [self.units]], 0)
            values = tf.cast(tf.reshape(values, shape), self.variable_dtype)
            return tf.ensure_shape(values, [*positions.shape[:-1], self.units])

        return function


def start_from_data(model: Any, x: Any, points: int = 1000, seed: int = 0) -> Any:
    """Sets the inducing points, lengthscales and linear means of all SparseGaussianProcess layers from data.

    The data pass through the model once, eagerly, and each layer starts from what reaches it (`start_from`): with the
    default start, standard normal points and lengthscale 1, the kernel between data and inducing points is 0 in more
    than a few dimensions, and nothing is learned.

    Args:
        model: a Keras model or layer; it is built if it is not.
        x: its inputs, [N, ...] with as many rows as a layer has inducing points.
        points: at most that many of them are used, drawn by `seed`.

    Returns:
        `model`.

    Raises:
        ValueError: no such layer, too few rows, a call inside a tf.function.
    """
    if not tf.executing_eagerly():
        raise ValueError("start_from_data was called inside a tf.function. Accepted: a call before training, outside.")
    inputs = np.asarray(x)
    inputs = inputs[np.random.default_rng(seed).permutation(len(inputs))[:points]]
    model(inputs[:1])
    if not any(isinstance(module, SparseGaussianProcess) for module in modules_in([model])):
        raise ValueError(f"{type(model).__name__} has no SparseGaussianProcess. Accepted: a model with one.")
    _starting.seed = seed
    try:
        model(inputs)
    finally:
        _starting.seed = None
    return model
