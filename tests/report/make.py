"""Folders of runs for tests, with rows as the trainer writes them. Whole trained runs are in `test_real_run.py`."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.config import presets
from bayes_planet.report.videos.files import save_video

LAYERS = ("prior_hidden", "prior_input", "prior_mean", "prior_stddev")
EDGES = np.logspace(-3, 3, 31)


def histogram(center: float, count: int = 1000) -> dict[str, list]:
    values = np.exp(np.random.default_rng(0).normal(np.log(center), 0.7, count))
    return {"edges": EDGES.tolist(), "counts": np.histogram(values, EDGES)[0].tolist()}


def rows(
    seed: int = 0,
    episodes: int = 20,
    bayesian: bool = True,
    level: float = 10.0,
    every: int = 5,
    histograms: bool = True,
) -> list[dict[str, Any]]:
    """Rows of a run that is evaluated every `every` episodes on four episodes, returns rising to `level` * episodes."""
    random = np.random.default_rng([seed, 7])
    found: list[dict[str, Any]] = []
    updates, time = 0, 0.0

    def add(**values):
        nonlocal time
        time += 1.5
        head = {"updates": updates, "env_steps": 1000 * episode, "episodes": episode, "time": time}
        found.append({**head, "wall_clock": "2026-01-01T00:00:00+00:00", **values})

    for episode in range(1, episodes + 1):
        chance = int(episode <= 3)
        score = float(random.gamma(2.0) if chance else level * episode + random.normal())
        speed = {} if chance else {"speed/milliseconds_per_plan": 20 + random.random()}
        add(
            **{"train/episode": episode - 1, "train/return": score, "train/random_actions": chance},
            **{"train/episode_steps": 250, "replay/episodes": episode, "replay/rows": 251 * episode},
            **{"replay/corrupt_files": 0, "env/worker_faults": 0, "speed/env_steps_per_second": 400.0, **speed},
        )
        if chance:
            continue
        for _ in range(2):
            updates += 20
            shrink = np.exp(-updates / 400)
            values = {
                "loss/total": 11400.0,
                "loss/image": 11292.0 + 200 * shrink,
                "loss/reward": 0.919 + 0.1 * shrink,
                "loss/state_kl": 0.3,
                "state_kl": 2.8,
                "elbo": -11400.0,
                "gradient_norm": 50.0,
                "skipped": 0.0,
                "state/posterior_stddev": 0.4,
                "state/prior_stddev": 0.5,
                "speed/updates_per_second": 9.0,
            }
            if bayesian:
                values |= {"weight_kl/total": 4e4 * shrink, "weight_kl/scale": 1.0, "loss/weight_kl": 10.0 * shrink}
                values |= {f"weight_kl/{layer}": 1e4 * shrink for layer in LAYERS}
                values |= {f"weight_stddev/{layer}": 0.007 + 0.05 * (1 - shrink) for layer in LAYERS}
            add(**values)
        if episode % every == 0:
            returns = (level * episode + 3 * random.normal(size=4)).tolist()
            values = {
                "eval/return_mean": np.mean(returns),
                "eval/return_median": np.median(returns),
                "eval/episodes": 4,
                "eval/return_stddev": np.std(returns),
                "eval/return_min": min(returns),
                "eval/return_max": max(returns),
                "eval/episode_steps": 250.0,
                "eval/returns": returns,
                "open_loop/image_error": 0.01 + 0.02 * shrink,
                "open_loop/image_error_of_repeating": 0.02,
                "predictive/image_epistemic": 1e-4 * shrink,
                "predictive/image_aleatoric": 1e-3,
            }
            if bayesian and histograms:
                values |= {f"histogram/weight_snr/{layer}": histogram(0.2 + shrink) for layer in LAYERS}
                values |= {f"histogram/weight_stddev/{layer}": histogram(0.1) for layer in LAYERS}
            add(**values)
    return found


def write_rows(folder: Path, found: list[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))


def make_run(
    folder: Path,
    method: str = "bayes_planet",
    seed: int = 0,
    overrides: tuple[str, ...] = (),
    video: bool = False,
    **options,
) -> Path:
    """A whole run: config.yaml, metrics.jsonl, and videos if asked for. Returns its folder."""
    episodes = options.get("episodes", 20)
    settings = (f"seed={seed}", f"train.episodes={episodes}", *overrides)
    write_rows(folder, rows(seed, bayesian=method == "bayes_planet", **options))
    presets.save(presets.load([method, "cheetah_run", "laptop"], settings), folder / "config.yaml")
    if video:
        frames = np.random.default_rng(seed).integers(0, 256, (6, 8, 12, 3), np.uint8)
        for kind in ("open_loop-000005", "open_loop-000020", "open_loop_uncertainty-000020"):
            save_video(folder / "videos" / f"{kind}.gif", frames.repeat(8, 1).repeat(8, 2), fps=10)
    return folder
