import errno
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayes_planet.replay import CorruptEpisodeError, EpisodeStore
from bayes_planet.replay import episode as episode_module
from bayes_planet.replay import store as store_module
from bayes_planet.replay.store import EpisodeLayoutError
from tests.replay.make import assert_same, make_episode

ROOT = Path(__file__).parents[2]
PLENTY = 1e9


def filled(directory, lengths, ram=PLENTY, image=False):
    store = EpisodeStore(directory, ram)
    for index, rows in enumerate(lengths):
        store.add(make_episode(index, rows, image), index)
    return store


def test_what_was_added_comes_back_from_memory_and_from_disk(tmp_path):
    store = EpisodeStore(tmp_path / "new" / "folder", PLENTY)
    path = store.add(make_episode(12, 9, image=True, terminal=True), 12)
    assert path == store.path(12) and path.name == "episode-000012-rows000009.npz"
    store.add(make_episode(3, 20, image=True), 3)
    for each in (store, EpisodeStore(store.directory, PLENTY), EpisodeStore(store.directory, 0)):
        assert each.indices == [3, 12]
        assert (each.episodes, each.rows, each.longest, each.corrupt) == (2, 29, 20, 0)
        assert_same(each.load(12), make_episode(12, 9, image=True, terminal=True))
        assert_same(each.load(3), make_episode(3, 20, image=True))
    assert EpisodeStore(tmp_path / "other", 0).longest == 0


def test_memory_holds_a_copy_that_nobody_can_change(tmp_path):
    store = EpisodeStore(tmp_path, PLENTY)
    episode = make_episode(0, 5)
    store.add(episode, 0)
    episode["state"][:] = 99
    assert_same(store.load(0), make_episode(0, 5))
    with pytest.raises(ValueError, match="read-only"):
        store.load(0)["state"][:] = 99


def reference_sample(episodes, batch_size, length, seed):
    """The same draw, one sequence at a time, as its description says."""
    random = np.random.default_rng(np.random.SeedSequence(seed))
    indices = sorted(episodes)
    drawn = [indices[place] for place in random.integers(0, len(indices), size=batch_size)]
    places = random.integers(0, [max(len(episodes[index]["reward"]) - length, 0) + 1 for index in drawn])
    batch = {}
    for index, start in zip(drawn, places, strict=True):
        chunk = {name: array[start : start + length] for name, array in episodes[index].items()}
        chunk["mask"] = np.ones(len(chunk["reward"]), bool)
        for name, array in chunk.items():
            padding = np.zeros((length - len(array), *array.shape[1:]), array.dtype)
            batch.setdefault(name, []).append(np.concatenate([array, padding]))
    return {name: np.stack(arrays) for name, arrays in batch.items()}


@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=6),
    batch_size=st.integers(1, 9),
    seed=st.tuples(st.integers(0, 2**40), st.integers(0, 9)),
    ram=st.sampled_from([0, 1000, PLENTY]),
    data=st.data(),
)
def test_a_batch_is_that_of_the_slow_reference(tmp_path_factory, lengths, batch_size, seed, ram, data):
    length = data.draw(st.integers(1, max(lengths)))
    store = filled(tmp_path_factory.mktemp("store"), lengths, ram, image=True)
    episodes = {index: make_episode(index, rows, image=True) for index, rows in enumerate(lengths)}
    assert_same(store.sample(batch_size, length, seed), reference_sample(episodes, batch_size, length, seed))


@given(lengths=st.lists(st.integers(2, 15), min_size=1, max_size=5), seed=st.integers(0, 2**32), data=st.data())
def test_sequences_never_cross_an_episode(tmp_path_factory, lengths, seed, data):
    length = data.draw(st.integers(1, max(lengths)))
    batch = filled(tmp_path_factory.mktemp("store"), lengths).sample(8, length, (seed,))
    assert batch["mask"].shape == (8, length) and batch["state"].shape == (8, length, 2)
    for state, mask, reward in zip(batch["state"], batch["mask"], batch["reward"], strict=True):
        used = state[mask]
        index, first = used[0].astype(int)
        count = min(length, lengths[index])
        assert mask.tolist() == [True] * count + [False] * (length - count)
        assert (used[:, 0] == index).all()
        assert used[:, 1].tolist() == list(range(first, first + count))
        assert first == 0 or lengths[index] >= length
        assert not state[~mask].any()
        np.testing.assert_array_equal(reward[mask], used[:, 1])


def test_draws_are_uniform_over_episodes_and_then_over_places(tmp_path):
    lengths, length = [4, 10, 25, 7], 5
    batch = filled(tmp_path, lengths).sample(20_000, length, (1,))
    starts = Counter(map(tuple, batch["state"][:, 0].astype(int).tolist()))
    expected = {
        (index, start): 20_000 / 4 / max(rows - length + 1, 1)
        for index, rows in enumerate(lengths)
        for start in range(max(rows - length, 0) + 1)
    }
    assert set(starts) == set(expected)
    test = stats.chisquare([starts[key] for key in expected], list(expected.values()))
    assert test.pvalue > 1e-3


def test_a_batch_depends_on_the_seed_and_the_content_alone(tmp_path):
    lengths = [10, 30, 20, 15]
    store = filled(tmp_path / "a", lengths)
    first = store.sample(6, 10, (4, 2))
    store.sample(6, 10, (4, 3))
    assert_same(store.sample(6, 10, (4, 2)), first)
    other = EpisodeStore(tmp_path / "b", 2000, compress=False)
    for index in (2, 0, 3, 1):
        other.add(make_episode(index, lengths[index]), index)
    assert_same(other.sample(6, 10, (4, 2)), first)
    for seed in [(4, 3), (2, 4), (4,), (4, 2, 1)]:
        assert not np.array_equal(store.sample(6, 10, seed)["state"], first["state"])


def test_batches_are_new_arrays(tmp_path):
    store = filled(tmp_path, [10, 10])
    store.sample(4, 5, (0,))["state"][:] = 99
    assert store.sample(4, 5, (0,))["state"].max() < 99


@given(
    ram=st.integers(0, 2500),
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(2, 40)),
            st.tuples(st.just("load"), st.integers(0, 20)),
            st.tuples(st.just("sample"), st.integers(0, 1000)),
        ),
        min_size=5,
        max_size=25,
    ),
)
def test_memory_never_holds_more_than_it_may(tmp_path_factory, ram, steps):
    store = EpisodeStore(tmp_path_factory.mktemp("store"), ram)
    lengths = []
    for name, number in steps:
        if name == "add":
            store.add(make_episode(len(lengths), number), len(lengths))
            lengths.append(number)
        elif name == "load" and lengths:
            index = number % len(lengths)
            assert_same(store.load(index), make_episode(index, lengths[index]))
        elif name == "sample" and lengths:
            store.sample(3, 2, (number,))
        held = sum(array.nbytes for episode in store._decoded.values() for array in episode.values())
        assert held == store.bytes_in_ram <= ram


def test_the_least_recently_used_episode_is_dropped(tmp_path):
    size = sum(array.nbytes for array in make_episode(0, 10).values())
    store = filled(tmp_path, [10, 10, 10], ram=3 * size)
    store.load(0)
    store.add(make_episode(3, 10), 3)
    assert list(store._decoded) == [2, 0, 3]
    for index in (0, 2, 3):  # what is in memory needs no file
        os.remove(store.path(index))
        store.load(index)


@pytest.mark.parametrize("ram", [0, PLENTY])
def test_a_damaged_file_is_moved_aside_and_the_others_go_on(tmp_path, ram):
    filled(tmp_path, [10, 12, 14])
    store = EpisodeStore(tmp_path, ram)
    path = store.path(1)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 255
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"episode-000001-rows000012.npz aside as .*\.corrupt"):
        batch = store.sample(40, 10, (0,))
    assert set(batch["state"][:, 0, 0]) == {0, 2}
    assert (store.corrupt, store.indices, store.rows) == (1, [0, 2], 24)
    assert not path.exists() and (tmp_path / "episode-000001-rows000012.npz.corrupt").read_bytes() == content
    assert_same(batch, EpisodeStore(tmp_path, ram).sample(40, 10, (0,)))  # as if it had never been there
    assert EpisodeStore(tmp_path, ram).corrupt == 0
    store.add(make_episode(1, 12), 1)
    assert store.indices == [0, 1, 2]


def test_loading_a_damaged_file_says_so(tmp_path):
    filled(tmp_path, [10, 12])
    store = EpisodeStore(tmp_path, 0)
    path = store.path(0)
    path.rename(tmp_path / "episode-000000-rows000011.npz")
    store = EpisodeStore(tmp_path, 0)
    with pytest.warns(RuntimeWarning), pytest.raises(CorruptEpisodeError, match="holds 10 rows, but its name says 11"):
        store.load(0)
    with pytest.raises(KeyError, match=r"No episode 0 .* Present: 1"):
        store.load(0)


def test_files_cut_short_and_odd_ones_are_found_on_opening(tmp_path):
    store = filled(tmp_path, [10, 12, 14, 16])
    for index, share in ((0, 0.0), (1, 0.5)):
        path = store.path(index)
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    (tmp_path / "episode-2.npz").write_bytes(b"")
    (tmp_path / "episode-000003-rows000002.npz").write_bytes(store.path(3).read_bytes())
    with pytest.warns(RuntimeWarning) as warned:
        store = EpisodeStore(tmp_path, 0)
    assert len(warned) == store.corrupt == 4
    assert store.indices == [2, 3] and len(list(tmp_path.glob("*.corrupt"))) == 4


@pytest.mark.parametrize(
    ("target", "error"), [("episode-000001-rows000012.npz", OSError), ("storage that is away", FileNotFoundError)]
)
def test_a_file_that_cannot_be_opened_may_be_sound(tmp_path, target, error):
    """A link to itself (ELOOP) and one to what is not there: errors of the system that root meets too."""
    store = filled(tmp_path, [10, 12])
    path = store.path(1)
    kept = path.rename(tmp_path / "kept")
    path.symlink_to(target)
    message = r"An episode could not be read and was left as it is: .*-000001-rows000012\.npz"
    for attempt in (lambda: EpisodeStore(tmp_path, 0), store.refresh, lambda: load_from_disk(store, 1)):
        with pytest.raises(error, match=message):
            attempt()
    assert store.indices == [0, 1] and store.corrupt == 0 and not list(tmp_path.glob("*.corrupt"))
    kept.replace(path)
    again = EpisodeStore(tmp_path, 0)
    assert again.indices == [0, 1] and again.corrupt == 0
    assert_same(again.load(1), make_episode(1, 12))


def load_from_disk(store, index):
    """As if it had been dropped from memory."""
    store._decoded.clear()
    store._decoded_bytes = 0
    return store.load(index)


def test_a_failing_disk_is_no_corrupt_file(tmp_path, monkeypatch):
    """The file opens, and reading it fails: what a bad sector and a server that is away look like."""
    filled(tmp_path, [10, 12])

    class Failing(io.FileIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        readall = readinto = read

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "open_plain", Failing)
        with pytest.raises(OSError, match=r"left as it is: Input/output error: .*episode-000000") as raised:
            EpisodeStore(tmp_path, 0)
        assert raised.value.errno == errno.EIO
    store = EpisodeStore(tmp_path, 0)
    assert store.indices == [0, 1] and store.corrupt == 0
    with monkeypatch.context() as patch:
        patch.setattr(episode_module, "read_plain", lambda path, most: Failing(path, "rb").read())
        with pytest.raises(OSError, match=r"left as it is: Input/output error: .*episode-000001"):
            store.load(1)
    assert_same(store.load(1), make_episode(1, 12))


def test_only_the_end_of_a_large_file_is_read_on_opening(tmp_path, monkeypatch):
    """And that is enough: with and without compression, with the longest comment a zip file can have."""
    read = []

    class Counting(io.FileIO):
        def read(self, size=-1):
            read.append(super().read(size))
            return read[-1]

    for index, compress in enumerate((True, False)):
        EpisodeStore(tmp_path, 0, compress).add(make_episode(index, 2000, image=True), index)
    path = EpisodeStore(tmp_path, 0).path(1)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"x" * 65535
    monkeypatch.setattr(store_module, "open_plain", Counting)
    store = EpisodeStore(tmp_path, 0)
    assert store.indices == [0, 1] and [len(data) for data in read] == [22, 22, 65558]
    assert_same(store.load(1), make_episode(1, 2000, image=True))
    assert min(store.path(index).stat().st_size for index in (0, 1)) > 2 * 65558


def test_two_damaged_files_of_one_name_are_both_kept(tmp_path):
    for content in (b"one", b"two"):
        (tmp_path / "episode-000000-rows000009.npz").write_bytes(content)
        with pytest.warns(RuntimeWarning):
            EpisodeStore(tmp_path, 0)
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"one", b"two"]


def test_the_writer_sweeps_what_a_killed_one_has_left(tmp_path):
    filled(tmp_path, [5])
    leftover = tmp_path / ".episode-000001-rows000009.npz.tmp"
    leftover.write_bytes(b"half")
    EpisodeStore(tmp_path, 0).sample(1, 5, (0,))
    assert leftover.exists()  # a reader leaves alone what may just be being written
    EpisodeStore(tmp_path, 0).add(make_episode(1, 5), 1)
    assert sorted(os.listdir(tmp_path)) == ["episode-000000-rows000005.npz", "episode-000001-rows000005.npz"]


def test_errors_of_add(tmp_path):
    store = filled(tmp_path, [10, 12])
    with pytest.raises(ValueError, match=r"There is an episode 1 already, .*such as 2\."):
        store.add(make_episode(1, 5), 1)
    for index in (-1, 1.0, True, None):
        with pytest.raises(ValueError, match="index is"):
            store.add(make_episode(2, 5), index)
    with pytest.raises(ValueError, match="2 or more"):
        store.add(make_episode(2, 1), 2)
    wide = make_episode(2, 5) | {"action": np.zeros((5, 3), np.float32)}
    for each in (store, EpisodeStore(tmp_path, 0)):
        with pytest.raises(ValueError, match=r"episode 2 has rows of .*action \[3\].*action \[2\].*one task"):
            each.add(wide, 2)
    assert store.indices == [0, 1] and len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ValueError, match="ram_bytes is -1"):
        EpisodeStore(tmp_path, -1)


def test_a_folder_of_two_tasks_is_an_error_that_loses_nothing(tmp_path):
    filled(tmp_path, [5])
    other = filled(tmp_path / "other", [5], image=True)
    other.path(0).rename(tmp_path / "episode-000001-rows000005.npz")
    store = EpisodeStore(tmp_path, 0)
    with pytest.raises(ValueError, match=r"image \[6, 4, 3\].*one task"):
        store.sample(30, 5, (0,))
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_errors_of_sample(tmp_path):
    store = EpisodeStore(tmp_path, PLENTY)
    with pytest.raises(ValueError, match=r"no episodes in .*Collect one"):
        store.sample(2, 5, (0,))
    store.add(make_episode(0, 7), 0)
    store.add(make_episode(1, 9), 1)
    with pytest.raises(ValueError, match=r"10 rows.*episode-000001-rows000009.npz, has 9.*train.sequence_length to 9"):
        store.sample(2, 10, (0,))
    with pytest.raises(ValueError, match="batch_size is 0"):
        store.sample(0, 5, (0,))


def test_episodes_that_the_task_ended_early_are_filled_up(tmp_path):
    """From the first step on, if need be; an episode that was cut is as long as they get."""
    store = EpisodeStore(tmp_path, PLENTY)
    episodes = {0: make_episode(0, 2, terminal=True), 1: make_episode(1, 4, terminal=True)}
    for index, episode in episodes.items():
        store.add(episode, index)
    batch = store.sample(20, 6, (3,))
    assert_same(batch, reference_sample(episodes, 20, 6, (3,)))
    assert set(batch["mask"].sum(1)) == {2, 4}
    np.testing.assert_array_equal(batch["is_terminal"].sum(1), 1)
    store.add(make_episode(2, 5), 2)
    with pytest.raises(ValueError, match="6 rows.*rows000005"):
        store.sample(20, 6, (3,))


def test_the_longest_episode_may_be_corrupt(tmp_path):
    store = EpisodeStore(tmp_path, 0)
    store.add(make_episode(0, 3, terminal=True), 0)
    path = store.add(make_episode(1, 4, terminal=True), 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(bytes(data))
    with pytest.warns(RuntimeWarning, match="aside"):
        assert set(store.sample(4, 6, (0,))["mask"].sum(1)) == {3}
    assert (store.corrupt, store.indices) == (1, [0])


def run(program, *arguments, **options):
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], cwd=ROOT, text=True, **options)


FULL_DISK = """
import resource, sys, numpy as np, os
from bayes_planet.replay import EpisodeStore
from tests.replay.make import make_episode
store = EpisodeStore(sys.argv[1], 1e9, compress=False)
store.add(make_episode(0, 10), 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # what the kernel then does is what a full disk does
try:
    store.add(make_episode(1, 5_000), 1)
except OSError as error:
    print(type(error).__name__, store.indices, store.rows, sorted(os.listdir(sys.argv[1])))
store.add(make_episode(1, 10), 1)
print(store.indices)
"""


def test_a_full_disk_leaves_nothing_half_written(tmp_path):
    process = run(FULL_DISK, tmp_path, stdout=subprocess.PIPE)
    assert process.communicate(timeout=240)[0].splitlines() == [
        "OSError [0] 10 ['episode-000000-rows000010.npz']",
        "[0, 1]",
    ]


FULL_DISK_IN_A_ROUND = """
import resource, sys, numpy as np, os
from bayes_planet.replay import EpisodeStore
from tests.replay.make import make_episode
store = EpisodeStore(sys.argv[1], 1e9, compress=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    store.add_round({0: make_episode(0, 10), 1: make_episode(1, 5_000)})
except OSError as error:
    print(type(error).__name__, store.indices, store.rows, sorted(os.listdir(sys.argv[1])))
store.add_round({0: make_episode(0, 10), 1: make_episode(1, 20)})
print(store.indices, store.rows)
"""


def test_a_round_is_written_whole_or_not_at_all(tmp_path):
    process = run(FULL_DISK_IN_A_ROUND, tmp_path, stdout=subprocess.PIPE)
    assert process.communicate(timeout=240)[0].splitlines() == ["OSError [] 0 []", "[0, 1] 30"]
    store = EpisodeStore(tmp_path, 0)
    assert_same(store.load(0), make_episode(0, 10))
    assert_same(store.load(1), make_episode(1, 20))


def test_a_round_of_which_a_name_cannot_be_given_leaves_nothing(tmp_path, monkeypatch):
    store, replace, given = EpisodeStore(tmp_path, 0), os.replace, []

    def second_fails(source, target):
        if len(given) == 2:  # after the note of the round and the first of its files
            raise OSError(errno.ENOSPC, "No space left on device")
        given.append(target)
        replace(source, target)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="No space"):
        store.add_round({0: make_episode(0, 5), 1: make_episode(1, 5)})
    assert given[1] == tmp_path / "episode-000000-rows000005.npz"
    assert store.episodes == 0 and list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    store.add(make_episode(0, 7), 0)
    assert EpisodeStore(tmp_path, 0).rows == 7


def test_what_was_not_stored_fixes_no_shapes(tmp_path):
    store = EpisodeStore(tmp_path, 0)
    wide = make_episode(1, 5) | {"action": np.zeros((5, 3), np.float32)}
    with pytest.raises(EpisodeLayoutError, match="episode 1"):
        store.add_round({0: make_episode(0, 5), 1: wide})
    store.add(wide, 0)
    with pytest.raises(EpisodeLayoutError, match="episode 1"):
        store.add(make_episode(1, 5), 1)
    assert store.indices == [0] and store.after(0) == (0, 0) and store.after(-1) == (1, 5)


KEEP_ADDING_ROUNDS = """
import sys
from bayes_planet.replay import EpisodeStore
from tests.replay.make import make_episode
store = EpisodeStore(sys.argv[1], 0)
first = store.episodes
while True:
    store.add_round({index: make_episode(index, 2000, image=True) for index in range(first, first + 4)})
    print(first, flush=True)
    first += 4
"""


def test_a_killed_writer_leaves_whole_rounds(tmp_path):
    for number in range(4):
        process = run(KEEP_ADDING_ROUNDS, tmp_path, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.04 * number)  # a round takes about 0.1 s
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=240)
        assert EpisodeStore(tmp_path, 0).episodes % 4 == 0


KEEP_ADDING = """
import sys
from bayes_planet.replay import EpisodeStore
from tests.replay.make import make_episode
store = EpisodeStore(sys.argv[1], 0)
index = max(store.indices, default=-1) + 1
while True:
    store.add(make_episode(index, 2000, image=True), index)
    print(index, flush=True)
    index += 1
"""


def test_a_killed_writer_loses_no_finished_episode(tmp_path):
    for round_number in range(4):
        process = run(KEEP_ADDING, tmp_path, stdout=subprocess.PIPE)
        for _ in range(3):
            process.stdout.readline()
        time.sleep(0.003 * round_number)
        process.send_signal(signal.SIGKILL)
        finished = process.communicate(timeout=240)[0].split()
        store = EpisodeStore(tmp_path, 0)
        assert store.corrupt == 0 and store.indices == list(range(store.episodes))
        assert store.episodes >= 3 * (round_number + 1)
        assert not finished or int(finished[-1]) in store.indices
        for index in store.indices[-3:]:
            assert_same(store.load(index), make_episode(index, 2000, image=True))
