"""Model parallelism by rules: layers whose variables lie in parts on the devices of a DTensor mesh."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.samples.mesh_scope import on_mesh

dtensor = tf.experimental.dtensor


@contextlib.contextmanager
def sharded(mesh: Any, rules: Mapping[str, Sequence[str | None]], same_draws: bool = False) -> Iterator[None]:
    """Variables made inside are DTensor variables on `mesh`, laid out by the first rule that their name matches.

    ```python
    mesh = tf.experimental.dtensor.create_mesh([("model", 4)], device_type="CPU")
    with sharded(mesh, {"up/kernel": [None, "model"], "down/kernel": ["model", None]}):
        up.build([None, 512])
        down.build([None, 2048])
        step = tf.function(lambda x, n: down(up(x, seed=[n, 0]), seed=[n, 1]))
        y = step(x, tf.constant(0))                             # x on the mesh
    ```

    Build layers by `layer.build(shape)`. Draw and train in a tf.function that is traced inside the scope. Every draw
    needs a seed, for DTensor has no stateful random numbers: a call without one is an error that says so. Two layers
    with one seed would draw the same noise: give each its own, or all one `use_weights(sample_weights(model, seed))`.

    Take gradients in one tf.function and apply them in another. In a large one DTensor does not keep the order of
    writing a variable and reading it, on two devices or more: an optimizer then uses the slots of the step before, and
    the first step does nothing (seen with TensorFlow 2.18, not with one device).

    Args:
        mesh: a `tf.experimental.dtensor.Mesh`.
        rules: {regular expression: for each axis of the variable the mesh axis it is split along, or None}. It is
            searched in `<layer>/<weight>/<parameter>`, e.g. `up/kernel/stddev` (`up/bias` of a plain weight); for
            attention `query/kernel/mean`. A variable that no rule matches is kept whole on each device.
        same_draws: True draws all noise whole on each device, so that values equal those of one device for the same
            seed; its price is one weight's whole noise for a moment. False: each device draws its part, of the right
            distribution and other values.

    Raises:
        ValueError: a call without a seed, an eager draw; a rule for another number of axes than the variable has, an
            unknown mesh axis, an axis whose size the devices do not divide.

    Source: TensorFlow's DTensor; Shazeer et al. 2018, "Mesh-TensorFlow".
    """
    compiled = [(re.compile(pattern), list(specs)) for pattern, specs in rules.items()]
    for pattern, specs in compiled:
        unknown = [axis for axis in specs if axis is not None and axis not in mesh.dim_names]
        if unknown:
            raise ValueError(
                f"The rule {pattern.pattern!r} splits along {unknown}. Accepted: {list(mesh.dim_names)} or None."
            )

    def create(next_creator: Any, **kwargs: Any) -> tf.Variable:
        value = kwargs["initial_value"]
        value = tf.convert_to_tensor(value() if callable(value) else value, dtype=kwargs.get("dtype"))
        name = "/".join(part for part in (tf.get_current_name_scope(), kwargs.get("name") or "Variable") if part)
        layout = dtensor.Layout(_specs(name, value.shape, compiled, mesh), mesh)
        value = dtensor.relayout(
            dtensor.copy_to_mesh(value, dtensor.Layout.replicated(mesh, rank=value.shape.rank)), layout
        )
        return dtensor.DVariable(value, name=kwargs.get("name"), trainable=kwargs.get("trainable", True))

    with on_mesh(mesh, same_draws), tf.variable_creator_scope(create):
        yield


def _specs(name: str, shape: tf.TensorShape, rules: list, mesh: Any) -> list[str]:
    for pattern, specs in rules:
        if not pattern.search(name):
            continue
        if len(specs) != shape.rank:
            raise ValueError(
                f"The rule {pattern.pattern!r} has {len(specs)} axes, but the variable {name!r} it matches has shape "
                f"{shape.as_list()}. Accepted: one entry an axis; or a longer pattern that leaves this variable out."
            )
        for axis, size in zip(specs, shape, strict=True):
            if axis is not None and size % mesh.dim_size(axis):
                raise ValueError(
                    f"The rule {pattern.pattern!r} splits an axis of {name!r}, shape {shape.as_list()}, along "
                    f"{axis!r} of {mesh.dim_size(axis)} devices. Accepted: a size that they divide."
                )
        return [dtensor.UNSHARDED if axis is None else axis for axis in specs]
    return [dtensor.UNSHARDED] * shape.rank


def bytes_per_device(variables: Iterable[tf.Variable]) -> dict[str, int]:
    """{device: bytes of these variables that lie there}; plain variables under the device they are on."""
    totals: dict[str, int] = {}
    for variable in variables:
        if isinstance(variable, dtensor.DVariable):
            parts = [(part.device, part) for part in dtensor.unpack(variable.read_value())]
        else:
            parts = [(variable.device, tf.convert_to_tensor(variable))]
        for device, part in parts:
            totals[device] = totals.get(device, 0) + int(tf.size(part)) * part.dtype.size
    return totals
