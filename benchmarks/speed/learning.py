"""The benchmarks of what training does most: `update`, `plan`, and the cost of the weights' belief, `bayesian`."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from benchmarks.speed import ours
from benchmarks.speed.results import Setup, measure, section
from benchmarks.speed.roofline import plan_work, update_work
from benchmarks.speed.settings import PLAIN_LOSS, PLAIN_SEARCH, config_of, make_batch, make_state, sizes_of
from benchmarks.speed.yardsticks import torch_process
from benchmarks.speed.yardsticks.plain_tf import PlainPlaNet
from benchmarks.speed.yardsticks.sizes import Sizes
from benchmarks.timing import Contestant, Failure, timed

MODELS = ("bayes_planet", "planet")


def update(setup: Setup) -> list[dict]:
    """One update from pixels: ours, plain TensorFlow, PyTorch."""
    return [_update(setup, size) for size in setup.sizes]


def _update(setup: Setup, size: str) -> dict:
    config = config_of(size, "planet", *PLAIN_LOSS)
    sizes, batch = sizes_of(config), make_batch(sizes_of(config))
    weights = ours.weights_of(ours.build_parts(config).world_model)
    data = torch_process.write_data(setup.folder / f"update-{size}.npz", {**weights, **batch})
    entries: list[Contestant | Failure] = [
        ours.update_contestant(size, model, precision, batch) for precision in ours.precisions() for model in MODELS
    ]
    loss = config_of(size).loss
    if loss.image_fraction < 1.0:
        entries.append(ours.update_contestant(size, "bayes_planet", "auto", batch, as_preset=True))
    entries.append(_plain_update(sizes, weights, batch))
    entries += torch_process.contestants(setup.torch, "update", sizes, update_work(sizes), data)
    rows = measure(entries, setup)
    torch_process.forget(setup.torch, entries)
    return section(
        f"One update from pixels, {size}: {sizes.batch} sequences of {sizes.steps} steps",
        "update",
        rows,
        size,
        sizes=dataclasses.asdict(sizes),
        torch=setup.torch.facts() if setup.torch else None,
    )


def _plain_update(sizes: Sizes, weights: Mapping[str, np.ndarray], batch: Mapping[str, np.ndarray]) -> Contestant:
    model = PlainPlaNet(sizes, weights)

    def run() -> None:
        model.update({key: tf.convert_to_tensor(batch[key]) for key in ("image", "action", "reward")}).numpy()

    return Contestant("plain_tf/float32", "plain Keras and TensorFlow, float32", timed(run), update_work(sizes))


def plan(setup: Setup) -> list[dict]:
    """One plan by the same CEM: ours, plain TensorFlow, PyTorch; and a decision with the preset's own planner."""
    return [_plan(setup, size) for size in setup.sizes]


def _plan(setup: Setup, size: str) -> dict:
    config = config_of(size, "planet", *PLAIN_SEARCH)
    sizes, state = sizes_of(config), make_state(sizes_of(config))
    weights = ours.weights_of(ours.build_parts(config).world_model)
    data = torch_process.write_data(setup.folder / f"plan-{size}.npz", {**weights, **state})
    entries: list[Contestant | Failure] = [
        ours.plan_contestant(size, model, precision, state) for precision in ours.precisions() for model in MODELS
    ]
    entries.append(ours.decision_contestant(size, "auto"))
    entries.append(_plain_plan(sizes, weights, state))
    entries += torch_process.contestants(setup.torch, "plan", sizes, plan_work(sizes), data)
    rows = measure(entries, setup)
    torch_process.forget(setup.torch, entries)
    return section(
        f"One plan, {size}: {sizes.candidates} candidates, {sizes.horizon} steps, {sizes.iterations} iterations, "
        f"{sizes.elites} elites",
        "plan",
        rows,
        size,
        sizes=dataclasses.asdict(sizes),
        torch=setup.torch.facts() if setup.torch else None,
    )


def _plain_plan(sizes: Sizes, weights: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray]) -> Contestant:
    model = PlainPlaNet(sizes, weights)
    sample, belief = (tf.constant(state[key]) for key in ("sample", "belief"))
    return Contestant(
        "plain_tf/float32",
        "plain Keras and TensorFlow, float32",
        timed(lambda: model.plan(sample, belief).numpy()),
        plan_work(sizes),
    )


def bayesian(setup: Setup) -> list[dict]:
    """One update with deterministic weights and with a belief over those of the transition."""
    sections = []
    for size in setup.sizes:
        batch = make_batch(sizes_of(config_of(size, "bayes_planet", *PLAIN_SEARCH)))
        entries = [ours.update_contestant(size, model, "auto", batch) for model in ("planet", "bayes_planet")]
        title = f"What the belief over weights costs an update, {size}"
        sections.append(section(title, "update", measure(entries, setup), size))
    return sections
