"""A reversible layer whose shifts and scales come from another network."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.flows.reversible import ReversibleLayer
from bayes_planet.bayesian_layers.samples import nested
from bayes_planet.bayesian_layers.samples.weight_samples import variational_layers
from bayes_planet.bayesian_layers.samples.weight_scope import in_use


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class RealNVP(ReversibleLayer):
    """Affine reversible layer parameterised by a network, `y = x exp(s) + m`.

    - With an autoregressive network such as `MADE` (units 2), `m` and `s` at each place depend on the outputs y at
      the places before it. `reverse` and `log_det_jacobian`, all that training by maximum likelihood needs, are one
      pass of the network; the call takes one pass for each place.
    - With any other network, a coupling: the places in `mask` pass unchanged, and `m` and `s` of the others depend on
      these alone. The network gets the input with the other places set to 0, and returns two numbers for each place:
      shape [..., D] to [..., 2 D] or [..., D, 2]. All three methods take one pass.

    `s` is kept within `(-scale_limit, scale_limit)` by a scaled tanh, so that no draw overflows.
    `log_det_jacobian(y)` is log |det dx/dy| = -sum s, shape [B].

    A network with random weights is one flow under one weight sample: its methods, and `log_prob`, are called inside
    `use_weights(sample_weights(flow, seed))`, since each by itself would draw another network.

    Args:
        network: a layer or model. For MADE its input is x with a last axis of 1 added where x has rank 2.
        mask: for couplings, booleans or 0 and 1 for the places of the last axis, 1 where x passes unchanged. Default:
            the first half.
        scale_limit: bound of the log-scale.

    Call arguments:
        inputs: a tensor or random variable [B, D]; with MADE also [B, length, 1].

    Raises:
        ValueError: an input of another rank, a mask of another length, a network that does not return two numbers for
            each place, or one with random weights where no weight sample is in use.

    Source: Dinh et al. 2017, "Density estimation using Real NVP"; Papamakarios et al. 2017, "Masked Autoregressive
    Flow"; Tran et al. 2018, "Bayesian Layers", Figure 8.
    """

    def __init__(self, network: Any, mask: Any = None, scale_limit: float = 5.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not scale_limit > 0:
            raise ValueError(f"scale_limit is {scale_limit!r}. Accepted: a positive number.")
        self.network = network
        self.mask = None if mask is None else [bool(place) for place in mask]
        self.scale_limit = float(scale_limit)
        self.autoregressive = bool(getattr(network, "autoregressive", False))
        if self.autoregressive and mask is not None:
            raise ValueError("mask is for couplings; this network is autoregressive. Accepted: None.")

    def build(self, input_shape: Any) -> None:
        shape = tf.TensorShape(input_shape)
        rank = shape.rank
        if rank != 2 and not (self.autoregressive and rank == 3 and shape[-1] == 1):
            raise ValueError(
                f"RealNVP {self.name!r} was given shape {shape}. Accepted: [B, D]"
                f"{', or [B, length, 1]' if self.autoregressive else ''}; flatten other inputs."
            )
        size = shape[1]
        if size is None:
            raise ValueError(f"RealNVP {self.name!r} was given shape {shape}. Accepted: a known second axis.")
        if not self.autoregressive:
            places = self.mask or [place < size // 2 for place in range(size)]
            if len(places) != size:
                raise ValueError(f"mask has {len(places)} places and the input {size}. Accepted: equal numbers.")
            self._passes = places
        self._size = size
        if not self.network.built:
            self.network.build([None, size, 1] if self.autoregressive else [None, size])
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        self._require_one_network()
        if not self.autoregressive:
            shift, log_scale = self._parameters(inputs)
            return inputs * tf.exp(log_scale) + shift

        def one_more_place(place: tf.Tensor, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            shift, log_scale = self._parameters(outputs)
            return place + 1, inputs * tf.exp(log_scale) + shift

        # Each pass makes one more place right, whatever the order: after the last pass all are.
        _, outputs = tf.while_loop(
            lambda place, outputs: place < self._size,
            one_more_place,
            (tf.constant(0), tf.zeros_like(inputs)),
            maximum_iterations=self._size,
        )
        return outputs

    def reverse(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = tf.convert_to_tensor(inputs)
        self.prepare(inputs)
        self._require_one_network()
        shift, log_scale = self._parameters(inputs)
        return (inputs - shift) * tf.exp(-log_scale)

    def log_det_jacobian(self, inputs: tf.Tensor) -> tf.Tensor:
        """log |det dx/dy| at the output y = `inputs`, shape [B]."""
        inputs = tf.convert_to_tensor(inputs)
        self.prepare(inputs)
        self._require_one_network()
        _, log_scale = self._parameters(inputs)
        return -tf.reduce_sum(log_scale, list(range(1, log_scale.shape.rank)))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "network": nested.serialize(self.network),
            "mask": self.mask,
            "scale_limit": self.scale_limit,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RealNVP:
        config = dict(config)
        return cls(nested.deserialize(config.pop("network")), **config)

    def _parameters(self, values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Shift and log-scale, of the shape of `values`, from what is known of them."""
        size = self._size
        if self.autoregressive:
            raw = self.network(tf.reshape(values, [-1, size, 1]))
        else:
            passes = tf.constant(self._passes)
            raw = self.network(tf.where(passes, values, tf.zeros_like(values)))
        raw = tf.convert_to_tensor(raw)
        if raw.shape[-1] == 2 and raw.shape.rank == 3 and raw.shape[1] == size:
            shift, log_scale = raw[..., 0], raw[..., 1]
        elif raw.shape.rank == 2 and raw.shape[-1] == 2 * size:
            shift, log_scale = tf.split(raw, 2, axis=-1)
        else:
            raise ValueError(
                f"The network of RealNVP {self.name!r} returned shape {raw.shape}. Accepted: [B, {size}, 2] or "
                f"[B, {2 * size}], a shift and a log-scale for each of {size} places (MADE: units=2)."
            )
        log_scale = self.scale_limit * tf.tanh(log_scale / self.scale_limit)
        if not self.autoregressive:
            shift = tf.where(passes, tf.zeros_like(shift), shift)
            log_scale = tf.where(passes, tf.zeros_like(log_scale), log_scale)
        shape = tf.shape(values)
        return tf.reshape(shift, shape), tf.reshape(log_scale, shape)

    def _require_one_network(self) -> None:
        """ValueError where each call would draw a network of its own."""
        looks_for_shapes = getattr(tf.compat.v1.get_default_graph(), "name", "").endswith("scratch_graph")  # Keras
        drawn = [] if in_use() or looks_for_shapes else [layer.name for layer in variational_layers(self.network)]
        if drawn:
            raise ValueError(
                f"The network of RealNVP {self.name!r} has random weights ({', '.join(drawn)}), and there is no weight "
                "sample in use: call, reverse and log_det_jacobian would each draw another network, and log_prob mix "
                "two of them. Accepted: calls inside use_weights(sample_weights(flow, seed)), or "
                "use_weights(posterior_mean(flow)). Before that, flow.build([None, D]) makes the weights."
            )
