import dataclasses
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest

from bayes_planet.config import EnvConfig
from bayes_planet.envs import NonFiniteError, UnknownTaskError, UnsupportedSpaceError, WorkerError, Workers, make
from tests.envs.processes import ended
from tests.envs.toy import CountingEnv, FaultyEnv

STATE = EnvConfig(observations="state", action_repeat=1)


@pytest.mark.thorough
def test_images_are_real_deterministic_and_much_the_same_in_both_qualities():
    random = np.random.RandomState(0)
    actions = random.uniform(-1, 1, (12, 6))
    frames = {}
    for quality in ("fast", "full"):
        with Workers(EnvConfig(observations="both", render_quality=quality), 2) as workers:
            assert workers.count == 2 and workers.episode_steps == 250 and workers.action_repeat == 4
            assert workers.description["render_quality"] == quality
            rows = [workers.reset([5, 6])]
            rows += [workers.step(np.stack([action, action]))[0] for action in actions]
            assert all(row["image"].shape == (2, 64, 64, 3) and row["image"].dtype == np.uint8 for row in rows)
            assert all(row["image"].flags.c_contiguous and row["state"].dtype == np.float32 for row in rows)
            np.testing.assert_array_equal(workers.render(), rows[-1]["image"])
            again = [workers.reset([5], indices=[1])]
            again += [workers.step(action[None], indices=[1])[0] for action in actions]
            for first, second in zip(rows, again, strict=True):
                np.testing.assert_array_equal(first["image"][0], second["image"][0])
                np.testing.assert_array_equal(first["state"][0], second["state"][0])
            frames[quality] = np.stack([row["image"] for row in rows]).astype(float)
    fast, full = frames["fast"], frames["full"]
    assert fast.std() > 10
    assert np.abs(fast[0] - fast[-1]).mean() > 1, "the picture does not follow the cheetah"
    assert np.abs(fast[:, 0] - fast[:, 1]).mean() > 0.5, "two seeds give the same picture"
    assert 0.1 < np.abs(fast - full).mean() < 4


def test_workers_give_what_the_same_environment_gives_here():
    here = make(EnvConfig(observations="state"))
    with Workers(EnvConfig(observations="state"), 1, diagnostics=True) as workers:
        np.testing.assert_array_equal(workers.reset([9])["state"][0], here.reset(seed=9)[0]["state"])
        for action in np.random.RandomState(2).uniform(-1, 1, (5, 6)).astype(np.float32):
            observation, reward, terminated, truncated = workers.step(action[None])
            expected, total, *_ = here.step(action)
            np.testing.assert_array_equal(observation["state"][0], expected["state"])
            assert reward.dtype == np.float32 and reward[0] == np.float32(total)
            assert terminated.dtype == truncated.dtype == bool
            np.testing.assert_array_equal(workers.infos[0]["qvel"], here.unwrapped.physics.data.qvel)


def test_a_factory_is_sent_and_workers_are_independent():
    length = 3  # a closure: the factory travels by value
    with Workers(STATE, 3, factory=lambda: CountingEnv(length=length)) as workers:
        workers.reset([None] * 3)
        workers.step(np.array([[0.1], [0.2]]), indices=[2, 0])
        observation, reward, _, truncated = workers.step(np.array([[0.5], [-0.5], [1.0]]))
        np.testing.assert_allclose(observation["state"], [[2, 0.5], [1, -0.5], [2, 1.0]])
        np.testing.assert_allclose(reward, [2.5, -0.5, 4.0])
        assert not truncated.any()
        *_, truncated = workers.step(np.zeros((3, 1)))
        assert truncated.tolist() == [True, False, True]
        with pytest.raises(gymnasium.error.ResetNeeded):
            workers.step(np.zeros((1, 1)), indices=[0])


@pytest.mark.parametrize(
    ("config", "error", "text"),
    [
        (EnvConfig(name="cheetah_rum", observations="state"), UnknownTaskError, "dm_control/cheetah-run"),
        (EnvConfig(name="CartPole-v1", observations="state"), UnsupportedSpaceError, "Discrete"),
        (EnvConfig(camera="nose"), ValueError, r"0 \(side\)"),
    ],
)
def test_mistakes_come_back_as_what_they_are(config, error, text):
    with pytest.raises(error, match=text) as caught:
        Workers(config, 1)
    assert not isinstance(caught.value, WorkerError)
    assert "Traceback" in str(caught.value.__cause__)


def test_bad_calls_are_refused_and_harm_nothing():
    with Workers(STATE, 2, factory=CountingEnv) as workers:
        workers.reset([0, 0])
        for actions in (np.full((2, 1), np.nan), np.zeros((3, 1)), np.zeros(2)):
            with pytest.raises(ValueError, match=r"The action .* Accepted"):
                workers.step(actions)
        with pytest.raises(ValueError, match="seeds for 2 workers"):
            workers.reset([1])
        for seed in (-1, 2**32, 1.5, "a"):
            with pytest.raises(ValueError, match="The seed is"):
                workers.reset([0, seed])
        for indices in ([2], [0, 0], [-1], []):
            with pytest.raises(ValueError, match="worker indices"):
                workers.step(np.zeros((len(indices), 1)), indices)
        np.testing.assert_array_equal(workers.step(np.zeros((2, 1)))[0]["state"][:, 0], [1, 1])
    with pytest.raises(ValueError, match="number of workers is 0"):
        Workers(STATE, 0)
    lock = threading.Lock()
    with pytest.raises(ValueError, match="cannot be sent"):
        Workers(STATE, 1, factory=lambda: CountingEnv(length=int(lock.locked())))


def run_into_fault(workers):
    workers.reset([0] * workers.count)
    for _ in range(2):
        workers.step(np.zeros((workers.count, 1)))
    workers.step(np.zeros((workers.count, 1)))


def test_a_dead_worker_is_told_with_its_last_words_and_replaced(tmp_path):
    marker, log = tmp_path / "repaired", tmp_path / "logs" / "workers.log"
    with Workers(STATE, 2, log_file=log, factory=lambda: FaultyEnv("exit", str(marker))) as workers:
        with pytest.raises(WorkerError) as caught:
            run_into_fault(workers)
        message = str(caught.value)
        assert "Worker 0" in message and "exit code 17" in message and "the simulator gave up" in message
        assert not caught.value.alive and caught.value.index == 0
        marker.touch()
        assert workers.broken == [0, 1]
        for index in workers.broken:
            workers.restart(index)
        assert workers.broken == []
        run_into_fault(workers)


def test_a_killed_worker_leaves_the_others_in_step():
    with Workers(STATE, 2, factory=CountingEnv) as workers:
        workers.reset([0, 0])
        os.kill(workers.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"Worker 1 .*SIGKILL.*log_file"):
            workers.step(np.zeros((2, 1)))
        assert workers.broken == [1]
        np.testing.assert_array_equal(workers.step(np.ones((1, 1)), indices=[0])[0]["state"], [[2, 1]])
        workers.restart(1)
        workers.reset([0], indices=[1])
        np.testing.assert_array_equal(workers.step(np.ones((2, 1)))[0]["state"], [[3, 1], [1, 1]])


def test_faults_are_handed_over_and_the_others_results_kept():
    with Workers(STATE, 3, factory=CountingEnv) as workers:
        workers.reset([0, 0, 0])
        os.kill(workers.pids[1], signal.SIGKILL)
        faults = {}
        observation, reward, terminated, truncated = workers.step(np.array([[0.1], [0.2], [0.3]]), None, faults)
        assert list(faults) == [1] and "SIGKILL" in str(faults[1]) and faults[1].index == 1
        np.testing.assert_allclose(observation["state"], [[1, 0.1], [1, 0.3]])
        np.testing.assert_allclose(reward, [1.3, 1.9], rtol=1e-6)
        assert terminated.shape == truncated.shape == (2,)
        for index in (0, 2):
            os.kill(workers.pids[index], signal.SIGKILL)
        assert workers.reset([0, 0], [0, 2], faults) == {} and sorted(faults) == [0, 1, 2]
        observation, *rest = workers.step(np.zeros((3, 1)), None, faults)
        assert observation == {} and [part.shape for part in rest] == [(0,)] * 3
        for index in range(3):
            workers.restart(index)
        np.testing.assert_array_equal(workers.reset([0, 0, 0])["state"], np.zeros((3, 2)))


def test_two_threads_step_workers_of_their_own():
    with Workers(STATE, 4, factory=CountingEnv) as workers:
        workers.reset([0] * 4)
        seen: dict[int, list] = {0: [], 2: []}

        def work(first):
            for number in range(60):
                actions = np.full((2, 1), 0.01 * number + 0.001 * first)
                seen[first].append(workers.step(actions, [first, first + 1])[0]["state"])

        threads = [threading.Thread(target=work, args=(first,)) for first in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for first, states in seen.items():
            steps = np.arange(60)
            expected = np.stack([steps + 1, 0.01 * steps + 0.001 * first], 1)[:, None].repeat(2, 1)
            np.testing.assert_allclose(states, expected, rtol=1e-5)


class LargeEnv(CountingEnv):
    """Its states do not fit into a socket's buffer: sending one takes as long as nobody reads."""

    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2_000_000,), np.float32)

    def _state(self):
        return np.full(2_000_000, self.count, np.float32)


def test_every_thread_sees_that_a_worker_is_dead(monkeypatch):
    """Who looks first reaps it; Popen.poll calls it alive to who looks at that very moment."""
    with Workers(STATE, 1, factory=CountingEnv) as workers:
        os.kill(workers.pids[0], signal.SIGKILL)
        assert ended(workers.pids[0])
        popen = workers._processes[0]._process
        reaped = popen._handle_exitstatus
        monkeypatch.setattr(popen, "_handle_exitstatus", lambda status: (time.sleep(0.2), reaped(status)))
        with ThreadPoolExecutor(4) as threads:
            looks = [threads.submit(lambda: workers.broken) for _ in range(4)]
        assert [look.result() for look in looks] == [[0]] * 4


@pytest.mark.thorough
def test_a_worker_that_stops_in_the_middle_of_an_answer_has_hung():
    config = EnvConfig(observations="state", action_repeat=1, timeout_seconds=3)
    with Workers(config, 1, factory=LargeEnv) as workers:
        workers.reset([0])
        workers._send_actions(np.zeros((1, 1)), None)
        assert workers._processes[0]._connection.poll(60.0)  # it has begun to answer
        os.kill(workers.pids[0], signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"no answer to `step` in 3 s"):
            workers._results([0], None)
        workers.restart(0)
        assert workers.reset([0])["state"].shape == (1, 2_000_000)


def test_a_hung_worker_is_killed_and_replaced(tmp_path):
    marker = tmp_path / "repaired"
    config = EnvConfig(observations="state", action_repeat=1, timeout_seconds=3)
    with Workers(config, 1, factory=lambda: FaultyEnv("hang", str(marker))) as workers:
        hung = workers.pids[0]
        with pytest.raises(WorkerError, match=r"no answer to `step` in 3 s.*env.timeout_seconds"):
            run_into_fault(workers)
        assert ended(hung)
        with pytest.raises(WorkerError, match=r"Call restart\(0\)"):
            workers.reset([0])
        marker.touch()
        workers.restart(0)
        run_into_fault(workers)


def test_an_exception_in_the_environment_brings_its_traceback():
    with Workers(STATE, 1, factory=lambda: FaultyEnv("raise")) as workers:
        with pytest.raises(WorkerError, match="the ball left the cup") as caught:
            run_into_fault(workers)
        assert caught.value.alive and "toy.py" in str(caught.value) and "Traceback" in str(caught.value)
        np.testing.assert_array_equal(workers.reset([0])["state"], [[0, 0]])
    with (
        Workers(STATE, 1, factory=lambda: FaultyEnv("nan_reward")) as workers,
        pytest.raises(NonFiniteError, match="reward nan at env step 3"),
    ):
        run_into_fault(workers)


def test_mujocos_warnings_go_to_the_log(tmp_path, monkeypatch):
    """HalfCheetah's model has a deprecated setting; MuJoCo itself would write MUJOCO_LOG.TXT about it."""
    monkeypatch.chdir(tmp_path)
    with Workers(EnvConfig(name="HalfCheetah-v5", observations="state"), 1, log_file="workers.log") as workers:
        workers.reset([0])
    assert "MuJoCo: " in (tmp_path / "workers.log").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["workers.log"]


def test_an_interrupted_wait_leaves_no_old_answer_behind():
    def interrupt(number, frame):
        raise KeyboardInterrupt

    config = EnvConfig(observations="state", action_repeat=1, timeout_seconds=30)
    with Workers(config, 1, factory=lambda: CountingEnv(delay=1.0)) as workers:
        workers.reset([0])
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                workers.step(np.ones((1, 1)))
        finally:
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_array_equal(workers.reset([0])["state"], [[0, 0]])
        np.testing.assert_array_equal(workers.step(np.ones((1, 1)))[0]["state"], [[1, 1]])


def test_signals_to_the_group_are_the_parents_business():
    with Workers(STATE, 1, factory=CountingEnv) as workers:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            os.kill(workers.pids[0], number)
        workers.reset([0])
        assert os.getpgid(workers.pids[0]) != os.getpgid(0)


def test_close_ends_the_processes_and_may_be_called_again():
    workers = Workers(STATE, 2, factory=CountingEnv)
    pids = workers.pids
    workers.close()
    workers.close()
    assert all(ended(pid) for pid in pids)
    with pytest.raises(WorkerError, match="closed"):
        workers.reset([0, 0])


def test_forgotten_workers_end():
    workers = Workers(STATE, 1, factory=CountingEnv)
    [pid] = workers.pids
    del workers
    assert ended(pid)


class Local(CountingEnv):
    """`info` has what pickle cannot send, as objects of a class inside of a function."""

    def reset(self, *, seed=None, options=None):
        class Inside:
            pass

        observation, _ = super().reset(seed=seed)
        return observation, {"object": Inside(), "number": 3}


def test_an_info_that_cannot_be_sent_is_left_out(tmp_path):
    log = tmp_path / "log"
    with Workers(STATE, 1, log, factory=Local) as workers:
        for _ in range(2):
            np.testing.assert_array_equal(workers.reset([0])["state"], [[0, 0]])
        workers.step(np.zeros((1, 1)))
    assert log.read_text().count("info ['object'] cannot be sent") == 1


@pytest.mark.parametrize("seconds", [1e7, float("inf")])
def test_waiting_without_end_is_possible(seconds):
    with Workers(dataclasses.replace(STATE, timeout_seconds=seconds), 1, factory=CountingEnv) as workers:
        assert workers.reset([0])["state"].shape == (1, 2)
