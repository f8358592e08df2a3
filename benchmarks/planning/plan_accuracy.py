"""How well a trained world model ranks plans, against the true simulator of cheetah-run.

    python -m benchmarks.planning.plan_accuracy RUN --steps 250 --every 10

The agent runs one noise-free episode. At every tenth decision the simulator says what the agent's plan, plans near it
and random plans would really bring over the horizon, and what the best plan brings that CEM finds on the simulator. The
model says the same from its latent state. A model that is right about its own plan but cannot rank others leaves the
planner nothing to improve with.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from rich.console import Console
from rich.table import Table

from bayes_planet import envs
from bayes_planet.planning import Actor, ActorState, cross_entropy_method
from bayes_planet.planning.colored_noise import noise_matrix
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed, seed_words
from bayes_planet.training.devices.strategy import prepare_devices
from bayes_planet.training.saved.restoring import restored
from bayes_planet.world_model import State, WorldModel
from benchmarks.planning.simulator_planning import CheetahSimulator

NEAR_STDDEV = 0.5  # of the coloured noise that plans near the agent's differ by
BEST = {"candidates": 200, "elites": 20, "iterations": 6, "noise_exponent": 1.0}
"""The search on the simulator for the best plan."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Returns over the horizon at one decision: what the model predicts, and the truth."""

    plan: tuple[float, float]
    best: tuple[float, float]
    near: np.ndarray  # [2, N]
    random: np.ndarray  # [2, N]


class Judge:
    """Compares a model with the simulator from the state that both are in.

    Args:
      world_model: the model.
      simulator: stands where the environment stands.
      horizon: agent steps.
      plans: N, of each kind.
    """

    def __init__(self, world_model: WorldModel, simulator: CheetahSimulator, horizon: int, plans: int):
        self._simulator = simulator
        self._horizon = horizon
        self._plans = plans
        self._color = noise_matrix(horizon, 1.0)

        def predict(latent: State, actions: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            rows = State(*(tf.repeat(value, actions.shape[0], 0) for value in latent))
            imagined = world_model.rssm.imagine(actions, rows, seed=seed)
            return tf.reduce_sum(world_model.reward(imagined.features), -1)

        self._predict = tf.function(predict, autograph=False)

    def compare(self, latent: State, plan: np.ndarray, seed: np.ndarray) -> Comparison:
        """Comparison for the latent State [1, ...] and the agent's plan [T, A]; seed int32 [2]."""
        generator = np.random.default_rng(seed)
        noise = generator.normal(size=(2, self._plans, *plan.shape))
        noise = np.einsum("knta,ts->knsa", noise, self._color)
        best = cross_entropy_method(
            lambda actions, _: tf.constant(self._simulator.imagine(actions.numpy()[0]).sum(-1)[None], tf.float32),
            batch=1,
            horizon=self._horizon,
            action_size=self._simulator.action_size,
            seed=tf.constant(seed),
            **BEST,
        ).mean.numpy()
        near = np.clip(plan + NEAR_STDDEV * noise[0], -1.0, 1.0)
        actions = np.concatenate([plan[None], best, near, np.clip(noise[1], -1.0, 1.0)]).astype(np.float32)
        both = np.stack(
            [
                self._predict(latent, tf.constant(actions), tf.constant(seed)).numpy(),
                self._simulator.imagine(actions).sum(-1),
            ]
        )
        return Comparison(
            tuple(both[:, 0]), tuple(both[:, 1]), both[:, 2 : 2 + self._plans], both[:, 2 + self._plans :]
        )


def summary(comparisons: Sequence[Comparison]) -> dict[str, float]:
    """Means over the decisions. Correlations leave out decisions at which all plans bring the same."""

    def correlation(pairs: Sequence[np.ndarray]) -> float:
        found = [np.corrcoef(pair)[0, 1] for pair in pairs if pair[1].std() > 0.05 and pair[0].std() > 0]
        return float(np.mean(found)) if found else float("nan")

    result = {}
    for name in ("plan", "best", "near", "random"):
        predicted, true = (np.mean([np.mean(getattr(each, name)[i]) for each in comparisons]) for i in (0, 1))
        result |= {f"{name}/predicted": float(predicted), f"{name}/true": float(true)}
    result["near/correlation"] = correlation([each.near for each in comparisons])
    result["random/correlation"] = correlation([each.random for each in comparisons])
    return result


def acted_on(actor: Actor, state: ActorState, seed: np.ndarray) -> np.ndarray:
    """The plan [T, A] whose first action the agent has just taken, in one environment; seed: int32 [2], as it had."""
    if state.plan:
        return state.plan.mean[0].numpy()
    return actor.planner.search(state.latent, tf.random.experimental.stateless_fold_in(seed, 1)).mean[0].numpy()


def measure(run: Path, steps: int, every: int, plans: int, seed: int) -> dict[str, Any]:
    """Runs the agent of a run beside the simulator."""
    config = RunDirectory(run).read_config()
    if config.env.name != "dm_control/cheetah-run":
        raise ValueError(f"{run} is about {config.env.name}. Accepted: a run of dm_control/cheetah-run.")
    environment = envs.make(config.env)
    prepare_devices()
    parts = restored(RunDirectory(run), environment)
    simulator = CheetahSimulator(config.env.action_repeat, threads=1, physics=environment.unwrapped.physics)
    judge = Judge(parts.world_model, simulator, config.planner.horizon, plans)
    observation, _ = environment.reset(seed=environment_seed(seed, Stream.EVALUATION_ENVIRONMENT, 2**30, 0))
    state, comparisons, total = parts.actor.initial_state(1), [], 0.0
    for step in range(steps):
        words = seed_words(seed, Stream.EVALUATION_ACTOR, 2**30, step)
        tensors = {key: tf.constant(value[None]) for key, value in observation.items()}
        action, state = parts.actor(tensors, state, tf.constant([step == 0]), tf.constant(words))
        if step % every == every // 2:
            comparisons.append(judge.compare(state.latent, acted_on(parts.actor, state, words), words))
        observation, reward, terminated, truncated, _ = environment.step(action.numpy()[0])
        total += float(reward)
        if terminated or truncated:
            break
    environment.close()
    updates = int(parts.learner.updates.numpy())
    return {"run": str(run), "updates": updates, "return": total, "decisions": len(comparisons), **summary(comparisons)}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a training run on cheetah-run")
    parser.add_argument("--steps", type=int, default=250, help="agent steps of the episode (default: 250)")
    parser.add_argument("--every", type=int, default=10, help="decisions between comparisons (default: 10)")
    parser.add_argument("--plans", type=int, default=48, help="plans of each kind (default: 48)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    found = measure(options.run, options.steps, options.every, options.plans, options.seed)
    if options.json:
        print(json.dumps(found, indent=1))
        return found
    title = f"{found['run']}, {found['updates']} updates, return {found['return']:.0f}"
    table = Table(title=title)
    for column in ("plans", "predicted", "true", "correlation"):
        table.add_column(column, justify="left" if column == "plans" else "right")
    for name, label in (
        ("plan", "the agent's"),
        ("best", "the simulator's best"),
        ("near", "near the agent's"),
        ("random", "random"),
    ):
        correlation = found.get(f"{name}/correlation")
        shown = "" if correlation is None else f"{correlation:.2f}"
        table.add_row(label, f"{found[f'{name}/predicted']:.1f}", f"{found[f'{name}/true']:.1f}", shown)
    Console().print(table)
    return found


if __name__ == "__main__":
    main()
