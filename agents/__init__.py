"""Agents: `BayesPlanet`, the high-level Python API, and the TF-Agents face.

    from bayes_planet.agents import BayesPlanet, callbacks
    from bayes_planet.agents import BayesPlanetAgent, BayesPlanetPolicy, GymnasiumPyEnvironment

`BayesPlanet` is used like a model of Stable-Baselines3. `BayesPlanetAgent` (TFAgent), its policies (TFPolicy) and
Gymnasium environments as PyEnvironment work with PyDriver, Actor, Learner, PolicySaver and TFUniformReplayBuffer.
Names are imported when first used: `import tf_agents` takes seconds, and `BayesPlanet` does without it.
"""

import contextlib
import importlib.util
from typing import Any

if __name__ == "agents":
    raise ImportError(
        "Import bayes_planet.agents: plain `agents` is the folder behind a link of the package. Where that fails, the "
        "checkout lacks the symlink bayes_planet/agents (git config core.symlinks true, then check out again)."
    )

_HOME = {
    "BayesPlanet": "bayes_planet.agents.model",
    "BayesPlanetAgent": "bayes_planet.agents.tf_agent.bayes_planet_agent",
    "BayesPlanetPolicy": "bayes_planet.agents.tf_agent.policy",
    "GymnasiumPyEnvironment": "bayes_planet.agents.tf_agent.environment",
    "SeededPolicy": "bayes_planet.agents.tf_agent.seeded_policy",
    "model_batch": "bayes_planet.agents.tf_agent.sequences",
}

__all__ = [
    "BayesPlanet",
    "BayesPlanetAgent",
    "BayesPlanetPolicy",
    "GymnasiumPyEnvironment",
    "SeededPolicy",
    "model_batch",
]


def _silence_old_gym() -> None:
    """`import tf_agents` imports old gym, which prints that it is unmaintained. Nothing here uses it."""
    with contextlib.suppress(ImportError):
        from gym_notices import notices

        notices.notices.clear()


def require_tf_agents(what: str) -> None:
    """Raises ImportError, with the way to get it, where TF-Agents is not installed."""
    if importlib.util.find_spec("tf_agents") is None:
        raise ImportError(f"{what} needs TF-Agents, which is not installed. Run: bayes-planet install tf-agents")


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"bayes_planet.agents has no {name!r}. Accepted: {', '.join(__all__)}.")
    if name != "BayesPlanet":
        require_tf_agents(f"bayes_planet.agents.{name}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


_silence_old_gym()
