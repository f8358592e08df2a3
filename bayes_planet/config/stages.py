"""Stages of a run: settings that begin at a number of episodes, and which settings may change on its way."""

import dataclasses

from bayes_planet.config import Config, presets
from bayes_planet.config.setting import fields_of

_FIELDS = fields_of(Config)
ADJUSTABLE = tuple(key for key, field in _FIELDS.items() if field.metadata["change"] == "announced")
"""Settings that shape neither the parameters nor the replay: a run may go on with others where its user says so."""


def adjustable_settings() -> str:
    """Those in words: 'planner.*' where all of a group are among them."""
    words: list[str] = []
    for key in ADJUSTABLE:
        group = key.rpartition(".")[0]
        whole = all(other in ADJUSTABLE for other in _FIELDS if other.rpartition(".")[0] == group)
        words.append(f"{group}.*" if whole else key)
    return ", ".join(dict.fromkeys(words)) + " (average_decay: not from or to 0)"


@dataclasses.dataclass(frozen=True)
class Stage:
    """Settings, 'key=value' each, that hold from `episodes` on."""

    episodes: int
    overrides: tuple[str, ...]


def adjustable(key: str, old: object, new: object) -> bool:
    """Whether a run may go on with another value of this setting."""
    if key == "train.average_decay":
        return bool(old and new)  # without an average a checkpoint holds one world model less
    return key in ADJUSTABLE


def changes_freely(key: str) -> bool:
    """Whether a run may go on with another value without a word: it says how long or how closely watched a run is."""
    return key in _FIELDS and _FIELDS[key].metadata["change"] == "freely"


def stages(config: Config) -> list[Stage]:
    """Those of `train.stages`, in order."""
    found = []
    for text in config.train.stages:
        episodes, _, overrides = text.partition(":")
        found.append(Stage(int(episodes), tuple(overrides.split())))
    return found


def configurations(config: Config) -> list[tuple[int, Config]]:
    """(episodes, what a run learns with from there on): from 0, then of each stage, those before it included.

    Raises:
      ConfigError: a stage has a setting that is unknown, wrong, or not to be changed on the way.
    """
    found = [(0, config)]
    for number, stage in enumerate(stages(config)):
        now = found[-1][1]
        try:
            later = presets.overridden(now, stage.overrides)
        except presets.ConfigError as error:
            raise presets.ConfigError(f"train.stages[{number}], from {stage.episodes} on: {error}") from error
        for key, (old, new) in presets.differences(now, later).items():
            if key == "train.stages" or not adjustable(key, old, new):
                raise presets.ConfigError(
                    f"train.stages[{number}], from {stage.episodes} on: {key} cannot change on the way of a run. "
                    f"Accepted: {adjustable_settings()}, but train.stages itself."
                )
        found.append((stage.episodes, later))
    return found


def at(config: Config, episodes: int) -> Config:
    """What a run with `episodes` learns with: later stages win over earlier ones, and these over the rest.

    A configuration that is of a later stage already stays as it is, so a run's config.yaml may hold either.

    Raises:
      ConfigError: as `configurations`, of stages to come too.
    """
    return [each for begin, each in configurations(config) if begin <= episodes][-1]


def next_stage(config: Config, episodes: int) -> int | None:
    """The number of episodes with which the next stage begins; None where there is none to come."""
    return next((stage.episodes for stage in stages(config) if stage.episodes > episodes), None)
