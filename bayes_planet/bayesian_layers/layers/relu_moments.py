"""Mean, variance and covariance of the rectifier max(x, 0) of jointly normal x.

For x ~ N(m, s^2), h = m / s, phi and Phi the standard normal density and distribution function, and
g(h) = h Phi(h) + phi(h):

```
E[max(x, 0)]             = s g(h)
Var[max(x, 0)]           = s^2 (Phi(h) - g(h) g(-h))
Cov[max(x, 0), max(y, 0)] = s t c(h, k, rho)
```

for y ~ N(n, t^2), k = n / t, correlation rho. The derivative of c in rho is P(x > 0, y > 0) (Price's theorem), so

```
c(h, k, rho) = rho Phi(h) Phi(k) + 1/(2 pi) int_0^asin(rho) (rho - sin a) e(a) da
e(a)         = exp(-(h^2 + k^2 - 2 h k sin a) / (2 cos^2 a))
```

The integral is computed on 12 Gauss-Legendre nodes: to 1e-7 for every h, k and rho, to 1e-12 for |rho| <= 0.9. (Wu et
al. 2019, "Deterministic Variational Inference for Robust Bayesian Neural Networks", approximate it by an expansion.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NODES, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2


def relu_moments(
    mean: tf.Tensor, variance: tf.Tensor, covariance: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Moments of max(x, 0), x normal with the given moments; float32 or float64.

    Args:
        mean, variance: [..., N]. A variance of 0 is taken as 1e-12.
        covariance: [..., N, N], its diagonal is not read; None: the elements of x are independent.

    Returns:
        mean and variance [..., N], covariance [..., N, N] (None if it was).
    """
    variance = tf.maximum(variance, tf.constant(1e-12, variance.dtype))
    stddev = tf.sqrt(variance)
    ratio = mean / stddev
    # Not E[y^2] - E[y]^2, which loses all digits far from 0.
    relative = normal_cdf(ratio) - rectified_mean(ratio) * rectified_mean(-ratio)
    new_variance = variance * tf.maximum(relative, tf.zeros([], variance.dtype))
    if covariance is not None:
        scales = stddev[..., :, None] * stddev[..., None, :]
        largest = 1 - 4 * float(np.finfo(variance.dtype.as_numpy_dtype).eps)
        correlation = tf.clip_by_value(covariance / scales, -largest, largest)
        shape = tf.shape(correlation)
        first, second = (tf.broadcast_to(h, shape) for h in (ratio[..., :, None], ratio[..., None, :]))
        covariance = tf.linalg.set_diag(scales * rectified_covariance(first, second, correlation), new_variance)
    return stddev * rectified_mean(ratio), new_variance, covariance


def normal_density(h: tf.Tensor) -> tf.Tensor:
    """phi(h)."""
    return tf.exp(-0.5 * tf.square(h)) / tf.constant(np.sqrt(2 * np.pi), h.dtype)


def normal_cdf(h: tf.Tensor) -> tf.Tensor:
    """Phi(h)."""
    return 0.5 * tf.math.erfc(-h / tf.constant(np.sqrt(2.0), h.dtype))


def rectified_mean(h: tf.Tensor) -> tf.Tensor:
    """g(h): the mean of max(z + h, 0), z ~ N(0, 1)."""
    return h * normal_cdf(h) + normal_density(h)


@tf.custom_gradient
def rectified_covariance(
    h: tf.Tensor, k: tf.Tensor, correlation: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]]:
    """c(h, k, rho): covariance of max(x + h, 0) and max(y + k, 0), x and y standard normal with correlation rho.

    Args:
        h, k, correlation: of one shape; |correlation| < 1.
    """

    def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # In closed form, so that nothing is kept for each node of the integral.
        both = both_positive(h, k, correlation)
        root = tf.sqrt(1 - tf.square(correlation))
        tail_h = normal_density(k) * normal_cdf((h - correlation * k) / root)  # E[y; x > -h, y > -k] and its like
        tail_k = normal_density(h) * normal_cdf((k - correlation * h) / root)
        by_h = k * both + tail_h + correlation * tail_k - normal_cdf(h) * rectified_mean(k)
        by_k = h * both + tail_k + correlation * tail_h - normal_cdf(k) * rectified_mean(h)
        return upstream * by_h, upstream * by_k, upstream * both

    integral = _integrate(h, k, correlation, lambda sine: correlation - sine)
    return correlation * normal_cdf(h) * normal_cdf(k) + integral, gradient


def both_positive(h: tf.Tensor, k: tf.Tensor, correlation: tf.Tensor) -> tf.Tensor:
    """P(x > -h, y > -k) of standard normal x and y: to 1e-12 for |correlation| <= 0.9, 3e-6 near 1."""
    return normal_cdf(h) * normal_cdf(k) + _integrate(h, k, correlation, tf.ones_like)


def _integrate(
    h: tf.Tensor, k: tf.Tensor, correlation: tf.Tensor, factor: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    angle, total = tf.asin(correlation), tf.zeros_like(correlation)
    squares, product = 0.5 * (tf.square(h) + tf.square(k)), h * k
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        sine = tf.sin(float(node) * angle)
        total += float(weight / (2 * np.pi)) * factor(sine) * tf.exp((product * sine - squares) / (1 - tf.square(sine)))
    return angle * total
