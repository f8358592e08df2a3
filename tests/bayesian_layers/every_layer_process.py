"""What test_every_layer.py does in a process of its own: load files that another process wrote, and two devices.

A program: `python -m tests.bayesian_layers.every_layer_process FOLDER NAME,... NAME,...`. It checks the first layers on
two logical CPUs, waits for a line on its standard input, and loads the files of the second ones that are in FOLDER by
then. The outcome, {layer: {check: error or ""}}, is written to FOLDER/results.json.
"""

import json
import pathlib
import sys
import traceback

import numpy as np

from tests.bayesian_layers.battery import CASES, SEED, Subject, bl, numbers, tf

FORMATS = ("keras", "h5", "saved_model", "checkpoint")


def path(folder: pathlib.Path, name: str, kind: str) -> str:
    """Where the file of this kind is."""
    return str(folder / f"{name}.{kind}" if kind in ("keras", "h5") else folder / f"{name}_{kind}")


def save(folder: pathlib.Path, name: str) -> None:
    """Writes a model of one layer in all formats, and its outputs under a fixed weight sample."""
    case = CASES[name]
    subject = Subject(case)
    model = subject.model()
    for kind in FORMATS[:3]:
        model.save(path(folder, name, kind), save_format={"keras": "keras", "h5": "h5"}.get(kind, "tf"))
    tf.train.Checkpoint(model=model).write(path(folder, name, "checkpoint"))
    np.save(folder / f"{name}.npy", subject.numbers(case.inputs(), subject.sample()))


def load(folder: pathlib.Path, name: str, kind: str) -> None:
    """The model in a file computes what the saved one did, and keeps its KL entries."""
    case = CASES[name]
    if kind == "checkpoint":
        model = Subject(case).model()
        tf.train.Checkpoint(model=model).read(path(folder, name, kind)).assert_consumed()
    else:
        model = tf.keras.models.load_model(path(folder, name, kind))
    subject = Subject(case, model)
    assert type(subject.layer) is type(case.make()), type(subject.layer)
    outputs = subject.numbers(case.inputs(), subject.sample())
    np.testing.assert_allclose(outputs, np.load(folder / f"{name}.npy"), rtol=1e-5, atol=1e-6)
    assert not case.entries or len(model.losses) == case.entries, model.losses


def mirrored(strategy: tf.distribute.Strategy, name: str) -> None:
    """Each replica computes what one device does, a step leaves equal variables, and seeds may differ by replica."""
    case = CASES[name]
    with strategy.scope():
        subject = Subject(case)
        subject(case.inputs())
        optimizer = tf.keras.optimizers.legacy.SGD(0.01)
    x, weights = case.inputs(), subject.sample()
    variables = [variable for layer in subject.layers for variable in layer.trainable_variables]

    def step(weights):
        outputs = subject.numbers(x, weights)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.random.experimental.stateless_fold_in(tf.constant(SEED), replica)
        draws = tf.nest.flatten(bl.sample_weights(subject.layers, seed))[:1]
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.cast(numbers(subject(x)), tf.float32)))
            loss += sum(loss for layer in subject.layers for loss in layer.losses) if case.entries else 0.0
        if variables:
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return outputs, draws

    expected = subject.numbers(x, weights)
    before = [variable.numpy() for variable in variables]
    outputs, draws = tf.function(lambda weights: strategy.run(step, (weights,)))(weights)
    for output in strategy.experimental_local_results(outputs):
        rows = len(x) if case.noisy else None
        np.testing.assert_allclose(output[:rows], expected[:rows], rtol=1e-4, atol=1e-5)
    for first, second in map(strategy.experimental_local_results, draws):
        assert not np.allclose(first, second)
    for variable in variables:
        first, second = strategy.experimental_local_results(variable)
        np.testing.assert_array_equal(first, second)
        assert np.all(np.isfinite(first)), variable.name
    changed = [not np.array_equal(variable, old) for variable, old in zip(variables, before, strict=True)]
    assert all(changed) if case.entries else any(changed) or not changed, changed


def error_of(check, *arguments) -> str:
    """The traceback of a check that fails, else ''."""
    try:
        check(*arguments)
    except Exception:
        return traceback.format_exc()
    return ""


def main(folder: pathlib.Path, replicated: list[str], saved: list[str]) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    results = {name: {"mirrored": error_of(mirrored, strategy, name)} for name in replicated}
    sys.stdin.readline()
    for name in saved:
        results.setdefault(name, {}).update({kind: error_of(load, folder, name, kind) for kind in FORMATS})
    (folder / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), *(list(filter(None, names.split(","))) for names in sys.argv[2:]))
