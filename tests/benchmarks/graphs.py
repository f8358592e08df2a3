"""The products and convolutions of a TensorFlow graph, and their operations."""

import tensorflow as tf

CONVOLUTIONS = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")


def operations(function, *signature) -> list[tf.Operation]:
    """Products and convolutions that the outputs need: TensorFlow also traces gradients that nobody asked for."""
    graph = tf.function(function, autograph=False).get_concrete_function(*signature).graph
    needed, waiting = {}, [tensor.op for tensor in graph.outputs]
    while waiting:
        op = waiting.pop()
        if op.name not in needed:
            needed[op.name] = op
            waiting += [tensor.op for tensor in op.inputs]
    return [op for op in needed.values() if op.type in (*CONVOLUTIONS, "MatMul")]


def flops(op: tf.Operation) -> int:
    """Exact, from the shapes of a graph's operation."""
    if op.type == "MatMul":
        rows, columns = op.outputs[0].shape
        inner = op.inputs[0].shape[0 if op.get_attr("transpose_a") else 1]
        return 2 * rows * columns * inner
    if op.type == "Conv2D":
        return 2 * op.outputs[0].shape.num_elements() * op.inputs[1].shape[:3].num_elements()
    # Both gradients meet every output gradient with every tap that led to it.
    kernel = op.inputs[1].shape if op.type == "Conv2DBackpropInput" else op.outputs[0].shape
    return 2 * op.inputs[2].shape.num_elements() * kernel[:3].num_elements()
