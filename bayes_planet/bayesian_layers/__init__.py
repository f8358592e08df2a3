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

from bayes_planet.bayesian_layers import constraints, initializers, random_variables, regularizers
from bayes_planet.bayesian_layers.act_norm import ActNorm
from bayes_planet.bayesian_layers.convert import to_bayesian, to_deterministic
from bayes_planet.bayesian_layers.convolutions import (
    Conv1DFlipout,
    Conv1DReparameterization,
    Conv2DFlipout,
    Conv2DReparameterization,
    Conv2DTransposeFlipout,
    Conv2DTransposeReparameterization,
    VariationalConv2D,
)
from bayes_planet.bayesian_layers.dense import DenseFlipout, DenseReparameterization, VariationalDense
from bayes_planet.bayesian_layers.discretize import Discretize
from bayes_planet.bayesian_layers.embeddings import EmbeddingReparameterization
from bayes_planet.bayesian_layers.function_values import FunctionValues, TrainableTriangularNormal
from bayes_planet.bayesian_layers.gaussian_process import GaussianProcess
from bayes_planet.bayesian_layers.kernels import ExponentiatedQuadratic, LinearKernel, Zeros
from bayes_planet.bayesian_layers.kl import weight_kl
from bayes_planet.bayesian_layers.local_noise import (
    Conv2DHierarchical,
    Conv2DVariationalDropout,
    DenseHierarchical,
    DenseLocalReparameterization,
    DenseVariationalDropout,
)
from bayes_planet.bayesian_layers.lstm_cell import LSTMCellFlipout, LSTMCellReparameterization, VariationalLSTMCell
from bayes_planet.bayesian_layers.made import MADE
from bayes_planet.bayesian_layers.noise import NCPCategoricalPerturb, NCPNormalOutput, NCPNormalPerturb
from bayes_planet.bayesian_layers.outputs import Bernoulli, Categorical, MixtureLogistic, Normal, Poisson
from bayes_planet.bayesian_layers.poisson_process import PoissonProcess
from bayes_planet.bayesian_layers.random_features import BayesianLinearModel, RandomFourierFeatures
from bayes_planet.bayesian_layers.random_variable import RandomVariable
from bayes_planet.bayesian_layers.real_nvp import RealNVP
from bayes_planet.bayesian_layers.recurrent import GRUCellFlipout, GRUCellReparameterization, VariationalRNN
from bayes_planet.bayesian_layers.reversible import Reverse, ReversibleLayer, TransformedRandomVariable
from bayes_planet.bayesian_layers.sparse_gaussian_process import SparseGaussianProcess
from bayes_planet.bayesian_layers.uncertainty import UncertaintySplit, information_gain, split_entropy, split_variance
from bayes_planet.bayesian_layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.vector_quantizer import VectorQuantizer
from bayes_planet.bayesian_layers.weight_samples import posterior_mean, sample_weights, variational_layers
from bayes_planet.bayesian_layers.weight_scope import layer_key, use_weights

__all__ = [
    "MADE",
    "ActNorm",
    "BayesianLinearModel",
    "Bernoulli",
    "Categorical",
    "Conv1DFlipout",
    "Conv1DReparameterization",
    "Conv2DFlipout",
    "Conv2DHierarchical",
    "Conv2DReparameterization",
    "Conv2DTransposeFlipout",
    "Conv2DTransposeReparameterization",
    "Conv2DVariationalDropout",
    "DenseFlipout",
    "DenseHierarchical",
    "DenseLocalReparameterization",
    "DenseReparameterization",
    "DenseVariationalDropout",
    "Discretize",
    "EmbeddingReparameterization",
    "ExponentiatedQuadratic",
    "FunctionValues",
    "GRUCellFlipout",
    "GRUCellReparameterization",
    "GaussianProcess",
    "LSTMCellFlipout",
    "LSTMCellReparameterization",
    "LinearKernel",
    "MixtureLogistic",
    "NCPCategoricalPerturb",
    "NCPNormalOutput",
    "NCPNormalPerturb",
    "Normal",
    "Poisson",
    "PoissonProcess",
    "RandomFourierFeatures",
    "RandomVariable",
    "RealNVP",
    "Reverse",
    "ReversibleLayer",
    "SparseGaussianProcess",
    "TrainableTriangularNormal",
    "TransformedRandomVariable",
    "UncertaintySplit",
    "VariationalConv2D",
    "VariationalDense",
    "VariationalLSTMCell",
    "VariationalLayer",
    "VariationalRNN",
    "VectorQuantizer",
    "Zeros",
    "constraints",
    "information_gain",
    "initializers",
    "layer_key",
    "posterior_mean",
    "random_variables",
    "regularizers",
    "sample_weights",
    "split_entropy",
    "split_variance",
    "to_bayesian",
    "to_deterministic",
    "use_weights",
    "variational_layers",
    "weight_kl",
]
