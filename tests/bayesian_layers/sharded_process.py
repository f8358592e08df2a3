"""What test_sharding.py does in a process of its own: layers on a mesh of N logical CPUs against the same on one.

A program: `python -m tests.bayesian_layers.sharded_process N`. It reads names of checks, one a line, and answers each by
a line of JSON.
"""

import json
import sys
import traceback

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

dtensor = tf.experimental.dtensor
SEED = [3, 4]
X = np.random.default_rng(0).normal(size=[4, 6, 16]).astype(np.float32)
RULES = {
    r"up/kernel": [None, "model"],
    r"up/bias": ["model"],
    r"down/kernel": ["model", None],
}


def feed_forward(cls):
    return lambda: [(cls(32, "relu", name="up"), [None, 6, 16]), (cls(8, name="down"), [None, 6, 32])]


MODELS = {
    "DenseReparameterization": feed_forward(bl.DenseReparameterization),
    "DenseFlipout": feed_forward(bl.DenseFlipout),
    "DenseLocalReparameterization": feed_forward(bl.DenseLocalReparameterization),
}


def built(make):
    tf.keras.utils.set_random_seed(1)
    pairs = make()
    for layer, shape in pairs:
        layer.build(shape)
    return [layer for layer, _ in pairs]


def step(layers, x, seed=SEED):
    """Loss with its KL, and gradients."""
    with tf.GradientTape() as tape:
        y = x
        for layer in layers:
            y = layer(y, seed=seed)
        loss = tf.reduce_mean(tf.square(y)) + sum(loss for layer in layers for loss in layer.losses) / 1000
    return loss, tape.gradient(loss, [variable for layer in layers for variable in layer.trainable_variables])


def whole(value, mesh):
    """A tensor of the mesh in one piece."""
    return dtensor.relayout(value, dtensor.Layout.replicated(mesh, rank=value.shape.rank)).numpy()


def on(mesh, value):
    return dtensor.copy_to_mesh(tf.constant(value), dtensor.Layout.replicated(mesh, rank=np.ndim(value)))


def compare(make, mesh):
    plain = built(make)
    loss, gradients = step(plain, tf.constant(X))
    with bl.sharded(mesh, RULES, same_draws=True):
        layers = built(make)
        loss_there, gradients_there = tf.function(lambda x: step(layers, x))(on(mesh, X))
    pairs = zip(gradients, gradients_there, strict=True)
    variables = [variable for layer in layers for variable in layer.weights]
    split = [
        variable for variable in variables if any(spec != dtensor.UNSHARDED for spec in variable.layout.sharding_specs)
    ]
    return {
        "loss": abs(float(loss) - float(loss_there)) / abs(float(loss)),
        "gradients": max(float(np.max(np.abs(first - whole(second, mesh)))) for first, second in pairs),
        "largest": max(float(np.max(np.abs(gradient))) for gradient in gradients),
        "bytes": list(bl.bytes_per_device(split).values()),
        "bytes_whole": sum(int(np.prod(variable.shape)) * 4 for variable in split),
        "split": len(split),
    }


def distribution(mesh):
    """Without same_draws: each device's part of the noise is normal, and independent of the others'."""
    with bl.sharded(mesh, RULES):
        layer = bl.DenseReparameterization(
            4096, use_bias=False, kernel_initializer=bl.initializers.TrainableNormal("zeros", 1.0), name="up"
        )
        layer.build([None, 8])
        call = tf.function(lambda x: layer(x, seed=SEED))
        y = whole(call(on(mesh, np.eye(8, dtype=np.float32))), mesh)
    parts = np.split(y, mesh.num_local_devices() if mesh.size > 1 else 1, axis=1)
    correlation = np.corrcoef(parts[0].ravel(), parts[-1].ravel())[0, 1] if len(parts) > 1 else 0.0
    return {"stddev": float(y.std()), "mean": float(y.mean()), "correlation": float(correlation)}


def training(mesh):
    """The loss after some steps of Adam on the mesh and on one device."""

    def steps(layers, x, optimizer, mesh_of=None):
        @tf.function
        def run(x, seed):
            loss, gradients = step(layers, x, seed)
            variables = [variable for layer in layers for variable in layer.trainable_variables]
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        seeds = [tf.constant([number, 0]) for number in range(10)]
        return [float(run(x, seed if mesh_of is None else on(mesh_of, seed))) for seed in seeds]

    make = MODELS["DenseFlipout"]
    plain = steps(built(make), tf.constant(X), tf.keras.optimizers.Adam(0.01, jit_compile=False))
    with bl.sharded(mesh, RULES, same_draws=True):
        layers = built(make)
    with bl.sharded(mesh, {}, same_draws=True):
        optimizer = tf.keras.dtensor.experimental.optimizers.Adam(0.01, mesh=mesh)
    with bl.sharded(mesh, RULES, same_draws=True):
        there = steps(layers, on(mesh, X), optimizer, mesh)
    return {"plain": plain, "there": there}


def errors(mesh):
    """The messages of what is refused."""

    def message(action):
        try:
            action()
        except ValueError as error:
            return str(error)
        return ""

    with bl.sharded(mesh, RULES):
        layers = built(MODELS["DenseFlipout"])
        found = {"seed": message(lambda: layers[0](on(mesh, X)))}
        found["eager"] = message(lambda: layers[0](on(mesh, X), seed=SEED))
    found["seed outside"] = message(lambda: layers[0](on(mesh, X)))

    def build(rules):
        with bl.sharded(mesh, rules):
            built(MODELS["DenseFlipout"])

    found["axes"] = message(lambda: build({"up": [None, "model"]}))
    found["unknown"] = message(lambda: build({"up": ["data", None]}))
    return found


def layout_map(mesh):
    """Keras' LayoutMap lays out posteriors and plain weights, and the model computes what the plain one does."""

    def model():
        tf.keras.utils.set_random_seed(1)
        return tf.keras.Sequential(
            [
                bl.DenseFlipout(32, "relu", name="up", input_shape=(16,)),
                bl.DenseFlipout(8, kernel_initializer="glorot_uniform", name="down"),
            ]
        )

    layouts = tf.keras.dtensor.experimental.LayoutMap(mesh=mesh)
    layouts["up.kernel_initializer.*"] = dtensor.Layout([dtensor.UNSHARDED, "model"], mesh)
    layouts["down._plain_kernel"] = dtensor.Layout(["model", dtensor.UNSHARDED], mesh)
    with layouts.scope():
        there = model()
    plain = model()
    for variable, other in zip(plain.weights, there.weights, strict=True):
        variable.assign(whole(other.read_value(), mesh))
    with bl.use_weights(bl.posterior_mean(plain, compact=True)):
        expected = plain(X[:, 0])
    with bl.use_weights(bl.posterior_mean(there, compact=True)):
        found = there(on(mesh, X[:, 0]))
    return {
        "difference": float(np.max(np.abs(expected - whole(found, mesh)))),
        "kl": abs(float(sum(plain.losses)) - float(sum(there.losses))),
        "layouts": {variable.name: list(variable.layout.sharding_specs) for variable in there.weights},
        "bytes": list(bl.bytes_per_device([there.layers[0].kernel_initializer.mean, there.layers[1].kernel]).values()),
    }


def main(count: int) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    tf.keras.backend.experimental.enable_tf_random_generator()
    mesh = dtensor.create_mesh([("model", count)], devices=[f"CPU:{index}" for index in range(count)])
    checks = {name: (compare, make, mesh) for name, make in MODELS.items()}
    checks |= {name.__name__: (name, mesh) for name in (distribution, training, errors, layout_map)}
    for line in sys.stdin:
        check, *arguments = checks[line.strip()]
        try:
            found = check(*arguments)
        except Exception:
            found = {"failed": traceback.format_exc()[-3000:]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
