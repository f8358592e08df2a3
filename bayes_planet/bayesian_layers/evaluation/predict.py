"""Predictions of any Keras model under many draws of its weights."""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions.arguments.numbers import positive_integer
from bayes_planet.bayesian_layers.ensembles.member_factors import MemberFactors
from bayes_planet.bayesian_layers.evaluation.all_draws import call_all_draws, takes_all_draws
from bayes_planet.bayesian_layers.evaluation.output_tensors import put_together, take_apart
from bayes_planet.bayesian_layers.evaluation.predictive import Predictive
from bayes_planet.bayesian_layers.samples.module_walk import modules_in
from bayes_planet.bayesian_layers.samples.sample_axis import axis_cared_for
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fresh_seed, split
from bayes_planet.bayesian_layers.samples.weight_samples import sample_weights, unbuilt_layers
from bayes_planet.bayesian_layers.samples.weight_scope import use_weights


def predict(
    model: Any,
    x: Any,
    samples: int = 50,
    seed: Any = None,
    likelihood: Any = None,
    batch_size: int = 128,
    draws_at_once: int = 32,
) -> Any:
    """The predictive distribution of a model: the equal mixture of its outputs under S draws of its weights.

    ```python
    predictive = predict(model, x, samples=50, seed=[0, 1], likelihood=bl.Categorical())   # a model that gives logits
    predictive.probabilities()        # [N, classes]
    predictive.mutual_information()   # [N], nats
    ```

    Each draw is one function for all of x: layers of Flipout use the drawn weights themselves. Draw s has the weights
    `sample_weights(model, predictive.seeds[s], shared=True)`, whatever the chunks are. Layers run as at inference.

    Sequential and functional models of Keras' layers and of this package's compute `draws_at_once` draws in one pass,
    what lies before the first random weight only once; any other model computes one draw after the other. Called
    eagerly, the work is compiled at the first call, as by `model.predict`, unless `model.run_eagerly` is set. A model
    made under a `tf.distribute` strategy has its draws shared out among all replicas.

    Args:
        model: a Keras model or layer, or a tf.Module that is called with x. One that was never called is called once.
        x: an array or tensor [N, ...], or the nest of them that the model takes.
        samples: S.
        seed: stateless seed, int32 [2]; None: a fresh one.
        likelihood: turns outputs [S, N, ...] into the distribution of y given the weights: an output layer such as
            `Categorical()` (of logits), `Bernoulli()`, `Normal()`, or a function such as
            `lambda mean: tfd.Normal(mean, 0.1)`; a nest of these for a model of several outputs. None: outputs that are
            distributions or random variables are taken as they are, tensors as y itself, without noise.
        batch_size: examples at a time. Models of BatchEnsemble or Rank-1 layers take all of x at once, for their rows
            belong to members; so does a graph in which N is not known.
        draws_at_once: draws at a time (on each replica).

    Returns:
        A `Predictive`, or the nest of them that the model's outputs form.

    Raises:
        ValueError: no module, no examples, numbers that are not positive integers, a distribution that cannot be
            stacked.
    """
    samples, batch_size = positive_integer(samples, "samples"), positive_integer(batch_size, "batch_size")
    draws_at_once = positive_integer(draws_at_once, "draws_at_once")
    if not isinstance(model, tf.Module) or not callable(model):
        raise ValueError(
            f"Got {type(model).__name__}. Accepted: a Keras model or layer, or a tf.Module that is called."
        )
    x = tf.nest.map_structure(tf.convert_to_tensor, x)
    first = tf.nest.flatten(x)[0]
    if first.shape.rank == 0 or first.shape[0] == 0:
        raise ValueError(f"x has shape {first.shape}. Accepted: one example or more, [N, ...].")
    if unbuilt_layers(model) or not getattr(model, "built", True):
        model(tf.nest.map_structure(lambda value: value[:1], x))
    seeds = split(fresh_seed() if seed is None else as_seed(seed), samples)

    strategy = getattr(model, "distribute_strategy", None) or tf.distribute.get_strategy()
    replicas = strategy.num_replicas_in_sync if tf.distribute.in_cross_replica_context() else 1
    if any(isinstance(module, MemberFactors) for module in modules_in([model])) or first.shape[0] is None:
        batch_size = first.shape[0] or 0
    chunks = math.ceil(samples / min(samples, draws_at_once * replicas))
    at_once = replicas * math.ceil(samples / chunks / replicas)
    run, structure = _runner(model, strategy if replicas > 1 else None, at_once)
    columns = []
    for part, count in _parts(x, batch_size):
        rows = []
        for start in range(0, samples, at_once):
            own = _padded(seeds[start : start + at_once], at_once)
            rows.append(run(own, part))
        stacked = [
            tf.concat(tensors, 0)[:samples] if len(tensors) > 1 else tensors[0][:samples]
            for tensors in zip(*rows, strict=True)
        ]
        columns.append([tensor if count is None else tensor[:, :count] for tensor in stacked])
    tensors = [tf.concat(parts, 1) if len(parts) > 1 else parts[0] for parts in zip(*columns, strict=True)]
    outputs = put_together(structure(), tensors)
    return _predictives(outputs, likelihood, seeds)


def _predictives(outputs: Any, likelihood: Any, seeds: tf.Tensor) -> Any:
    if likelihood is None or not tf.nest.is_nested(outputs):
        made = outputs if likelihood is None else likelihood(outputs)
        return tf.nest.map_structure(lambda output: Predictive(output, seeds), made)
    return tf.__internal__.nest.map_structure_up_to(
        outputs, lambda output, own: Predictive(output if own is None else own(output), seeds), outputs, likelihood
    )


def _parts(x: Any, batch_size: int) -> Any:
    """(a batch of x, how many of its rows count): the last is filled up with its last example, for shapes are fixed."""
    size = tf.nest.flatten(x)[0].shape[0]
    if not batch_size or size <= batch_size:
        yield x, None
        return
    for start in range(0, size, batch_size):
        count = min(batch_size, size - start)
        part = tf.nest.map_structure(lambda value: _padded(value[start : start + batch_size], batch_size), x)  # noqa: B023
        yield part, count


def _padded(values: tf.Tensor, size: int) -> tf.Tensor:
    missing = size - values.shape[0]
    return values if not missing else tf.concat([values, tf.repeat(values[-1:], missing, 0)], 0)


def _call(model: Any, x: Any) -> Any:
    """The model at inference."""
    call = model.call if isinstance(model, tf.keras.layers.Layer) else model.__call__
    takes_training = "training" in inspect.signature(call).parameters
    return model(x, training=False) if takes_training else model(x)


def _all_at_once(model: Any, seeds: tf.Tensor, x: Any) -> tuple[Any, list[tf.Tensor]]:
    """Outputs [c, B, ...] under the draws of `seeds` [c, 2], in one pass."""
    count = seeds.shape[0]
    first = sample_weights(model, seeds[0], shared=True)
    if tf.executing_eagerly():
        drawn = [first, *(sample_weights(model, seeds[n], shared=True) for n in range(1, count))]
        weights = tf.nest.map_structure(lambda *values: tf.stack(values), *drawn)
    else:
        kinds = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), first)
        weights = (
            tf.map_fn(lambda seed: sample_weights(model, seed, shared=True), seeds, fn_output_signature=kinds)
            if first
            else {}
        )
    with use_weights(weights or None), axis_cared_for():
        outputs = call_all_draws(model, tf.nest.map_structure(lambda value: value[None], x), count)
    structure, tensors = take_apart(outputs)
    full = [tf.broadcast_to(value, tf.concat([[count], tf.shape(value)[1:]], 0)) for value in tensors]
    return structure, full


def _one_by_one(model: Any, seeds: tf.Tensor, x: Any, compiled: bool) -> tuple[Any, list[tf.Tensor]]:
    """The same, one draw after the other."""
    found: list[Any] = []

    def one(seed: tf.Tensor, batch: Any) -> list[tf.Tensor]:
        with use_weights(sample_weights(model, seed, shared=True) or None):
            structure, tensors = take_apart(_call(model, batch))
        found.append(structure)
        return tensors

    if not compiled:
        rows = [one(seeds[n], x) for n in range(seeds.shape[0])]
        return found[0], [tf.stack(values) for values in zip(*rows, strict=True)]
    # Traced once, for its dtypes, and called in the loop.
    function = tf.function(one)
    batch = tf.nest.map_structure(lambda value: tf.TensorSpec(value.shape, value.dtype), x)
    concrete = function.get_concrete_function(tf.TensorSpec([2], tf.int32), batch)
    dtypes = [output.dtype for output in tf.nest.flatten(concrete.structured_outputs)]
    tensors = tf.map_fn(lambda seed: function(seed, x), seeds, fn_output_signature=dtypes)
    return found[0], list(tensors)


_compiled: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()


def _runner(
    model: Any, strategy: Any, at_once: int
) -> tuple[Callable[[tf.Tensor, Any], list[tf.Tensor]], Callable[[], Any]]:
    """A function from seeds [c, 2] and inputs [B, ...] to output tensors [c, B, ...], and one to their structure."""
    eager = tf.executing_eagerly()
    compiled = not (eager and getattr(model, "run_eagerly", False)) and not (
        eager and tf.config.functions_run_eagerly()
    )
    layers = tuple(id(module) for module in modules_in([model]))
    kept = _compiled.setdefault(model, {}) if eager and compiled else {}
    key = (None if strategy is None else id(strategy), at_once)
    if key in kept and kept[key][0] == layers:
        return kept[key][1:]
    reference = weakref.ref(model)  # what is kept must not keep the model
    structures: list[Any] = []

    count = at_once if strategy is None else at_once // strategy.num_replicas_in_sync

    def compute(seeds: tf.Tensor, x: Any) -> list[tf.Tensor]:
        own, seeds = reference(), tf.ensure_shape(seeds, [count, 2])
        if takes_all_draws(own):
            structure, tensors = _all_at_once(own, seeds, x)
        else:
            structure, tensors = _one_by_one(own, seeds, x, compiled)
        structures.append(structure)
        return tensors

    def shared_out(seeds: tf.Tensor, x: Any) -> list[tf.Tensor]:
        def on_replica(all_seeds: tf.Tensor, batch: Any) -> list[tf.Tensor]:
            start = tf.distribute.get_replica_context().replica_id_in_sync_group * count
            return compute(tf.slice(all_seeds, [start, 0], [count, 2]), batch)

        made = strategy.run(on_replica, (seeds, x))
        return [tf.concat(strategy.experimental_local_results(value), 0) for value in made]

    function = compute if strategy is None else shared_out
    if compiled and eager:
        function = tf.function(function, autograph=False, reduce_retracing=True)
    kept[key] = (layers, function, lambda: structures[-1])
    return kept[key][1:]
