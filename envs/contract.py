"""What Gymnasium asks of an environment, checked where the environment answers, so that its mistakes are said in words.

`Contract` is the innermost wrapper: what lies outside of it can rely on the kinds of what it returns.
"""

import inspect
import math
import numbers
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from bayes_planet.envs.errors import EnvironmentContractError, NonFiniteError

FLOAT32_MAX = float(np.finfo(np.float32).max)
_RESET = "reset(self, *, seed=None, options=None), which returns (observation, info)"
_STEP = "(observation, reward, terminated, truncated, info)"
_OLD = " That is what gym before 0.26 had; shimmy wraps such environments."


class Contract(gymnasium.Wrapper):
    """Passes on what an environment gives, or says what is wrong with it.

    Rewards are floats, ends are bools and infos dicts after it. Observations are left to who uses them: see `fits`.

    Raises:
      EnvironmentContractError: the environment gave something that Gymnasium does not allow. It would do so again.
      NonFiniteError: a reward that float32 cannot hold.
    """

    def __init__(self, env: gymnasium.Env, name: str) -> None:
        _check_spaces(env, name)
        super().__init__(env)
        self._name, self._steps = name, 0
        self._space = env.observation_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        _check_reset(self.env, self._name)
        try:
            result = self.env.reset(seed=seed, options=options)
        except NotImplementedError as error:
            raise self._wrong("has no reset()", _RESET) from error
        if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[1], Mapping):
            old = _OLD if fits(self._space, result) is None else ""
            if isinstance(result, tuple) and len(result) == 2:
                raise self._wrong(f"gave the info {_described(result[1])} from reset()", "a dict, such as {}")
            raise self._wrong(f"gave {_described(result)} from reset()", "(observation, info), info a dict", old)
        return result[0], dict(result[1])

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        place = f"env step {self._steps}"
        try:
            result = self.env.step(action)
        except NotImplementedError as error:
            raise self._wrong("has no step()", f"step(self, action), which returns {_STEP}") from error
        if not isinstance(result, tuple | list) or len(result) != 5:
            old = _OLD if isinstance(result, tuple | list) and len(result) == 4 else ""
            raise self._wrong(f"gave {_described(result)} from {place}", _STEP, old)
        observation, reward, terminated, truncated, info = result
        value = _number(reward)
        if value is None:
            raise self._wrong(f"gave the reward {_described(reward)} at {place}", "one number")
        if not abs(value) <= FLOAT32_MAX:  # true for NaN
            raise NonFiniteError(
                f"{self._name} gave the reward {value} at env step {self._steps}. Accepted: a finite number of up to "
                f"{FLOAT32_MAX:.2g} (float32)."
            )
        ends = [_flag(end) for end in (terminated, truncated)]
        if None in ends:
            which = ends.index(None)
            given = f"{('terminated', 'truncated')[which]} as {_described((terminated, truncated)[which])}"
            raise self._wrong(f"gave {given} at {place}", "True or False")
        if not isinstance(info, Mapping):
            raise self._wrong(f"gave the info {_described(info)} at {place}", "a dict, such as {}")
        return observation, value, bool(ends[0]), bool(ends[1]), dict(info)

    def _wrong(self, what: str, accepted: str, more: str = "") -> EnvironmentContractError:
        return EnvironmentContractError(f"{self._name} {what}. Accepted: {accepted}.{more}")


def fits(space: gymnasium.Space, value: Any, place: str = "") -> str | None:
    """Why an observation is not of its space, or None. Bounds are not looked at, and axes of length 1 do not matter.

    Where integers are meant, floats must be whole: what is cut off would be lost silently. Spaces of other kinds than
    those below are left to who uses them.
    """
    where = f"{place} is " if place else "it is "
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            return f"{where}{_described(value)}. Accepted: a dict with {', '.join(map(repr, space.spaces))}"
        if lacking := [key for key in space.spaces if key not in value]:
            return f"{place or 'it'} lacks {', '.join(map(repr, lacking))}. Accepted: {_line(space)}"
        parts = [(str(key), part, value[key]) for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return f"{where}{_described(value)}. Accepted: a tuple of {len(space.spaces)}"
        parts = [(str(index), part, value[index]) for index, part in enumerate(space.spaces)]
    elif isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete | spaces.Discrete):
        return _array_fault(space, value, where)
    else:
        return None
    faults = (fits(part, given, f"{place}.{key}".lstrip(".")) for key, part, given in parts)
    return next((fault for fault in faults if fault is not None), None)


def _array_fault(space: gymnasium.Space, value: Any, where: str) -> str | None:
    array = _array(value)
    whole = not isinstance(space, gymnasium.spaces.Box) or np.issubdtype(space.dtype, np.integer)
    kinds = "biu" if isinstance(space, gymnasium.spaces.Discrete) else "biuf"
    shape = tuple(space.shape or ())
    fits_shape = array is not None and (
        array.shape == shape or [n for n in array.shape if n != 1] == [n for n in shape if n != 1]
    )
    if array is None or array.dtype.kind not in kinds or not fits_shape:
        return f"{where}{_described(value)}. Accepted: {_line(space)}"
    array = array.reshape(shape)
    if whole and not (array == np.rint(array)).all():
        return f"{where}{_described(value)}, not whole numbers. Accepted: {_line(space)}"
    if isinstance(space, gymnasium.spaces.Box):
        limits = np.iinfo(space.dtype) if whole and space.dtype != bool else None
        inside = limits is None or array.size == 0 or (array.min() >= limits.min and array.max() <= limits.max)
    else:
        inside = space.contains(space.dtype.type(array) if array.ndim == 0 else array.astype(space.dtype))
    return None if inside else f"{where}{_described(value)}. Accepted: {_line(space)}"


def _check_spaces(env: gymnasium.Env, name: str) -> None:
    for attribute in ("action_space", "observation_space"):
        try:
            space = getattr(env, attribute)
        except AttributeError:
            space = None
        if not isinstance(space, gymnasium.Space):
            given = "no" if space is None else f"{_described(space)} as its"
            old = " Spaces of old gym are not those of gymnasium." if type(space).__module__.startswith("gym.") else ""
            raise EnvironmentContractError(
                f"{name} has {given} {attribute}. Accepted: a space of gymnasium.spaces, set in __init__.{old}"
            )


def _check_reset(env: gymnasium.Env, name: str) -> None:
    """Asks every layer for `seed` and `options`: wrappers hand both on."""
    layer: Any = env
    while layer is not None:
        parameters = _parameters(layer)
        lacking = [] if parameters is None else [each for each in ("seed", "options") if each not in parameters]
        if lacking:
            of = f" of {type(layer).__name__}" if isinstance(env, gymnasium.Wrapper) else ""
            raise EnvironmentContractError(
                f"{name}: its reset{of} takes {', '.join(parameters or []) or 'nothing'} and lacks "
                f"{' and '.join(lacking)}. Accepted: {_RESET}."
            )
        layer = layer.env if isinstance(layer, gymnasium.Wrapper) else None


def _parameters(layer: Any) -> list[str] | None:
    """The arguments of its `reset`; None where it takes any, or does not say."""
    try:
        parameters = inspect.signature(layer.reset).parameters
    except (TypeError, ValueError, AttributeError):
        return None
    return None if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) else list(parameters)


def _number(value: Any) -> float | None:
    """A real number, or the one in an array, as float; None: it is something else."""
    if type(value) is float:  # the usual case
        return value
    if isinstance(value, numbers.Real):
        try:
            return float(value)
        except OverflowError:  # an integer of hundreds of digits
            return -math.inf if value < 0 else math.inf
    array = None if isinstance(value, tuple | list) else _array(value)
    return float(array.reshape(())) if array is not None and array.size == 1 and array.dtype.kind in "biuf" else None


def _flag(value: Any) -> bool | None:
    if type(value) is bool:
        return value
    number = _number(value)
    return bool(number) if number in (0, 1) else None


def _array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except Exception:  # ragged lists; tensors on other devices
        return None


def _line(value: Any) -> str:
    """A space or value in one line that is not too long."""
    shown = " ".join(str(value).split())
    return shown if len(shown) <= 160 else f"{shown[:157]}..."


def _described(value: Any) -> str:
    """A value in few words: small ones as they are, arrays by dtype and shape."""
    if isinstance(value, np.ndarray) and value.size > 3:
        return f"an array of {value.dtype} with shape {list(value.shape)}"
    plain = isinstance(value, list) and len(value) <= 6 and all(isinstance(item, numbers.Number) for item in value)
    if isinstance(value, tuple | list) and len(value) > 0 and not plain:
        kinds = ", ".join(type(item).__name__ for item in value[:6]) + (", ..." if len(value) > 6 else "")
        return f"a {type(value).__name__} of {len(value)} ({kinds})"
    try:
        shown = _line(repr(value))
    except Exception:  # whatever an own __repr__ does
        shown = ""
    return shown if 0 < len(shown) <= 80 else f"a {type(value).__name__}"
