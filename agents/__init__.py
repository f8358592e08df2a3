"""The TF-Agents face: `BayesPlanetAgent` (TFAgent), its policies (TFPolicy), Gymnasium environments as PyEnvironment.

    from bayes_planet.agents import BayesPlanetAgent, BayesPlanetPolicy, GymnasiumPyEnvironment

Works with PyDriver, Actor, Learner, PolicySaver and TFUniformReplayBuffer. Names are imported when first used,
because `import tf_agents` takes seconds.
"""

import contextlib
import importlib
from typing import Any

if __name__ == "agents":
    raise ImportError(
        "Import bayes_planet.agents: plain `agents` is the folder behind a link of the package. Where that fails, the "
        "checkout lacks the symlink bayes_planet/agents (git config core.symlinks true, then check out again)."
    )

_HOME = {
    "BayesPlanetAgent": "bayes_planet.agents.bayes_planet_agent",
    "BayesPlanetPolicy": "bayes_planet.agents.policy",
    "GymnasiumPyEnvironment": "bayes_planet.agents.environment",
    "model_batch": "bayes_planet.agents.sequences",
}

__all__ = ["BayesPlanetAgent", "BayesPlanetPolicy", "GymnasiumPyEnvironment", "model_batch"]


def _silence_old_gym() -> None:
    """`import tf_agents` imports old gym, which prints that it is unmaintained. Nothing here uses it."""
    with contextlib.suppress(ImportError):
        from gym_notices import notices

        notices.notices.clear()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"bayes_planet.agents has no {name!r}. Accepted: {', '.join(__all__)}.")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


_silence_old_gym()
