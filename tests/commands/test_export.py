"""`bayes-planet export` of a run trained for real: what it writes runs with TensorFlow alone, and acts the same."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import cli
from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.runs.seeds import Stream, environment_seed, seed_words
from bayes_planet.training.saved.restoring import restored
from tests.commands.tensorflow_only import Process

STEPS = 10  # agent steps of an episode of the run

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def exports(run, tmp_path_factory):
    """Two exports: for any number of environments, and, in place of a copy of the first, for two at a time."""
    logdir, _ = run
    before = {path: path.stat().st_mtime_ns for path in logdir.rglob("*")}
    folder = tmp_path_factory.mktemp("exports")
    assert cli.main(["export", str(logdir), "--out", str(folder / "any")]) == 0
    shutil.copytree(folder / "any", folder / "two")
    assert cli.main(["export", str(logdir), "--out", str(folder / "two"), "--batch-size", "2", "--overwrite"]) == 0
    assert {path: path.stat().st_mtime_ns for path in logdir.rglob("*")} == before  # the run is as it was
    return folder


@pytest.fixture(scope="module")
def environments(run):
    with Workers(presets.read(run[0] / "config.yaml").env, 2) as workers:
        yield workers


@pytest.fixture(scope="module")
def actor(run, environments):
    """The policy as the training process has it."""
    config = presets.read(run[0] / "config.yaml")
    assert config.train.precision == "float32"
    return restored(RunDirectory(run[0]), environments).actor


@pytest.fixture(scope="module")
def process():
    process = Process()
    yield process
    process.close()


def tensors(nest):
    return tf.nest.map_structure(tf.convert_to_tensor, nest)


def test_it_plays_an_episode_and_acts_as_the_training_process_does(exports, environments, actor, process):
    """Any number of environments: each row acts as it would alone, with its own seed; two episodes in a row."""
    updates = process.ask("load", str(exports / "any"))
    assert updates == 4
    state = process.ask("get_initial_state", 2)
    np.testing.assert_array_equal(state["seed"], [[0, 0], [1, 0]])
    state["seed"] = np.array([[7, 0], [-3, 0]], np.int32)
    expected_states = [actor.initial_state(1), actor.initial_state(1)]
    for step in range(2 * STEPS):
        if step % STEPS == 0:
            observation = environments.reset([step, step + 1])
        is_first = np.full(2, step % STEPS == 0)
        action, state = process.ask("action", observation, is_first, state)
        for row, key in enumerate((7, -3)):
            alone = tensors({name: value[row : row + 1] for name, value in observation.items()})
            expected, expected_states[row] = actor(
                alone, expected_states[row], tf.constant(is_first[:1]), tf.constant([key, step])
            )
            np.testing.assert_allclose(action[row], expected[0], atol=1e-5)
            np.testing.assert_allclose(state["belief"][row], expected_states[row].latent.belief[0], atol=1e-5)
        observation, _, _, truncated = environments.step(action)
    assert truncated.all() and state["step"].tolist() == [STEPS, STEPS]
    assert process.ask("forbidden_modules") == []

    # Another number of environments, with the same rows in another order.
    order = [1, 0, 1]
    picked, first = {key: value[order] for key, value in observation.items()}, np.zeros(3, bool)
    more, _ = process.ask("action", picked, first, {key: value[order] for key, value in state.items()})
    two, _ = process.ask("action", observation, first[:2], state)
    np.testing.assert_allclose(more, two[order], atol=1e-5)
    assert np.abs(two[0] - two[1]).max() > 1e-3


def test_with_a_batch_size_returns_are_those_of_evaluate(run, exports, environments, process, capfd):
    """`evaluate` runs both episodes side by side; given its random numbers, the SavedModel makes the same returns."""
    capfd.readouterr()
    assert cli.main(["evaluate", str(run[0]), "--episodes", "2", "--seed", "5", "--json"]) == 0
    expected = json.loads(capfd.readouterr().out)["returns"]

    process.ask("load", str(exports / "two"))
    state = process.ask("get_initial_state")
    observation = environments.reset([environment_seed(5, Stream.EVALUATION_ENVIRONMENT, 2**31, i) for i in range(2)])
    returns = np.zeros(2)
    for step in range(STEPS):
        state["seed"][0] = seed_words(5, Stream.EVALUATION_ACTOR, 2**31, 0, step)
        action, state = process.ask("action", observation, np.full(2, step == 0), state)
        observation, reward, _, truncated = environments.step(action)
        returns += reward
    assert truncated.all()
    np.testing.assert_allclose(returns, expected, rtol=1e-6)
    assert expected[0] != expected[1]
    with pytest.raises(RuntimeError, match="ValueError: Could not find matching concrete function"):
        process.ask("action", {key: value[:1] for key, value in observation.items()}, np.zeros(1, bool), state)


def test_policy_json_says_what_it_is(run, exports, process):
    config = presets.read(run[0] / "config.yaml")
    facts = json.loads((exports / "any" / "policy.json").read_text())
    assert facts["env"] == dataclasses.asdict(config.env) and facts["planner"] == dataclasses.asdict(config.planner)
    assert facts["updates"] == 4 and facts["batch_size"] is None and facts["precision"] == "float32"
    assert facts["observation"] == {"image": {"dtype": "uint8", "shape": [64, 64, 3]}}
    assert facts["action"] == {"dtype": "float32", "shape": [1], "minimum": -1.0, "maximum": 1.0}
    assert facts["versions"] == json.loads((run[0] / "versions.json").read_text())
    two = json.loads((exports / "two" / "policy.json").read_text())
    assert {key for key in two if two[key] != facts[key]} == {"batch_size", "signatures"} and two["batch_size"] == 2

    # The flat function, called by the names in the file, answers as `action` does.
    process.ask("load", str(exports / "any"))
    initial = process.ask("signature", "get_initial_state", {"batch_size": np.int32(3)})
    assert set(initial) == set(facts["signatures"]["get_initial_state"]["outputs"]) == set(facts["policy_state"])
    inputs = facts["signatures"]["action"]["inputs"]
    given = {name: np.zeros([3, *info["shape"][1:]], info["dtype"]) for name, info in inputs.items()}
    flat = process.ask("signature", "action", given)
    image = np.zeros([3, 64, 64, 3], np.uint8)
    zeros = {key: np.zeros_like(value) for key, value in initial.items()}
    action, state = process.ask("action", {"image": image}, np.ones(3, bool), zeros)
    np.testing.assert_allclose(flat["action"], action, atol=1e-5)
    np.testing.assert_allclose(flat["state/belief"], state["belief"], atol=1e-5)
    assert set(flat) == set(facts["signatures"]["action"]["outputs"])


@pytest.mark.parametrize(("name", "rows"), [("any", 1), ("two", 2)])
def test_the_readme_runs_as_it_stands(exports, process, name, rows):
    text = (exports / name / "README.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    action = process.ask("run", snippet, str(exports / name))["action"]
    assert action.shape == (rows, 1) and np.abs(action).max() <= 1
    assert "dm_control/cartpole-swingup" in text and "for 8 environment" in text and "$" not in text


def test_nothing_else_is_left(exports):
    assert sorted(path.name for path in exports.iterdir()) == ["any", "two"]
    files = ["README.md", "policy.json", "policy_specs.pbtxt", "saved_model.pb", "variables"]
    for name in ("any", "two"):
        assert set(files) <= {path.name for path in (exports / name).iterdir()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--out", "{exports}/any"], "holds an export already.*--overwrite"),
        (["--out", "{run}", "--overwrite"], "holds other files, no export"),
        (["--out", "{run}/config.yaml"], "is no folder. Accepted: a folder"),
        (["--out", "{run}/config.yaml/deep/policy"], "--out is .* cannot be written: .*Not a directory"),
        (["--out", "{exports}/new", "--batch-size", "0"], "--batch-size is 0. Accepted: 1 or more"),
        (["--out", "{exports}/new", "--precision", "float64"], "'float64'. Accepted: float32, bfloat16"),
    ],
)
def test_bad_options_are_told(run, exports, capfd, options, message):
    before = {path: path.read_bytes() for path in exports.rglob("*") if path.is_file()}
    options = [option.format(run=run[0], exports=exports) for option in options]
    assert cli.main(["export", str(run[0]), *options]) == 2
    assert re.search(message, capfd.readouterr().err)
    assert {path: path.read_bytes() for path in exports.rglob("*") if path.is_file()} == before


def test_a_failed_export_leaves_the_earlier_one(exports, actor, environments, tmp_path):
    from bayes_planet.agents.export import ExportError, export_policy, seeded_policy

    target = shutil.copytree(exports / "any", tmp_path / "policy")
    policy = seeded_policy(actor, environments.observation_space, environments.action_space)
    with pytest.raises(ExportError, match="batch size is 0"):
        export_policy(policy, target, updates=1, facts={}, batch_size=0, overwrite=True)
    with pytest.raises(KeyError):  # after the SavedModel is written
        export_policy(policy, target, updates=1, facts={}, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy"]
    assert (target / "policy.json").read_bytes() == (exports / "any" / "policy.json").read_bytes()


def test_a_folder_without_a_run_or_a_checkpoint_is_told(run, tmp_path, capfd):
    assert cli.main(["export", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "no config.yaml" in capfd.readouterr().err
    for name in ("config.yaml", "spaces.json"):
        shutil.copy(run[0] / name, tmp_path)
    assert cli.main(["export", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "has no checkpoint yet" in capfd.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("variables", [{"TF_ENABLE_ONEDNN_OPTS": "0"}, {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}])
def test_bfloat16_runs_on_a_processor_without_it(run, exports, environments, tmp_path, variables):
    """With TensorFlow's own kernels, as it does without AVX512, and with oneDNN's for AVX512 without bfloat16."""
    arguments = ["export", str(run[0]), "--out", str(tmp_path / "policy"), "--precision", "bfloat16"]
    assert cli.main(arguments) == 0
    observation = environments.reset([0, 1])
    beliefs = []
    process = Process(**variables)
    for folder in (exports / "any", tmp_path / "policy"):
        process.ask("load", str(folder))
        state = process.ask("get_initial_state", 2)
        for step in range(5):
            state["action"] = np.full([2, 1], 0.5, np.float32)  # else the plans differ, and so what the filter is told
            action, state = process.ask("action", observation, np.full(2, step == 0), state)
            assert np.abs(action).max() <= 1
        beliefs.append(state["belief"])
    process.close()
    difference = np.abs(beliefs[0] - beliefs[1]).max()
    assert 0 < difference < 0.02, difference
    assert np.abs(beliefs[0]).max() > 0.05
