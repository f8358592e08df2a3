"""Likelihoods of data given the values of a Gaussian process, and their expectations under its posterior.

```python
likelihood = bl.GaussianLikelihood()
variables = model.trainable_variables + likelihood.trainable_variables
loss = tf.reduce_mean(-likelihood.expected_log_likelihood(model(x), y)) + sum(model.losses) / data_set_size
likelihood(model(x_test))                              # the predictive distribution of y
```
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions import constraints
from bayes_planet.bayesian_layers.distributions.arguments.labels import labels_like
from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable


class Likelihood(tf.keras.layers.Layer):
    """Base of likelihoods p(y | f), of elements of y and f that belong together.

    A subclass defines `conditional(f)`, the distribution of y given f, and overrides `expected_log_likelihood` where
    there is a closed form.

    Args:
        points: nodes of the Gauss-Hermite quadrature.

    Call arguments:
        f: random variable or distribution with mean and variance [N, units], the output of a Gaussian process layer.

    Returns:
        Random variable [N, units]: y, with f integrated out.

    Raises:
        ValueError: an f that is no distribution; of `expected_log_likelihood` also a y of another shape.
    """

    def __init__(self, points: int = 20, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.points = positive_integer(points, "points")

    def conditional(self, f: tf.Tensor) -> tfd.Distribution:
        """The distribution of y given values f; batch shape that of f."""
        raise NotImplementedError(f"{type(self).__name__} must define conditional(f).")

    def expected_log_likelihood(self, f: Any, y: Any) -> tf.Tensor:
        """`E[log p(y | f)]` under the marginals of f, [N, units]: the first term of the evidence lower bound.

        y has the shape of f; a last axis of size 1 may be missing in it, or be too many.
        """
        nodes, weights = self._nodes(f)
        terms = self.conditional(nodes).log_prob(_labels(y, nodes[0]))
        return tf.tensordot(weights, terms, 1)

    def call(self, f: Any) -> RandomVariable:
        nodes, weights = self._nodes(f)
        rates = tf.transpose(nodes, [*range(1, nodes.shape.rank), 0])
        mixture = tfd.MixtureSameFamily(tfd.Categorical(probs=weights), self.conditional(rates))
        return RandomVariable(mixture, name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "points": self.points}

    def _nodes(self, f: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Values of f [points, N, units] and their weights [points]."""
        mean, variance = _moments(f)
        z, weights = np.polynomial.hermite.hermgauss(self.points)
        z = tf.constant((np.sqrt(2) * z).reshape([-1] + [1] * mean.shape.rank), mean.dtype)
        return mean + tf.sqrt(variance) * z, tf.constant(weights / np.sqrt(np.pi), mean.dtype)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GaussianLikelihood(Likelihood):
    """`y ~ N(f, noise_variance)`, f and y [N, units]; expectation and prediction in closed form.

    Args:
        noise_variance: positive; where it starts if it is trained.
        trainable: whether it is learned.

    Raises:
        ValueError: `noise_variance` is not positive; else as `Likelihood`.

    Source: Hensman et al. 2013, "Gaussian Processes for Big Data", equation 4.
    """

    def __init__(self, noise_variance: float = 0.1, trainable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not noise_variance > 0:
            raise ValueError(f"noise_variance is {noise_variance!r}. Accepted: a positive number.")
        self._start, self._learns = float(noise_variance), bool(trainable)
        self._positive = constraints.Softplus(epsilon=0.0)
        raw = tf.keras.initializers.Constant(self._positive.inverse(tf.constant(self._start, tf.float64)).numpy())
        self.raw_noise_variance = self.add_weight("raw_noise_variance", [], initializer=raw, trainable=self._learns)

    @property
    def noise_variance(self) -> tf.Tensor:
        """The noise variance now."""
        return self._positive(tf.convert_to_tensor(self.raw_noise_variance))

    def conditional(self, f: tf.Tensor) -> tfd.Distribution:
        return tfd.Normal(f, tf.sqrt(tf.cast(self.noise_variance, f.dtype)))

    def expected_log_likelihood(self, f: Any, y: Any) -> tf.Tensor:
        mean, variance = _moments(f)
        noise = tf.cast(self.noise_variance, mean.dtype)
        return self.conditional(mean).log_prob(_labels(y, mean)) - variance / (2 * noise)

    def call(self, f: Any) -> RandomVariable:
        mean, variance = _moments(f)
        stddev = tf.sqrt(variance + tf.cast(self.noise_variance, mean.dtype))
        return RandomVariable(tfd.Normal(mean, stddev), name=self.name)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "noise_variance": float(self.noise_variance), "trainable": self._learns}


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class PoissonLikelihood(Likelihood):
    """Counts, `y ~ Poisson(link(f) cell_size)`, f and y [N, units].

    The expectation has a closed form for the link 'exp', and is by Gauss-Hermite quadrature for 'softplus'.

    Args:
        link: 'exp' or 'softplus'.
        cell_size: length, area or volume that a count is of; positive.

    Raises:
        ValueError: another link, a `cell_size` that is not positive; else as `Likelihood`.

    Source: Lloyd et al. 2015, "Variational Inference for Gaussian Process Modulated Poisson Processes".
    """

    def __init__(self, link: str = "exp", cell_size: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if link not in ("exp", "softplus") or not cell_size > 0:
            raise ValueError(f"link is {link!r}, cell_size {cell_size!r}. Accepted: 'exp' or 'softplus', and positive.")
        self.link, self.cell_size = link, float(cell_size)

    def conditional(self, f: tf.Tensor) -> tfd.Distribution:
        # Below -35 softplus(f) is exp(f) to the last digit, and soon 0, whose logarithm has no gradient.
        log_rate = f if self.link == "exp" else tf.where(f < -35, f, tf.math.log(tf.nn.softplus(tf.maximum(f, -35))))
        return tfd.Poisson(log_rate=log_rate + tf.constant(np.log(self.cell_size), f.dtype))

    def expected_log_likelihood(self, f: Any, y: Any) -> tf.Tensor:
        if self.link != "exp":
            return super().expected_log_likelihood(f, y)
        mean, variance = _moments(f)
        y, offset = _labels(y, mean), tf.constant(np.log(self.cell_size), mean.dtype)
        return y * (mean + offset) - tf.exp(mean + offset + variance / 2) - tf.math.lgamma(y + 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "link": self.link, "cell_size": self.cell_size}


def _labels(y: Any, values: tf.Tensor) -> tf.Tensor:
    """y in the shape and dtype of the values of f."""
    return tf.cast(labels_like(values.shape, lambda: tf.shape(values), y), values.dtype)


def _moments(f: Any) -> tuple[tf.Tensor, tf.Tensor]:
    distribution = family_of(getattr(f, "distribution", f))
    if not isinstance(distribution, tfd.Distribution):
        raise ValueError(
            f"A likelihood was given {type(f).__name__}. Accepted: the output of a Gaussian process layer, a random "
            "variable with mean and variance."
        )
    return distribution.mean(), distribution.variance()
