"""What a run tells whoever watches it."""

import dataclasses
from collections.abc import Callable

from bayes_planet.collecting.rollout import Episode
from bayes_planet.evaluation.score import Score


@dataclasses.dataclass(frozen=True)
class Events:
    """What a run tells whoever watches it. Every field is a callable; the defaults do nothing.

    An exception in one of them ends the run, which is saved before it is raised (but for `note` and `saved`).

    Attributes:
      progress: (task name, done, total) within the current task, often.
      row: each row of metrics.jsonl.
      note: a sentence for people.
      step: before each decision (of the first group of environments) while episodes are collected; never with
        `train.collect_during_updates` or `train.collectors`.
      episode: (episode, its row), once a training episode is stored.
      evaluation: (score, its row), once an evaluation is done.
      saved: how many rows of metrics.jsonl a new checkpoint explains: they are there for good.
    """

    progress: Callable[[str, int, int], None] = lambda task, done, total: None
    row: Callable[[dict], None] = lambda row: None
    note: Callable[[str], None] = lambda text: None
    step: Callable[[], None] = lambda: None
    episode: Callable[[Episode, dict], None] = lambda episode, row: None
    evaluation: Callable[[Score, dict], None] = lambda score, row: None
    saved: Callable[[int], None] = lambda rows: None


UNWATCHED = Events()
