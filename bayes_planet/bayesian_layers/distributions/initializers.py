"""All initializers: those that are distributions, which make a weight random, and plain ones.

`get` also takes what Keras takes. Each has its class name, and the same in snake case, as a name.
"""

from bayes_planet.bayesian_layers.distributions.arguments.aliases import INITIALIZERS
from bayes_planet.bayesian_layers.distributions.plain_initializers import (
    ConstantStddev,
    FanInStddev,
    GateBias,
    OrthogonalRandomFeatures,
    RandomSign,
    ScaledNormalStdDev,
    seeded,
)
from bayes_planet.bayesian_layers.distributions.posteriors import (
    TrainableCauchy,
    TrainableDeterministic,
    TrainableGlorotNormal,
    TrainableHalfCauchy,
    TrainableHeNormal,
    TrainableLogNormal,
    TrainableMixtureOfDeltas,
    TrainableNormalFixedStddev,
    TrainableNormalSharedStddev,
)
from bayes_planet.bayesian_layers.distributions.trainable import TrainableDistribution, TrainableNormal, own
from bayes_planet.bayesian_layers.distributions.triangular_normal import TrainableTriangularNormal

__all__ = [
    "ConstantStddev",
    "FanInStddev",
    "GateBias",
    "OrthogonalRandomFeatures",
    "RandomSign",
    "ScaledNormalStdDev",
    "TrainableCauchy",
    "TrainableDeterministic",
    "TrainableDistribution",
    "TrainableGlorotNormal",
    "TrainableHalfCauchy",
    "TrainableHeNormal",
    "TrainableLogNormal",
    "TrainableMixtureOfDeltas",
    "TrainableNormal",
    "TrainableNormalFixedStddev",
    "TrainableNormalSharedStddev",
    "TrainableTriangularNormal",
    "get",
    "own",
    "seeded",
    "serialize",
]

get, serialize = INITIALIZERS.get, INITIALIZERS.serialize

constant_stddev, fan_in_stddev, gate_bias = ConstantStddev, FanInStddev, GateBias
orthogonal_random_features, random_sign = OrthogonalRandomFeatures, RandomSign
scaled_normal_std_dev, trainable_cauchy = ScaledNormalStdDev, TrainableCauchy
trainable_deterministic, trainable_glorot_normal = TrainableDeterministic, TrainableGlorotNormal
trainable_half_cauchy, trainable_he_normal = TrainableHalfCauchy, TrainableHeNormal
trainable_log_normal, trainable_mixture_of_deltas = TrainableLogNormal, TrainableMixtureOfDeltas
trainable_normal, trainable_normal_fixed_stddev = TrainableNormal, TrainableNormalFixedStddev
trainable_normal_shared_stddev, trainable_triangular_normal = TrainableNormalSharedStddev, TrainableTriangularNormal
