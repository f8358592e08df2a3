"""The snippets of docs/your_own_model.md run as written, and its models learn and decide what they should."""

import re
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import bayesian_layers as bl
from bayes_planet.planning import Actor, Planner
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.interface import TrainableWorldModel, Transition, names_of

PAGE = (Path(__file__).parents[2] / "docs" / "your_own_model.md").read_text()

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def names(tmp_path_factory) -> dict:
    # tf.function reads the source of what it compiles, so the snippets must be a file.
    module = tmp_path_factory.mktemp("page") / "snippets.py"
    module.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)))
    found: dict = {"__name__": "snippets"}
    exec(compile(module.read_text(), str(module), "exec"), found)
    return found


def test_plan_of_a_network_of_ones_own(names):
    actions = names["actions"].numpy()
    assert actions.shape == (12, 2) and np.abs(actions).max() <= 1


def test_kl_of_the_new_layer_is_its_own(names):
    """The metric is the divergence of the layer that was put in, and its prior learns with it."""
    layer, metrics = names["layer"], names["metrics"]
    after = float(bl.weight_kl(layer)[bl.layer_key(layer)])
    np.testing.assert_allclose(float(metrics["weight_kl/prior_hidden"]), after, rtol=1e-5)
    assert layer in bl.variational_layers(names["model"].rssm)
    held = {id(variable) for variable in names["model"].trainable_variables}
    assert all(id(variable) in held for variable in layer.trainable_variables)


def test_own_encoder_ignores_the_order_of_points(names):
    model = names["set_model"]
    first, second = (model.embed(observation) for observation in (names["one"], names["other"]))
    np.testing.assert_allclose(first, second, rtol=1e-6)
    assert np.std(first) > 0
    assert first.shape == [1, model.rssm.embedding_size]


def test_own_world_model_learns_and_acts(names):
    rows = read_metrics(names["agent"].logdir / "metrics.jsonl")
    losses = [row["loss/prediction"] for row in rows if "loss/prediction" in row]  # means over 20 updates
    assert len(losses) == 30 and losses[-1] < 0.02 * losses[0]
    # x' = x + a / 2, reward -x'^2, from 1.5 and -1.5: full force towards 0.
    action = names["action"]
    assert action[0, 0] < -0.8 and action[1, 0] > 0.8
    assert names["agent"].config.model.factory == "snippets:DirectModel"
    np.testing.assert_array_equal(names["loaded"].predict(names["observation"])[0], action)


def test_table_names_what_planner_and_actor_ask_for(names):
    """A model with nothing but the table's names is enough, and each of those of the planner and actor is needed."""
    table = PAGE.partition("| name | asked by |")[2].partition("\n\n")[0]
    direct, asked = names["agent"].world_model, set()

    class Watched:
        def __getattr__(self, name):
            asked.add(name)
            return getattr(direct, name)

    watched = Watched()
    planner = Planner(direct, names["agent"].config.planner)
    planner.world_model = watched
    actor = Actor(planner)
    observation = {"state": names["observation"]}
    actor.act(observation, actor.initial_state(2), np.array([True, True]), np.array([0, 1]))
    assert asked and all(f"`{name}" in table for name in asked)
    listed = set(re.findall(r"`(?:rssm\.)?(\w+)", re.sub(r"\|[^|]*\|\n", "|\n", table)))
    assert len(listed) >= 12 and all(hasattr(direct, name) for name in listed), (
        "the page's own model lacks what its table lists"
    )
    public = {name for name in vars(WorldModel) if not name.startswith("_")}
    assert {name for name in asked if name not in ("rssm", "action_size")} <= public
    assert {*names_of(TrainableWorldModel), *names_of(Transition)} == listed
