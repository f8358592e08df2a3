"""The Bayesian Transformer in parts: on 1 to 8 devices, and one of 4.5 billion parameters.

Heads of attention and hidden units of the feed-forward layers are split over the devices of a mesh, as in Mesh-
TensorFlow; all else is whole on each. The devices are virtual ones of the processor, so this shows that the numbers are
equal and how many bytes lie where, not how fast it is. Of the large model, one block is built and measured; the rest
is a sum.

    python -m examples.gallery.transformer_sharded [--seed 0] [--full] [--picture transformer_sharded.png]

Tran et al. 2018, "Bayesian Layers", section 3.1 and Figure 10; Shazeer et al. 2018, "Mesh-TensorFlow".
"""

import json
import sys
from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, apart, run
from examples.gallery.models.transformer import Block, Transformer
from examples.gallery.transformer import loss_of

import tensorflow as tf  # isort: skip

dtensor = tf.experimental.dtensor
RULES = {
    r"(query|key|value)/kernel": [None, "model", None],
    r"(query|key|value)/bias": ["model", None],
    r"attention_output/kernel": ["model", None, None],
    r"up/kernel": [None, "model"],
    r"up/bias": ["model"],
    r"down/kernel": ["model", None],
}
NAME = "examples.gallery.transformer_sharded"
SMALL = {"vocabulary": 512, "length": 32, "size": 64, "heads": 8, "hidden": 256, "blocks": 1}
# Of Shazeer et al. 2018, Table 2: 2.8e9 weights, so 5.6e9 means and stddevs.
LARGE = {"vocabulary": 32_768, "size": 1024, "heads": 64, "key_dim": 128, "hidden": 65_536, "blocks": 6}
KINDS = {"attention": bl.MultiHeadAttentionFlipout, "dense": bl.DenseFlipout}


def bayesian(**sizes) -> Transformer:
    return Transformer(**sizes, **KINDS)


def steps(model: Transformer, seed: int, count: int, optimizer, place) -> list[float]:
    """Losses of some steps on random sentences; `place` brings tensors to the mesh."""
    random = np.random.default_rng(seed)
    batch = [place(random.integers(3, 512, [16, 32]).astype(np.int32)) for _ in range(2)]

    @tf.function
    def gradients(english, german, seed):
        with tf.GradientTape() as tape:
            with bl.use_weights(bl.sample_weights(model, seed)):
                loss = loss_of(model, english, german)
            loss += tf.add_n(model.losses) * 1e-6
        return loss, tape.gradient(loss, model.trainable_variables)

    @tf.function  # of its own, see bl.sharded
    def apply(gradients):
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    losses = []
    for index in range(count):
        loss, found = gradients(*batch, place(np.array([seed, index], np.int32)))
        apply(found)
        losses.append(float(loss))
    return losses


def weights_of(size: int, heads: int, key_dim: int, hidden: int, vocabulary: int, blocks: int) -> dict[str, int]:
    """Kernels and biases by where they are: random ones split over the devices, and all else."""
    attention = 4 * size * heads * key_dim
    feed_forward = 2 * size * hidden
    return {"random": blocks * (3 * attention + 2 * feed_forward), "other": vocabulary * size}


def on_devices(count: int, seed: int, block: str) -> dict:
    """What one process measures: losses of the small model, bytes of a device, and of a block of the large one."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    tf.keras.backend.experimental.enable_tf_random_generator()
    tf.keras.utils.set_random_seed(seed)
    mesh = dtensor.create_mesh([("model", count)], devices=[f"CPU:{index}" for index in range(count)])
    with bl.sharded(mesh, RULES, same_draws=True):
        model = bayesian(**SMALL)
        model.build(None)
    with bl.sharded(mesh, {}, same_draws=True):
        optimizer = tf.keras.dtensor.experimental.optimizers.Adam(1e-3, mesh=mesh)
    place = lambda value: dtensor.copy_to_mesh(tf.constant(value), dtensor.Layout.replicated(mesh, rank=value.ndim))  # noqa: E731
    with bl.sharded(mesh, RULES, same_draws=True):
        found: dict = {"losses": steps(model, seed, 5, optimizer, place)}
    found["bytes"] = max(bl.bytes_per_device(model.weights).values())
    if block:
        large = {**LARGE, **({"size": 128, "hidden": 1024} if block == "small" else {})}
        with bl.sharded(mesh, RULES):
            layer = Block(
                large["size"], large["heads"], large["hidden"], False, large["key_dim"], name="large", **KINDS
            )
            layer.build([None, None, large["size"]])
        found["block bytes"] = max(bl.bytes_per_device(layer.weights).values())
        found["block bytes, all"] = sum(4 * int(np.prod(variable.shape)) for variable in layer.weights)
    return found


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    counts = (2,) if tiny else (1, 2, 4, 8)
    plain = bayesian(**SMALL)
    plain.build(None)
    expected = steps(plain, seed, 5, tf.keras.optimizers.Adam(1e-3, jit_compile=False), tf.constant)
    whole = 4e-6 * sum(int(np.prod(variable.shape)) for variable in plain.weights)
    figures: Figures = {"no mesh": {"first loss": expected[0], "fifth loss": expected[-1], "MB a device": whole}}
    for count in counts:
        block = "" if count < counts[-1] else "small" if tiny else "whole"
        found = apart(NAME, count, seed, block)
        row = figures[f"{count} device{'s' if count > 1 else ''}"] = {
            "first loss": found["losses"][0],
            "fifth loss": found["losses"][-1],
            "MB a device": found["bytes"] / 1e6,
        }
        if block:
            row["an encoder block of the large model: MB in all"] = found["block bytes, all"] / 1e6
            row["an encoder block of the large model: MB a device"] = found["block bytes"] / 1e6
    large = weights_of(**LARGE)
    for count in (8, 512):
        held = 4 * (2 * large["random"] / count + large["other"])
        figures[f"plan, {count} devices"] = {
            "parameters, billions": (2 * large["random"] + large["other"]) / 1e9,
            "MB a device": held / 1e6,
            "MB a device with Adam's slots": 3 * held / 1e6,
        }
    if picture is not None:
        draw(picture, {row: measures["MB a device"] for row, measures in figures.items() if "plan" not in row})
    return figures


def draw(path: Path, megabytes: dict[str, float]) -> None:
    """Bytes on a device by the number of devices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    axes.bar(list(megabytes), list(megabytes.values()))
    axes.set(ylabel="MB on a device", title="Means, stddevs and plain weights of the small model")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(on_devices(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])))
    else:
        run(main, __doc__)
