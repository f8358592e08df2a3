"""A term of a loss that some of the variables alone learn from."""

from collections.abc import Sequence

import tensorflow as tf


def only_for(variables: Sequence[tf.Variable], gradients: Sequence[tf.Tensor | None]) -> tf.Tensor:
    """A scalar of value 0 whose gradients are the given ones, and none for anything else.

    Behind a rollout a loss has gradients for everything that took part in it. This keeps them from what must not learn
    to please the one that acts.

    Args:
      variables: what is to learn.
      gradients: one for each; None: zero.
    """
    return tf.add_n(
        [
            tf.reduce_sum(tf.stop_gradient(gradient) * (variable - tf.stop_gradient(variable)))
            for variable, gradient in zip(variables, gradients, strict=True)
            if gradient is not None
        ]
    )
