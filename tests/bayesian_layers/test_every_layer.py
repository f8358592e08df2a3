"""What every public layer promises: configs, files, dtypes, XLA, two devices, fit, weight samples, one KL a weight."""

import inspect
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from tensorflow_probability import distributions as tfd

from tests.bayesian_layers import every_layer_process
from tests.bayesian_layers.battery import (
    BATCH,
    CASES,
    FITTED,
    NOT_LAYERS,
    QUICK,
    RANDOM,
    SAVED,
    Subject,
    bl,
    numbers,
    tf,
)
from tests.bayesian_layers.every_layer_process import FORMATS

# The process that loads the files shares the machine with the tests here.
pytestmark = pytest.mark.timeout(1200)


def layers(*names, default=None, quick=None):
    """Parametrised over layers. Of a test that takes long, those that are not in `default` carry the slow marker, and
    those of it that are not in `quick` the thorough one."""
    default = set(names) if default is None else default
    quick = default if quick is None else quick

    def marked(name):
        mark = pytest.mark.slow if name not in default else pytest.mark.thorough
        return name if name in quick else pytest.param(name, marks=mark)

    return pytest.mark.parametrize("name", [marked(name) for name in names])


def built(name, **kwargs):
    """The layer, called once, and its input in the layer's dtype."""
    case = CASES[name]
    subject, x = Subject(case, **kwargs), case.inputs()
    x = x if case.categories else tf.cast(x, subject.layer.compute_dtype)
    subject(x)
    return subject, x


def close(first, second, tolerance, case):
    """Equal but for the part of the output that has noise of its own."""
    rows = BATCH if case.noisy else None
    first, second = (np.asarray(tf.cast(value, tf.float64))[:rows] for value in (first, second))
    np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)


def variables(subject):
    return [variable for layer in subject.layers for variable in layer.trainable_variables]


def test_no_public_layer_is_missing():
    classes = {name for name in bl.__all__ if inspect.isclass(getattr(bl, name))}
    aliases = {name for name in classes if getattr(bl, name).__name__ != name}
    assert classes - aliases - NOT_LAYERS == set(CASES)
    assert set(RANDOM) == {name for name in CASES if built(name)[0].sample()}


@pytest.fixture(scope="module")
def process(request, tmp_path_factory):
    """A fresh process, which checks two devices, and loads what is saved here once it is told to."""
    folder = tmp_path_factory.mktemp("layers")
    asked = {
        test: set()
        for test in ("test_mirrored_strategy", "test_saves_in_every_format", "test_loads_in_a_fresh_process")
    }
    for item in request.session.items:
        if item.module is request.module and item.originalname in asked:
            asked[item.originalname].add(item.callspec.params["name"])
    replicated, saves, loads = map(sorted, asked.values())
    command = [sys.executable, "-m", "tests.bayesian_layers.every_layer_process", str(folder)]
    command += [",".join(replicated), ",".join(loads)]
    with (folder / "errors.txt").open("w") as errors:
        started = subprocess.Popen(
            command, cwd=pathlib.Path(__file__).parents[2], stdin=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        started.failures = {
            name: every_layer_process.error_of(every_layer_process.save, folder, name) for name in {*saves, *loads}
        }
        started.stdin.write("saved\n")
        started.stdin.flush()
        started.folder = folder
        yield started
    finally:
        started.kill()
        started.wait()


@pytest.fixture(scope="module")
def results(process):
    process.wait(timeout=1000)
    assert process.returncode == 0, (process.folder / "errors.txt").read_text()[-3000:]
    return json.loads((process.folder / "results.json").read_text())


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@layers(*CASES, default=SAVED)
def test_saves_in_every_format(name, process):
    assert not process.failures[name], process.failures[name]


@layers(*CASES)
def test_config(name):
    case = CASES[name]
    layer = case.make()
    config = layer.get_config()
    assert json.loads(json.dumps(config))
    arguments = inspect.signature(type(layer).__init__).parameters.values()
    named = {argument.name for argument in arguments if argument.kind is argument.POSITIONAL_OR_KEYWORD} - {"self"}
    assert named - set(config) <= {"order"}  # MADE's other name of input_order
    copy = type(layer).from_config(config)
    assert copy.get_config() == config
    registered = tf.keras.layers.deserialize(tf.keras.layers.serialize(layer))
    assert type(registered) is type(layer) and registered.get_config() == config


@pytest.mark.thorough
@layers(*CASES, default=FITTED)
def test_clone_and_fit(name):
    """A cloned model has the same outputs with the same weights; fit moves them all, and lowers the loss."""
    case = CASES[name]
    subject = Subject(case)
    model = subject.model()
    clone = tf.keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    other, x = Subject(case, clone), case.inputs()
    close(other.numbers(x, other.sample()), subject.numbers(x, subject.sample()), 1e-5, case)

    def loss(_, y):
        if isinstance(y, bl.RandomVariable) and y.distribution.reparameterization_type != tfd.FULLY_REPARAMETERIZED:
            return -tf.reduce_mean(y.distribution.log_prob(tf.zeros_like(y.value)))
        return tf.reduce_mean(tf.square(tf.cast(tf.convert_to_tensor(y), tf.float32)))

    model.compile(tf.keras.optimizers.Adam(0.05), loss)
    before = [variable.numpy() for variable in model.trainable_variables]
    assert bool(before) == case.trains
    tf.random.set_seed(3)
    losses = model.fit(case.batch(), tf.zeros([BATCH]), epochs=6, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses))
    assert not case.trains or losses[-1] < losses[0]
    for variable, old in zip(model.trainable_variables, before, strict=True):
        assert np.all(np.isfinite(variable)) and np.any(variable != old), variable.name


@layers(*CASES)
def test_mixed_bfloat16(name):
    """Computes in bfloat16 (distributions in float32), keeps float32 variables, and is near float32."""
    exact, x = built(name)
    mixed, half = built(name, dtype="mixed_bfloat16")
    for ours, theirs in zip(mixed.layers, exact.layers, strict=True):
        ours.set_weights(theirs.get_weights())
    with tf.GradientTape() as tape:
        y = mixed(half)
        total = tf.reduce_sum(tf.cast(numbers(y), tf.float32))
    stored = {variable.dtype for layer in mixed.layers for variable in layer.weights}
    assert stored <= {tf.float32, tf.bool, tf.int32}
    if isinstance(y, bl.RandomVariable):
        assert numbers(y).dtype in (tf.float32, tf.bfloat16)
    else:
        assert y.dtype == (tf.int32 if name == "NCPCategoricalPerturb" else tf.bfloat16)
    for gradient in tape.gradient(total, variables(mixed)):
        assert gradient is None or np.all(np.isfinite(tf.convert_to_tensor(gradient)))
    means = (bl.posterior_mean(subject.layers) for subject in (mixed, exact))
    close(mixed.numbers(half, next(means)), exact.numbers(x, next(means)), 0.06, CASES[name])


@layers(*CASES)
def test_float64(name):
    """All variables and outputs are float64, and the numbers are those of float32."""
    exact, x = built(name)
    double, wide = built(name, dtype="float64")
    for ours, theirs in zip(double.layers, exact.layers, strict=True):
        ours.set_weights(theirs.get_weights())
    y = double(wide)
    assert y.dtype == (
        tf.int32 if name in ("NCPCategoricalPerturb", "Categorical", "VBLLClassification") else tf.float64
    )
    stored = {variable.dtype for layer in double.layers for variable in layer.weights}
    assert stored <= {tf.float64, tf.bool, tf.int32}
    means = (bl.posterior_mean(subject.layers) for subject in (double, exact))
    close(double.numbers(wide, next(means)), exact.numbers(x, next(means)), 1e-4, CASES[name])


@layers(*CASES, default=QUICK)
def test_jit_compile(name):
    """Outputs and gradients under a weight sample that is an argument, compiled and not."""
    subject, x = built(name)

    def step(weights, x):
        with tf.GradientTape() as tape:
            y = subject.numbers(x, weights)
            loss = tf.reduce_sum(tf.square(tf.cast(y, tf.float32)))
            loss += sum(loss for layer in subject.layers for loss in layer.losses)
        gradients = tape.gradient(loss, variables(subject), unconnected_gradients="zero")
        return y, [tf.convert_to_tensor(gradient) for gradient in gradients]

    weights = subject.sample()
    outputs, gradients = tf.function(step, jit_compile=True)(weights, x)
    expected = step(weights, x)
    close(outputs, expected[0], 1e-4, CASES[name])
    for gradient, other in zip(gradients, expected[1], strict=True):
        np.testing.assert_allclose(gradient, other, rtol=1e-3, atol=1e-3)


@layers(*CASES, default=QUICK)
def test_a_weight_sample_in_a_while_loop(name):
    """A sample that is a loop variable gives at each step what the layer gives by hand."""
    subject, x = built(name)

    @tf.function
    def roll(weights):
        def body(t, total, weights):
            return t + 1, total + subject.numbers(tf.roll(x, t, 0), weights), weights

        start = tf.zeros_like(subject.numbers(x, weights))
        return tf.while_loop(lambda t, *_: t < 3, body, (0, start, weights))[1]

    weights = subject.sample()
    by_hand = sum(subject.numbers(tf.roll(x, t, 0), weights) for t in range(3))
    close(roll(weights), by_hand, 1e-4, CASES[name])


@layers(*RANDOM, default=QUICK)
def test_one_divergence_a_weight(name):
    """However often the layer is called: eagerly, in a tf.function, in tf.scan."""
    subject, x = built(name)
    for _ in range(3):
        subject(x)
    entries = CASES[name].entries
    eager = [float(loss) for loss in subject.layer.losses]
    assert len(eager) == entries
    np.testing.assert_allclose(sum(eager), sum(bl.weight_kl(subject.layer).values()), rtol=1e-5)

    @tf.function
    def scanned():
        subject(x)
        inside = tf.scan(lambda _, t: (subject(x), tf.add_n(subject.layer.losses))[1], tf.range(3), 0.0)
        assert len(subject.layer.losses) == entries
        return inside, tf.add_n(subject.layer.losses)

    for value in scanned():
        np.testing.assert_allclose(value, sum(eager) * np.ones(value.shape), rtol=1e-5)
    assert len(subject.layer.losses) == entries


@layers(*RANDOM)
def test_samples_are_a_leading_axis(name):
    """S samples on S inputs, or on one, are S single samples."""
    subject, x = built(name)
    weights = subject.sample(3)
    inputs = tf.stack([tf.roll(x, shift, 0) for shift in range(3)])
    together, shared = subject.numbers(inputs, weights), subject.numbers(x[None], weights)
    for index in range(3):
        own = tf.nest.map_structure(lambda tensor: tensor[index], weights)
        close(together[index], subject.numbers(inputs[index], own), 1e-4, CASES[name])
        close(shared[index], subject.numbers(x, own), 1e-4, CASES[name])


@pytest.mark.thorough
@pytest.mark.parametrize("kind", FORMATS)
@layers(*CASES, default=SAVED)
def test_loads_in_a_fresh_process(name, kind, results):
    assert not results[name][kind], results[name][kind]


@layers(*CASES, default=SAVED, quick={"DenseFlipout", "LSTMCellFlipout", "VectorQuantizer"})
def test_mirrored_strategy(name, results):
    assert not results[name]["mirrored"], results[name]["mirrored"]
