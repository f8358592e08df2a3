"""Which settings a run may go on with other values of."""

from bayes_planet.config import Config
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


def adjustable(key: str, old: object, new: object) -> bool:
    """Whether a run may go on with another value of this setting."""
    if key == "train.average_decay":
        return bool(old and new)  # without an average a checkpoint holds one world model less
    return key in ADJUSTABLE


def changes_freely(key: str) -> bool:
    """Whether a run may go on with another value without a word: it says how long or how closely watched a run is."""
    return key in _FIELDS and _FIELDS[key].metadata["change"] == "freely"
