"""The evidence lower bound in `model.fit`: one scale for the KL of a model, its warm-up, its parts apart.

```python
bl.scale_kl(model, x_train)                            # 1 / N on every KL of the model
model.compile("adam", bl.NegativeLogLikelihood(), metrics=[bl.NegativeLogLikelihoodMetric()])
model.fit(x_train, y_train, callbacks=[bl.KLWarmUp(epochs=5), bl.ELBOParts()])
```
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from bayes_planet.bayesian_layers.distributions.arguments.labels import labels_for
from bayes_planet.bayesian_layers.distributions.arguments.numbers import is_number, positive_integer
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import KLDivergence
from bayes_planet.bayesian_layers.distributions.kl.kl_scale import KLScale, number
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.samples.module_walk import modules_in
from bayes_planet.bayesian_layers.samples.weight_samples import built_layers


def data_set_size(data: Any) -> int:
    """Number of examples in `data`.

    Args:
        data: the number itself, an array or tensor [N, ...], a list, tuple or dict of such, or a batched
            `tf.data.Dataset` (counted once, in one pass, unless its last batch is dropped).

    Raises:
        ValueError: data without end, none at all, arrays of different lengths.
    """
    if is_number(data):
        return positive_integer(data, "data")
    if isinstance(data, tf.data.Dataset):
        if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
            raise ValueError("data is a Dataset without end. Accepted: one that ends, or the number of examples.")
        first = tf.nest.flatten(data.element_spec)[0].shape
        batch = first[0] if first.rank else None
        if batch is not None and int(data.cardinality()) > 0:
            return batch * int(data.cardinality())  # a batch dimension is known only where every batch has it
        sizes = [len(tf.nest.flatten(batch)[0]) for batch in data]
        lengths = {sum(sizes)}
    else:
        lengths = {int(np.shape(array)[0]) for array in tf.nest.flatten(data) if np.ndim(array)}
    if len(lengths) != 1 or not max(lengths):
        raise ValueError(
            f"data holds {sorted(lengths) or 'no'} examples. Accepted: arrays of one length, a tf.data.Dataset of "
            "batches, or the number of examples."
        )
    return lengths.pop()


def scale_kl(model: Any, data: Any, scale: float = 1.0) -> KLScale:
    """Puts one scale, `scale / N`, on the KL of every random weight in a model, for `model.fit`.

    Keras adds `model.losses` to the mean loss of a batch; with 1 / N on the KL, the sum is the negative evidence lower
    bound for each example. A scale that a regularizer had is replaced; call it again for other data. It is kept in
    configs and saved models. `weight_kl` always reports the KL without it.

    Args:
        model: a Keras model or layer, or a list of these. Functions of your own that use its losses are to be traced
            after this call; those of `fit` and `evaluate` are renewed.
        data: the training data or the number of examples N, see `data_set_size`.
        scale: 1 is Bayes' rule; less than 1 a cold posterior.

    Returns:
        The KLScale, whose `assign` changes it later.

    Raises:
        ValueError: nothing in `model` has a KL regularizer, a negative scale.
    """
    shared = KLScale(scale / data_set_size(data))
    holders = _scale_holders(model)
    for holder, attribute in holders:
        setattr(holder, attribute, shared)
    if not holders:
        raise ValueError(
            f"scale_kl found no KL regularizer in {type(model).__name__}. Accepted: a model whose layers exist and "
            "have random weights; call it on its input first if it makes layers there."
        )
    for module in modules_in(tf.nest.flatten(model)):
        if isinstance(module, tf.keras.Model):  # traces that hold the scale there was before
            module.train_function = module.test_function = module.train_tf_function = None
    return shared


class KLWarmUp(tf.keras.callbacks.Callback):
    """Raises the factor on a model's KL from `start` to 1, linearly, over the first `epochs` of `fit`.

    It moves batch by batch where the number of batches is known, else epoch by epoch. Call `scale_kl` before.

    Args:
        epochs: until the factor is 1; positive.
        start: the factor at first, in [0, 1].

    Raises:
        ValueError: numbers out of range; at the start of training, a model without a scale.

    Source: Bowman et al. 2016, "Generating Sentences from a Continuous Space", for the KL of latent variables.
    """

    def __init__(self, epochs: float, start: float = 0.0) -> None:
        super().__init__()
        if not epochs > 0 or not 0 <= start <= 1:
            raise ValueError(f"Got epochs={epochs!r}, start={start!r}. Accepted: a positive number, and 0 to 1.")
        self.epochs, self.start = float(epochs), float(start)
        self._epoch = 0
        self._scales: list[KLScale] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self._scales = kl_scales(self.model)
        if not self._scales:
            raise ValueError("KLWarmUp found no scale in the model. Accepted: a model that scale_kl was called on.")

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch
        self._move(epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self.params.get("steps"):
            self._move(self._epoch + batch / self.params["steps"])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._move(epoch + 1)

    def _move(self, passed: float) -> None:
        for scale in self._scales:
            scale.factor.assign(self.start + (1 - self.start) * min(1.0, passed / self.epochs))


class ELBOParts(tf.keras.callbacks.Callback):
    """Adds the parts of the evidence lower bound to the logs of each epoch: progress bar, history, TensorBoard.

    `kl`: KL(q || p) of all weights in nats, at the end of the epoch. `kl_scale`: what it was multiplied with, by
    `scale_kl` or the regularizers' own `scale_factor`; where these differ, the scaled sum divided by `kl`. With
    `metrics=[NegativeLogLikelihoodMetric()]` also `elbo = -(negative_log_likelihood + scaled kl)`, the bound for each
    example, and `val_elbo` where there are validation data; a KLScale is then the final one, whatever the warm-up.
    Each is a number (shape []). No arguments.

    Raises:
        ValueError: at the end of an epoch, a layer with random weights that was never built.

    Source: Blundell et al. 2015, "Weight Uncertainty in Neural Networks", equation 1.
    """

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs is None:
            return
        kl, scaled, final = self._sums()
        logs["kl"], logs["kl_scale"] = kl, scaled / kl if kl else 1.0
        for prefix in ("", "val_"):
            likelihood = logs.get(f"{prefix}negative_log_likelihood")
            if likelihood is not None:
                logs[f"{prefix}elbo"] = -(likelihood + final)

    def _sums(self) -> list[float]:
        """The KL of all weights: itself, scaled as it is now, and as it is at the end of a warm-up."""
        sums = np.zeros(3)
        for layer in built_layers(self.model):
            for weight, term in layer.kl_terms().items():
                scale = getattr(layer, layer.weight_fields[weight][1]).scale_factor
                now, final = (scale.now(), scale.value) if isinstance(scale, KLScale) else (scale, scale)
                sums += number(term) * np.array([1.0, number(now), number(final)])
        return sums.tolist()


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NegativeLogLikelihood(tf.keras.losses.Loss):
    """`-log p(y | x)` in nats, the loss of models that end in a stochastic output layer.

    Of labels [B, ...] under an output of the same shape: summed over the axes of one example, then the mean over the
    batch. A last axis of size 1 may be missing in the labels, or be too many: classes [B] or [B, 1]. An output whose
    event is the whole batch (a Gaussian process with its covariance) is divided by the number of examples.

    Args: those of `tf.keras.losses.Loss`.

    Raises:
        ValueError: at the call, an output that is no distribution, labels of another shape.

    Source: Tran et al. 2018, "Bayesian Layers", section 2.3.
    """

    def __init__(self, name: str = "negative_log_likelihood", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: tf.Tensor, y_pred: Any) -> tf.Tensor:
        distribution = getattr(y_pred, "distribution", y_pred)
        if not isinstance(distribution, tfp.distributions.Distribution):
            raise ValueError(
                f"NegativeLogLikelihood was given {type(y_pred).__name__}. Accepted: the output of a layer such as "
                "Normal or Categorical, a random variable."
            )
        y_true = labels_for(distribution, y_true)
        terms = -distribution.log_prob(y_true)
        if terms.shape.rank == 0:
            return terms / tf.cast(tf.shape(y_true)[0], terms.dtype)
        return tf.reduce_sum(terms, tf.range(1, tf.rank(terms)))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class NegativeLogLikelihoodMetric(tf.keras.metrics.Mean):
    """`NegativeLogLikelihood` as a metric: what the loss is without the KL, in training and in `evaluate`.

    Arguments, shapes and errors as there. Source: Tran et al. 2018, "Bayesian Layers", section 2.3.
    """

    def __init__(self, name: str = "negative_log_likelihood", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self._loss = NegativeLogLikelihood(reduction="none")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        terms = self._loss.call(y_true, y_pred)
        return super().update_state(tf.broadcast_to(terms, tf.shape(y_true)[:1]), sample_weight)


def kl_scales(model: Any) -> list[KLScale]:
    """The scales that `scale_kl`, or a loaded config, gave to a model; each once."""
    scales = [getattr(holder, attribute) for holder, attribute in _scale_holders(model)]
    return list({id(scale): scale for scale in scales if isinstance(scale, KLScale)}.values())


def _scale_holders(model: Any) -> list[tuple[Any, str]]:
    """What the factors on the KL of a model's random weights are kept in: (object, attribute)."""
    found: list[tuple[Any, str]] = []
    for layer in modules_in(tf.nest.flatten(model)):
        regularizers = list(getattr(layer, "weights_to_come", dict)().values())
        if isinstance(layer, VariationalLayer):
            if hasattr(layer, "kl_weight"):  # DenseVariational, which has no regularizer before it is built
                found.append((layer, "kl_weight"))
            regularizers += [getattr(layer, layer.weight_fields[weight][1], None) for weight in layer.posteriors()]
        found += [(each, "scale_factor") for each in regularizers if isinstance(each, KLDivergence)]
    return found
