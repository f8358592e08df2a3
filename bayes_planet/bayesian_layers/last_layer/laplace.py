"""Laplace approximation of the last layer of a trained network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.samples.seeds import as_seed

# log10 of the prior precisions that are tried for classes.
_PRECISIONS = np.linspace(-4, 4, 17)


class LastLayerLaplace(tf.Module):
    """Normal posterior over the weights of the last Dense layer of a trained network, all before it fixed.

    For regression, `y = phi(x) w + N(0, noise)`, w ~ N(0, 1 / prior_precision), the posterior is exact. For
    classification it is the normal at the mode with the Gauss-Newton Hessian, which for the softmax of a linear layer
    is the Hessian: `H = sum_n (diag(p_n) - p_n p_n^T) x phi_n phi_n^T + prior_precision I`.

    ```python
    laplace = LastLayerLaplace(model, "classification")
    laplace.fit(x, y)                                           # a closed form, or a few Newton steps
    laplace.sample_predictions(x_new, samples=50, seed=[0, 1])  # [50, B, C]
    laplace.moments(x_new)                                      # mean and (co)variance of the last layer's sums
    ```

    Args:
        model: a built Sequential or functional model whose last layer is `tf.keras.layers.Dense`; or a pair of a
            callable that gives features [B, F] and a built Dense layer.
        likelihood: 'regression' (the layer has no activation) or 'classification' (its outputs are logits, or
            probabilities by softmax). Of one logit only the softmax with a second, fixed at 0, is meant by 'sigmoid'.
        prior_precision: of the weights and the bias; None finds the one of the largest evidence.
        noise_variance: of regression, one number for all outputs; None finds it by the evidence too.

    After `fit`: `prior_precision`, `noise_variance`, `log_evidence` (of the Laplace approximation, in nats).
    Computed in float64, on all data at once: F outputs x classes up to a few thousand are meant.

    Raises:
        ValueError: no Dense layer at the end, an unknown likelihood, numbers that are not positive, data of other
            shapes, predictions before `fit`.

    Source: MacKay 1992, "Bayesian Interpolation"; Daxberger et al. 2021, "Laplace Redux"; Kristiadi et al. 2020.
    """

    def __init__(
        self,
        model: Any,
        likelihood: str,
        prior_precision: float | None = None,
        noise_variance: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if likelihood not in ("regression", "classification"):
            raise ValueError(f"likelihood is {likelihood!r}. Accepted: 'regression', 'classification'.")
        for key, value in {"prior_precision": prior_precision, "noise_variance": noise_variance}.items():
            if value is not None and not value > 0:
                raise ValueError(f"{key} is {value!r}. Accepted: a positive number, or None to find it.")
        self.likelihood = likelihood
        self.features, self.head = _parts(model)
        self.prior_precision, self.noise_variance = prior_precision, noise_variance
        self._find_precision, self._find_noise = prior_precision is None, noise_variance is None
        self.log_evidence: float | None = None
        self.mean: Any = None

    def fit(self, x: Any, y: Any) -> LastLayerLaplace:
        """Fits the posterior. x [N, ...]; y [N, K] or [N] for regression, integers [N] for classification."""
        phi, y = self._design(x), np.asarray(y)
        if len(phi) != len(y):
            raise ValueError(f"Got {len(phi)} inputs and {len(y)} targets. Accepted: as many.")
        if self.likelihood == "regression":
            y = y.reshape(len(y), -1).astype(np.float64)
            if y.shape[1] != self.head.units:
                raise ValueError(f"Got targets of {y.shape[1]} numbers. Accepted: [N, {self.head.units}].")
            self._fit_regression(phi, y)
        else:
            classes = max(self.head.units, 2)
            if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer) or y.min() < 0 or y.max() >= classes:
                raise ValueError(f"Got targets {y.dtype} {y.shape}. Accepted: integers [N] below {classes}.")
            self._fit_classification(phi, y)
        return self

    def _fit_regression(self, phi: np.ndarray, y: np.ndarray) -> None:
        # In the eigenvectors of phi^T phi everything is a sum over eigenvalues.
        values, vectors = np.linalg.eigh(phi.T @ phi)
        values = np.maximum(values, 0.0)
        projected = vectors.T @ (phi.T @ y)
        given_noise = None if self._find_noise else self.noise_variance
        given_precision = None if self._find_precision else self.prior_precision
        noise = max(float(np.var(y)), 1e-12) / 10 if given_noise is None else given_noise
        alpha = 1.0 if given_precision is None else given_precision
        steps = 1000 if self._find_noise or self._find_precision else 1
        for _ in range(steps):
            precision = values / noise + alpha
            mean = projected / noise / precision[:, None]
            misfit = np.sum((y - phi @ (vectors @ mean)) ** 2)
            before = alpha, noise
            # MacKay's fixed point: `known` of the weights are determined by the data.
            known = y.shape[1] * np.sum(values / noise / precision)
            if self._find_precision:
                alpha = min(known / max(np.sum(mean**2), 1e-300), 1e12)
            if self._find_noise:
                noise = max(misfit / max(y.size - known, 1e-12), 1e-12)
            if np.allclose(before, (alpha, noise), rtol=1e-10):
                break
        self.prior_precision, self.noise_variance = float(alpha), float(noise)
        precision = values / noise + alpha
        mean = projected / noise / precision[:, None]
        misfit = np.sum((y - phi @ (vectors @ mean)) ** 2) / noise + alpha * np.sum(mean**2)
        log_det = np.sum(np.log(precision)) - len(values) * np.log(alpha)
        self.log_evidence = float(-0.5 * (misfit + y.shape[1] * log_det + y.size * np.log(2 * np.pi * noise)))
        self.mean = vectors @ mean
        self.factor = vectors / np.sqrt(precision)  # factor factor^T is each output's covariance

    def _fit_classification(self, phi: np.ndarray, y: np.ndarray) -> None:
        start = self._weights()
        if start.shape[1] == 1:  # a sigmoid is the softmax of (0, logit)
            y_hot = y[:, None].astype(np.float64)
        else:
            y_hot = np.eye(start.shape[1])[y]
        best: tuple = (-np.inf,)
        weights = start
        given = None if self._find_precision else self.prior_precision
        for alpha in 10 ** _PRECISIONS[::-1] if given is None else [given]:
            weights, hessian, loss = _mode(phi, y_hot, weights, alpha)
            log_det = np.linalg.slogdet(hessian)[1] - weights.size * np.log(alpha)
            evidence = -loss - 0.5 * log_det
            if evidence > best[0]:
                best = evidence, alpha, weights, hessian
        self.log_evidence, self.prior_precision = float(best[0]), float(best[1])
        self.mean = best[2]
        # inv(L)^T of H = L L^T: factor factor^T is the covariance of the weights, feature by feature, class inside.
        self.factor = np.linalg.inv(np.linalg.cholesky(best[3])).T

    def moments(self, x: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Mean and covariance of the sums before the activation, `phi w`, without the noise of regression.

        Returns:
            float64 [B, K] and [B, K, K].
        """
        phi = self._fitted(x)
        if self.likelihood == "regression":
            variance = np.sum((phi @ self.factor) ** 2, -1)
            covariance = variance[:, None, None] * np.eye(self.mean.shape[1])
        else:
            spread = np.einsum("bf,fkr->bkr", phi, self.factor.reshape(*self.mean.shape, -1))
            covariance = spread @ np.swapaxes(spread, 1, 2)
        return tf.constant(phi @ self.mean), tf.constant(covariance)

    def probabilities(self, x: Any) -> tf.Tensor:
        """Class probabilities without draws, `softmax(mean / sqrt(1 + pi variance / 8))`: float64 [B, C]."""
        if self.likelihood != "classification":
            raise ValueError("probabilities is for likelihood 'classification'; take moments for regression.")
        mean, covariance = self.moments(x)
        logits = mean / tf.sqrt(1 + np.pi / 8 * tf.linalg.diag_part(covariance))
        if logits.shape[1] == 1:
            logits = tf.concat([tf.zeros_like(logits), logits], 1)
        return tf.nn.softmax(logits)

    def sample_predictions(self, x: Any, samples: int, seed: Any, training: bool = False) -> tf.Tensor:
        """The network's outputs under draws of the last layer's weights.

        Args:
            x: the inputs, [B, ...]. samples: S. seed: stateless seed, int32 [2]. training: accepted and not used.

        Returns:
            [S, B, K] in the layer's compute dtype, after its activation.
        """
        phi = self._fitted(x)
        size = self.mean.shape[0] if self.likelihood == "regression" else self.mean.size
        samples = positive_integer(samples, "samples")
        shape = [samples, size, self.mean.shape[1] if self.likelihood == "regression" else 1]
        noise = tf.random.stateless_normal(shape, as_seed(seed), dtype=tf.float64)
        weights = self.mean + tf.reshape(tf.constant(self.factor) @ noise, [samples, *self.mean.shape])
        outputs = tf.cast(tf.einsum("bf,sfk->sbk", phi, weights), self.head.compute_dtype)
        return outputs if self.head.activation is None else self.head.activation(outputs)

    def _design(self, x: Any) -> np.ndarray:
        """Features, and a column of ones where the layer has a bias: float64 [N, F]."""
        phi = np.asarray(tf.cast(self.features(x), tf.float64))
        if phi.ndim != 2:
            raise ValueError(f"The last layer's inputs have shape {phi.shape}. Accepted: [B, F].")
        return np.concatenate([phi, np.ones([len(phi), 1])], 1) if self.head.use_bias else phi

    def _weights(self) -> np.ndarray:
        return np.concatenate([value.reshape(-1, self.head.units) for value in self.head.get_weights()]).astype(float)

    def _fitted(self, x: Any) -> np.ndarray:
        if self.mean is None:
            raise ValueError("This LastLayerLaplace has no posterior yet. Call fit(x, y) first.")
        return self._design(x)


def _parts(model: Any) -> tuple[Callable, Any]:
    """Features and last layer."""
    if isinstance(model, tuple) and len(model) == 2:
        features, head = model
    elif isinstance(model, tf.keras.Model) and model.built and model.layers and getattr(model, "inputs", None):
        head = model.layers[-1]
        features = tf.keras.Model(model.inputs, head.input) if type(head) is tf.keras.layers.Dense else None
    elif isinstance(model, tf.keras.Sequential) and model.built and len(model.layers) > 1:
        *before, head = model.layers

        def features(x: Any) -> Any:
            for layer in before:
                x = layer(x)
            return x
    else:
        features, head = None, None
    if type(head) is not tf.keras.layers.Dense or not head.built or not callable(features):
        raise ValueError(
            f"LastLayerLaplace got {type(model).__name__} with the last layer {type(head).__name__}. Accepted: a built "
            "Sequential or functional model that ends in tf.keras.layers.Dense, or (callable that gives features, that "
            "layer)."
        )
    return features, head


def _mode(phi: np.ndarray, y: np.ndarray, weights: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Newton's method for `-log p(y | phi w) + alpha |w|^2 / 2`: the mode, the Hessian and the value there."""
    size = weights.size
    if size > 6000:
        raise ValueError(f"The last layer has {size} weights, and its Hessian their square. Accepted: up to 6000.")
    loss, gradient, hessian = _derivatives(phi, y, weights, alpha)
    for _ in range(100):
        step = np.linalg.solve(hessian, gradient.ravel()).reshape(weights.shape)
        if np.sum(gradient * step) < 1e-13 * max(1.0, abs(loss)):
            break
        length = 1.0
        while length > 1e-8:
            tried = _derivatives(phi, y, weights - length * step, alpha)
            if tried[0] <= loss + 1e-12 * abs(loss):
                break
            length /= 2
        else:
            break
        weights = weights - length * step
        loss, gradient, hessian = tried
    return weights, hessian, loss


def _derivatives(
    phi: np.ndarray, y: np.ndarray, weights: np.ndarray, alpha: float
) -> tuple[float, np.ndarray, np.ndarray]:
    logits = phi @ weights
    if y.shape[1] == 1:
        p = 0.5 * (1 + np.tanh(logits / 2))
        loss = np.sum(np.logaddexp(0, logits) - y * logits)
        curvature = (p * (1 - p))[:, :, None]
    else:
        top = logits.max(1, keepdims=True)
        normalizer = top + np.log(np.exp(logits - top).sum(1, keepdims=True))
        p = np.exp(logits - normalizer)
        loss = np.sum(normalizer[:, 0] - np.sum(y * logits, 1))
        curvature = p[:, :, None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None, :]
    gradient = phi.T @ (p - y) + alpha * weights
    # Row (feature, class): the same order as weights.ravel().
    count, classes = len(phi), p.shape[1]
    hessian = np.empty([phi.shape[1], classes, phi.shape[1], classes])
    for first in range(classes):
        for second in range(first, classes):
            block = (phi * curvature[:, first, second].reshape(count, 1)).T @ phi
            hessian[:, first, :, second] = block
            hessian[:, second, :, first] = block
    hessian = hessian.reshape(weights.size, weights.size)
    hessian[np.diag_indices(weights.size)] += alpha
    return float(loss + 0.5 * alpha * np.sum(weights**2)), gradient, hessian
