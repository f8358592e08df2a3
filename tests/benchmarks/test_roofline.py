"""What a unit of work needs, by formula, against the operations that TensorFlow's graphs hold."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.speed import roofline
from benchmarks.speed.roofline import Work
from benchmarks.speed.yardsticks.plain_tf import PlainPlaNet
from tests.benchmarks.graphs import CONVOLUTIONS, flops, operations
from tests.benchmarks.tiny import Case, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case()


@pytest.fixture(scope="module")
def plain(case) -> PlainPlaNet:
    return PlainPlaNet(case.sizes, case.weights)


def specs(case, *names):
    return [tf.TensorSpec(case.arrays[name].shape, tf.float32) for name in names]


def total(found: list[tf.Operation], *types: str) -> int:
    return sum(flops(op) for op in found if op.type in types)


def products(case, *prefixes: str) -> list[roofline.Product]:
    return [product for product in roofline.update_products(case.sizes) if product.name.startswith(prefixes)]


def test_forward_pass_is_the_graph(case, plain):
    found = operations(plain.loss, *specs(case, "prepared", "action", "reward", "noise"))
    assert sum(flops(op) for op in found) == 2 * sum(p.multiply_adds for p in roofline.update_products(case.sizes))
    outputs = sum(op.outputs[0].shape.num_elements() for op in found)
    assert outputs == sum(product.outputs for product in roofline.update_products(case.sizes))


def test_parameters_are_the_model_s(case):
    count = sum(product.parameters for product in roofline.update_products(case.sizes))
    assert count == sum(weight.size for weight in case.weights.values())


def test_update_is_the_graph_with_its_gradients(case, plain):
    found = operations(lambda *a: plain.gradients(*a)[1], *specs(case, "prepared", "action", "reward", "noise"))
    convolutions = products(case, "convolution", "deconvolution")
    expected = sum(2 * product.multiply_adds * product.passes for product in convolutions)
    assert total(found, *CONVOLUTIONS) == expected
    # The formula gives the first time step a gradient to its state, which is a constant: 1 of 4 steps of these.
    steps = case.sizes.steps
    recurrent = products(case, "prior_input", "gru_gates", "gru_candidate")
    constants = sum(2 * product.multiply_adds for product in recurrent) // steps
    dense = 3 * 2 * sum(p.multiply_adds for p in roofline.update_products(case.sizes)) - 3 * 2 * sum(
        p.multiply_adds for p in convolutions
    )
    assert dense - constants <= total(found, "MatMul") <= dense
    assert roofline.update_work(case.sizes).flops == expected + dense


def test_plan_is_the_graph(case, plain):
    found = operations(plain.search, *specs(case, "sample", "belief"))
    assert sum(flops(op) for op in found) == roofline.plan_work(case.sizes).flops


def test_tensorflow_s_profiler_agrees(case, plain):
    concrete = tf.function(plain.search, autograph=False).get_concrete_function(*specs(case, "sample", "belief"))
    options = tf.compat.v1.profiler.ProfileOptionBuilder(tf.compat.v1.profiler.ProfileOptionBuilder.float_operation())
    options = options.with_empty_output().with_accounted_types(["_never"]).build()
    options["account_type_regexes"], options["show_name_regexes"] = [".*"], [".*MatMul.*"]
    profile = tf.compat.v1.profiler.profile(concrete.graph, options=options)
    matmuls = [node.float_ops for node in leaves(profile) if node.name.rpartition("/")[2].startswith("MatMul")]
    assert sum(matmuls) == roofline.plan_work(case.sizes).flops


def leaves(node) -> list:
    return [node] + [leaf for child in node.children for leaf in leaves(child)]


def test_candidates_and_image_fraction_scale_what_they_should(case):
    half = roofline.plan_work(case.sizes, [case.sizes.candidates // 2] * case.sizes.iterations)
    assert 2 * half.flops == roofline.plan_work(case.sizes).flops
    whole, part = (roofline.update_products(case.sizes, fraction) for fraction in (1.0, 0.5))
    for full, less in zip(whole, part, strict=True):
        decoded = full.name.startswith(("deconvolution", "decoder"))
        assert full.multiply_adds == (2 if decoded else 1) * less.multiply_adds
        assert full.parameters == less.parameters


def test_floor_is_the_slower_of_arithmetic_and_traffic():
    work = Work(flops=1000, bytes={"float32": 400, "bfloat16": 200})
    rates = {"float32": 10.0, "bfloat16": 100.0, "copy": 8.0}
    assert work.floor_seconds(rates, "float32") == 100.0
    assert work.floor_seconds(rates, "bfloat16") == 25.0


def test_bytes_are_passes_over_outputs_and_parameters(case):
    sizes = case.sizes
    outputs = sum(product.outputs for product in roofline.update_products(sizes))
    parameters = sum(weight.size for weight in case.weights.values())
    images = math.prod(case.arrays["image"].shape)
    found = roofline.update_work(sizes).bytes
    assert found["float32"] == images + 5 * 4 * outputs + 10 * 4 * parameters
    assert found["float32"] - found["bfloat16"] == 5 * 2 * outputs
    assert np.all(np.array(list(found.values())) > 0)


def test_values_add_a_head_whose_input_learns_nothing_from_it(case):
    sizes = case.sizes
    rows = sizes.batch * sizes.steps
    plain, more = (roofline.update_work(sizes, value=value) for value in (False, True))
    units = [sizes.features, *[sizes.reward_units] * sizes.reward_layers, 1]
    products = [rows * one * other for one, other in itertools.pairwise(units)]
    assert more.flops - plain.flops == 2 * (3 * sum(products) - products[0])
    one_step = roofline.plan_work(dataclasses.replace(sizes, horizon=1), [7], value=True).flops
    assert (
        one_step - roofline.plan_work(dataclasses.replace(sizes, horizon=1), [7]).flops == 2 * sum(products) * 7 / rows
    )
