"""A residual network with Bayesian layers or plain ones, and what steps of the network of 50 layers cost.

He et al. 2016, "Deep Residual Learning"; Tran et al. 2018, "Bayesian Layers", Figure 12.
"""

import resource
import time
from functools import partial
from typing import Any

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
PLAIN = {"conv": keras.Conv2D, "dense": keras.Dense}
FIFTY = {"filters": (64, 128, 256, 512), "blocks": (3, 4, 6, 3), "stem": 7}
SMALL = {"filters": (8, 16), "blocks": (1, 1), "stem": 3}


def flipout(stddev: float) -> dict[str, Any]:
    """The layers of a Bayesian network whose posterior starts with this stddev."""
    belief = {
        "kernel_initializer": bl.initializers.TrainableNormal("he_normal", stddev),
        "kernel_regularizer": bl.regularizers.FanInNormalKLDivergence(),
    }
    return {"conv": partial(bl.Conv2DFlipout, **belief), "dense": partial(bl.DenseFlipout, **belief)}


def resnet(
    shape: tuple, classes: int, filters: tuple, blocks: tuple, stem: int, conv: Any, dense: Any
) -> tf.keras.Model:
    """Images [N, *shape] to logits [N, classes], by bottleneck blocks of 1 x 1, 3 x 3 and 1 x 1 convolutions."""

    def normal(x: Any, relu: bool = True) -> Any:
        x = keras.BatchNormalization(momentum=0.9)(x)
        return keras.ReLU()(x) if relu else x

    def bottleneck(x: Any, size: int, stride: int) -> Any:
        short = x
        if stride > 1 or x.shape[-1] != 4 * size:
            short = normal(conv(4 * size, 1, stride, use_bias=False)(x), relu=False)
        x = normal(conv(size, 1, use_bias=False)(x))
        x = normal(conv(size, 3, stride, padding="same", use_bias=False)(x))
        x = normal(conv(4 * size, 1, use_bias=False)(x), relu=False)
        return keras.ReLU()(keras.Add()([x, short]))

    inputs = tf.keras.Input(shape)
    x = normal(conv(filters[0], stem, 2 if stem > 3 else 1, padding="same", use_bias=False)(inputs))
    if stem > 3:
        x = keras.MaxPooling2D(3, 2, padding="same")(x)
    for stage, (size, count) in enumerate(zip(filters, blocks, strict=True)):
        for block in range(count):
            x = bottleneck(x, size, 2 if stage and not block else 1)
    return tf.keras.Model(inputs, dense(classes)(keras.GlobalAveragePooling2D()(x)))


def step_of(model: tf.keras.Model, examples: int) -> Any:
    """One compiled step of SGD on cross-entropy and KL."""
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            total = tf.add_n([loss, *(kl / examples for kl in model.losses)])
        optimizer.apply_gradients(
            zip(tape.gradient(total, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    return step


def large(kind: str, side: int, seed: int) -> dict[str, float]:
    """What one process measures of ResNet-50: parameters, processor seconds of a step, most memory held."""
    tf.keras.utils.set_random_seed(seed)
    layers = PLAIN if kind == "twin" else flipout(0.01)
    model = resnet((side, side, 3), 1000, **FIFTY, **layers)
    step = step_of(model, 1_281_167)
    images, labels = tf.random.normal([4, side, side, 3]), tf.constant([1, 2, 3, 4])
    losses, seconds = [], []
    for _ in range(4):
        start = time.process_time()
        losses.append(float(step(images, labels)))
        seconds.append(time.process_time() - start)
    numbers = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    return {
        "ResNet-50: parameters, millions": numbers / 1e6,
        "ResNet-50: processor seconds of a step": float(np.median(seconds[1:])),
        "ResNet-50: GB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "ResNet-50: loss, first step": losses[0],
        "ResNet-50: loss, fourth step": losses[-1],
    }
