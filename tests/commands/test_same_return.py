"""One trained checkpoint has the same return however it is run: evaluate, predict, TF-Agents' drivers, SavedModel."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from tf_agents.drivers import dynamic_episode_driver, py_driver
from tf_agents.environments import tf_py_environment
from tf_agents.policies import py_tf_eager_policy
from tf_agents.specs import tensor_spec

from bayes_planet import BayesPlanet, cli
from bayes_planet.agents import BayesPlanetPolicy, GymnasiumPyEnvironment
from bayes_planet.agents.export import seeded_policy
from bayes_planet.runs.seeds import Stream, environment_seed, seed_words
from tests.commands.program import command, finished
from tests.commands.tensorflow_only import Process

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EPISODES = 12
EVALUATION_SEED = 5
SEEDS = [environment_seed(EVALUATION_SEED, Stream.EVALUATION_ENVIRONMENT, 2**31, index) for index in range(EPISODES)]
TRAINING = (
    *("train.episodes=10", "train.seed_episodes=5", "train.updates_per_episode=120", "train.sequence_length=16"),
    *("train.precision=float32", "loss.free_nats=0", "loss.reward_scale=1", "loss.state_scale=100"),
    *("model.bayesian.kl_scale=0.001", "planner.horizon=15", "planner.candidates=48", "planner.elites=8"),
    *("evaluation.every_episodes=0", "evaluation.episodes=1", "evaluation.workers=1"),
)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    """A run on Pendulum from state, trained for 600 updates: it swings the pendulum up in most episodes."""
    logdir = tmp_path_factory.mktemp("pendulum") / "run"
    presets = ("bayes_planet", "pendulum", "state")
    result = finished(command("train", "--config", *presets, "--logdir", logdir, *TRAINING))
    assert result.returncode == 0, result.stderr
    return logdir


@pytest.fixture(scope="module")
def folder(pendulum, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "policies" / "pendulum"
    assert cli.main(["export", str(pendulum), "--out", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def process(folder):
    process = Process()
    process.ask("load", str(folder))
    yield process
    process.close()


@pytest.fixture(scope="module")
def model(pendulum):
    with BayesPlanet.load(pendulum) as model:
        yield model


@pytest.fixture(scope="module")
def evaluated(pendulum):
    """The returns of `bayes-planet evaluate`, one worker: each episode is a batch of one."""
    result = finished(command("evaluate", pendulum, "--episodes", EPISODES, "--seed", EVALUATION_SEED, "--json"))
    assert result.returncode == 0, result.stderr
    return np.array(json.loads(result.stdout)["returns"])


def play(environment, decide):
    """Returns of one episode for each seed; `decide(observation, step)` acts."""
    returns = []
    for seed in SEEDS:
        observation, _ = environment.reset(seed=seed)
        total, step, done = 0.0, 0, False
        while not done:
            observation, reward, terminated, truncated, _ = environment.step(decide(observation, step))
            total, step, done = total + reward, step + 1, terminated or truncated
        returns.append(total)
    return np.array(returns)


def exported(process, seed_of_step, episode=lambda: None):
    """`decide` of the SavedModel; `seed_of_step(step)` says which random numbers, None: those of its state."""
    state = None

    def decide(observation, step):
        nonlocal state
        if step == 0:
            episode()
            state = process.ask("get_initial_state", 1)
        if (seed := seed_of_step(step)) is not None:
            state["seed"] = seed[None]
        rows = {key: np.asarray(value)[None] for key, value in observation.items()}
        action, state = process.ask("action", rows, np.array([step == 0]), state)
        return action[0]

    return decide


def test_the_checkpoint_has_learned_something(evaluated, model):
    generator = np.random.default_rng(0)
    environment = model.get_env()
    chance = play(environment, lambda observation, step: generator.uniform(-1, 1, 1).astype(np.float32))
    assert scipy.stats.ttest_rel(evaluated, chance, alternative="greater").pvalue < 0.001, (evaluated, chance)


def test_the_saved_model_makes_the_returns_of_evaluate(evaluated, model, process):
    """Given the same random numbers, to the last digits that another graph may round differently."""
    episodes = iter(range(EPISODES))
    number = 0

    def begin():
        nonlocal number
        number = next(episodes)

    decide = exported(
        process, lambda step: seed_words(EVALUATION_SEED, Stream.EVALUATION_ACTOR, 2**31, number, step), begin
    )
    np.testing.assert_allclose(play(model.get_env(), decide), evaluated, rtol=1e-5)


def test_evaluate_of_the_api_makes_them_too(evaluated, model):
    np.testing.assert_allclose(model.evaluate(EPISODES, EVALUATION_SEED).returns, evaluated, rtol=1e-6)


def test_the_saved_model_makes_the_returns_of_predict(evaluated, model, process):
    state = None

    def predict(observation, step):
        nonlocal state
        action, state = model.predict(observation, None if step == 0 else state)
        return action

    environment = model.get_env()
    predicted = play(environment, predict)
    there = play(environment, exported(process, lambda step: seed_words(model.config.seed, Stream.PREDICT, 0, step)))
    np.testing.assert_allclose(there, predicted, rtol=1e-5)
    assert_equal_in_the_mean(predicted, evaluated)


def test_a_driver_makes_the_returns_of_the_saved_model(folder, model, process):
    """PyDriver with the policy that was exported, with the SavedModel behind TF-Agents' wrapper, and by hand."""
    expected = play(model.get_env(), exported(process, lambda step: None))
    policy = seeded_policy(model.actor, model.observation_space, model.action_space)
    here = py_tf_eager_policy.PyTFEagerPolicy(policy, use_tf_function=True)
    loaded = py_tf_eager_policy.SavedModelPyTFEagerPolicy(str(folder), load_specs_from_pbtxt=True)
    np.testing.assert_allclose(driven(model, here), expected, rtol=1e-5)
    np.testing.assert_allclose(driven(model, loaded), expected, rtol=1e-5)
    assert loaded.get_train_step() == 600


def test_drivers_with_the_agents_policy_have_the_same_mean_return(evaluated, model):
    """TensorFlow's global generator gives the random numbers here, so equality is a matter of statistics."""
    environment = py_environment(model)
    specs = tensor_spec.from_spec((environment.time_step_spec(), environment.action_spec()))
    policy = BayesPlanetPolicy(*specs, model.actor)
    tf.random.set_seed(1)
    returns = driven(model, py_tf_eager_policy.PyTFEagerPolicy(policy, use_tf_function=True))
    assert_equal_in_the_mean(returns, evaluated)

    tf_environment = tf_py_environment.TFPyEnvironment(environment)
    rewards = []
    driver = dynamic_episode_driver.DynamicEpisodeDriver(
        tf_environment, policy, [lambda row: tf.py_function(lambda r: rewards.append(float(r)), [row.reward[0]], [])]
    )
    in_graph = []
    for seed in SEEDS:
        environment.seed(seed)
        rewards.clear()
        driver.run(tf_environment.reset(), policy.get_initial_state(1))
        in_graph.append(sum(rewards))
    assert_equal_in_the_mean(np.array(in_graph), evaluated)


def test_the_snippet_of_the_page_plays_an_episode(folder, model, process):
    """docs/export.md as written, in a process with TensorFlow, Gymnasium and NumPy."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    total = process.ask("run", snippet, str(folder.parents[1]))["total"]
    assert process.ask("forbidden_modules") == []
    policy = seeded_policy(model.actor, model.observation_space, model.action_space)
    here = driven(model, py_tf_eager_policy.PyTFEagerPolicy(policy, use_tf_function=True), seeds=[3])
    np.testing.assert_allclose(total, here[0], rtol=1e-3)  # the page scales actions in float32


def py_environment(model):
    return GymnasiumPyEnvironment.make(model.config.env)


def driven(model, policy, seeds=SEEDS):
    """Returns of one episode for each seed under PyDriver."""
    environment = py_environment(model)
    returns = []
    for seed in seeds:
        rewards = []
        driver = py_driver.PyDriver(
            environment, policy, [lambda row: rewards.append(float(row.reward))], max_episodes=1
        )
        environment.seed(seed)
        driver.run(environment.reset(), policy.get_initial_state(1))
        returns.append(sum(rewards))
    return np.array(returns)


def assert_equal_in_the_mean(returns, reference):
    """The same episodes' starts, so their differences are compared: 0 is in the 99.9 % interval of the mean."""
    assert np.abs(returns - reference).max() > 0  # other random numbers
    interval = scipy.stats.ttest_rel(returns, reference).confidence_interval(0.999)
    assert interval.low <= 0 <= interval.high, interval
    # And it is narrow beside what tells the policy from chance.
    assert interval.high - interval.low < 600, interval
