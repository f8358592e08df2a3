"""Multi-head attention with random projections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tf_keras.src.engine.base_layer_utils import call_context

from bayes_planet.bayesian_layers.distributions import initializers, regularizers
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution
from bayes_planet.bayesian_layers.layers.products.flipout import FlipoutLayer, flip
from bayes_planet.bayesian_layers.layers.products.projection import of_draws
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.samples.sample_axis import require_room
from bayes_planet.bayesian_layers.samples.weight_samples import sample_weights
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry, in_use, layer_key, use_weights

_PROJECTIONS = {
    "query": "_query_dense",
    "key": "_key_dense",
    "value": "_value_dense",
    "output": "_output_dense",
}


class _Projection(VariationalLayer, tf.keras.layers.EinsumDense):
    """EinsumDense with a random kernel (and, if asked, bias); one of the four of an attention layer."""

    equation: str
    bias_axes: str | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.use_bias = self.bias_axes is not None

    def _fan_in(self, weight: str, shape: Any) -> float | None:
        before, after = self.equation.split("->")
        axes = before.split(",")[1]
        summed = (size for axis, size in zip(axes, shape, strict=True) if axis not in after)
        return math.prod(summed) if weight == "kernel" else 1

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if not self.posteriors():
            return super().call(inputs)
        inputs = tf.cast(inputs, self.compute_dtype)
        weights = self.current_weights()
        outputs = self._apply_kernel(inputs, weights)
        return outputs + self.weight_value("bias", weights) if self.use_bias else outputs

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return tf.einsum(self.equation, inputs, self.weight_value("kernel", weights))


class _FlipoutProjection(FlipoutLayer, _Projection):
    """`_Projection` with random signs for each example and feature, constant over positions."""

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        if not self._is_flipped("kernel", weights):
            return super()._apply_kernel(inputs, weights)
        value, mean = (tf.cast(weights[name], inputs.dtype) for name in ("kernel", "kernel_mean"))
        before, after = self.equation.split("->")
        flipped = inputs * self._signs(inputs, before.split(",")[0], weights, 0)
        perturbed = tf.einsum(self.equation, flipped, value - mean)
        return tf.einsum(self.equation, inputs, mean) + perturbed * self._signs(perturbed, after, weights, 1)

    def _signs(self, values: tf.Tensor, axes: str, weights: Mapping[str, tf.Tensor], index: int) -> tf.Tensor:
        features = self.equation.split("->")[0].split(",")[1]
        sizes = tf.shape(values)
        shape = [sizes[n] if n == 0 or axis in features else 1 for n, axis in enumerate(axes)]
        return flip(tf.ones(shape, values.dtype), weights["sign_seed"], index)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MultiHeadAttentionReparameterization(tf.keras.layers.MultiHeadAttention):
    """Multi-head attention whose query, key, value and output kernels are random.

    `softmax((q Wq)(k Wk)^T / sqrt(key_dim)) (v Wv)` for each head, the heads projected by Wo. Each call draws the four
    kernels, shared by the whole batch. The projections are layers of their own: a weight sample has an entry for each,
    `<name>_query`, `<name>_key`, `<name>_value` and `<name>_output`, and `losses` and `weight_kl` a KL for each.

    Args: those of `tf.keras.layers.MultiHeadAttention`, and
        kernel_initializer, bias_initializer: 'trainable_normal' or another distribution; each projection gets one of
            its own. Plain initializers make the layer `tf.keras.layers.MultiHeadAttention`.
        kernel_regularizer, bias_regularizer: 'normal_kl_divergence' or another KL, one term for each projection.

    Call arguments: those of the Keras layer (query [B, T, D], value [B, S, D], key, attention_mask, use_causal_mask,
        return_attention_scores, training), and
        seed: stateless seed, int32 [2], for this call's kernels, other than that of another layer (see
            `DenseReparameterization`). Not used inside `use_weights`, nor for dropout.
        With a sample of N draws in force, query, key and value have one more leading axis, of N or 1; an
        attention_mask has none, and serves every draw.

    Returns:
        [B, T, D], or [N, B, T, D]; with return_attention_scores also the scores [B, heads, T, S] ([N, ...]).

    Raises:
        ValueError: a leading axis that is neither N nor 1; else as `DenseReparameterization`.

    Source: Vaswani et al. 2017, "Attention Is All You Need"; Tran et al. 2018, "Bayesian Layers".
    """

    _projection: type[_Projection] = _Projection

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = True,
        output_shape: Any = None,
        attention_axes: Any = None,
        kernel_initializer: Any = "trainable_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = "normal_kl_divergence",
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_heads,
            key_dim,
            value_dim=value_dim,
            dropout=dropout,
            use_bias=use_bias,
            output_shape=output_shape,
            attention_axes=attention_axes,
            kernel_initializer=initializers.own(kernel_initializer),
            bias_initializer=initializers.own(bias_initializer),
            kernel_regularizer=regularizers.get(kernel_regularizer),
            bias_regularizer=regularizers.get(bias_regularizer),
            activity_regularizer=regularizers.get(activity_regularizer),
            **kwargs,
        )

    def projections(self) -> dict[str, VariationalLayer]:
        """The four layers that project, by 'query', 'key', 'value' and 'output'; {} before the layer is built."""
        return {name: getattr(self, at) for name, at in _PROJECTIONS.items() if hasattr(self, at)}

    def weights_to_come(self) -> dict[str, Any]:
        """{'kernel' or 'bias': its regularizer} for what will be random in each projection; {} once these exist."""
        fields = {"kernel": (self._kernel_initializer, self._kernel_regularizer)}
        if self._use_bias:
            fields["bias"] = (self._bias_initializer, self._bias_regularizer)
        random = {name: held for name, (start, held) in fields.items() if isinstance(start, TrainableDistribution)}
        return {} if self.projections() else random

    def _require_built(self) -> None:
        if self.weights_to_come():
            raise ValueError(
                f"Layer {self.name!r} has no projections yet. Call it once on its inputs, or layer.build(shapes), "
                "before its weights are sampled or its KL is read."
            )

    def build(self, input_shape: Any) -> None:
        """Creates the weights: for one shape [B, T, D] of query, value and key, or a list of two or three shapes."""
        context = call_context()
        called = context.in_call and context.layer is self  # Keras names the query's shape alone
        if not called and not self._built_from_signature:
            shapes = list(input_shape) if not isinstance(input_shape, tf.TensorShape) else [input_shape]
            if shapes and (shapes[0] is None or isinstance(shapes[0], int)):
                shapes = [tf.TensorShape(input_shape)]
            shapes = [tf.TensorShape(shape) for shape in shapes]
            if not 1 <= len(shapes) <= 3 or any(shape.rank is None or shape.rank < 3 for shape in shapes):
                raise ValueError(
                    f"Layer {self.name!r} was to be built for {input_shape}. Accepted: a shape [B, T, D] for query, "
                    "value and key, or a list of two (query, value) or three (query, value, key) of them."
                )
            self._build_from_signature(shapes[0], shapes[min(1, len(shapes) - 1)], shapes[2] if shapes[2:] else None)
        super().build(input_shape)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if in_use():
            found = (layer.samples_in_use() for layer in self.projections().values())
            samples = next((samples for samples in found if samples is not None), None)
            if samples is not None:
                require_room(self, samples, args[0] if args else kwargs.get("query"), call_context().layer)
        return super().__call__(*args, **kwargs)

    def _build_from_signature(self, query: Any, value: Any, key: Any = None) -> None:
        super()._build_from_signature(query, value, key)
        shapes = {"query": self._query_shape, "key": self._key_shape, "value": self._value_shape}
        heads = [self._num_heads, self._value_dim]
        shapes["output"] = self._query_shape[:-1].concatenate(heads)
        with tf.init_scope():
            for name, attribute in _PROJECTIONS.items():
                plain = getattr(self, attribute)
                projection = self._projection(
                    plain.equation,
                    plain.partial_output_shape,
                    bias_axes=plain.bias_axes,
                    name=f"{self.name}_{name}",
                    **self._get_common_kwargs_for_sublayer(),
                )
                setattr(self, attribute, projection)
                # Now, for weights can be sampled only from a layer that has them.
                with tf.name_scope(f"{self.name}/{plain.name}/"):
                    projection.build(shapes[name])

    def call(
        self,
        query: Any,
        value: Any,
        key: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        training: Any = None,
        use_causal_mask: bool = False,
        seed: Any = None,
    ) -> Any:
        options = {
            "attention_mask": attention_mask,
            "return_attention_scores": return_attention_scores,
            "training": training,
            "use_causal_mask": use_causal_mask,
        }
        if not self._built_from_signature:
            self._build_from_signature(query, value, key)
        layers = [layer for layer in self.projections().values() if layer.posteriors()]
        entries = {layer_key(layer): active_entry(layer) for layer in layers}  # type: ignore[arg-type]
        fresh = any(entry is None for entry in entries.values())
        if not layers or (fresh and seed is None):
            return super().call(query, value, key, **options)
        if fresh:
            with use_weights(sample_weights(self, seed)):
                return super().call(query, value, key, **options)
        name, posterior = next(iter(layers[0].posteriors().items()))
        drawn = entries[layer_key(layers[0])][name]  # type: ignore[arg-type, index]
        if drawn.shape.rank == len(posterior.weight_shape):
            return super().call(query, value, key, **options)
        return self._call_samples((query, value, key), entries, drawn, options)

    def _call_samples(self, inputs: tuple, entries: Mapping[str, Any], drawn: tf.Tensor, options: Mapping) -> Any:
        """The outputs for each draw of the sample in force, stacked."""
        samples = drawn.shape[0]
        masks = [getattr(tensor, "_keras_mask", None) for tensor in inputs]
        inputs = tuple(None if tensor is None else of_draws(tensor, drawn) for tensor in inputs)

        def one(index: Any) -> Any:
            own = {key: {name: tensor[index] for name, tensor in entry.items()} for key, entry in entries.items()}
            query, value, key = (_slice(*pair, index) for pair in zip(inputs, masks, strict=True))
            with use_weights(own):
                return super(MultiHeadAttentionReparameterization, self).call(query, value, key, **options)

        if samples is not None and samples <= 32:
            return tf.nest.map_structure(lambda *outputs: tf.stack(outputs), *[one(index) for index in range(samples)])
        dtype = tf.as_dtype(self.compute_dtype)
        signature = (dtype, dtype) if options["return_attention_scores"] else dtype
        return tf.map_fn(one, tf.range(tf.shape(drawn)[0]), fn_output_signature=signature)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        return super().from_config(dict(config))  # Keras takes the shapes out of the dict it is given


def _slice(tensor: tf.Tensor | None, mask: tf.Tensor | None, index: Any) -> tf.Tensor | None:
    """Slice `index` of [N, ...], or the one slice of [1, ...], with that of its Keras mask, [N, ...] or [1, ...]."""
    if tensor is None:
        return None
    own = tensor[tf.minimum(index, tf.shape(tensor)[0] - 1)]
    if mask is not None:
        own._keras_mask = mask[tf.minimum(index, tf.shape(mask)[0] - 1)]
    return own


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class MultiHeadAttentionFlipout(MultiHeadAttentionReparameterization):
    """`MultiHeadAttentionReparameterization` whose kernels' deviations from their means get signs in each example.

    As in `DenseFlipout`, but the signs are constant over positions: each example sees one set of kernels of the right
    distribution, nearly independent of its neighbours', and the scores compare keys made by the same kernel.

    Arguments, call arguments, returns (query [B, T, D] to [B, T, D]) and errors as
    `MultiHeadAttentionReparameterization`.

    Source: Wen et al. 2018, "Flipout", section 4.
    """

    _projection = _FlipoutProjection


VariationalMultiHeadAttention = MultiHeadAttentionReparameterization
