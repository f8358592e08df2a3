"""Deep ensembles: K networks trained apart, seen as K draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.samples.seeds import as_seed
from bayes_planet.bayesian_layers.samples.variable_values import positive


class DeepEnsemble(tf.Module):
    """K Keras models of one kind with starting values and orders of the data of their own; the draws are the models.

    ```python
    ensemble = DeepEnsemble(make_compiled_model, members=5)
    ensemble.fit(x, y, epochs=10)
    ensemble.sample_predictions(x, samples=5, seed=[0, 1])      # [5, B, ...], each member once
    ```

    Args:
        make: function without arguments that returns a new Keras model (compiled, to be fitted here); or a sequence of
            K models that exist.
        members: K, with a function.

    Raises:
        ValueError: no members, the same model twice, members that are no Keras models.

    Source: Lakshminarayanan et al. 2017, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles".
    """

    def __init__(self, make: Callable[[], Any] | Sequence[Any], members: int = 5, name: str | None = None) -> None:
        super().__init__(name=name)
        listed = isinstance(make, (list, tuple))
        self.members = list(make) if listed else [make() for _ in range(positive(members))]  # type: ignore[arg-type,operator]
        others = sorted(
            {type(model).__name__ for model in self.members if not isinstance(model, tf.keras.layers.Layer)}
        )
        if others or not self.members or len({id(model) for model in self.members}) < len(self.members):
            found = f"members of {', '.join(others)}" if others else f"{len(self.members)} members, some the same"
            raise ValueError(f"DeepEnsemble got {found}. Accepted: different Keras models, one at least.")

    def fit(self, *args: Any, **kwargs: Any) -> list[tf.keras.callbacks.History]:
        """Fits each member on the same data, shuffled in its own order; arguments and each return as `Model.fit`."""
        return [model.fit(*args, **kwargs) for model in self.members]

    def sample_predictions(self, x: Any, samples: int, seed: Any = (0, 0), training: bool = False) -> tf.Tensor:
        """The members' outputs: with S = K each once, with S = n K each n times, else drawn without replacement.

        Args:
            x: the inputs, [B, ...]. samples: S. seed: stateless seed, int32 [2], for which members come how often, and
                for random weights in the members. training: handed to the members.

        Returns:
            [S, B, ...], means of outputs that are distributions.

        Raises:
            ValueError: `samples` is no positive integer, or the seed is not two integers.
        """
        count, samples = len(self.members), positive(samples)
        order = tf.random.experimental.stateless_shuffle(tf.range(count), as_seed(seed))
        chosen = tf.concat([tf.tile(tf.range(count), [samples // count]), order[: samples % count]], 0)
        outputs = [_tensor(model(x, training=training)) for model in self.members]
        return tf.gather(tf.stack(outputs), chosen)

    def __call__(self, x: Any, training: bool = False) -> tf.Tensor:
        """The members' mean output, [B, ...]."""
        return tf.reduce_mean(self.sample_predictions(x, len(self.members), training=training), 0)


def _tensor(output: Any) -> tf.Tensor:
    return output.distribution.mean() if isinstance(output, RandomVariable) else tf.convert_to_tensor(output)
