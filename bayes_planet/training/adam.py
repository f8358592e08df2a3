"""Adam whose updates can be left out as a whole."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


class Adam(tf.keras.optimizers.legacy.Adam):
    """Adam with a condition on the device: an update that is not taken leaves parameters, moments and count alone.

    The fused kernel of the legacy class does in one pass over memory what the newer one does in ten. A `tf.cond` around
    it cannot be had inside a replica of a mirrored strategy; a learning rate of 0 and decays of 1 can, everywhere.
    Attributes and checkpoints are those of the legacy class.
    """

    _taken: tf.Tensor | None = None

    def apply_if(
        self,
        taken: tf.Tensor,
        gradients: Sequence[tf.Tensor],
        variables: Sequence[tf.Variable],
        counted: bool = True,
    ) -> None:
        """Applies gradients that are summed over the replicas already, where `taken`, bool [], the same on all of them.

        To be called where replicas are, inside `strategy.run`. Gradients that are not taken may hold anything. Without
        `counted` the count stays: a further step of some variables, between those of all.
        """
        finite = [tf.where(taken, gradient, tf.zeros_like(gradient)) for gradient in gradients]
        self._taken = taken
        try:
            self.apply_gradients(zip(finite, variables, strict=True), experimental_aggregate_gradients=False)
        finally:
            self._taken = None
        self.iterations.assign_sub(tf.cast(~taken, self.iterations.dtype) if counted else 1)

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, dict[str, Any]]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        self._idle_unless_taken(apply_state[var_device, var_dtype], lr_t=0.0, beta_1_t=1.0, beta_2_t=1.0)

    def _idle_unless_taken(self, coefficients: dict[str, Any], **idle: float) -> None:
        """Gives the named coefficients the values with which an update changes nothing, where it is not taken."""
        if self._taken is not None:
            for name, value in idle.items():
                kept = coefficients[name]
                coefficients[name] = tf.where(self._taken, kept, tf.constant(value, kept.dtype))
