"""Reversible layers, and random variables pushed through them.

A reversible layer has, beside its call `y = f(x)`,

- `reverse(y)`, which gives x back;
- `log_det_jacobian(y)`, which is **log |det dx/dy| at the output y**: what is added to the log-density of x to give
  that of y. (edward2 adds it so, too. Its negative is the log |det dy/dx| of other libraries.)

An *example* is everything after the first axis, as everywhere in Keras, so `log_det_jacobian` has shape [B].

Called on a tensor, such a layer returns a tensor; called on a random variable, the transformed random variable, whose
`.distribution.log_prob` follows from the two methods. It composes in `tf.keras.Sequential` on both.

Source: Tran et al. 2018, "Bayesian Layers", section 2.4.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples import nested


class ReversibleLayer(tf.keras.layers.Layer):
    """Base of reversible layers: `call`, `reverse` and `log_det_jacobian` on tensors; random variables come for free.

    A subclass defines the three methods; Arguments are those of `tf.keras.layers.Layer`. Shapes: inputs [B, ...] to
    outputs of the same shape. `whole_example` says that `log_det_jacobian` is [B], one number an example. A layer that
    has it False acts on each element by itself, and its `log_det_jacobian` has the shape of its input.

    Raises:
        NotImplementedError: a method that the subclass does not define.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.4.
    """

    whole_example = True

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(inputs, RandomVariable):
            return super().__call__(inputs, *args, **kwargs)
        self.prepare(inputs)
        return TransformedRandomVariable(inputs, self)

    def prepare(self, inputs: Any) -> None:
        """Builds the layer for inputs of this shape, a tensor or a random variable (which is not drawn for it)."""
        if not self.built:
            self._maybe_build(inputs)

    def reverse(self, inputs: tf.Tensor) -> tf.Tensor:
        """The input x whose output is `inputs`."""
        raise NotImplementedError(f"{type(self).__name__} has no reverse().")

    def log_det_jacobian(self, inputs: tf.Tensor) -> tf.Tensor:
        """log |det dx/dy| at the output y = `inputs`."""
        raise NotImplementedError(f"{type(self).__name__} has no log_det_jacobian().")


class TransformedDistribution(tfd.Distribution):
    """Distribution of y = f(x), x ~ base, f a reversible layer.

    Where f has `whole_example`, all axes of a draw but the first become the event: Normal([B, D]) through RealNVP has
    batch shape [B] and event shape [D]. A base with events of its own keeps them, so that a base without batch is
    one distribution of an example.

    Args:
        base: the distribution of x.
        layer: has `reverse` and `log_det_jacobian`, and is built.
    """

    def __init__(self, base: tfd.Distribution, layer: Any, name: str | None = None) -> None:
        parameters = dict(locals())
        self.base, self.layer = base, layer
        batch_rank, event_rank = base.batch_shape.rank, base.event_shape.rank
        if batch_rank is None or event_rank is None:
            raise ValueError(f"The base distribution {base.name!r} has an unknown rank. Accepted: a known one.")
        # Axes of the base's batch that become part of the event.
        self._joined = max(batch_rank - 1, 0) if getattr(layer, "whole_example", False) else 0
        self._event_rank = event_rank + self._joined
        super().__init__(
            dtype=base.dtype,
            reparameterization_type=base.reparameterization_type,
            validate_args=base.validate_args,
            allow_nan_stats=base.allow_nan_stats,
            parameters=parameters,
            name=name or f"{getattr(layer, 'name', 'transformed')}_{base.name}",
        )

    def _batch_shape(self) -> tf.TensorShape:
        shape = self.base.batch_shape
        return shape[: shape.rank - self._joined]

    def _batch_shape_tensor(self, **kwargs: Any) -> tf.Tensor:
        shape = self.base.batch_shape_tensor()
        return shape[: tf.size(shape) - self._joined]

    def _event_shape(self) -> tf.TensorShape:
        shape = self.base.batch_shape
        return shape[shape.rank - self._joined :].concatenate(self.base.event_shape)

    def _event_shape_tensor(self) -> tf.Tensor:
        shape = self.base.batch_shape_tensor()
        return tf.concat([shape[tf.size(shape) - self._joined :], self.base.event_shape_tensor()], 0)

    def _sample_n(self, n: Any, seed: Any = None) -> tf.Tensor:
        return self._by_example(self.layer, self.base.sample(n, seed=seed))

    def _log_prob(self, value: tf.Tensor) -> tf.Tensor:
        base = self.base.log_prob(self._by_example(self.layer.reverse, value))
        if self._joined:
            base = tf.reduce_sum(base, list(range(-self._joined, 0)))
        return base + self._log_det(value, tf.shape(base))

    def _log_det(self, value: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
        flat = self._flat(value)
        log_det = tf.convert_to_tensor(self.layer.log_det_jacobian(flat))
        if log_det.shape.rank and log_det.shape.rank > 1 and self._event_rank:
            log_det = tf.reduce_sum(log_det, list(range(1, log_det.shape.rank)))
        # A constant log-determinant may come back as a scalar.
        return tf.reshape(log_det, shape) if log_det.shape.rank else tf.broadcast_to(log_det, shape)

    def _flat(self, value: tf.Tensor) -> tf.Tensor:
        """[examples, *event] where there is an event, else the value as it is."""
        if not self._event_rank:
            return value
        event = tf.shape(value)[-self._event_rank :]
        flat = tf.reshape(value, tf.concat([[-1], event], 0))
        return tf.ensure_shape(flat, [None, *value.shape[-self._event_rank :]])

    def _by_example(self, function: Any, value: tf.Tensor) -> tf.Tensor:
        result = tf.reshape(function(self._flat(value)), tf.shape(value))
        return tf.ensure_shape(result, value.shape)


class TransformedRandomVariable(RandomVariable):
    """Random variable y = f(x) of a random variable x; its value is f of the value of x, computed when first needed.

    Args:
        variable: x, of shape [B, ...].
        layer: f, a built reversible layer.

    Raises:
        ValueError: a distribution of unknown rank.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.4.
    """

    def __init__(self, variable: RandomVariable, layer: Any) -> None:
        super().__init__(TransformedDistribution(variable.distribution, layer), variable.sample_shape)
        self.base = variable
        self.layer = layer

    @property
    def value(self) -> tf.Tensor:
        """The value, f(x)."""
        if self._value is None:
            transformed = self.distribution
            self._value = transformed._by_example(self.layer, tf.convert_to_tensor(self.base))
        return self._value


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Reverse(ReversibleLayer):
    """Swaps the call and the reverse of a layer: `Reverse(layer)(y) = layer.reverse(y)`.

    Args:
        layer: any layer; that it has `reverse` is needed at the call, not before.

    Call arguments:
        inputs: as the layer's output, a tensor or random variable [B, ...].

    Raises:
        ValueError: at the call, for a layer without `reverse`.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.4.
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.layer = layer
        self.whole_example = getattr(layer, "whole_example", False)

    def build(self, input_shape: Any) -> None:
        if not getattr(self.layer, "built", True):
            self.layer.build(input_shape)
        self.built = True

    def prepare(self, inputs: Any) -> None:
        super().prepare(inputs)
        if not hasattr(self.layer, "reverse"):
            raise ValueError(
                f"Reverse was given {type(self.layer).__name__} {getattr(self.layer, 'name', '')!r}, which has no "
                "reverse(). Accepted: a reversible layer such as RealNVP or ActNorm."
            )

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        self.prepare(inputs)
        return self.layer.reverse(inputs)

    def reverse(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.layer(inputs)

    def log_det_jacobian(self, inputs: tf.Tensor) -> tf.Tensor:
        """log |det dx/dy| of the swapped map: minus that of the layer, at the layer's output."""
        return -self.layer.log_det_jacobian(self.layer(inputs))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "layer": nested.serialize(self.layer)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Reverse:
        config = dict(config)
        return cls(nested.deserialize(config.pop("layer")), **config)
