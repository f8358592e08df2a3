"""All regularizers that are KL divergences from a weight's posterior to its prior.

All are KL(q || p), q the posterior and p the prior: the term of the evidence lower bound. `get` also takes what Keras
takes. Each has its class name, and the same in snake case, as a name.
"""

from bayes_planet.bayesian_layers.distributions.arguments.aliases import REGULARIZERS
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import (
    FanInNormalKLDivergence,
    KLDivergence,
    NormalKLDivergence,
    normal_divergence,
)
from bayes_planet.bayesian_layers.distributions.priors import (
    CauchyKLDivergence,
    HalfCauchyKLDivergence,
    LogNormalKLDivergence,
    LogUniformKLDivergence,
    NormalEmpiricalBayesKLDivergence,
    NormalKLDivergenceWithTiedMean,
    ScaleMixtureKLDivergence,
    TrainableNormalKLDivergenceStdDev,
    TrainablePrior,
    TrainableScaleMixtureKLDivergence,
    UniformKLDivergence,
)

__all__ = [
    "CauchyKLDivergence",
    "FanInNormalKLDivergence",
    "HalfCauchyKLDivergence",
    "KLDivergence",
    "LogNormalKLDivergence",
    "LogUniformKLDivergence",
    "NormalEmpiricalBayesKLDivergence",
    "NormalKLDivergence",
    "NormalKLDivergenceWithTiedMean",
    "ScaleMixtureKLDivergence",
    "TrainableNormalKLDivergenceStdDev",
    "TrainablePrior",
    "TrainableScaleMixtureKLDivergence",
    "UniformKLDivergence",
    "get",
    "normal_divergence",
    "serialize",
]

get, serialize = REGULARIZERS.get, REGULARIZERS.serialize

normal_kl_divergence, fan_in_normal_kl_divergence = NormalKLDivergence, FanInNormalKLDivergence
cauchy_kl_divergence, half_cauchy_kl_divergence = CauchyKLDivergence, HalfCauchyKLDivergence
log_normal_kl_divergence, log_uniform_kl_divergence = LogNormalKLDivergence, LogUniformKLDivergence
normal_empirical_bayes_kl_divergence = NormalEmpiricalBayesKLDivergence
normal_kl_divergence_with_tied_mean = NormalKLDivergenceWithTiedMean
scale_mixture_kl_divergence = ScaleMixtureKLDivergence
trainable_normal_kl_divergence_stddev = TrainableNormalKLDivergenceStdDev
trainable_scale_mixture_kl_divergence = TrainableScaleMixtureKLDivergence
uniform_kl_divergence = UniformKLDivergence
