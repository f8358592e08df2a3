"""The numbers of a run's rows: of an episode, of the updates between two rows, and of what the model sees ahead."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bayes_planet.collecting.collector import Collector
from bayes_planet.collecting.rollout import Episode
from bayes_planet.config import Config, TrainConfig
from bayes_planet.evaluation.live import Live, open_loop_monitor
from bayes_planet.evaluation.posterior import histogram_metrics
from bayes_planet.evaluation.score import Score
from bayes_planet.replay import EpisodeStore, episode_return
from bayes_planet.runs.seeds import Stream, seed_words
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import PredictiveWorldModel, missing


def episode_values(
    train: TrainConfig,
    replay: EpisodeStore,
    collector: Collector,
    index: int,
    episode: Episode,
    later: tuple[int, int],
) -> dict[str, Any]:
    """Of training episode `index`; `later` are the episodes and rows that have come to the replay since."""
    random = index < train.seed_episodes
    return {
        "train/episode": index,
        "train/return": episode_return(episode),
        "train/episode_steps": len(episode["reward"]) - 1,
        "train/random_actions": int(random),
        **({} if random else {"train/exploration_noise": train.exploration_noise}),
        "replay/episodes": replay.episodes - later[0],
        "replay/rows": replay.rows - later[1],
        "replay/corrupt_files": replay.corrupt,
        **{f"env/{key}": count for key, count in collector.counts.items()},
    }


def update_values(pending: Sequence[dict]) -> tuple[dict[str, float], np.ndarray]:
    """Means over some updates of what each has returned, and which of them were skipped."""
    columns = {key: np.array([float(metrics[key]) for metrics in pending]) for key in pending[0]}
    values = {key: float(np.mean(column)) for key, column in columns.items()}
    # A belief is a state, not a rate: its last value, not the mean over the interval.
    values.update({key: float(column[-1]) for key, column in columns.items() if key.startswith("weight_")})
    return values, columns["skipped"]


def evaluation_values(model: WorldModel, score: Score, milliseconds: float | None, live: Live) -> dict[str, Any]:
    """Of an evaluation, with the milliseconds that a decision took."""
    speed = {} if milliseconds is None else {"speed/milliseconds_per_evaluation_plan": milliseconds}
    returns = {"eval/returns": list(score.returns)}
    return {**score.metrics(), **returns, **speed, **live.values, **histogram_metrics(model.rssm)}


def look_ahead(model: WorldModel, config: Config, score: Score, episodes: int, note: Callable[[str], None]) -> Live:
    """Open-loop prediction in an evaluation's episodes, after `episodes` of training; empty where there is none,
    and `note` is told why."""
    evaluation = config.evaluation
    if evaluation.videos == 0:
        return Live({}, {}, 0)
    if lacking := missing(model, PredictiveWorldModel):
        note(f"No open-loop prediction: the world model lacks {', '.join(lacking)}.")
        return Live({}, {}, 0)
    steps = evaluation.context_steps, evaluation.prediction_steps
    key = seed_words(config.seed, Stream.OPEN_LOOP, episodes)
    live = open_loop_monitor(model, score.episodes, *steps, evaluation.videos, key)
    if not live.values:
        note(f"No open-loop prediction: the episodes have {live.rows} rows.")
    return live
