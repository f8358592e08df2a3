"""The arguments of `BayesPlanet` and its callbacks: NumPy's types, the words of Stable-Baselines3, and what is neither."""

import functools
import inspect

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import BayesPlanet
from bayes_planet.agents.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    ConvertCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
    VideoRecorderCallback,
)
from tests.agents.small import SETTINGS, STEPS, assert_same, model_in, weights
from tests.envs.toy import CountingEnv


@pytest.fixture(scope="module")
def model(trained) -> BayesPlanet:
    return trained


@pytest.mark.thorough
def test_numbers_of_numpy_do_what_those_of_python_do(model, tmp_path):
    one, two = np.int64(1), np.uint8(2)
    assert model.evaluate(two, seed=np.int32(5)).returns == model.evaluate(2, seed=5).returns
    episode = model.evaluate(1, seed=5).episodes[0]
    arguments = {"context_steps": np.int64(4), "samples": two, "seed": np.uint32(3), "weights": np.str_("mean")}
    mine = model.imagine(episode, **arguments)
    np.testing.assert_array_equal(
        mine["reward"], model.imagine(episode, context_steps=4, samples=2, seed=3, weights="mean")["reward"]
    )
    sure = model.uncertainty(
        episode, context_steps=np.int8(4), weight_samples=two, state_samples=np.array(2), seed=np.int64(0)
    )
    assert sure["reward"].mean.shape == (STEPS + 1 - 4,)
    model.set_random_seed(np.int64(3))
    model.set_random_seed(None)
    model.predict(np.zeros((2, 2)), None, np.array([1, 1]), np.True_)
    saved = model.save(np.str_(tmp_path / "saved"), optimizer=np.False_)
    with BayesPlanet.load(np.str_(saved), verbose=np.int64(0), device=np.str_("auto")) as loaded:
        assert loaded.num_updates == model.num_updates
    assert model.record_video(tmp_path / "a.gif", seed=one, fps=np.float32(9), scale=one, episodes=two).exists()
    analysis = model.analyse(two, seed=one, save=np.False_)
    assert analysis.numbers["seed"] == 1 and not (model.logdir / "analysis").exists()


@pytest.mark.thorough
def test_numbers_of_numpy_train_the_same_model(model, tmp_path):
    overrides = {"env.workers": np.int64(1), "train.batch_size": np.int16(model.config.train.batch_size)}
    settings = {**SETTINGS, **overrides}
    with BayesPlanet(
        CountingEnv, np.array(["debug"]), seed=np.int64(3), logdir=np.str_(tmp_path / "run"), overrides=settings,
        change=np.False_, verbose=np.int8(0), device="auto", strategy="one_device",
    ) as again:  # fmt: skip
        again.learn(total_timesteps=np.float64(2 * STEPS))
        assert again.num_timesteps == 2 * STEPS
        again.learn(np.int64(STEPS)).learn(episodes=np.uint8(1), progress_bar=np.False_)
        assert_same(weights(again), weights(model))


def test_a_function_is_called_before_each_decision_and_ends_the_training(tmp_path):
    calls: list[tuple[dict, dict]] = []
    with model_in(tmp_path / "run") as model:
        model.learn(episodes=1, callback=lambda inner, outer: calls.append((inner, outer)))
        assert len(calls) == STEPS and calls[0][0]["self"] is model  # returning nothing goes on
        counted = ConvertCallback(functools.partial(lambda stop, inner, outer: inner["callback"].n_calls < stop, 5))
        model.learn(episodes=2, callbacks=[counted, BaseCallback()])
        assert counted.n_calls == 5 and model.num_episodes == 1


class Two:
    def __call__(self, one, two):
        return True


def test_what_counts_as_a_callback():
    assert isinstance(CallbackList([Two()]).callbacks[0], ConvertCallback)
    for given, said in (
        (["evaluate"], "a str in it"),
        ("evaluate", "callbacks is 'evaluate'"),
        (3, "callbacks is 3"),
        ([EvalCallback], "the class EvalCallback in it, not one of its objects"),
        ([lambda model: True], r"cannot be called with \(locals, globals\)"),
    ):
        with pytest.raises(ValueError, match=f"{said}.*Accepted: .*function of"):
            CallbackList(given)


@pytest.mark.parametrize(
    ("make", "name", "said"),
    [
        (EvalCallback, "eval_freq", "Evaluations come after episodes: every_episodes."),
        (EvalCallback, "eval_env", "equal to the model's"),
        (CheckpointCallback, "save_freq", "Models are saved after episodes: every_episodes."),
    ],
)
def test_the_words_of_its_callbacks(make, name, said):
    with pytest.raises(TypeError, match=rf"{make.__name__}\(\) has no argument '{name}'. .*{said}.*Accepted: every_ep"):
        make(**{name: 3})


def test_callbacks_convert_their_numbers(tmp_path):
    callback = EvalCallback(np.int64(2), n_eval_episodes=np.uint8(3), seed=np.int32(1), best_model_save_path="best")
    assert (callback.every_episodes, callback.n_eval_episodes, callback.seed) == (2, 3, 1)
    assert type(callback.every_episodes) is int
    assert StopTrainingOnRewardThreshold(np.float32(2)).reward_threshold == 2.0
    assert StopTrainingOnMaxEpisodes(3.0).max_episodes == 3
    assert CheckpointCallback(np.int64(1), np.str_("saved"), name_prefix=7).name_prefix == "7"
    assert VideoRecorderCallback(np.int64(1), suffix=np.str_(".gif")).suffix == ".gif"
    for call, said in (
        (lambda: EvalCallback(CountingEnv()), "every_episodes is .*Accepted: a whole number, 1 or more"),
        (lambda: EvalCallback(1, n_eval_episodes=True), "n_eval_episodes is True"),
        (lambda: StopTrainingOnRewardThreshold("600"), "reward_threshold is '600'. Accepted: a number"),
        (lambda: CheckpointCallback(1, None), "save_path is None"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategy": "foo"}, r"strategy is 'foo'. Accepted: one_device, mirrored, tpu.*Or a tf.distribute.Strategy"),
        ({"strategy": "miror"}, "Did you mean 'mirrored'"),
        ({"strategy": 3}, "strategy is 3"),
        ({"device": "gpus"}, r"device is 'gpus'. Accepted: auto, cpu, gpu, tpu. Did you mean 'gpu'\?"),
        ({"change": "yes"}, "change is 'yes'. Accepted: true or false"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": -1}, "seed is -1"),
        ({"verbose": "loud"}, "verbose is 'loud'"),
        ({"config": 3}, "config is 3. Accepted"),
        ({"overrides": 3}, "overrides is 3. Accepted"),
        ({"overrides": [3]}, "overrides has 3 in it. Accepted: key=value"),
        ({"logdir": 3}, "logdir is 3. Accepted: text or a pathlib.Path"),
        ({"env": CountingEnv()}, "env is CountingEnv. Accepted"),
    ],
)
def test_arguments_of_another_kind_are_refused_before_anything_is_made(tmp_path, given, said):
    arguments = {"env": CountingEnv, "config": "debug", "logdir": tmp_path / "run", "overrides": SETTINGS, **given}
    with pytest.raises(ValueError, match=said):
        BayesPlanet(**arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("learning_rate", 3e-4, r"It is a setting: overrides=\{'train.learning_rate': 0.0003\}"),
        ("batch_size", 16, r"overrides=\{'train.batch_size': 16\}"),
        ("policy", "MlpPolicy", "one kind of policy"),
        ("tensorboard_log", "logs", "The run's folder is logdir"),
        ("log_dir", "runs", "Did you mean 'logdir'"),
    ],
)
def test_words_that_are_no_arguments(name, value, said):
    with pytest.raises(
        TypeError, match=rf"BayesPlanet\(\) has no argument '{name}'\. .*{said}.*Accepted: env, config, seed"
    ):
        BayesPlanet(CountingEnv, **{name: value})


def test_words_of_methods(model):
    for call, said in (
        (lambda: model.learn(log_interval=4), r"learn\(\) has no argument 'log_interval'. Every episode is logged"),
        (lambda: model.learn(total_step=4), "Did you mean 'total"),
        (lambda: model.evaluate(n_eval_episodes=4), "Use episodes"),
        (lambda: model.save("x", exclude=["a"]), "leave it out"),
        (lambda: model.predict(np.zeros(2), mask=None), "Where episodes begin is episode_start"),
        (lambda: BayesPlanet.load("x", custom_objects={}), "without pickle"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    for call, said in (
        (lambda: model.learn(total_timesteps=0), "total_timesteps is 0. Accepted: a whole number, 1 or more"),
        (lambda: model.learn(5, total_timesteps=5), "total_env_steps and total_timesteps are both given"),
        (lambda: model.learn(total_timesteps=5, episodes=5), "total_timesteps is 5 and episodes is 5. Accepted: one"),
        (lambda: model.learn(episodes="2"), "episodes is '2'"),
        (lambda: model.learn(callbacks=[], callback=[]), "callbacks and callback are both given"),
        (lambda: model.evaluate("2"), "episodes is '2'"),
        (lambda: model.evaluate(1, seed=None), "seed is None. Accepted: a whole number, 0 to 2"),
        (lambda: model.analyse(2, reference="runs/a"), r"reference is 'runs/a'. Accepted: a model, such as BayesPlanet.load"),
        (lambda: model.analyse(2, progress=True), "progress is True. Accepted: a function"),
        (lambda: model.save(3), "path is 3"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            call()


def test_signatures_are_those_of_the_functions():
    assert list(inspect.signature(BayesPlanet).parameters)[:3] == ["env", "config", "seed"]
    assert "total_timesteps" in inspect.signature(BayesPlanet.learn).parameters
    assert "world_model" in inspect.signature(BayesPlanet.load).parameters


@pytest.mark.filterwarnings("ignore:predict was called")
@pytest.mark.parametrize(
    "start", [[True], [True, False, True], [[True, False]], True, ["yes", "no"], [2, 0], [np.nan, 0]]
)
def test_episode_start_of_another_length_or_kind(model, start):
    observation = np.zeros((2, 2), np.float32)
    _, state = model.predict(observation)
    for memory in (None, state):
        with pytest.raises(ValueError, match="episode_start .* Accepted: .*true or false for each"):
            model.predict(observation, memory, start)


def test_a_state_of_something_else(model):
    _, state = model.predict(np.zeros((2, 2), np.float32))
    for wrong in (np.zeros(7), state._replace(belief=np.zeros((2, 3), np.float32)), (1, 2, 3), {"a": 1}, "abcdefg"):
        with pytest.raises(ValueError, match=r"state .*Accepted"):
            model.predict(np.zeros((2, 2), np.float32), wrong)


def test_strategies_by_name_are_those_of_tensorflow(tmp_path):
    with BayesPlanet(CountingEnv, "debug", logdir=tmp_path / "run", overrides=SETTINGS, strategy="mirrored") as model:
        assert isinstance(model.learner.strategy, tf.distribute.MirroredStrategy)
