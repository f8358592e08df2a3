"""Priors of weights beside the normal with given parameters, as KL(q || p) regularizers.

Where a divergence has no closed form it is integrated on fixed nodes: it has no noise, and its gradients neither.
"""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.aliases import REGULARIZERS
from bayes_planet.bayesian_layers.distributions.arguments.numbers import plain, positive_integer
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import KLDivergence, normal_divergence
from bayes_planet.bayesian_layers.distributions.kl.quadrature import divergence_by_quadrature, scale_mixture_divergence
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable

tfd = tfp.distributions


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class CauchyKLDivergence(KLDivergence):
    """KL(q || Cauchy(loc, scale)): exact for Cauchy q, by quadrature for the other posteriors.

    Raises:
        ValueError: `scale` is not positive.
    """

    family: Any = tfd.Cauchy

    def __init__(self, loc: float = 0.0, scale: float = 1.0, scale_factor: Any = 1.0) -> None:
        super().__init__(scale_factor)
        if not scale > 0:
            raise ValueError(f"The prior's scale is {scale!r}. Accepted: positive.")
        self.loc, self.scale = plain(loc), plain(scale)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        q = family_of(weight.distribution)
        loc, scale = tf.constant(self.loc, weight.dtype), tf.constant(self.scale, weight.dtype)
        if isinstance(q, tfd.Cauchy) and self.family is tfd.Cauchy:
            terms = tf.math.log((tf.square(q.scale + scale) + tf.square(q.loc - loc)) / (4 * q.scale * scale))
            return tf.reduce_sum(tf.broadcast_to(terms, weight.shape))
        return divergence_by_quadrature(weight, lambda value: self._log_prior(value, loc, scale))

    def _log_prior(self, value: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return tfd.Cauchy(loc, scale).log_prob(value)

    def get_config(self) -> dict[str, Any]:
        return {"loc": self.loc, "scale": self.scale, "scale_factor": self.scale_config()}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class HalfCauchyKLDivergence(CauchyKLDivergence):
    """KL(q || half-Cauchy(loc, scale)) for a posterior on w >= loc, by quadrature.

    The prior's density is continued below its loc by its mirror image. So the KL stays finite where rounding or
    training puts the edge of q slightly below, as edward2's default half-Cauchy posterior does.
    """

    family = tfd.HalfCauchy

    def _log_prior(self, value: tf.Tensor, loc: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return tfd.Cauchy(loc, scale).log_prob(value) + tf.constant(np.log(2.0), value.dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class LogNormalKLDivergence(CauchyKLDivergence):
    """KL(q || log-normal(loc, scale)): exact for log-normal q, where it is the KL of the normals of log w."""

    family = tfd.LogNormal

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        q = family_of(weight.distribution)
        if not isinstance(q, tfd.LogNormal):
            loc, scale = tf.constant(self.loc, weight.dtype), tf.constant(self.scale, weight.dtype)
            return divergence_by_quadrature(weight, tfd.LogNormal(loc, scale).log_prob)
        log_weight = RandomVariable(tfd.Normal(q.loc, q.scale))
        return normal_divergence(log_weight, self.loc, self.scale)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class LogUniformKLDivergence(KLDivergence):
    """KL(q || log-uniform), q = N(m, alpha m^2), up to the constant that makes it 0 for alpha = infinity.

    The approximation of Molchanov et al. 2017, "Variational Dropout Sparsifies Deep Neural Networks", equation 14.
    It falls as alpha grows: +4.636, +0.431, 0.000 per weight at log alpha = -8, 0, 8; log alpha is clipped there.
    """

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        mean = weight.distribution.mean()
        log_alpha = tf.math.log(weight.distribution.variance()) - tf.math.log(
            tf.square(mean) + tf.keras.backend.epsilon()
        )
        log_alpha = tf.clip_by_value(log_alpha, -8.0, 8.0)
        k1, k2, k3 = 0.63576, 1.8732, 1.48695
        negative = k1 * tf.sigmoid(k2 + k3 * log_alpha) - 0.5 * tf.nn.softplus(-log_alpha) - k1
        return -tf.reduce_sum(negative)

    def get_config(self) -> dict[str, Any]:
        return {"scale_factor": self.scale_config()}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class UniformKLDivergence(KLDivergence):
    """KL(q || uniform) up to the constant of the support's volume: the negative entropy of q."""

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        return -weight.distribution.entropy()

    def get_config(self) -> dict[str, Any]:
        return {"scale_factor": self.scale_config()}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class NormalKLDivergenceWithTiedMean(KLDivergence):
    """KL(q || N(m, stddev^2)), m the posterior's own mean: only the width is charged."""

    def __init__(self, stddev: float = 1.0, scale_factor: Any = 1.0) -> None:
        super().__init__(scale_factor)
        if not stddev > 0:
            raise ValueError(f"The prior's stddev is {stddev!r}. Accepted: positive.")
        self.stddev = plain(stddev)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        return normal_divergence(weight, weight.distribution.mean(), self.stddev)

    def get_config(self) -> dict[str, Any]:
        return {"stddev": self.stddev, "scale_factor": self.scale_config()}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class NormalEmpiricalBayesKLDivergence(KLDivergence):
    """KL(q || N(mean, v)) - log InverseGamma(v), at the v that minimises it: one prior variance for the weight.

    `v = (E|w - mean|^2 + 2 scale) / (n + 2 concentration + 2)`. Source: Wu et al. 2018, "Deterministic Variational
    Inference for Robust Bayesian Neural Networks".
    """

    def __init__(
        self,
        mean: float = 0.0,
        variance_concentration: float = 2.01,
        variance_scale: float = 0.101,
        scale_factor: Any = 1.0,
    ) -> None:
        super().__init__(scale_factor)
        if not (variance_concentration > 0 and variance_scale > 0):
            raise ValueError(
                f"variance_concentration is {variance_concentration!r}, variance_scale {variance_scale!r}. "
                "Accepted: positive."
            )
        self.mean = plain(mean)
        self.variance_concentration, self.variance_scale = plain(variance_concentration), plain(variance_scale)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        q = weight.distribution
        square = tf.reduce_sum(q.variance() + tf.square(q.mean() - self.mean))
        count = float(np.prod(weight.shape.as_list()))
        variance = (square + 2 * self.variance_scale) / (count + 2 * self.variance_concentration + 2)
        hyperprior = tfd.InverseGamma(
            tf.constant(self.variance_concentration, weight.dtype), tf.constant(self.variance_scale, weight.dtype)
        )
        return normal_divergence(weight, self.mean, tf.sqrt(variance)) - hyperprior.log_prob(variance)

    def get_config(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "variance_concentration": self.variance_concentration,
            "variance_scale": self.variance_scale,
            "scale_factor": self.scale_config(),
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class ScaleMixtureKLDivergence(KLDivergence):
    """KL(q || pi N(0, stddev1^2) + (1 - pi) N(0, stddev2^2)), elementwise, by quadrature.

    Args:
        pi: weight of the first component, in (0, 1). stddev1, stddev2: positive.
        points: nodes of the quadrature, see `scale_mixture_divergence`.

    Source: Blundell et al. 2015, equation 7.
    """

    def __init__(
        self,
        pi: float = 0.5,
        stddev1: float = 1.0,
        stddev2: float = float(np.exp(-6.0)),
        points: int = 101,
        scale_factor: Any = 1.0,
    ) -> None:
        super().__init__(scale_factor)
        if not (0 < pi < 1 and stddev1 > 0 and stddev2 > 0):
            raise ValueError(
                f"pi is {pi!r}, stddev1 {stddev1!r}, stddev2 {stddev2!r}. Accepted: pi in (0, 1), positive stddevs."
            )
        self.pi, self.stddev1, self.stddev2 = float(pi), float(stddev1), float(stddev2)
        self.points = positive_integer(points, "points", 2)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        dtype = weight.dtype
        logit = tf.constant(np.log(self.pi / (1 - self.pi)), dtype)
        stddevs = tf.constant(self.stddev1, dtype), tf.constant(self.stddev2, dtype)
        return scale_mixture_divergence(weight, logit, *stddevs, self.points)

    def get_config(self) -> dict[str, Any]:
        names = ("pi", "stddev1", "stddev2", "points")
        return {**{name: getattr(self, name) for name in names}, "scale_factor": self.scale_config()}


_shared_copies: dict[str | None, tuple[Any, int]] = {}  # copies that more configs in a row belong to


class TrainablePrior(KLDivergence, tf.keras.layers.Layer):
    """Base of priors with trainable parameters, which become weights of the layer that uses them.

    Give one instance to several layers to learn one prior for all of them. The layers of a saved, loaded or cloned
    model that was built share one again.
    """

    built: bool
    one_shape = False  # whether all weights must have the shape of the first
    _built_shape: tuple[int, ...] | None = None

    def __init__(self, scale_factor: Any = 1.0, **kwargs: Any) -> None:
        tf.keras.layers.Layer.__init__(self, **kwargs)
        self.scale_factor = scale_factor
        self._users: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()
        self._shared_name = uuid.uuid4().hex

    def used_by(self, layer: Any, weight: str) -> None:
        """Notes a weight that this is the prior of, for `shared_config`."""
        self._users.setdefault(layer, set()).add(weight)

    def shared_config(self) -> dict[str, Any]:
        """In the config of a prior of several weights: which one it is, and of how many."""
        count = sum(map(len, self._users.values()))
        return {"shared": [self._shared_name, count]} if count > 1 else {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> TrainablePrior:
        """A prior; from configs of one shared prior, as many in a row as it had weights, the same one."""
        config = dict(config)
        name, count = config.pop("shared", (None, 1))
        made, left = _shared_copies.get(name, (lambda: None, 0))
        prior = made()
        if prior is None or left < 1:
            prior, left = cls(**config), count
        if name is not None:
            _shared_copies[name] = weakref.ref(prior), left - 1
        return prior

    def build_once(self, shape: Sequence[int]) -> None:
        """Creates the variables for a weight of this shape, if they do not exist."""
        shape = tuple(shape)
        if not self.built:
            self._built_shape = shape
            self.build(shape)
            self.built = True
        elif self.one_shape and self._built_shape not in (None, shape):
            raise ValueError(
                f"This {type(self).__name__} holds a number for each element of a weight of shape {self._built_shape} "
                f"and was given to one of shape {shape}. Accepted: weights of one shape; or a prior with numbers for "
                "all elements together, such as TrainableScaleMixtureKLDivergence."
            )

    def __call__(self, weight: RandomVariable) -> tf.Tensor:
        if hasattr(weight, "distribution"):
            self.build_once(weight.shape.as_list())
        return KLDivergence.__call__(self, weight)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class TrainableNormalKLDivergenceStdDev(TrainablePrior):
    """KL(q || N(mean, s^2)) with a trainable s for each element of the weight (type-II maximum likelihood).

    Args:
        mean: of the prior. stddev_initializer: of the raw s; default around softplus_inverse(1).
        stddev_regularizer: Keras regularizer of the raw s. stddev_constraint: see `constraints`.

    Raises:
        ValueError: one instance for weights of several shapes.
    """

    one_shape = True

    def __init__(
        self,
        mean: float = 0.0,
        stddev_initializer: Any = None,
        stddev_regularizer: Any = None,
        stddev_constraint: Any = "softplus",
        scale_factor: Any = 1.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(scale_factor, **kwargs)
        self.mean, self.seed = plain(mean), plain(seed)
        if stddev_initializer is None:
            stddev_initializer = tf.keras.initializers.TruncatedNormal(mean=0.5413248, stddev=0.1, seed=seed)
        self.stddev_initializer = tf.keras.initializers.get(stddev_initializer)
        self.stddev_regularizer = REGULARIZERS.get(stddev_regularizer)
        self.stddev_constraint = constraints.get(stddev_constraint)

    def build(self, shape: Sequence[int]) -> None:
        self.stddev = self.add_weight(
            "stddev",
            shape=shape,
            initializer=self.stddev_initializer,
            regularizer=self.stddev_regularizer,
            experimental_autocast=False,
        )

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        raw = tf.cast(self.stddev, weight.dtype)
        stddev = raw if self.stddev_constraint is None else self.stddev_constraint(raw)
        return normal_divergence(weight, self.mean, stddev)

    def get_config(self) -> dict[str, Any]:
        return {
            "mean": self.mean,
            "stddev_initializer": tf.keras.initializers.serialize(self.stddev_initializer),
            "stddev_regularizer": REGULARIZERS.serialize(self.stddev_regularizer),
            "stddev_constraint": constraints.serialize(self.stddev_constraint),
            "scale_factor": self.scale_config(),
            "seed": self.seed,
            **self.shared_config(),
        }


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
@REGULARIZERS.register
class TrainableScaleMixtureKLDivergence(TrainablePrior):
    """`ScaleMixtureKLDivergence` whose pi, stddev1 and stddev2 are trained; the arguments are where they start."""

    def __init__(
        self,
        pi: float = 0.5,
        stddev1: float = 1.0,
        stddev2: float = float(np.exp(-6.0)),
        points: int = 101,
        scale_factor: Any = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(scale_factor, **kwargs)
        self.fixed = ScaleMixtureKLDivergence(pi, stddev1, stddev2, points)

    def build(self, shape: Sequence[int]) -> None:
        start = {
            "pi_logit": np.log(self.fixed.pi / (1 - self.fixed.pi)),
            "log_stddev1": np.log(self.fixed.stddev1),
            "log_stddev2": np.log(self.fixed.stddev2),
        }
        for name, value in start.items():
            initializer = tf.keras.initializers.Constant(float(value))
            variable = self.add_weight(name, shape=(), initializer=initializer, experimental_autocast=False)
            setattr(self, name, variable)

    def divergence(self, weight: RandomVariable) -> tf.Tensor:
        logit, first, second = (
            tf.cast(getattr(self, name), weight.dtype) for name in ("pi_logit", "log_stddev1", "log_stddev2")
        )
        return scale_mixture_divergence(weight, logit, tf.exp(first), tf.exp(second), self.fixed.points)

    def get_config(self) -> dict[str, Any]:
        return {**self.fixed.get_config(), "scale_factor": self.scale_config(), **self.shared_config()}
