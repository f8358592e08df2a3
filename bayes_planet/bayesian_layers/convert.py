"""A trained deterministic model made Bayesian, with its weights, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers import initializers, regularizers
from bayes_planet.bayesian_layers.dense import DenseReparameterization
from bayes_planet.bayesian_layers.variational_layer import VariationalLayer


def to_bayesian(
    model: tf.keras.Model,
    delta: float = 0.1,
    prior_stddev: float = 1.0,
    prior_at_weights: bool = True,
    classes: Mapping[type, type] | None = None,
) -> tf.keras.Model:
    """A copy of a Keras model whose dense layers have random kernels about the trained ones.

    Each kernel w becomes `q = N(w, (delta |w|)^2)`, with the prior `N(w, prior_stddev^2)` (or about 0). Biases and all
    other layers keep their values. At its posterior mean the copy computes what the model does.

    Args:
        model: a built Sequential or functional model; models inside it are converted, too.
        delta: stddev of the posterior relative to the weight's size, at least 1e-5.
        prior_stddev: of the prior.
        prior_at_weights: whether the prior is centred at the trained weights (MOPED) rather than at 0.
        classes: which Keras layer becomes which; default {Dense: DenseReparameterization}. Only layers of exactly these
            types are converted. Any layer of this package with a `kernel` can be named, such as {Dense: DenseFlipout}.

    Raises:
        ValueError: numbers that are not positive, a subclassed or unbuilt model.

    Source: Krishnan et al. 2020, "Specifying Weight Priors in Bayesian Deep Neural Networks with Empirical Bayes".
    """
    if not delta > 0 or not prior_stddev > 0:
        raise ValueError(f"Got delta={delta}, prior_stddev={prior_stddev}. Accepted: positive numbers.")
    chosen = {tf.keras.layers.Dense: DenseReparameterization} if classes is None else dict(classes)

    def convert(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer | None:
        if type(layer) not in chosen:
            return None
        kernel = layer.kernel.numpy()
        options = {
            "kernel_initializer": initializers.TrainableNormal(),
            "kernel_regularizer": regularizers.NormalKLDivergence(
                kernel if prior_at_weights else 0.0, float(prior_stddev)
            ),
        }
        return chosen[type(layer)](**{**layer.get_config(), **options})

    copy = _clone(model, convert)
    for old, new in _pairs(model, copy):
        if type(old) not in chosen:
            new.set_weights(old.get_weights())
            continue
        posterior, kernel = new.posterior("kernel"), old.kernel.numpy()
        posterior.mean.assign(kernel)
        stddev = tf.constant(np.maximum(delta * np.abs(kernel), 1e-5), posterior.stddev.dtype)
        posterior.stddev.assign(posterior.stddev_constraint.inverse(stddev))
        if old.use_bias:
            new.bias.assign(old.bias)
    return copy


def to_deterministic(model: tf.keras.Model) -> tf.keras.Model:
    """A copy of a Keras model whose layers with random weights are plain Keras layers at the posterior means.

    Args:
        model: a built Sequential or functional model. Its layers with random weights must derive from a Keras layer,
            as DenseReparameterization does from Dense, and have only weights named `kernel` and `bias`.

    Raises:
        ValueError: another layer with random weights, a subclassed or unbuilt model.
    """

    def convert(layer: Any) -> Any:
        if not isinstance(layer, VariationalLayer):
            return None
        keras = (cls for cls in type(layer).__mro__ if cls.__module__.startswith(("keras", "tf_keras")))
        parent: Any = next(keras, None)
        if parent is None or parent is tf.keras.layers.Layer or set(layer.weight_fields) - {"kernel", "bias"}:
            raise ValueError(
                f"Layer {layer.name!r} of class {type(layer).__name__} has no deterministic counterpart. Accepted: "
                "layers with a kernel and a bias that derive from a Keras layer."
            )
        config = layer.get_config()  # type: ignore[attr-defined]
        for weight, (initializer, regularizer) in layer.weight_fields.items():
            if layer.posterior(weight) is not None:
                config.update({initializer: "zeros", regularizer: None})
            elif isinstance(getattr(layer, regularizer, None), regularizers.KLDivergence):
                config[regularizer] = None
        return parent.from_config(config)

    copy = _clone(model, convert)
    for old, new in _pairs(model, copy):
        if not isinstance(old, VariationalLayer):
            new.set_weights(old.get_weights())
            continue
        for weight in old.weight_fields:
            if weight == "bias" and not old.use_bias:
                continue
            posterior = old.posterior(weight)
            getattr(new, weight).assign(getattr(old, weight) if posterior is None else posterior.mean_value())
    return copy


def _clone(model: Any, convert: Callable[[Any], Any]) -> tf.keras.Model:
    if not isinstance(model, tf.keras.Model) or not hasattr(model, "get_config") or not model.built:
        raise ValueError(f"Got {type(model).__name__}. Accepted: a built Sequential or functional Keras model.")

    def clone_layer(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
        if isinstance(layer, tf.keras.Model):
            return _clone(layer, convert)
        converted = convert(layer)
        return type(layer).from_config(layer.get_config()) if converted is None else converted

    if not (isinstance(model, tf.keras.Sequential) or getattr(model, "_is_graph_network", False)):
        raise ValueError(
            f"{type(model).__name__} {model.name!r} is a subclassed model; its layers cannot be exchanged. Accepted: a "
            "built Sequential or functional Keras model."
        )
    copy = tf.keras.models.clone_model(model, clone_function=clone_layer)
    if not copy.built:
        copy.build(model.input_shape if hasattr(model, "input_shape") else model._build_input_shape)
    return copy


def _pairs(model: tf.keras.Model, copy: tf.keras.Model) -> Iterator[tuple[Any, Any]]:
    """Corresponding layers, those of models inside one by one."""
    for old, new in zip(model.layers, copy.layers, strict=True):
        if isinstance(old, tf.keras.Model):
            yield from _pairs(old, new)
        else:
            yield old, new
