"""Settings: what there are and what each means, the presets they are stacked from, and which may change."""

from bayes_planet.config.settings import (
    BayesianConfig,
    Config,
    EnvConfig,
    EvaluationConfig,
    LossConfig,
    ModelConfig,
    PlannerConfig,
    ReplayConfig,
    TrainConfig,
)

__all__ = [
    "BayesianConfig",
    "Config",
    "EnvConfig",
    "EvaluationConfig",
    "LossConfig",
    "ModelConfig",
    "PlannerConfig",
    "ReplayConfig",
    "TrainConfig",
]
