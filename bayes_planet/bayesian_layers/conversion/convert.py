"""A trained deterministic model made Bayesian, with its weights, and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.conversion.model_copies import PROJECTIONS, Made, build_like, copied_whole, copy_model
from bayes_planet.bayesian_layers.conversion.recurrent_copies import exchange_cells
from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.layers import convolutions, depthwise
from bayes_planet.bayesian_layers.layers.attention import MultiHeadAttentionReparameterization
from bayes_planet.bayesian_layers.layers.dense import DenseReparameterization
from bayes_planet.bayesian_layers.layers.embeddings import EmbeddingReparameterization
from bayes_planet.bayesian_layers.layers.lstm_cell import LSTMCellReparameterization
from bayes_planet.bayesian_layers.layers.recurrent import GRUCellReparameterization, VariationalRNN
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.processes.random_features import RandomFourierFeatures
from bayes_planet.bayesian_layers.samples.module_walk import layers_below
from bayes_planet.bayesian_layers.samples.weight_samples import variational_layers

_keras = tf.keras.layers
_CLASSES: dict[type, Any] = {
    _keras.Dense: DenseReparameterization,
    _keras.Conv1D: convolutions.Conv1DReparameterization,
    _keras.Conv2D: convolutions.Conv2DReparameterization,
    _keras.Conv3D: convolutions.Conv3DReparameterization,
    _keras.Conv1DTranspose: convolutions.Conv1DTransposeReparameterization,
    _keras.Conv2DTranspose: convolutions.Conv2DTransposeReparameterization,
    _keras.Conv3DTranspose: convolutions.Conv3DTransposeReparameterization,
    _keras.DepthwiseConv1D: depthwise.DepthwiseConv1DReparameterization,
    _keras.DepthwiseConv2D: depthwise.DepthwiseConv2DReparameterization,
    _keras.SeparableConv1D: depthwise.SeparableConv1DReparameterization,
    _keras.SeparableConv2D: depthwise.SeparableConv2DReparameterization,
    _keras.Embedding: EmbeddingReparameterization,
    _keras.LSTMCell: LSTMCellReparameterization,
    _keras.GRUCell: GRUCellReparameterization,
    _keras.MultiHeadAttention: MultiHeadAttentionReparameterization,
}
_RECURRENT: dict[Any, type] = {_keras.LSTM: _keras.LSTMCell, _keras.GRU: _keras.GRUCell}
_OF_CELLS = (_keras.RNN, VariationalRNN, _keras.StackedRNNCells)
# Scales and shifts, which stay as they are in any Bayesian network.
_WITHOUT_KERNEL = (
    _keras.BatchNormalization,
    _keras.LayerNormalization,
    _keras.GroupNormalization,
    _keras.UnitNormalization,
    _keras.PReLU,
)
# Arguments of a weight by its name.
_FIELDS = {
    "kernel": ("kernel_initializer", "kernel_regularizer"),
    "recurrent_kernel": ("recurrent_initializer", "recurrent_regularizer"),
    "embeddings": ("embeddings_initializer", "embeddings_regularizer"),
    "depthwise_kernel": ("depthwise_initializer", "depthwise_regularizer"),
    "pointwise_kernel": ("pointwise_initializer", "pointwise_regularizer"),
}


def to_bayesian(
    model: Any,
    delta: float = 0.1,
    prior_stddev: float = 1.0,
    prior_at_weights: bool = True,
    classes: Mapping[type, type] | None = None,
    strict: bool = False,
) -> Any:
    """A copy of a Keras model whose kernels are random about the trained ones.

    Each kernel, recurrent kernel and embedding w becomes `q = N(w, (delta |w|)^2)`, with the prior
    `N(w, prior_stddev^2)` (or about 0; the four kernels of an attention layer always have theirs about 0). Biases and
    all other layers keep their values. At its posterior mean the copy computes what the model does. A recurrent layer
    becomes a `VariationalRNN`, which draws its weights once a sequence.

    Args:
        model: a built Sequential, functional or subclassed model, or a layer. Layers are found where `copy_model`
            looks: models inside models, attributes, lists and dicts.
        delta: stddev of the posterior relative to the weight's size, at least 1e-5.
        prior_stddev: of the prior.
        prior_at_weights: whether the prior is centred at the trained weights (MOPED) rather than at 0.
        classes: which Keras layer or cell becomes which. Default: Dense, Embedding, all convolutions of Keras
            (transposed, depthwise and separable ones too), LSTMCell, GRUCell (and so LSTM, GRU, RNN; in a stack of
            cells, those) and MultiHeadAttention, each its Reparameterization. Only layers of exactly these types are
            converted. Any layer of this package that has the weights of the Keras layer can be named, such as
            {Dense: DenseFlipout}.
        strict: whether a layer with trainable weights that has no Bayesian form (BatchNormalization, one not in
            `classes`) or holds such layers where they are not looked for is an error; otherwise it stays as it is, and
            a warning names those whose kernels so stay deterministic (normalisation layers aside; none where `classes`
            was given, which is a choice). Layers that are Bayesian already stay in either case.

    Raises:
        ValueError: numbers that are not positive, no built model, a class with other weights; with `strict`, a layer
            that stays as it is.

    Source: Krishnan et al. 2020, "Specifying Weight Priors in Bayesian Deep Neural Networks with Empirical Bayes".
    """
    if not delta > 0 or not prior_stddev > 0:
        raise ValueError(f"Got delta={delta}, prior_stddev={prior_stddev}. Accepted: positive numbers.")
    chosen: Mapping[type, Any] = _CLASSES if classes is None else classes

    def unbuilt(layer: Any) -> Any:
        """The Bayesian layer or cell, without variables; None where there is none."""
        if type(layer) not in chosen:
            return None
        config = {**layer.get_config()}
        for weight, (initializer, regularizer) in _FIELDS.items():
            unused = weight == "kernel" and "depthwise_initializer" in config  # Keras' separable layers list it
            if initializer in config and not unused:
                value = getattr(layer, weight, None) if prior_at_weights else None
                mean = 0.0 if value is None else value.numpy()
                config[initializer] = initializers.TrainableNormal()
                config[regularizer] = regularizers.NormalKLDivergence(mean, float(prior_stddev))
        return chosen[type(layer)].from_config(_without_dicts(config))

    def fill(old: Any, new: Any) -> Any:
        """Posteriors about the weights of `old`; the other weights are copied."""
        if isinstance(old, _keras.MultiHeadAttention):
            for projection in PROJECTIONS:
                fill(getattr(old, projection), getattr(new, projection))
            return new
        unknown = set(new.weight_fields) - {*_FIELDS, "bias"}
        if unknown:
            raise ValueError(
                f"{type(old).__name__} was to become {type(new).__name__}, which has the weights {sorted(unknown)} "
                "besides. Accepted: layers with the weights of the Keras layer, such as DenseFlipout for Dense."
            )
        for weight in new.weight_fields:
            if weight == "bias" and not new.use_bias:
                continue
            value, posterior = getattr(old, weight).numpy(), new.posterior(weight)
            if posterior is None:
                getattr(new, weight).assign(value)
                continue
            posterior.mean.assign(value)
            stddev = tf.constant(np.maximum(delta * np.abs(value), 1e-5), posterior.stddev.dtype)
            posterior.stddev.assign(posterior.stddev_constraint.inverse(stddev))
        return new

    left: dict[int, Any] = {}

    def without_form(layer: Any) -> None:
        if _stays_deterministic(layer) and not isinstance(layer, _WITHOUT_KERNEL):
            left[id(layer)] = layer
        if strict and _stays_deterministic(layer):
            raise ValueError(
                f"Layer {layer.name!r} of class {type(layer).__name__} has no Bayesian form. Accepted with "
                f"strict=True: {', '.join(cls.__name__ for cls in chosen)} and layers "
                "without trainable weights; strict=False leaves it as it is."
            )

    def exchange(layer: Any, made: Made) -> Any:
        if type(layer) in (*_RECURRENT, *_OF_CELLS):
            new = exchange_cells(layer, made, unbuilt, fill, VariationalRNN, stays=without_form)
        else:
            new = unbuilt(layer)
            if new is not None:
                new = fill(layer, _built(new, layer))
        if new is None:
            without_form(layer)
        return new

    copy = copy_model(model, exchange)
    if left and classes is None:
        names = ", ".join(f"{layer.name!r} ({type(layer).__name__})" for layer in left.values())
        warnings.warn(
            f"to_bayesian left these layers deterministic, with the weights they have: {names}. They have no Bayesian "
            "form, or hold such layers where they are not looked for. strict=True makes that an error; classes={...} "
            "says which layers to convert.",
            stacklevel=2,
        )
    return copy


def to_deterministic(model: Any) -> Any:
    """A copy of a Keras model whose layers with random weights are plain Keras layers at the posterior means.

    `to_deterministic(to_bayesian(model))` has the weights of `model`.

    Args:
        model: a built Sequential, functional or subclassed model, or a layer. Its layers with random weights must
            derive from a Keras layer, as DenseReparameterization does from Dense, and have its weights.

    Raises:
        ValueError: another layer with random weights (a horseshoe, a Gaussian process, a dilated Conv3DTranspose), one
            where it is not looked for (in a Keras wrapper other than TimeDistributed and Bidirectional), or no built
            model.
    """

    def unbuilt(layer: Any) -> Any:
        if isinstance(layer, MultiHeadAttentionReparameterization):
            fields = [_FIELDS["kernel"], ("bias_initializer", "bias_regularizer")]
            keras_class: Any = _keras.MultiHeadAttention
        elif isinstance(layer, VariationalLayer):
            known = not set(layer.weight_fields) - {*_FIELDS, "bias"} and not isinstance(layer, RandomFourierFeatures)
            ancestors = (cls for cls in type(layer).__mro__ if cls.__module__.startswith(("keras", "tf_keras")))
            keras_class, fields = next(ancestors, _keras.Layer), list(layer.weight_fields.values())
            if not known or keras_class is _keras.Layer:
                if not layer.posteriors():
                    return None
                raise ValueError(
                    f"Layer {layer.name!r} of class {type(layer).__name__} has no deterministic counterpart. "
                    "Accepted: layers that derive from a Keras layer and have its weights."
                )
        else:
            return None
        config = layer.get_config()
        if keras_class is _keras.Conv3DTranspose and max(layer.dilation_rate) > 1:
            raise ValueError(
                f"Layer {layer.name!r} of class {type(layer).__name__} has dilation_rate={layer.dilation_rate}, which "
                "Keras' Conv3DTranspose takes and does not use. Accepted: a rate of 1."
            )
        for initializer, regularizer in fields:
            if isinstance(initializers.get(config[initializer]), initializers.TrainableDistribution):
                config[initializer] = "zeros"
            if isinstance(regularizers.get(config[regularizer]), regularizers.KLDivergence):
                config[regularizer] = None
        return keras_class.from_config(config)

    def fill(old: Any, new: Any) -> Any:
        if isinstance(old, _keras.MultiHeadAttention):
            for projection in PROJECTIONS:
                fill(getattr(old, projection), getattr(new, projection))
            return new
        for weight in old.weight_fields:
            if weight != "bias" or old.use_bias:
                posterior = old.posterior(weight)
                getattr(new, weight).assign(getattr(old, weight) if posterior is None else posterior.mean_value())
        return new

    def exchange(layer: Any, made: Made) -> Any:
        if type(layer) in _OF_CELLS:
            whole = {cell: rnn for rnn, cell in _RECURRENT.items()}
            return exchange_cells(layer, made, unbuilt, fill, _keras.RNN, whole)
        new = unbuilt(layer)
        return None if new is None else fill(layer, _built(new, layer))

    copy = copy_model(model, exchange, lambda layer: bool(variational_layers(layer)))
    left = variational_layers(copy)
    if left:
        raise ValueError(
            f"Layers with random weights are left in the copy: {', '.join(repr(layer.name) for layer in left)} "  # type: ignore[attr-defined]
            f"({', '.join(sorted({type(layer).__name__ for layer in left}))}). Accepted: ones in models, attributes, "
            "lists and dicts, TimeDistributed, Bidirectional and this package's layers; in an RNN its cells, not those "
            "inside of a cell."
        )
    return copy


def _built(new: Any, old: Any) -> Any:
    """`new` with variables, for the inputs that `old` was built for."""
    if hasattr(old, "state_size"):
        new.build([None, old.kernel.shape[0]])
    else:
        build_like(new, old)
    return new


def _without_dicts(config: dict[str, Any]) -> dict[str, Any]:
    """A config whose activations are functions: `from_config` may leave dicts to the constructor."""
    return {
        name: tf.keras.activations.deserialize(value) if name.endswith("activation") and value else value
        for name, value in config.items()
    }


def _stays_deterministic(layer: Any) -> bool:
    """Whether trainable weights of a layer that is not exchanged are neither Bayesian nor of layers that are tried."""
    settled = [*variational_layers(layer), *([] if copied_whole(layer) else layers_below(layer))]
    found = {id(weight) for part in settled for weight in part.weights}  # type: ignore[attr-defined]
    return any(id(weight) not in found for weight in layer.trainable_weights)
