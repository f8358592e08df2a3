"""A tiny model of the package and the same weights, data and noise for the plain ones. As `tests.benchmarks.tiny`."""

import collections
import dataclasses
import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet.planning import Planner
from bayes_planet.world_model import State, WorldModel
from bayes_planet.world_model.losses import diagonal_gaussian_kl
from benchmarks.speed.ours import variables_of, weights_of
from benchmarks.speed.settings import make_batch, make_state, sizes_of
from benchmarks.speed.yardsticks.sizes import Sizes
from benchmarks.speed.yardsticks.torch_process import TorchProcess, find_torch
from tests.world_model.tiny import ACTION_SIZE, IMAGE_SHAPES, seed, tiny_config, tiny_model


@functools.cache
def torch_python() -> str | None:
    """An interpreter with torch: $TORCH_PYTHON, else this one if it has it."""
    return find_torch(os.environ.get("TORCH_PYTHON"))


@dataclasses.dataclass(frozen=True)
class Case:
    """Inputs, and what the package makes of them."""

    sizes: Sizes
    arrays: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    model: WorldModel
    loss: float
    gradient_norms: dict[str, float]
    state_kls: np.ndarray
    plan: np.ndarray


def make_case() -> Case:
    """The loss of `WorldModel.loss`, the norm of its gradients and the plan of `Planner`, with the noise they drew."""
    config = tiny_config(
        env={"observations": "pixels"},
        model={"reward_layers": 2},
        # Between the state KLs of this case, so that some steps are clamped and some are not.
        loss={"free_nats": 1.71, "image_fraction": 1.0},
        train={"precision": "float32", "batch_size": 2, "sequence_length": 4},
    )
    model = tiny_model(config, IMAGE_SHAPES)
    sizes = sizes_of(config, ACTION_SIZE)
    batch, state = make_batch(sizes), make_state(sizes)
    with recorded_normals() as normals, tf.GradientTape() as tape:
        terms = model.loss(
            batch, seed=seed(1), weight_seed=seed(2), num_data=tf.constant(8.0), weight_kl_scale=tf.constant(1.0)
        )
    variables = model.trainable_variables
    gradients = tape.gradient(terms.total, variables)
    noise = normals[0]  # of the posterior; the prior's comes after it, and is in no loss
    assert noise.shape == (sizes.steps, sizes.batch, sizes.stochastic)
    fold = tf.random.experimental.stateless_fold_in

    sample, belief = tf.constant(state["sample"]), tf.constant(state["belief"])
    with recorded_normals() as normals:
        plan = Planner(model, config.planner).plan(State(sample, sample, sample, belief), seed(3))
    # Each iteration draws actions [1, N, T, A], then states [T, N, Z].
    arrays = {
        **batch,
        **state,
        "prepared": model.prepare(batch, fold(seed(1), 0))["image"].numpy(),
        "noise": noise,
        "action_noise": np.stack([value[0] for value in normals[0::2]]),
        "state_noise": np.stack(normals[1::2]),
    }
    assert arrays["action_noise"].shape == (sizes.iterations, sizes.candidates, sizes.horizon, sizes.action)
    assert arrays["state_noise"].shape == (sizes.iterations, sizes.horizon, sizes.candidates, sizes.stochastic)
    norms = {id(variable): float(tf.norm(gradient)) for variable, gradient in zip(variables, gradients, strict=True)}
    layers = norms_by_layer(model, norms)
    posterior, prior = model.observe(batch, seed(1))
    kls = diagonal_gaussian_kl(posterior.mean, posterior.stddev, prior.mean, prior.stddev).numpy()
    return Case(sizes, arrays, weights_of(model), model, float(terms.total), layers, kls, plan[0].numpy())


def norms_by_layer(model: WorldModel, norms: dict[int, float]) -> dict[str, float]:
    """The norm of each layer's gradients, from those of its variables by id."""
    squares: dict[str, float] = collections.defaultdict(float)
    for name, variable in variables_of(model).items():
        squares[name.partition("/")[0]] += norms[id(variable)] ** 2
    return {name: square**0.5 for name, square in squares.items()}


class recorded_normals:
    """While in force, keeps every eager draw of tf.random.stateless_normal, in order."""

    def __enter__(self) -> list[np.ndarray]:
        self._original, drawn = tf.random.stateless_normal, []

        def stateless_normal(*args, **kwargs):
            value = self._original(*args, **kwargs)
            drawn.append(value.numpy())
            return value

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(tf.random, "stateless_normal", stateless_normal)
        return drawn

    def __exit__(self, *exception: object) -> None:
        self._patch.undo()


def start_torch() -> TorchProcess:
    """PyTorch's process; skips the test where there is no torch."""
    python = torch_python()
    if python is None:
        pytest.skip("no torch: set TORCH_PYTHON to an interpreter that has it")
    return TorchProcess(python)
