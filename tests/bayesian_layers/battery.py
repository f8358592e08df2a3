"""Every public layer, made small, with an input: the table that test_every_layer.py runs over.

A new layer gets one row in `CASES`. `Subject` hides what differs between the rows: a cell is stepped once from a fixed
state and wrapped in `VariationalRNN` in a model; some layers take the output of another layer.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl

import tensorflow as tf  # isort: skip

SEED = (1, 2)
BATCH = 4


@dataclasses.dataclass(frozen=True)
class Case:
    """One row.

    Args:
        make: the layer, of Keras keyword arguments such as dtype.
        shape: of one example of a direct call.
        front: layers that the input passes before this one, of the same arguments.
        call: how the layer is called on a tensor.
        entries: KL entries in `losses`; 0 for a layer without random weights.
        categories: inputs are integers below this; 0: normal numbers.
        cell: the layer is a recurrent cell.
        noisy: the output's second half has noise of its own, even with the weights fixed.
        trains: has trainable variables.
    """

    make: Callable[..., Any]
    shape: Sequence[int] = (4,)
    front: Callable[..., list] = lambda **kwargs: []
    call: Callable[..., Any] = lambda layer, x, **kwargs: layer(x, **kwargs)
    entries: int = 0
    categories: int = 0
    cell: bool = False
    noisy: bool = False
    trains: bool = True

    def inputs(self) -> tf.Tensor:
        """[B, *shape]; for a cell one time step, [B, I]."""
        return self._draw([BATCH, *self.shape])

    def batch(self) -> tf.Tensor:
        """The input of a model: for a cell a sequence."""
        return self._draw([BATCH, 3, *self.shape]) if self.cell else self.inputs()

    def _draw(self, shape: list[int]) -> tf.Tensor:
        if self.categories:
            return tf.random.stateless_uniform(shape, SEED, 0, self.categories, tf.int32)
        return tf.random.stateless_normal(shape, SEED)


class Subject:
    """A layer of the table with what stands in front of it, to be called or made a model of."""

    def __init__(self, case: Case, model: Any = None, **kwargs: Any) -> None:
        self.case = case
        if model is None:
            self.front, self.layer = case.front(**kwargs), case.make(**kwargs)
        else:
            _, *self.front, self.layer = model.layers
            if case.cell:
                self.layer = self.layer.cell

    @property
    def layers(self) -> list:
        return [*self.front, self.layer]

    def __call__(self, x: Any, seed: Any = SEED, **kwargs: Any) -> Any:
        """The layer's output; layers that take a seed get this one."""
        for layer in self.front:
            x = layer(x, **seed_of(layer, seed))
        kwargs.update(seed_of(self.layer, seed))
        if self.case.cell:
            # Not 0, which would hide the recurrent kernel.
            state = tf.fill([*x.shape[:-1], self.layer.units], tf.constant(0.3, self.layer.compute_dtype))
            states = tf.nest.map_structure(lambda size: state, self.layer.state_size)
            return self.layer(x, list(states) if isinstance(states, (list, tuple)) else [states], **kwargs)[0]
        return self.case.call(self.layer, x, **kwargs)

    def numbers(self, x: Any, weights: Any = None, **kwargs: Any) -> tf.Tensor:
        """The output under a weight sample, as one float tensor that equal layers share."""
        with bl.use_weights(weights or None):
            return numbers(self(x, **kwargs))

    def sample(self, samples: int | None = None) -> dict:
        return bl.sample_weights(self.layers, SEED, samples)

    def model(self) -> tf.keras.Model:
        """A functional model of these layers; a cell is wrapped."""
        shape = [3, *self.case.shape] if self.case.cell else self.case.shape
        inputs = x = tf.keras.Input(shape, dtype=tf.int32 if self.case.categories else None)
        for layer in self.front:
            x = layer(x)
        if self.case.cell:
            return tf.keras.Model(inputs, bl.VariationalRNN(self.layer, dtype=self.layer.dtype_policy)(x))
        return tf.keras.Model(inputs, self.case.call(self.layer, x))


def seed_of(layer: Any, seed: Any) -> dict[str, Any]:
    """`seed` as a keyword argument, if the layer takes one."""
    return {"seed": seed} if "seed" in inspect.signature(layer.call).parameters else {}


def numbers(y: Any) -> tf.Tensor:
    """A tensor as it is; of a random variable the parameters, which do not depend on the draw."""
    if not isinstance(y, bl.RandomVariable):
        return y[0] if isinstance(y, (list, tuple)) else y
    distribution = y.distribution
    if "Categorical" in type(distribution).__name__:
        return distribution.logits_parameter()
    return tf.concat([distribution.mean(), distribution.stddev()], -1)


def wide(**kwargs: Any) -> bl.initializers.TrainableNormal:
    """A posterior whose mean and stddev both show in the outputs."""
    return bl.initializers.TrainableNormal("he_normal", 0.1)


def dense(cls: type, **fixed: Any) -> Case:
    return Case(
        lambda **kw: cls(3, "tanh", kernel_initializer=wide(), **{**fixed, **kw}),
        entries=3 if "Hierarchical" in cls.__name__ else 1,
    )


def convolution(cls: type, space: int = 2) -> Case:
    if "depthwise_kernel" in cls.weight_fields:
        separable = "pointwise_kernel" in cls.weight_fields
        arguments, names = ([3, 2], ["depthwise", "pointwise"]) if separable else ([2], ["depthwise"])
        return Case(
            lambda **kw: cls(*arguments, **{f"{name}_initializer": wide() for name in names}, **kw),
            shape=[5] * space + [2],
            entries=len(names),
        )
    return Case(
        lambda **kw: cls(3, 2, kernel_initializer=wide(), **kw),
        shape=[5] * space + [2],
        entries=3 if "Hierarchical" in cls.__name__ else 1,
    )


def cell(cls: type) -> Case:
    options = {"kernel_initializer": wide, "recurrent_initializer": wide}
    return Case(lambda **kw: cls(3, **{name: make() for name, make in options.items()}, **kw), entries=2, cell=True)


def attention(cls: type) -> Case:
    return Case(
        lambda **kw: cls(2, 3, kernel_initializer=wide(), **kw),
        shape=[3, 4],
        call=lambda layer, x, **kw: layer(x, x, **kw),
        entries=4,
    )


def members(cls: type, *arguments: Any, **row: Any) -> Case:
    """A layer of two members; the batch is in two blocks."""
    return Case(lambda **kw: cls(*arguments, ensemble_size=2, **kw), **row)


CASES: dict[str, Case] = {
    "ActNorm": Case(bl.ActNorm),
    "BayesianLinearModel": Case(lambda **kw: bl.BayesianLinearModel(0.5, **kw), trains=False),
    "Bernoulli": Case(lambda **kw: bl.Bernoulli(3, **kw)),
    "Categorical": Case(lambda **kw: bl.Categorical(3, **kw)),
    "ChannelEmbedding": Case(
        lambda **kw: bl.ChannelEmbedding(3, 5, embeddings_initializer=wide(), **kw), categories=5, entries=1
    ),
    "Conv1DBatchEnsemble": members(bl.Conv1DBatchEnsemble, 3, 2, shape=[5, 2]),
    "Conv1DFlipout": convolution(bl.Conv1DFlipout, 1),
    "Conv1DRank1": members(bl.Conv1DRank1, 3, 2, shape=[5, 2], entries=2),
    "Conv1DReparameterization": convolution(bl.Conv1DReparameterization, 1),
    "Conv2DBatchEnsemble": members(bl.Conv2DBatchEnsemble, 3, 2, shape=[5, 5, 2]),
    "Conv2DFlipout": convolution(bl.Conv2DFlipout),
    "Conv2DHierarchical": convolution(bl.Conv2DHierarchical),
    "Conv2DRank1": members(bl.Conv2DRank1, 3, 2, shape=[5, 5, 2], entries=2),
    "Conv2DReparameterization": convolution(bl.Conv2DReparameterization),
    "Conv1DTransposeFlipout": convolution(bl.Conv1DTransposeFlipout, 1),
    "Conv1DTransposeReparameterization": convolution(bl.Conv1DTransposeReparameterization, 1),
    "Conv3DFlipout": convolution(bl.Conv3DFlipout, 3),
    "Conv3DReparameterization": convolution(bl.Conv3DReparameterization, 3),
    "Conv3DTransposeFlipout": convolution(bl.Conv3DTransposeFlipout, 3),
    "Conv3DTransposeReparameterization": convolution(bl.Conv3DTransposeReparameterization, 3),
    "DepthwiseConv1DFlipout": convolution(bl.DepthwiseConv1DFlipout, 1),
    "DepthwiseConv1DReparameterization": convolution(bl.DepthwiseConv1DReparameterization, 1),
    "DepthwiseConv2DFlipout": convolution(bl.DepthwiseConv2DFlipout),
    "DepthwiseConv2DReparameterization": convolution(bl.DepthwiseConv2DReparameterization),
    "SeparableConv1DFlipout": convolution(bl.SeparableConv1DFlipout, 1),
    "SeparableConv1DReparameterization": convolution(bl.SeparableConv1DReparameterization, 1),
    "SeparableConv2DFlipout": convolution(bl.SeparableConv2DFlipout),
    "SeparableConv2DReparameterization": convolution(bl.SeparableConv2DReparameterization),
    "Conv2DTransposeFlipout": convolution(bl.Conv2DTransposeFlipout),
    "Conv2DTransposeReparameterization": convolution(bl.Conv2DTransposeReparameterization),
    "Conv2DVariationalDropout": convolution(bl.Conv2DVariationalDropout),
    "DenseBatchEnsemble": members(bl.DenseBatchEnsemble, 3),
    "DenseDVI": Case(lambda **kw: bl.DenseDVI(3, "relu", kernel_initializer=wide(), **kw), entries=1),
    "DenseFlipout": dense(bl.DenseFlipout),
    "DenseHierarchical": dense(bl.DenseHierarchical),
    "DenseLocalReparameterization": dense(bl.DenseLocalReparameterization),
    "DenseRank1": members(bl.DenseRank1, 3, entries=2),
    "DenseReparameterization": dense(bl.DenseReparameterization),
    "DenseVariational": Case(
        lambda **kw: bl.DenseVariational(3, bl.posterior_mean_field, bl.prior_trainable, activation="tanh", **kw),
        entries=1,
    ),
    "DenseVariationalDropout": dense(bl.DenseVariationalDropout),
    "Discretize": Case(
        lambda **kw: bl.Discretize(8, low=-2.0, high=2.0, **kw),
        front=lambda **kw: [bl.MixtureLogistic(2, num_components=2, **kw)],
    ),
    "EmbeddingReparameterization": Case(
        lambda **kw: bl.EmbeddingReparameterization(5, 3, wide(), **kw), categories=5, entries=1
    ),
    "GRUCellBatchEnsemble": members(bl.GRUCellBatchEnsemble, 3, cell=True),
    "GRUCellFlipout": cell(bl.GRUCellFlipout),
    "GRUCellRank1": members(bl.GRUCellRank1, 3, cell=True, entries=4),
    "GRUCellReparameterization": cell(bl.GRUCellReparameterization),
    "GaussianProcess": Case(
        lambda **kw: bl.GaussianProcess(
            1,
            covariance_fn=bl.LinearKernel(1.0, 0.5),
            conditional_inputs=np.eye(4),
            conditional_outputs=np.ones([4, 1]),
            noise_variance=0.1,
            **kw,
        ),
        trains=False,
    ),
    "LSTMCellBatchEnsemble": members(bl.LSTMCellBatchEnsemble, 3, cell=True),
    "LSTMCellFlipout": cell(bl.LSTMCellFlipout),
    "LSTMCellRank1": members(bl.LSTMCellRank1, 3, cell=True, entries=4),
    "LSTMCellReparameterization": cell(bl.LSTMCellReparameterization),
    "MADE": Case(lambda **kw: bl.MADE(2, [6], activation="tanh", **kw), shape=[4, 1]),
    "MaskedLocalAttention1D": Case(
        lambda **kw: bl.MaskedLocalAttention1D(2, 3, 2, kernel_initializer=wide(), **kw), shape=[5, 4], entries=4
    ),
    "MixtureLogistic": Case(lambda **kw: bl.MixtureLogistic(2, num_components=3, **kw)),
    "MultiHeadAttentionFlipout": attention(bl.MultiHeadAttentionFlipout),
    "MultiHeadAttentionReparameterization": attention(bl.MultiHeadAttentionReparameterization),
    "NCPCategoricalPerturb": Case(
        lambda **kw: bl.NCPCategoricalPerturb(5, 0.5, **kw), categories=5, noisy=True, trains=False
    ),
    "NCPNormalOutput": Case(
        lambda **kw: bl.NCPNormalOutput(0.5, 2.0, **kw),
        front=lambda **kw: [bl.NCPNormalPerturb(stddev=0.0, **kw), bl.Normal(1, **kw)],
    ),
    "NCPNormalPerturb": Case(lambda **kw: bl.NCPNormalPerturb(0.5, 2.0, **kw), noisy=True, trains=False),
    "Normal": Case(lambda **kw: bl.Normal(2, **kw)),
    "Poisson": Case(lambda **kw: bl.Poisson(3, **kw)),
    "PoissonProcess": Case(lambda **kw: bl.PoissonProcess(tf.keras.layers.Dense(2, "softplus", **kw), 0.5, **kw)),
    "PositionalEmbedding": Case(lambda **kw: bl.PositionalEmbedding(6, wide(), **kw), shape=[5, 4], entries=1),
    "RandomFourierFeatures": Case(
        lambda **kw: bl.RandomFourierFeatures(2, 10, kernel_initializer=wide(), **kw), entries=1
    ),
    "RealNVP": Case(lambda **kw: bl.RealNVP(bl.MADE(2, [6], order="random", activation="tanh", seed=3, **kw), **kw)),
    "Reverse": Case(lambda **kw: bl.Reverse(bl.ActNorm(**kw), **kw)),
    "SparseGaussianProcess": Case(
        lambda **kw: bl.SparseGaussianProcess(2, 5, num_features=20, inducing_outputs_initializer=wide(), **kw),
        entries=1,
    ),
    "VBLLClassification": Case(lambda **kw: bl.VBLLClassification(3, **kw), entries=1),
    "VBLLRegression": Case(lambda **kw: bl.VBLLRegression(2, **kw), entries=1),
    "VariationalRNN": Case(
        lambda **kw: bl.VariationalRNN(cell(bl.GRUCellFlipout).make(**kw), return_sequences=True, **kw),
        shape=[3, 4],
        entries=2,
    ),
    "VectorQuantizer": Case(lambda **kw: bl.VectorQuantizer(5, 3, **kw)),
}

# Public classes that are no layers to be called on a batch: values, bases, and what layers are given.
NOT_LAYERS = {
    "ConformalIntervals",
    "ConformalSets",
    "Evaluation",
    "ConstantMean",
    "ELBOParts",
    "ExponentiatedQuadratic",
    "FunctionValues",
    "GaussianLikelihood",
    "IdentityMean",
    "KLScale",
    "KLWarmUp",
    "KernelProduct",
    "KernelSum",
    "LinearKernel",
    "Predictive",
    "LinearMean",
    "Matern12",
    "Matern32",
    "Matern52",
    "NegativeLogLikelihood",
    "NegativeLogLikelihoodMetric",
    "Periodic",
    "PoissonLikelihood",
    "RandomVariable",
    "ReversibleLayer",
    "Temperature",
    "DeepEnsemble",
    "IVON",
    "IVONModel",
    "LastLayerLaplace",
    "Pruning",
    "SWAG",
    "TrainableTriangularNormal",
    "TransformedRandomVariable",
    "UncertaintySplit",
    "VariationalLayer",
    "Zeros",
}

RANDOM = [name for name, case in CASES.items() if case.entries]

# One of each kind. What takes long (compilation, loops) runs by default for these alone.
QUICK = {
    "ActNorm",
    "Conv2DFlipout",
    "SeparableConv2DFlipout",
    "DenseDVI",
    "DenseFlipout",
    "DenseHierarchical",
    "DenseRank1",
    "DenseVariational",
    "Discretize",
    "EmbeddingReparameterization",
    "LSTMCellFlipout",
    "MultiHeadAttentionFlipout",
    "NCPNormalOutput",
    "Normal",
    "RandomFourierFeatures",
    "RealNVP",
    "VectorQuantizer",
}

# `fit` leaves out those that the papers' snippets and test_dense_variational.py train as well.
FITTED = QUICK - {"DenseVariational", "Discretize", "Normal", "RealNVP"}

# Files and two devices, in a process of their own, take longest: without those that test_function_layer_saving.py,
# test_dense_variational.py and test_attention.py save and load as well.
SAVED = FITTED - {"MultiHeadAttentionFlipout"}
