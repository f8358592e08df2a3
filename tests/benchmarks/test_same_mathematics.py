"""The plain implementations compute what the package computes: same weights and noise, same loss, gradients and plan."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.speed.yardsticks.plain_tf import PlainPlaNet
from benchmarks.speed.yardsticks.torch_process import write_data
from tests.benchmarks.tiny import Case, make_case, start_torch


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case()


@pytest.fixture(scope="module")
def plain(case) -> PlainPlaNet:
    return PlainPlaNet(case.sizes, case.weights)


@pytest.fixture(scope="module")
def torch_answer(case, tmp_path_factory) -> dict:
    """What PyTorch makes of the same inputs."""
    with start_torch() as process:
        assert process.modules == []  # neither TensorFlow nor this package
        path = write_data(tmp_path_factory.mktemp("torch") / "case.npz", {**case.arrays, **case.weights})
        return process.request("check", sizes=dataclasses.asdict(case.sizes), variant={}, data=str(path))


def test_the_case_is_one_that_tells(case):
    """Some state KLs are below the free nats and some above, and no layer's gradient is lost beside the image's."""
    assert 0.2 < np.mean(case.state_kls > case.sizes.free_nats) < 0.8
    assert min(case.gradient_norms.values()) > 1e-3
    assert np.abs(case.plan).min() > 0.05 and np.abs(case.plan).max() < 0.95


def test_plain_tensorflow_has_the_same_loss_and_gradients(case, plain):
    arrays = [tf.constant(case.arrays[key]) for key in ("prepared", "action", "reward", "noise")]
    loss, gradients = plain.gradients(*arrays)
    np.testing.assert_allclose(loss, case.loss, rtol=1e-6)
    by_id = {id(variable): gradient for variable, gradient in zip(plain.variables_in_order, gradients, strict=True)}
    for name, layer in plain.layers.items():
        norm = tf.linalg.global_norm([by_id[id(variable)] for variable in layer.trainable_variables])
        np.testing.assert_allclose(norm, case.gradient_norms[name], rtol=1e-4, err_msg=name)
    assert set(plain.layers) == set(case.gradient_norms)


def test_plain_tensorflow_has_the_same_plan(case, plain):
    noise = list(zip(case.arrays["action_noise"], case.arrays["state_noise"], strict=True))
    plan = plain.search(tf.constant(case.arrays["sample"]), tf.constant(case.arrays["belief"]), noise)
    np.testing.assert_allclose(plan, case.plan, atol=1e-5)


def test_plain_tensorflow_has_the_same_levels(case, plain):
    check_levels(plain.preprocess(tf.constant(case.arrays["image"])).numpy(), case)


def test_plain_tensorflow_takes_the_same_step(case):
    """Adam and clipping too: one update moves the weights as the Learner's optimizer would."""
    sizes = case.sizes
    model = PlainPlaNet(sizes, case.weights)
    before = {id(variable): variable.numpy() for variable in model.variables_in_order}
    model.update({key: tf.constant(case.arrays[key]) for key in ("image", "action", "reward")})
    moves = np.concatenate([(v.numpy() - before[id(v)]).ravel() for v in model.variables_in_order])
    # Adam's first step is the learning rate wherever the gradient is much larger than epsilon, and never more.
    assert np.abs(moves).max() == pytest.approx(sizes.learning_rate, rel=1e-2)


def test_torch_has_the_same_loss_and_gradients(case, torch_answer):
    np.testing.assert_allclose(torch_answer["loss"], case.loss, rtol=1e-6)
    assert set(torch_answer["gradient_norms"]) == set(case.gradient_norms)
    for name, norm in torch_answer["gradient_norms"].items():
        np.testing.assert_allclose(norm, case.gradient_norms[name], rtol=1e-4, err_msg=name)


def test_torch_has_the_same_plan(case, torch_answer):
    np.testing.assert_allclose(torch_answer["plan"], case.plan, atol=1e-5)


def test_torch_has_the_same_levels(case, torch_answer):
    check_levels(np.array(torch_answer["preprocessed"], np.float32), case)


def check_levels(preprocessed: np.ndarray, case: Case) -> None:
    """The same level of 5 bits as in the package, and noise that fills the gap to the next one."""
    expected, found = ((array + 0.5) * 32 for array in (case.arrays["prepared"], preprocessed))
    above = found - np.floor(expected)
    assert above.min() >= -1e-4 and above.max() <= 1 + 1e-4
    assert above.mean() == pytest.approx(0.5, abs=0.01) and above.std() == pytest.approx(12**-0.5, abs=0.01)
