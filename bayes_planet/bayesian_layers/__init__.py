"""Neural network layers with a belief over their weights.

The layers are drop-in replacements of Keras layers. They stand alone: this subpackage imports TensorFlow, TensorFlow
Probability and NumPy, and nothing else of bayes_planet.

```python
layer = DenseReparameterization(200, activation="relu")
y = layer(x)                                    # a fresh draw of the weights
weights = sample_weights(layer, seed=[0, 1])    # a draw as a value: {layer key: {weight name: tensor}}
with use_weights(weights):
    y = layer(x)                                # that draw
loss = nll + sum(layer.losses) / data_set_size  # KL(q || p), counted once
```
"""

from bayes_planet.bayesian_layers import random_variables
from bayes_planet.bayesian_layers.conversion.convert import to_bayesian, to_deterministic
from bayes_planet.bayesian_layers.conversion.prune import Pruning, prune, pruned_weights, signal_to_noise
from bayes_planet.bayesian_layers.distributions import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.distributions.function_values import FunctionValues
from bayes_planet.bayesian_layers.distributions.kl.kl_scale import KLScale
from bayes_planet.bayesian_layers.distributions.starts import start
from bayes_planet.bayesian_layers.distributions.triangular_normal import TrainableTriangularNormal
from bayes_planet.bayesian_layers.distributions.weight_models import (
    posterior_mean_field,
    prior_scale_mixture,
    prior_trainable,
)
from bayes_planet.bayesian_layers.ensembles.batch_ensemble import (
    Conv1DBatchEnsemble,
    Conv2DBatchEnsemble,
    DenseBatchEnsemble,
    GRUCellBatchEnsemble,
    LSTMCellBatchEnsemble,
)
from bayes_planet.bayesian_layers.ensembles.deep_ensemble import DeepEnsemble
from bayes_planet.bayesian_layers.ensembles.rank1 import (
    Conv1DRank1,
    Conv2DRank1,
    DenseRank1,
    GRUCellRank1,
    LSTMCellRank1,
)
from bayes_planet.bayesian_layers.ensembles.swag import SWAG
from bayes_planet.bayesian_layers.evaluation.evaluate import Evaluation, evaluate
from bayes_planet.bayesian_layers.evaluation.held_out import ConformalIntervals, ConformalSets, Temperature
from bayes_planet.bayesian_layers.evaluation.predict import predict
from bayes_planet.bayesian_layers.evaluation.predictive import Predictive
from bayes_planet.bayesian_layers.evaluation.uncertainty import (
    UncertaintySplit,
    information_gain,
    split_entropy,
    split_variance,
)
from bayes_planet.bayesian_layers.flows.act_norm import ActNorm
from bayes_planet.bayesian_layers.flows.made import MADE
from bayes_planet.bayesian_layers.flows.real_nvp import RealNVP
from bayes_planet.bayesian_layers.flows.reversible import Reverse, ReversibleLayer, TransformedRandomVariable
from bayes_planet.bayesian_layers.last_layer.laplace import LastLayerLaplace
from bayes_planet.bayesian_layers.last_layer.vbll import VBLLClassification, VBLLRegression, vbll_loss
from bayes_planet.bayesian_layers.layers.attention import (
    MultiHeadAttentionFlipout,
    MultiHeadAttentionReparameterization,
    VariationalMultiHeadAttention,
)
from bayes_planet.bayesian_layers.layers.convolutions import (
    Conv1DFlipout,
    Conv1DReparameterization,
    Conv1DTransposeFlipout,
    Conv1DTransposeReparameterization,
    Conv2DFlipout,
    Conv2DReparameterization,
    Conv2DTransposeFlipout,
    Conv2DTransposeReparameterization,
    Conv3DFlipout,
    Conv3DReparameterization,
    Conv3DTransposeFlipout,
    Conv3DTransposeReparameterization,
    VariationalConv2D,
)
from bayes_planet.bayesian_layers.layers.dense import DenseFlipout, DenseReparameterization, VariationalDense
from bayes_planet.bayesian_layers.layers.dense_variational import DenseVariational
from bayes_planet.bayesian_layers.layers.depthwise import (
    DepthwiseConv1DFlipout,
    DepthwiseConv1DReparameterization,
    DepthwiseConv2DFlipout,
    DepthwiseConv2DReparameterization,
    SeparableConv1DFlipout,
    SeparableConv1DReparameterization,
    SeparableConv2DFlipout,
    SeparableConv2DReparameterization,
)
from bayes_planet.bayesian_layers.layers.dvi import DenseDVI
from bayes_planet.bayesian_layers.layers.embeddings import (
    ChannelEmbedding,
    EmbeddingReparameterization,
    PositionalEmbedding,
)
from bayes_planet.bayesian_layers.layers.local_attention import MaskedLocalAttention1D
from bayes_planet.bayesian_layers.layers.local_noise import (
    Conv2DHierarchical,
    Conv2DVariationalDropout,
    DenseHierarchical,
    DenseLocalReparameterization,
    DenseVariationalDropout,
)
from bayes_planet.bayesian_layers.layers.lstm_cell import (
    LSTMCellFlipout,
    LSTMCellReparameterization,
    VariationalLSTMCell,
)
from bayes_planet.bayesian_layers.layers.recurrent import GRUCellFlipout, GRUCellReparameterization, VariationalRNN
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.optimizers.ivon import IVON, IVONModel
from bayes_planet.bayesian_layers.outputs.discretize import Discretize
from bayes_planet.bayesian_layers.outputs.families import Bernoulli, Categorical, MixtureLogistic, Normal, Poisson
from bayes_planet.bayesian_layers.outputs.noise import NCPCategoricalPerturb, NCPNormalOutput, NCPNormalPerturb
from bayes_planet.bayesian_layers.outputs.vector_quantizer import VectorQuantizer
from bayes_planet.bayesian_layers.processes.gaussian_process import GaussianProcess
from bayes_planet.bayesian_layers.processes.kernels import (
    ExponentiatedQuadratic,
    KernelProduct,
    KernelSum,
    LinearKernel,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    median_distance,
)
from bayes_planet.bayesian_layers.processes.likelihoods import GaussianLikelihood, PoissonLikelihood
from bayes_planet.bayesian_layers.processes.mean_functions import ConstantMean, IdentityMean, LinearMean, Zeros
from bayes_planet.bayesian_layers.processes.poisson_process import PoissonProcess
from bayes_planet.bayesian_layers.processes.random_features import BayesianLinearModel, RandomFourierFeatures
from bayes_planet.bayesian_layers.processes.sparse_gaussian_process import SparseGaussianProcess, start_from_data
from bayes_planet.bayesian_layers.random_variables.random_variable import RandomVariable
from bayes_planet.bayesian_layers.random_variables.tracing import (
    condition,
    get_next_tracer,
    make_log_joint_fn,
    tape,
    trace,
    traceable,
)
from bayes_planet.bayesian_layers.samples.elbo import (
    ELBOParts,
    KLWarmUp,
    NegativeLogLikelihood,
    NegativeLogLikelihoodMetric,
    data_set_size,
    scale_kl,
)
from bayes_planet.bayesian_layers.samples.weight_kl import weight_kl
from bayes_planet.bayesian_layers.samples.weight_samples import posterior_mean, sample_weights, variational_layers
from bayes_planet.bayesian_layers.samples.weight_scope import layer_key, use_weights
from bayes_planet.bayesian_layers.sharding.sharded import bytes_per_device, sharded

__all__ = [
    "IVON",
    "MADE",
    "SWAG",
    "ActNorm",
    "BayesianLinearModel",
    "Bernoulli",
    "Categorical",
    "ChannelEmbedding",
    "ConformalIntervals",
    "ConformalSets",
    "ConstantMean",
    "Conv1DBatchEnsemble",
    "Conv1DFlipout",
    "Conv1DRank1",
    "Conv1DReparameterization",
    "Conv1DTransposeFlipout",
    "Conv1DTransposeReparameterization",
    "Conv2DBatchEnsemble",
    "Conv2DFlipout",
    "Conv2DHierarchical",
    "Conv2DRank1",
    "Conv2DReparameterization",
    "Conv2DTransposeFlipout",
    "Conv2DTransposeReparameterization",
    "Conv2DVariationalDropout",
    "Conv3DFlipout",
    "Conv3DReparameterization",
    "Conv3DTransposeFlipout",
    "Conv3DTransposeReparameterization",
    "DeepEnsemble",
    "DenseBatchEnsemble",
    "DenseDVI",
    "DenseFlipout",
    "DenseHierarchical",
    "DenseLocalReparameterization",
    "DenseRank1",
    "DenseReparameterization",
    "DenseVariational",
    "DenseVariationalDropout",
    "DepthwiseConv1DFlipout",
    "DepthwiseConv1DReparameterization",
    "DepthwiseConv2DFlipout",
    "DepthwiseConv2DReparameterization",
    "Discretize",
    "ELBOParts",
    "EmbeddingReparameterization",
    "Evaluation",
    "ExponentiatedQuadratic",
    "FunctionValues",
    "GRUCellBatchEnsemble",
    "GRUCellFlipout",
    "GRUCellRank1",
    "GRUCellReparameterization",
    "GaussianLikelihood",
    "GaussianProcess",
    "IVONModel",
    "IdentityMean",
    "KLScale",
    "KLWarmUp",
    "KernelProduct",
    "KernelSum",
    "LSTMCellBatchEnsemble",
    "LSTMCellFlipout",
    "LSTMCellRank1",
    "LSTMCellReparameterization",
    "LastLayerLaplace",
    "LinearKernel",
    "LinearMean",
    "MaskedLocalAttention1D",
    "Matern12",
    "Matern32",
    "Matern52",
    "MixtureLogistic",
    "MultiHeadAttentionFlipout",
    "MultiHeadAttentionReparameterization",
    "NCPCategoricalPerturb",
    "NCPNormalOutput",
    "NCPNormalPerturb",
    "NegativeLogLikelihood",
    "NegativeLogLikelihoodMetric",
    "Normal",
    "Periodic",
    "Poisson",
    "PoissonLikelihood",
    "PoissonProcess",
    "PositionalEmbedding",
    "Predictive",
    "Pruning",
    "RandomFourierFeatures",
    "RandomVariable",
    "RealNVP",
    "Reverse",
    "ReversibleLayer",
    "SeparableConv1DFlipout",
    "SeparableConv1DReparameterization",
    "SeparableConv2DFlipout",
    "SeparableConv2DReparameterization",
    "SparseGaussianProcess",
    "Temperature",
    "TrainableTriangularNormal",
    "TransformedRandomVariable",
    "UncertaintySplit",
    "VBLLClassification",
    "VBLLRegression",
    "VariationalConv2D",
    "VariationalDense",
    "VariationalLSTMCell",
    "VariationalLayer",
    "VariationalMultiHeadAttention",
    "VariationalRNN",
    "VectorQuantizer",
    "Zeros",
    "bytes_per_device",
    "condition",
    "constraints",
    "data_set_size",
    "evaluate",
    "get_next_tracer",
    "information_gain",
    "initializers",
    "layer_key",
    "make_log_joint_fn",
    "median_distance",
    "posterior_mean",
    "posterior_mean_field",
    "predict",
    "prior_scale_mixture",
    "prior_trainable",
    "prune",
    "pruned_weights",
    "random_variables",
    "regularizers",
    "sample_weights",
    "scale_kl",
    "sharded",
    "signal_to_noise",
    "split_entropy",
    "split_variance",
    "start",
    "start_from_data",
    "tape",
    "to_bayesian",
    "to_deterministic",
    "trace",
    "traceable",
    "use_weights",
    "variational_layers",
    "vbll_loss",
    "weight_kl",
]
