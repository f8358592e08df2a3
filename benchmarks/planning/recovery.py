"""How far a planner must look ahead to get cheetah-run back on its feet: CEM on the true simulator, from the back.

    python -m benchmarks.planning.recovery --horizons 12 16 20 --episodes 5

The cheetah is laid on its back and left to lie still; then the search of a preset, on MuJoCo itself, has 60
decisions. On its back it gets some reward by rocking, and to turn over it must first give that up. Nothing is learnt
here: a horizon too short to find the way with the exact dynamics will not find it with a model of them. Each call
writes its rows to results/benchmarks/recovery.json and prints them.
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_planet.config import Config
from bayes_planet.planning import candidate_counts
from benchmarks.machine import describe_machine
from benchmarks.planning.simulator_planning import CheetahSimulator, configured, episode_seed, rewards_of

DECISIONS = 60  # 2.4 s; an episode has 250
LAST = 10  # decisions whose reward says what the cheetah ends up doing
ON_ITS_FEET = 0.5  # cosine of the pitch, at the end


def recover(simulator: CheetahSimulator, config: Config, index: int) -> dict[str, float]:
    """One try: the cosine of the pitch after it, and the mean reward of its last decisions."""
    simulator.reset_on_back(episode_seed(config, index))
    rewards = list(itertools.islice(rewards_of(simulator, config, index), DECISIONS))
    return {"upright": simulator.upright, "reward": float(np.mean(rewards[-LAST:]))}


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", nargs="+", default=["planet", "laptop"], metavar="PRESET", help="whose planner")
    parser.add_argument("--horizons", nargs="+", type=int, default=[12, 16, 20])
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/recovery.json"))
    parser.add_argument("overrides", nargs="*", default=["planner.method=icem"], metavar="key=value")
    options = parser.parse_args(arguments)
    rows = []
    for horizon in options.horizons:
        config, names, given = configured(options.config, [*options.overrides, f"planner.horizon={horizon}"])
        simulator = CheetahSimulator(config.env.action_repeat, options.threads)
        tries = [recover(simulator, config, index) for index in range(options.episodes)]
        up = sum(row["upright"] > ON_ITS_FEET for row in tries)
        rows.append(
            {
                "config": names,
                "overrides": given[:-1],
                "planner": dataclasses.asdict(config.planner),
                "rollouts_per_decision": sum(candidate_counts(config.planner)),
                "tries": tries,
                "on_its_feet": up,
                "machine": describe_machine(),
            }
        )
        reward = np.mean([row["reward"] for row in tries])
        print(
            f"horizon {horizon}, {rows[-1]['rollouts_per_decision']} rollouts: on its feet {up} of {len(tries)}, "
            f"then {reward:.2f} of {config.env.action_repeat} a decision",
            flush=True,
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return rows


if __name__ == "__main__":
    main()
