"""The package's own contestants: `Learner.update`, and `Planner` and `Actor`, as a training run uses them."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bayes_planet.config import Config
from bayes_planet.planning import candidate_counts
from bayes_planet.training.build import Agent, build
from bayes_planet.world_model import State, WorldModel
from bayes_planet.world_model.networks.precision import dtype_policy
from benchmarks.speed import recipe_work
from benchmarks.speed.roofline import plan_work, update_work
from benchmarks.speed.settings import PLAIN_LOSS, PLAIN_SEARCH, config_of, sizes_of, spaces
from benchmarks.timing import Contestant, timed

RSSM_LAYERS = (
    "prior_input",
    "gru",
    "prior_hidden",
    "prior_mean",
    "prior_stddev",
    "posterior_hidden",
    "posterior_mean",
    "posterior_stddev",
)


def build_parts(config: Config) -> Agent:
    """An untrained agent from pixels."""
    return build(config, *spaces())


def variables_of(world_model: WorldModel) -> dict[str, tf.Variable]:
    """Every variable by LAYER/PART, of a model from pixels with deterministic weights."""
    variables: dict[str, tf.Variable] = {}
    rssm = {
        id(variable): f"{name}/{variable.name.partition(':')[0].rpartition('/')[2]}"
        for name in RSSM_LAYERS
        for variable in getattr(world_model.rssm, name).trainable_variables
    }
    for variable in world_model.trainable_variables:
        name = rssm.get(id(variable), variable.name.partition(":")[0])
        if name in variables or "/" not in name:
            raise ValueError(f"The world model has two weights named {name!r}. Accepted: pixels alone, preset planet.")
        variables[name] = variable
    return variables


def weights_of(world_model: WorldModel) -> dict[str, np.ndarray]:
    """The values of `variables_of`, in Keras's layout: what the plain implementations start from."""
    return {name: variable.numpy() for name, variable in variables_of(world_model).items()}


def compute_dtype(config: Config) -> str:
    """'float32' or 'bfloat16': what `train.precision` comes to on this machine."""
    return dtype_policy(config.train.precision).removeprefix("mixed_")


def precisions() -> list[str]:
    """The values of `train.precision` that differ on this machine."""
    return ["auto"] if compute_dtype(config_of("paper")) == "float32" else ["auto", "float32"]


def update_contestant(
    size: str, model: str, precision: str, batch: Mapping[str, np.ndarray], as_preset: bool = False
) -> Contestant:
    """One update with the paper's loss, or `as_preset`."""
    overrides = [f"train.precision={precision}", *([] if as_preset else PLAIN_LOSS)]
    config = config_of(size, model, *overrides)
    learner = build_parts(config).learner
    fraction = config.loss.image_fraction
    computes = compute_dtype(config)

    def update() -> None:
        # A value that is read: the update is done.
        float(learner.update(batch, 10 * batch["mask"].size)["loss/total"])

    note = f"{fraction:.0%} of the images are decoded" if as_preset else ""
    if recipe_work.is_recipe(config):
        work = recipe_work.update_work(config)
        note += f", and {config.train.behaviour_updates} updates of actor and values"
    else:
        work = update_work(sizes_of(config), fraction, config.model.value)
        note += ", and values" if as_preset and config.model.value else ""
    return Contestant(
        f"ours/{model}/{precision}" + ("/preset" if as_preset else ""),
        f"ours, {model}, {computes}" + (", the preset's loss" if as_preset else ""),
        timed(update),
        work,
        computes,
        note,
    )


def plan_contestant(size: str, model: str, precision: str, state: Mapping[str, np.ndarray]) -> Contestant:
    """One plan by the paper's CEM, with the size's candidates, elites and iterations."""
    config = config_of(size, model, f"train.precision={precision}", *PLAIN_SEARCH)
    actor = build_parts(config).actor
    planner, computes = actor.planner, compute_dtype(config)
    sample, belief = (tf.constant(state[key]) for key in ("sample", "belief"))
    latent = State(sample, tf.ones_like(sample), sample, belief)
    plan = tf.function(planner.plan, autograph=False, jit_compile=actor.compile)
    seed = tf.constant([1, 2])
    return Contestant(
        f"ours/{model}/{precision}",
        f"ours, {model}, {computes}",
        timed(lambda: plan(latent, seed).numpy()),
        plan_work(sizes_of(config)),
        computes,
    )


def decision_contestant(size: str, precision: str) -> Contestant:
    """One decision of the size's own planner, filter included, as an episode makes it."""
    config = config_of(size, "bayes_planet", f"train.precision={precision}")
    actor, computes = build_parts(config).actor, compute_dtype(config)
    image = tf.zeros([1, 64, 64, 3], tf.uint8)
    seed, first = tf.constant([1, 2]), tf.constant([False])
    state = actor.initial_state(1)

    def decide() -> None:
        nonlocal state
        action, state = actor({"image": image}, state, first, seed, 0.3)
        action.numpy()

    if config.planner.method == "policy":
        work, note = recipe_work.decision_work(config), "filter included; the actor decides"
    else:
        counts = candidate_counts(actor.planner.config)
        work = plan_work(sizes_of(config), counts, config.planner.value_scale > 0)
        note = f"filter included, but not in the floor; candidates of each iteration: {', '.join(map(str, counts))}"
    return Contestant(
        f"ours/bayes_planet/{precision}/preset",
        f"ours, bayes_planet, {computes}: a decision with the preset's planner",
        timed(decide),
        work,
        computes,
        note,
    )
