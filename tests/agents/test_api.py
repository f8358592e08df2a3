"""`BayesPlanet` on real environments in real processes: learn, predict, save and load, evaluate, imagine."""

import dataclasses
import gc
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import BayesPlanet, cli
from bayes_planet.agents import settings
from bayes_planet.agents import trained as trained_model
from bayes_planet.agents.acting import Predictor
from bayes_planet.config import presets
from bayes_planet.evaluation.predictive import predict_distribution
from bayes_planet.replay import EpisodeStore
from bayes_planet.runs.metrics import read_metrics
from bayes_planet.runs.run_directory import RunDirectoryError
from bayes_planet.runs.seeds import Stream, seed_words
from tests.agents.small import SETTINGS, STEPS, assert_same, model_in, weights
from tests.envs.toy import CountingEnv


@pytest.fixture(scope="module")
def model(trained) -> BayesPlanet:
    return trained


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory) -> Path:
    return model.save(tmp_path_factory.mktemp("api") / "saved")


@pytest.fixture(scope="module")
def episode(model) -> dict[str, np.ndarray]:
    return model.evaluate(1, seed=5).episodes[0]


def test_learning_is_counted_and_kept_in_the_folder(model):
    assert (model.num_episodes, model.num_env_steps, model.num_updates) == (4, 4 * STEPS, 4)
    assert model.num_timesteps == 48
    rows = read_metrics(model.logdir / "metrics.jsonl")
    assert [row["env_steps"] for row in rows if "train/return" in row] == [12, 24, 36, 48]
    assert not [row for row in rows if "eval/return_mean" in row]  # not asked for, and the run may go on
    episode = EpisodeStore(model.logdir / "episodes", 1e9).load(3)
    np.testing.assert_allclose(episode["reward"][1:], CountingEnv.reward(episode["action"][1:, 0]), rtol=1e-6)
    assert presets.read(model.logdir / "config.yaml") == model.config


def test_without_an_amount_it_ends_with_the_schedule_and_an_evaluation(model):
    """All four episodes are there, so the evaluation is what is left."""
    before = weights(model)
    thread = threading.Thread(target=model.learn)  # where no signal handler can be set
    thread.start()
    thread.join()
    assert (model.num_episodes, model.num_updates) == (4, 4)
    assert_same(weights(model), before)
    row = read_metrics(model.logdir / "metrics.jsonl")[-1]
    assert row["eval/episodes"] == 2 and row["episodes"] == 4


@pytest.mark.thorough
def test_learning_again_after_an_error_begins_with_the_first_weights(model, tmp_path, monkeypatch):
    """Before the first checkpoint of updates, too: what was half done is not on disk, so it must not be in the model."""
    again = model_in(tmp_path / "run")
    learner = again.learner
    update, done = learner.update, []

    def second_fails(*arguments):
        if done:
            raise ZeroDivisionError
        done.append(update(*arguments))
        return done[-1]

    monkeypatch.setattr(learner, "update", second_fails)
    with pytest.raises(ZeroDivisionError):
        again.learn(episodes=4)
    monkeypatch.undo()
    again.learn(episodes=2)  # two of random actions are there
    assert (again.num_episodes, again.num_updates) == (4, 4)
    assert_same(weights(again), weights(model))


@pytest.mark.thorough
def test_a_value_is_learnt_saved_and_planned_with(tmp_path):
    model = model_in(tmp_path / "run", {"model.value": True, "planner.value_scale": 1.0}).learn()
    assert sum("loss/value" in row for row in read_metrics(model.logdir / "metrics.jsonl")) > 0
    loaded = BayesPlanet.load(model.save(tmp_path / "saved"))
    assert loaded.config.planner.value_scale == 1.0
    features = np.random.default_rng(0).normal(size=(3, model.world_model.rssm.feature_size)).astype(np.float32)
    value = model.world_model.value(features)
    assert np.ptp(value) > 0
    np.testing.assert_array_equal(loaded.world_model.value(features), value)
    np.testing.assert_array_equal(model.evaluate(1, seed=5).returns, loaded.evaluate(1, seed=5).returns)


FRESH = """
import json, sys
import numpy as np
from bayes_planet import BayesPlanet
model = BayesPlanet.load(sys.argv[1])
state, actions = None, []
for row in np.load(sys.argv[2])["state"]:
    action, state = model.predict(row, state, deterministic=len(actions) % 2 == 0)
    actions.append(action.tolist())
print(json.dumps({"actions": actions, "updates": model.num_updates, "episodes": model.num_episodes,
                  "environment": "dm_control" in sys.modules or "tests.envs.toy" in sys.modules}))
"""


@pytest.mark.thorough
def test_a_fresh_process_loads_it_and_acts_the_same(saved, model, episode, tmp_path):
    np.savez(tmp_path / "rows.npz", state=episode["state"][:6])
    command = [sys.executable, "-c", FRESH, str(saved), str(tmp_path / "rows.npz")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    model.set_random_seed(3)
    state, expected = None, []
    for number, row in enumerate(episode["state"][:6]):
        action, state = model.predict(row, state, deterministic=number % 2 == 0)
        expected.append(action)
    np.testing.assert_array_equal(np.float32(found["actions"]), expected)
    assert (found["updates"], found["episodes"], found["environment"]) == (4, 4, False)


def test_what_is_saved(saved, model):
    files = {path.name for path in saved.rglob("*") if path.is_file()}
    checkpoint = {"variables.index", "variables.data-00000-of-00001", "counters.json"}
    assert files == {"config.yaml", "spaces.json", "model.json", *checkpoint}
    assert json.loads((saved / "model.json").read_text())["env_steps"] == 48
    assert json.loads((saved / "spaces.json").read_text())["action"] == {
        "shape": [1], "dtype": "float32", "low": -1.0, "high": 1.0,
    }  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in saved.rglob("*")}
    assert model.save(saved) == saved  # an older one is replaced
    assert before.keys() == set(saved.rglob("*"))
    assert before[saved / "model.json"] < (saved / "model.json").stat().st_mtime_ns
    assert [path.name for path in saved.parent.iterdir()] == ["saved"]


def test_saved_without_the_optimizer_it_is_a_third_and_acts_the_same(saved, model, episode, tmp_path):
    small = model.save(tmp_path / "small", optimizer=False)

    def size(folder):
        return next(folder.rglob("variables.data*")).stat().st_size

    assert size(small) < 0.4 * size(saved)
    with BayesPlanet.load(small) as loaded, BayesPlanet.load(saved) as whole:
        first = {key: value[0] for key, value in episode.items() if key in model.observation_space.spaces}
        np.testing.assert_array_equal(loaded.predict(first)[0], whole.predict(first)[0])
        loaded.learn(episodes=2)  # seed episodes: a fresh optimizer is no hindrance


def test_saved_in_16_bits_it_is_half_and_its_weights_are_rounded(model, episode, tmp_path):
    whole, half = (model.save(tmp_path / str(bits), optimizer=False, bits=bits) for bits in (32, 16))

    def size(folder):
        return next(folder.rglob("variables.data*")).stat().st_size

    assert size(half) < 0.7 * size(whole)  # tiny matrices: the names take as much
    with BayesPlanet.load(half) as loaded, BayesPlanet.load(whole) as exact:
        for found, value in zip(weights(loaded), weights(exact), strict=True):
            rounded = value.astype(np.float16) if value.dtype == np.float32 and value.ndim >= 2 else value
            np.testing.assert_array_equal(found, rounded)
        loaded.learn(episodes=2)
    with pytest.raises(ValueError, match=r"bits is 16, optimizer True\. Accepted: 32, or 16 with optimizer=False"):
        model.save(tmp_path / "other", bits=16)
    assert not (tmp_path / "other").exists()


def test_the_command_line_takes_what_is_saved_and_has_the_same_numbers(saved, model, capfd):
    score = model.evaluate(2, seed=7)
    capfd.readouterr()
    assert cli.main(["evaluate", str(saved), "--episodes", "2", "--seed", "7", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["returns"] == list(score.returns) and found["mean"] == score.mean
    rewards = [CountingEnv.reward(episode["action"][1:, 0]).sum() for episode in score.episodes]
    np.testing.assert_allclose(score.returns, rewards, rtol=1e-5)
    assert (score.mean, score.median) == pytest.approx((np.mean(rewards), np.median(rewards)))
    assert score.stddev == pytest.approx(np.std(rewards), rel=1e-3)


def test_a_saved_model_starts_a_new_run_from_its_weights(saved, trained, capsys):
    with BayesPlanet.load(saved) as model:
        before = weights(model)
        assert model.logdir is None and model.num_env_steps == 48
        assert (model.observation_space, model.action_space) == (trained.observation_space, trained.action_space)
        model.learn(episodes=2)  # of random actions, without updates
        assert "no logdir" in capsys.readouterr().err
        assert (model.num_episodes, model.num_updates) == (2, 0)
        names = [variable.name for variable in model.world_model.variables]
        statistics = {"mean:0", "variance:0", "rows:0", "episodes:0", "last:0"}
        for name, a, b in zip(names, before, weights(model), strict=False):
            if name not in statistics:
                np.testing.assert_array_equal(a, b)
        assert (model.logdir / "checkpoints" / "ckpt-00000000").is_dir()
        temporary = model.logdir
    gc.collect()
    assert not temporary.exists() and model.num_env_steps == 24


@pytest.mark.filterwarnings("ignore:predict was called")
def test_predict_one_or_many_as_dict_or_array(model, episode):
    rows = episode["state"][:3]
    together, state = model.predict(rows)
    assert together.shape == (3, 1) and together.dtype == np.float32 and state.belief.shape == (3, 16)
    as_dict, _ = model.predict({"state": rows.astype(np.float64), "other": 0})
    np.testing.assert_array_equal(as_dict, together)
    one, state = model.predict(rows[0], state=None)
    again, _ = model.predict(rows[:1])
    assert one.shape == (1,) and again.shape == (1, 1) and one == again[0]
    assert np.abs(together).max() <= 1 and state.counts.tolist() == [0, 1]


def test_an_action_is_a_function_of_observation_and_state(model, episode):
    rows = episode["state"]
    _, state = model.predict(rows[:2])
    first, after = model.predict(rows[1:3], state)
    second, _ = model.predict(rows[1:3], state)
    np.testing.assert_array_equal(first, second)
    assert np.abs(model.predict(rows[1:3], after)[0] - first).max() > 1e-6  # later: other random numbers


def test_episode_start_forgets_that_row_alone(model, episode):
    rows = episode["state"]
    _, fresh = model.predict(rows[3:5])
    _, state = model.predict(rows[:2])
    _, partly = model.predict(rows[3:5], state, [True, False])
    np.testing.assert_array_equal(partly.belief[0], fresh.belief[0])  # zeros in, whatever came before
    assert np.abs(partly.belief[1] - fresh.belief[1]).max() > 1e-4
    _, first_call = model.predict(rows[3:5], None, [False, False])
    np.testing.assert_array_equal(first_call.belief, fresh.belief)


def test_exploration_noise(model, episode):
    """The executed action is the planned one plus N(0, 0.3), clipped, and it is what the filter sees next."""
    rows = np.repeat(episode["state"][:1], 400, 0)
    without_noise = Predictor(model.actor, model.observation_space, seed=0, noise=0.0)
    planned, _ = without_noise(rows, None, None, deterministic=False)
    model.set_random_seed(0)
    noisy, state = model.predict(rows, deterministic=False)
    noise = (noisy - planned)[(np.abs(noisy) < 1) & (np.abs(planned) < 0.3)]
    # Clipping cuts the tail of at most 1 of 50; the rest is N(0, 0.3).
    assert len(noise) > 100 and abs(noise.mean()) < 0.08 and 0.25 < noise.std() < 0.34
    np.testing.assert_array_equal(state.action, noisy)
    other, _ = model.predict(rows, deterministic=False)  # another episode
    assert np.abs(other - noisy).max() > 0.1
    model.set_random_seed(0)
    np.testing.assert_array_equal(model.predict(rows, deterministic=False)[0], noisy)


def test_forgetting_the_state_again_and_again_is_told_once(model):
    row = np.zeros(2, np.float32)
    predict = Predictor(model.actor, model.observation_space, seed=0, noise=0.0)
    predict(row, None, None, True)
    _, state = predict(row, None, None, True)
    predict(row, state, None, True)
    with pytest.warns(UserWarning, match=r"model.predict\(observation, state\)") as told:
        for _ in range(9):
            predict(row, None, None, True)
    assert len(told) == 1


def test_the_environment_of_predict(model):
    env = model.get_env()
    assert env is model.get_env() and env.observation_space == model.observation_space
    assert env.action_space == model.action_space
    observation, _ = env.reset(seed=1)
    state, rewards, ended = None, [], False
    while not ended:
        action, state = model.predict(observation, state)
        observation, reward, terminated, truncated, _ = env.step(action)
        np.testing.assert_allclose(reward, CountingEnv.reward(action[0]), rtol=1e-5)
        rewards.append(reward)
        ended = terminated or truncated
    assert len(rewards) == STEPS and truncated


def test_imagine_episode_and_arrays_are_the_same(model, episode):
    found = model.imagine(episode, context_steps=3, samples=2, seed=1)
    assert {key: value.shape for key, value in found.items()} == {
        "state": (2, STEPS - 2, 2), "reward": (2, STEPS - 2),
    }  # fmt: skip
    actions = episode["action"][1:]
    other = model.imagine(episode["state"][:3], actions, samples=2, seed=1)
    batch = model.imagine(episode["state"][None, :3], actions[None], samples=2, seed=1)
    swapped = model.imagine(episode, actions[2:], context_steps=3, samples=2, seed=1)
    for key, value in found.items():
        np.testing.assert_allclose(other[key], value, atol=1e-5)
        np.testing.assert_allclose(batch[key][:, 0], value, atol=1e-5)
        np.testing.assert_array_equal(swapped[key], value)
    assert np.abs(found["state"][0] - found["state"][1]).max() > 1e-3  # two draws
    again = model.imagine(episode, context_steps=3, samples=1, seed=1)
    np.testing.assert_array_equal(again["state"][0], found["state"][0])
    mean = model.imagine(episode, context_steps=3, weights="mean", seed=1)
    assert np.abs(mean["reward"] - again["reward"]).max() > 1e-6
    others = model.imagine(episode, -actions[2:], context_steps=3, weights="mean", seed=1)
    assert np.abs(others["reward"] - mean["reward"]).max() > 1e-6  # the actions count


def test_uncertainty_is_the_split_of_the_predictive_distribution(model, episode):
    found = model.uncertainty(episode, context_steps=3, weight_samples=3, state_samples=2, seed=4)
    batch = {key: value[None] for key, value in episode.items()}
    seed = seed_words(4, Stream.OPEN_LOOP, 0, 2)
    expected = predict_distribution(model.world_model, batch, 3, seed, 3, 2).parts
    assert found.keys() == {"state", "reward", "latent"}
    for key, parts in found.items():
        assert parts.mean.shape[0] == STEPS - 2
        for name in ("mean", "epistemic", "aleatoric"):
            np.testing.assert_allclose(getattr(parts, name), getattr(expected[key], name)[0, 3:], rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(parts.total, parts.epistemic + parts.aleatoric)
    assert np.abs(found["reward"].epistemic).max() > 1e-6  # an unbiased estimate: it may be below 0


def test_a_film_shows_the_environment_whatever_is_observed(model, tmp_path):
    from PIL import Image

    film = Image.open(model.record_video(tmp_path / "film.gif", scale=1))
    milliseconds, brightness = 0, []
    for frame in range(film.n_frames):
        film.seek(frame)
        milliseconds += film.info["duration"]
        brightness.append(int(np.asarray(film.convert("RGB"))[0, 0, 0]))
    assert milliseconds == 40 * (STEPS + 1)  # equal greys are one frame that lasts longer
    assert brightness == sorted(set(brightness)) and (brightness[0], brightness[-1]) == (0, STEPS)


def test_a_film_is_of_an_evaluation_of_so_many_episodes(model, tmp_path, monkeypatch):
    """Up to three are planned for together."""
    evaluation = dataclasses.replace(model.config.evaluation, workers=3)
    monkeypatch.setattr(model, "config", dataclasses.replace(model.config, evaluation=evaluation))
    planned, frames = [], np.zeros((2, 64, 64, 3), np.uint8)
    monkeypatch.setattr(trained_model, "film", lambda actor, seed, environments, rows: planned.append(rows) or frames)
    for options in ({"episodes": 1}, {"episodes": 2}, {"episodes": 7}, {}):
        model.record_video(tmp_path / "film.gif", **options)
    assert planned == [1, 2, 3, 3]
    with pytest.raises(ValueError, match="episodes is 0"):
        model.record_video(tmp_path / "film.gif", episodes=0)


@pytest.mark.slow
def test_a_page_about_the_run(model, tmp_path):
    page = model.report(tmp_path / "page.html")
    assert page.stat().st_size > 10_000 and "tests.envs.toy:CountingEnv" in page.read_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.learn(total_env_steps=0), "total_env_steps is 0"),
        (lambda model: model.learn(1, episodes=1), "one of the two"),
        (lambda model: model.learn(episodes=1.5), "whole number"),
        (lambda model: model.learn(episodes=1, callbacks=[3]), "a int in it"),
        (lambda model: model.evaluate(0), "episodes is 0"),
        (lambda model: model.predict(np.zeros(3)), r"shape \[3\]. Accepted: float \[2\] or \[B, 2\]"),
        (lambda model: model.predict([0.0, np.nan]), "finite"),
        (lambda model: model.predict({"image": 0}), r"lacks \['state'\]"),
        (lambda model: model.predict(np.zeros(2), (1, 2)), "state is tuple"),
        (lambda model: model.predict(np.zeros((2, 2)), model.predict(np.zeros(2))[1]), "1 environments"),
        (
            lambda model: model.predict(np.zeros((2, 2)), model.predict(np.zeros((2, 2)))[1], [True]),
            r"episode_start has shape \[1\]. Accepted: \[2\]",
        ),
        (lambda model: model.imagine(np.zeros((3, 2))), "no actions"),
        (lambda model: model.imagine(np.zeros((3, 2)), np.zeros((2, 1))), "3 or more, 2 of them"),
        (lambda model: model.imagine(np.zeros((3, 2)), np.zeros((4, 2))), r"Accepted: \[T, 1\]"),
        (lambda model: model.imagine(np.zeros((3, 2)), np.zeros((4, 1)), samples=0), "samples is 0"),
        (
            lambda model: model.imagine(np.zeros((3, 2)), np.array([[0.0], [1], [-1.5], [1.2]])),
            r"holds -1\.5.*\[-1, 1\]",
        ),
        (lambda model: model.uncertainty(np.zeros((3, 2)), np.array([[0.0], [np.nan], [2], [0]])), "actions holds nan"),
        (
            lambda model: model.imagine(
                {"state": np.zeros((2, 4, 2)), "action": np.zeros((2, 4, 1))}, np.zeros((3, 2, 1)), context_steps=2
            ),
            "actions holds 3 sequences, the observations 2",
        ),
        (lambda model: model.imagine(np.zeros((3, 2)), np.zeros((4, 1)), weights="man"), "draws, mean"),
        (lambda model: model.imagine(np.zeros((3, 2)), np.zeros((4, 1)), context_steps=4), "1 to 3"),
        (lambda model: model.uncertainty(np.zeros((3, 2)), np.zeros((4, 1)), weight_samples=1), "weight_samples is 1"),
        (lambda model: model.save(model.logdir), "no saved model"),
        (lambda model: model.save(3), "path is 3"),
        (lambda model: BayesPlanet.load(model.logdir.parent), "no config.yaml"),
        (lambda model: BayesPlanet.load(model.logdir, logdir="elsewhere"), "in its own folder"),
        (lambda model: BayesPlanet(CountingEnv(), "debug"), "env is CountingEnv"),
        (lambda model: BayesPlanet("Pendulum-v1", ["debug", 3]), "config has 3"),
        (lambda model: BayesPlanet("Pendulum-v1", "debug", overrides="seed=1"), "a mapping or a list"),
        (
            lambda model: BayesPlanet("dm_control/cheeta-run", "debug", logdir=model.logdir.parent / "new"),
            "cheetah-run",
        ),
    ],
)
def test_bad_input(model, call, message):
    with pytest.raises(ValueError, match=message):
        call(model)


def test_folders_that_hold_something_else(model, saved, tmp_path):
    with pytest.raises(RunDirectoryError, match=r"train\.learning_rate: 0\.001 there, 0\.5 now"):
        BayesPlanet(
            CountingEnv, "debug", seed=3, logdir=model.logdir, overrides={**SETTINGS, "train.learning_rate": 0.5}
        )
    with pytest.raises(RunDirectoryError, match=r"change is for .*planner\.\*"):
        BayesPlanet(
            CountingEnv,
            "debug",
            seed=3,
            logdir=model.logdir,
            overrides={**SETTINGS, "model.belief_units": 9},
            change=True,
        )
    with pytest.raises(RunDirectoryError, match="holds a saved model"):
        model_in(saved)
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        BayesPlanet.load(saved, logdir=model.logdir)
    shutil.copytree(model.logdir, tmp_path / "run")
    (tmp_path / "run" / "spaces.json").unlink()  # as in runs of earlier versions
    with BayesPlanet.load(tmp_path / "run") as old:
        assert (old.observation_space, old.action_space) == (model.observation_space, model.action_space)
    with model_in(model.logdir) as same:  # the same arguments find the run again
        assert (same.num_episodes, same.num_updates) == (4, 4)
        assert_same(weights(same)[: len(same.world_model.variables)], weights(model)[: len(same.world_model.variables)])


def settings_of(env, config, seed=None, overrides=None) -> dict:
    return presets.flatten(settings.configure(env, config, seed, overrides))


def test_configuration_from_arguments(tmp_path):
    bayesian = ["prior_input", "prior_hidden", "prior_mean", "prior_stddev"]
    found = settings_of("dm_control/cartpole-swingup", "laptop", 7)
    assert (found["env.name"], found["env.action_repeat"]) == ("dm_control/cartpole-swingup", 8)
    assert (found["seed"], found["model.bayesian.layers"], found["model.belief_units"]) == (7, bayesian, 128)
    assert settings_of("cartpole_swingup", "laptop", 7) == {**found, "env.name": "cartpole_swingup"}
    assert settings_of("bayes_planet/cartpole-swingup-v0", "laptop")["env.action_repeat"] == 8
    assert settings_of("dm_control/cup-catch", ["planet"]) == {
        **settings_of("dm_control/ball_in_cup-catch", ["planet"]), "env.name": "dm_control/cup-catch",
    }  # fmt: skip
    assert settings_of("Pendulum-v1", [])["env.action_repeat"] == 2  # of the task's preset
    assert settings_of("MountainCarContinuous-v0", [])["env.action_repeat"] == 1
    assert settings_of("HalfCheetah", [])["env.action_repeat"] == 1  # the newest version
    assert (
        settings_of("cheetah_run", [])["env.action_repeat"] == settings_of("walker_run", [])["env.action_repeat"] == 4
    )
    assert settings_of(CountingEnv, [])["env.name"] == "tests.envs.toy:CountingEnv"
    assert settings_of(CountingEnv, [], overrides=["env.action_repeat=3"])["env.action_repeat"] == 3
    assert settings_of(lambda: CountingEnv(3), [])["env.name"].startswith("tests.agents.test_api:")
    assert settings_of("dm_control/dog-run", "laptop")["env.action_repeat"] == 4
    for config in (["planet", "laptop"], "planet"):
        assert settings_of(None, config)["model.bayesian.layers"] == []
    (tmp_path / "mine.yaml").write_text("presets: [planet]\ntrain:\n  batch_size: 3\n")
    found = settings_of(
        None, [tmp_path / "mine.yaml", {"train.episodes": 9}], overrides={"train": {"seed_episodes": 2}}
    )
    assert (found["model.bayesian.layers"], found["train.batch_size"]) == ([], 3)
    assert (found["train.episodes"], found["train.seed_episodes"]) == (9, 2)
    ready = presets.load(["planet"], ["seed=5", "env.action_repeat=6"])
    assert settings.configure(None, ready, None, None) == ready
    assert settings_of("Pendulum-v1", ready) == {**presets.flatten(ready), "env.name": "Pendulum-v1"}
    layers = ("prior_mean", "gru")
    assert settings_of(None, [], overrides={"model.bayesian.layers": layers})["model.bayesian.layers"] == list(layers)
    with pytest.raises(presets.ConfigError, match=r"train\.batch_size"):
        settings_of(None, [], overrides={"train.batchsize": 3})
    with pytest.raises(presets.ConfigError, match="train is given twice"):
        settings_of(None, [], overrides={"train": 3, "train.batch_size": 3})
