import io
import re
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayes_planet.replay import CorruptEpisodeError
from bayes_planet.replay import episode as episode_format
from tests.replay.make import assert_same, make_episode


def changed(**arrays):
    episode = make_episode(0, 5, image=True)
    for name, array in arrays.items():
        if array is None:
            del episode[name]
        else:
            episode[name] = array
    return episode


def with_value(name, place, value):
    array = make_episode(0, 5)[name].copy()
    array[place] = value
    return changed(**{name: array})


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("image", [True, False])
def test_round_trip(tmp_path, compress, image):
    episode = make_episode(3, 7, image=image, terminal=True)
    path = tmp_path / "file.npz"
    path.write_bytes(episode_format.encode(episode, compress))
    assert_same(episode_format.read(path, rows=7), episode)
    with np.load(path, allow_pickle=False) as archive:  # NumPy's own reader understands it
        assert_same(dict(archive), episode)


def test_the_return_is_summed_in_float64():
    episode = make_episode(0, rows=4)
    episode["reward"] = np.array([0, 2.0**24, 1, 1], np.float32)
    assert np.float32(2**24) + np.float32(1) == 2**24  # in float32 a reward would be lost
    assert episode_format.episode_return(episode) == 2**24 + 2


def test_arrays_read_cannot_be_written_to(tmp_path):
    path = tmp_path / "file.npz"
    path.write_bytes(episode_format.encode(make_episode(0, 3)))
    with pytest.raises(ValueError, match="read-only"):
        episode_format.read(path)["reward"][1] = 7


def test_files_of_numpy_are_read_also_in_fortran_order(tmp_path):
    episode = make_episode(0, 5)
    np.savez(tmp_path / "file.npz", **episode | {"state": np.asfortranarray(episode["state"])})
    assert_same(episode_format.read(tmp_path / "file.npz"), episode)


@pytest.mark.parametrize(
    "episode, message",
    [
        (changed(action=None), "arrays .*Accepted: action, reward, is_terminal"),
        (changed(image=None, state=None), "image or state or both"),
        (changed(extra=np.zeros(5)), "extra"),
        (changed(image=np.zeros((5, 6, 4, 3), np.float32)), "'image' of the episode is float32.*Accepted: uint8"),
        (changed(state=np.zeros((5, 2))), "'state' of the episode is float64.*Accepted: float32"),
        (changed(reward=np.zeros((5, 1), np.float32)), r"\[5, 1\].*1 axes"),
        (changed(reward=[0.0] * 5), "is list"),
        (changed(is_terminal=np.zeros(5, np.uint8)), "Accepted: bool"),
        (changed(image=np.zeros((5, 6, 4, 1), np.uint8)), "3 channels"),
        (changed(action=np.zeros((5, 0), np.float32)), "empty"),
        (changed(reward=np.zeros(4, np.float32)), "'reward': 4.*the same number for all"),
        (make_episode(0, 1), "2 or more"),
        (with_value("state", (3, 1), np.nan), "'state' has a value in row 3"),
        (with_value("action", (4, 0), np.inf), "'action' has a value in row 4"),
        (with_value("reward", 2, -np.inf), "'reward' has a value in row 2"),
        (with_value("action", (0, 0), 0.5), "Row 0"),
        (with_value("reward", 0, 0.5), "Row 0"),
        (with_value("is_terminal", 3, True), "true in row 3 of 5"),
    ],
)
def test_malformed_episodes_are_refused(episode, message):
    with pytest.raises(ValueError, match=message):
        episode_format.validate(episode)


def test_too_large_an_episode_is_refused(monkeypatch, tmp_path):
    path = tmp_path / "file.npz"
    path.write_bytes(episode_format.encode(make_episode(0, 40_000)))
    monkeypatch.setattr(episode_format, "LARGEST_EPISODE_BYTES", 500_000)
    with pytest.raises(ValueError, match="at most 500000"):
        episode_format.validate(make_episode(0, 40_000))
    with pytest.raises(CorruptEpisodeError, match="at most 500000"):
        episode_format.read(path)


def test_a_header_that_claims_more_than_the_file_holds_allocates_nothing(tmp_path):
    episode = make_episode(0, 5)
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    np.savez(tmp_path / "file.npz", **{name: episode[name] for name in episode if name != "reward"})
    with zipfile.ZipFile(tmp_path / "file.npz", "a") as archive:
        archive.writestr("reward.npy", buffer.getvalue() + bytes(20))
    with pytest.raises(CorruptEpisodeError, match="reshape"):
        episode_format.read(tmp_path / "file.npz")


def test_python_objects_are_refused(tmp_path):
    np.savez(tmp_path / "file.npz", **make_episode(0, 5) | {"reward": np.array([object()] * 5)})
    with pytest.raises(CorruptEpisodeError, match="Python objects"):
        episode_format.read(tmp_path / "file.npz")


def test_a_lying_name_is_noticed(tmp_path):
    path = tmp_path / episode_format.file_name(0, 6)
    path.write_bytes(episode_format.encode(make_episode(0, 5)))
    with pytest.raises(CorruptEpisodeError, match="holds 5 rows, but its name says 6"):
        episode_format.read(path, rows=6)


@given(st.data())
def test_damage_is_found_or_harmless(tmp_path_factory, data):
    whole = episode_format.encode(make_episode(0, 30, image=True), data.draw(st.booleans()))
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("damaged") / "file.npz"
    path.write_bytes(damaged)
    try:
        found = episode_format.read(path)
    except CorruptEpisodeError as error:
        assert re.search("file.npz cannot be used: .", str(error))
    else:  # a time stamp of the archive, say
        assert_same(found, make_episode(0, 30, image=True))


@given(st.floats(0, 0.9999))
def test_a_file_cut_short_is_found(tmp_path_factory, share):
    whole = episode_format.encode(make_episode(0, 30, image=True))
    path = tmp_path_factory.mktemp("cut") / "file.npz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(CorruptEpisodeError):
        episode_format.read(path)


@given(st.integers(0, 10**8), st.integers(2, 10**8))
def test_file_names_are_read_back(index, rows):
    assert episode_format.parse_file_name(episode_format.file_name(index, rows)) == (index, rows)


@pytest.mark.parametrize(
    "name", ["episode-12-rows000251.npz", "episode-0000012-rows000251.npz", "x.npz", "episode.npz"]
)
def test_other_names_are_not(name):
    assert episode_format.parse_file_name(name) is None
    assert episode_format.file_name(12, 251) == "episode-000012-rows000251.npz"
