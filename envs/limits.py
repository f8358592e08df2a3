"""After how many env steps an environment cuts its episodes by itself, wherever in it that is said."""

import math
from typing import Any

# Where wrappers of Gymnasium, gym, dm_env and shimmy keep what they wrap.
_LIMITS = ("_max_episode_steps", "max_episode_steps", "_step_limit")
_INSIDE = ("env", "gym_env", "_env", "_environment", "environment")


def step_limit(env: Any) -> int | None:
    """The shortest of the limits that an environment and what it wraps have; None: none is known.

    Looked at: the `TimeLimit` of Gymnasium and of gym, `max_episode_steps` of the environment or its `spec`, and the
    time limits of dm_control's environments (of the suite and of composer), in their control steps.
    """
    found: list[float] = []
    seen: set[int] = set()
    layers = [env]
    while layers:
        layer = layers.pop()
        if layer is None or id(layer) in seen:
            continue
        seen.add(id(layer))
        inside = vars(layer) if hasattr(layer, "__dict__") else {}
        if "episode_steps" in inside and "action_repeat" in inside:  # an environment of this package, in its own steps
            found.append(inside["episode_steps"])
            continue
        own = [inside.get(name) for name in _LIMITS]
        found += [value for value in (*own, _specified(layer), _composer_limit(inside)) if _is_limit(value)]
        layers += [inside[name] for name in _INSIDE if name in inside]
    return math.ceil(min(found)) if found else None


def _specified(layer: Any) -> Any:
    try:
        return layer.spec.max_episode_steps
    except Exception:  # none; or wrappers whose arguments cannot be copied into one
        return None


def _is_limit(value: Any) -> bool:
    try:
        return value is not None and not isinstance(value, bool) and 1 <= float(value) < math.inf
    except (TypeError, ValueError):
        return False


def _composer_limit(inside: dict[str, Any]) -> float | None:
    """Of a dm_control.composer.Environment, whose limit is in seconds of its physics' clock."""
    seconds, task = inside.get("_time_limit"), inside.get("_task")
    control = getattr(task, "control_timestep", None)
    if seconds is None or control is None or not math.isfinite(seconds):
        return None
    return math.ceil(round(seconds / control, 6))
