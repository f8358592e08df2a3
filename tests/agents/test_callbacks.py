"""Callbacks of `BayesPlanet.learn` in real training: who is told what and when, what they keep, how they stop it."""

import json
import signal

import numpy as np
import pytest
import tensorflow as tf

from bayes_planet import BayesPlanet
from bayes_planet.agents.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
    VideoRecorderCallback,
)
from bayes_planet.runs.metrics import read_metrics
from tests.agents.small import STEPS, assert_same, model_in, weights


class Means(BaseCallback):
    """The mean returns of the evaluation above it."""

    def __init__(self):
        super().__init__()
        self.means: list[float] = []

    def _on_step(self):
        self.means.append(self.parent.last_mean_reward)


class Diary(BaseCallback):
    """Writes down everything."""

    def __init__(self):
        super().__init__()
        self.lines: list = []
        self.steps: list[int] = []

    def _init_callback(self):
        self.lines.append("init")

    def _on_training_start(self):
        self.lines.append("start")

    def _on_step(self):
        self.steps.append(self.num_episodes)

    def _on_episode(self, episode, row):
        np.testing.assert_allclose(row["train/return"], episode["reward"].sum(dtype=np.float64))
        self.lines.append(("episode", row["train/episode"], self.num_episodes, self.num_timesteps, self.num_updates))
        return True

    def _on_evaluation(self, score, row):
        assert row["eval/returns"] == list(score.returns)
        self.lines.append(("evaluation", self.num_episodes, len(score.returns)))
        return True

    def _on_training_end(self):
        self.lines.append("end")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Evaluates itself every two episodes, from the third on."""
    overrides = {"evaluation": {"workers": 1, "every_episodes": 2, "videos": 0}}
    with model_in(tmp_path_factory.mktemp("callbacks") / "run", overrides) as model:
        yield model


class CtrlC(BaseCallback):
    """Sends the signal in the middle of the third episode."""

    def _on_step(self):
        if self.num_episodes == 2 and self.n_calls > 2 * STEPS + 5:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def kept(model, tmp_path_factory):
    """Four episodes in two pieces, the first one cut short by Ctrl-C, with every callback; the weights at the end."""
    folder = tmp_path_factory.mktemp("kept")
    diary, records, every = Diary(), Means(), Means()
    judge = EvalCallback(1, 1, folder, callback_on_new_best=records, callback_after_eval=every, seed=5)
    own = EvalCallback()
    callbacks = [
        diary, judge, own, CheckpointCallback(2, folder / "older"), VideoRecorderCallback(3, suffix=".gif"),
    ]  # fmt: skip
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        model.learn(total_env_steps=3 * STEPS, callbacks=[CtrlC(), *callbacks])
    assert signal.getsignal(signal.SIGINT) is before
    assert (model.num_episodes, model.num_env_steps, model.num_updates) == (2, 2 * STEPS, 2)
    for variable in (*model.world_model.variables, *model.learner.optimizer.variables()):
        variable.assign(tf.zeros_like(variable))  # as in a new process, all comes from the folder
    model.learn(total_env_steps=STEPS + 1, callbacks=callbacks)  # episodes are whole
    return folder, diary, (records, every), judge, own, weights(model)


def test_everyone_is_told_in_order(kept):
    _, diary, _, _, _, _ = kept
    assert diary.lines == [
        "init",
        "start",
        ("episode", 0, 1, 12, 0),
        ("episode", 1, 2, 24, 0),
        "end",  # Ctrl-C is an orderly one
        "init",
        "start",
        ("episode", 2, 3, 36, 2),
        ("episode", 3, 4, 48, 4),
        ("evaluation", 4, 2),
        "end",
    ]
    cut_short = len(diary.steps) - 4 * STEPS
    assert cut_short == 4  # at its 30th call, two of which were episodes
    assert diary.steps == [0] * STEPS + [1] * STEPS + [2] * (cut_short + STEPS) + [3] * STEPS
    assert diary.n_calls == len(diary.steps) + 4 + 1


def test_the_runs_own_evaluations_and_others(kept, model):
    _, _, (records, every), judge, own, _ = kept
    assert len(every.means) == 4 and every.means[0] == every.means[1]  # no update between the first two
    better = [mean for number, mean in enumerate(every.means) if mean > max(every.means[:number], default=-np.inf)]
    assert records.means == better and len(better) < 4
    assert (judge.best_mean_reward, judge.last_mean_reward) == (better[-1], every.means[-1])
    rows = [row for row in read_metrics(model.logdir / "metrics.jsonl") if "eval/return_mean" in row]
    assert own.best_mean_reward == own.last_mean_reward == rows[-1]["eval/return_mean"]
    assert judge.last_mean_reward == model.evaluate(1, seed=5).mean  # nothing was learnt since


def test_the_best_model_and_older_ones_are_kept(kept, model):
    folder, _, _, judge, _, _ = kept
    best = BayesPlanet.load(folder / "best_model")
    assert best.evaluate(1, seed=5).mean == judge.best_mean_reward
    assert best.config == BayesPlanet.load(model.logdir / "best_model").config == model.config
    older = {
        path.name: json.loads((path / "model.json").read_text())["updates"] for path in (folder / "older").iterdir()
    }
    assert older == {"model_24_steps": 0, "model_48_steps": 4}
    assert [path.name for path in (model.logdir / "videos").glob("agent-*")] == ["agent-000003.gif"]


@pytest.mark.thorough
def test_neither_pieces_nor_callbacks_change_what_is_learnt(kept, trained):
    """The same weights and optimizer state, bit for bit, as by one call without callbacks and evaluations."""
    assert_same(kept[-1], weights(trained))


class Fault(BaseCallback):
    """Fails in one of its hooks."""

    def __init__(self, hook: str):
        super().__init__()
        setattr(self, hook, self._fail)

    def _fail(self, *arguments):
        raise ZeroDivisionError("a fault of the callback")


class StopAtStep(BaseCallback):
    def _on_step(self):
        return self.n_calls < 5


@pytest.mark.thorough
def test_episodes_side_by_side_are_counted_one_by_one(tmp_path):
    """Rounds of two: whoever acts at every third episode acts after the rounds that hold the third and the sixth."""
    judge, seen = EvalCallback(3, n_eval_episodes=1), []
    judge.callback_after_eval = Means()
    judge.callback_after_eval._on_step = lambda: seen.append(judge.num_episodes)
    saver = CheckpointCallback(1, tmp_path / "saved")
    with model_in(tmp_path / "run", {"env.workers": 2}) as model:
        model.learn(episodes=8, callbacks=[judge, saver])
        assert model.num_episodes == 8
    assert seen == [4, 6]
    steps = sorted(int(path.name.split("_")[1]) for path in (tmp_path / "saved").iterdir())
    assert steps == [2 * STEPS, 4 * STEPS, 6 * STEPS, 8 * STEPS]


@pytest.mark.thorough
def test_stops_and_faults_leave_a_run_that_goes_on(kept, model):
    """All in one run, one after another: each time the folder holds what was done until then."""
    diary = Diary()
    threshold = EvalCallback(1, 1, callback_on_new_best=StopTrainingOnRewardThreshold(-1e9))
    model.learn(episodes=10, callbacks=[threshold, diary])
    assert diary.lines[-2:] == [("episode", 4, 5, 60, 6), "end"]  # all are told, also after the first has enough
    model.learn(episodes=10, callbacks=StopTrainingOnMaxEpisodes(6))
    assert model.num_episodes == 6
    updates = model.num_updates
    model.learn(episodes=10, callbacks=[StopAtStep()])
    assert (model.num_episodes, model.num_updates) == (6, updates + 2)  # the episode was cut short, its updates count
    for hook, episodes in (("_on_step", 6), ("_on_episode", 7), ("_on_evaluation", 8)):
        with pytest.raises(ZeroDivisionError):
            model.learn(episodes=10, callbacks=[Fault(hook)])
        assert model.num_episodes == episodes
        newest = max((model.logdir / "checkpoints").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
        counters = json.loads((newest / "counters.json").read_text())["counters"]
        assert counters["updates"] == model.num_updates
    before = len(read_metrics(model.logdir / "metrics.jsonl"))
    model.learn(episodes=1)
    assert model.num_episodes == 9
    rows = read_metrics(model.logdir / "metrics.jsonl")[before:]
    assert not [row for row in rows if "eval/return_mean" in row]  # the evaluation at episode 8 was saved as done


def test_mistakes_are_told(model):
    with pytest.raises(ValueError, match="no EvalCallback"):
        model.learn(episodes=1, callbacks=StopTrainingOnRewardThreshold(3))
    with pytest.raises(ValueError, match="every_episodes is 0"):
        CheckpointCallback(0, "saved")
    with pytest.raises(ValueError, match="keeps a best_model there itself"):
        model.learn(episodes=1, callbacks=EvalCallback(best_model_save_path=model.logdir))
    with pytest.raises(ValueError, match=r"\.mp4, \.gif"):
        VideoRecorderCallback(1, suffix=".avi")
    with pytest.raises(ValueError, match="a str in it"):
        CallbackList(["evaluate"])
