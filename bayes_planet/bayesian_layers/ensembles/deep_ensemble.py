"""Deep ensembles: K networks trained apart, seen as K draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_probability import distributions as tfd

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.distributions.posterior_kinds import family_of
from bayes_planet.bayesian_layers.evaluation.output_tensors import distribution_of
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold
from bayes_planet.bayesian_layers.samples.weight_samples import sample_weights, unbuilt_layers, variational_layers
from bayes_planet.bayesian_layers.samples.weight_scope import in_use, use_weights


class DeepEnsemble(tf.Module):
    """K Keras models of one kind with starting values and orders of the data of their own; the draws are the models.

    Members may have random weights: each time one is drawn, so are its weights.

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
        ValueError: no members, the same model twice, members that are no Keras models; `members` that is no positive
            integer.

    Source: Lakshminarayanan et al. 2017, "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles".
    """

    def __init__(self, make: Callable[[], Any] | Sequence[Any], members: int = 5, name: str | None = None) -> None:
        super().__init__(name=name)
        listed = isinstance(make, (list, tuple))
        count = 0 if listed else positive_integer(members, "members")
        self.members = list(make) if listed else [make() for _ in range(count)]  # type: ignore[arg-type,operator]
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
                for random weights in the members: each output has a draw of its own, one function for all of x.
                Inside `use_weights(sample)` those of the sample are taken. training: handed to the members.

        Returns:
            [S, B, ...]: means of outputs that are distributions, probabilities [S, B, classes] of classes.

        Raises:
            ValueError: `samples` is no positive integer, or the seed is not two integers.
        """
        count, samples, seed = len(self.members), positive_integer(samples, "samples"), as_seed(seed)
        order = tf.random.experimental.stateless_shuffle(tf.range(count), seed)
        chosen = tf.concat([tf.tile(tf.range(count), [samples // count]), order[: samples % count]], 0)
        rounds = -(-samples // count)
        outputs = [self._outputs(index, x, rounds, seed, training) for index in range(count)]
        return tf.gather_nd(tf.stack(outputs), tf.stack([chosen, tf.range(samples) // count], 1))

    def _outputs(self, index: int, x: Any, rounds: int, seed: tf.Tensor, training: bool) -> tf.Tensor:
        """[rounds, B, ...] of a member, equal ones where it has no random weights, or a sample is in force."""
        model = self.members[index]
        if unbuilt_layers(model):
            model(x, training=training)
        if in_use() or not variational_layers(model):
            return tf.repeat(_tensor(model(x, training=training))[None], rounds, 0)
        outputs = []
        for draw in range(rounds):
            own = fold(seed, draw * len(self.members) + index)
            with use_weights(sample_weights(model, own, shared=True)):
                outputs.append(_tensor(model(x, training=training)))
        return tf.stack(outputs)

    def __call__(self, x: Any, training: bool = False) -> tf.Tensor:
        """The members' mean output, [B, ...] (of classes the mean probabilities); random weights at one draw each."""
        return tf.reduce_mean(self.sample_predictions(x, len(self.members), training=training), 0)


def _tensor(output: Any) -> tf.Tensor:
    distribution = distribution_of(output)
    if distribution is None:
        return tf.convert_to_tensor(output)
    distribution = family_of(distribution)
    return distribution.probs_parameter() if isinstance(distribution, tfd.Categorical) else distribution.mean()
