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

from bayes_planet.bayesian_layers import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.dense import DenseFlipout, DenseReparameterization, VariationalDense
from bayes_planet.bayesian_layers.kl import weight_kl
from bayes_planet.bayesian_layers.random_variable import RandomVariable
from bayes_planet.bayesian_layers.recurrent import GRUCellReparameterization, VariationalRNN
from bayes_planet.bayesian_layers.variational_layer import VariationalLayer
from bayes_planet.bayesian_layers.weight_samples import posterior_mean, sample_weights, variational_layers
from bayes_planet.bayesian_layers.weight_scope import layer_key, use_weights

__all__ = [
    "DenseFlipout",
    "DenseReparameterization",
    "GRUCellReparameterization",
    "RandomVariable",
    "VariationalDense",
    "VariationalLayer",
    "VariationalRNN",
    "constraints",
    "initializers",
    "layer_key",
    "posterior_mean",
    "regularizers",
    "sample_weights",
    "use_weights",
    "variational_layers",
    "weight_kl",
]
