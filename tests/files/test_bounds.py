"""What comes from anywhere is read with bounds: JSON, YAML, archives, and what is no file at all."""

import io
import os
import zipfile

import numpy as np
import pytest
import yaml

from bayes_planet.config import presets
from bayes_planet.files.archives import ArchiveError, read_arrays
from bayes_planet.files.json_files import JsonFileError, parse_json, read_json
from bayes_planet.files.plain import open_own, read_plain
from bayes_planet.files.yaml_text import check_yaml

SHAPE = {"updates": int, "mean": float, "name?": str, "list?": [float], "table?": {str: (int, None)}}
GOOD = b'{"updates": 3, "mean": -1.5e3, "list": [1, 2.5], "table": {"a": null, "b": 2}, "more": [[]]}'


def test_json_of_the_right_shape_is_what_it_says():
    assert parse_json(GOOD, SHAPE, "x", "f") == {
        "updates": 3, "mean": -1500.0, "list": [1, 2.5], "table": {"a": None, "b": 2}, "more": [[]]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "Expecting value"),
        (b"null", "it is null, not an object"),
        (b"[]", "it is a list of 0, not an object"),
        (b'{"mean": 1}', "it lacks 'updates'"),
        (b'{"updates": "3", "mean": 1}', 'updates is "3", not a whole number'),
        (b'{"updates": true, "mean": 1}', "updates is true, not a whole number"),
        (b'{"updates": 1.5, "mean": 1}', "updates is 1.5"),
        (b'{"updates": 1, "mean": NaN}', "NaN is no number"),
        (b'{"updates": 1, "mean": -Infinity}', "-Infinity is no number"),
        (b'{"updates": 1, "mean": 1e999}', "1e999 is too large"),
        (b'{"updates": 9223372036854775808, "mean": 1}', "a whole number of 64 bits"),
        (b'{"updates": %s, "mean": 1}' % (b"9" * 5000), "4300"),
        (b'{"updates": 1, "mean": 1, "list": [1, "x"]}', 'list[1] is "x"'),
        (b'{"updates": 1, "mean": 1, "table": {"a": []}}', "table.a is a list of 0"),
        (b"[" * 200_000, "levels"),
        (b"[" * 100 + b"]" * 100, "levels"),
        (b'{"a":' * 90 + b"1" + b"}" * 90, "levels"),
        (b"\xff\xfe\x00", "cannot be used"),
    ],
)
def test_json_that_is_wrong_says_where_and_what_is_expected(data, said):
    with pytest.raises(JsonFileError) as raised:
        parse_json(data, SHAPE, "the numbers of a run", "run/file.json")
    text = str(raised.value)
    assert said in text and "run/file.json" in text and "Expected: the numbers of a run" in text and len(text) < 500


def test_what_is_no_file_is_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path, "/dev/zero"):
        with pytest.raises(OSError, match="Accepted: a plain file"):
            read_json(path, {}, "x")
    (tmp_path / "large").write_bytes(b"x" * 101)
    with pytest.raises(OSError, match="101 bytes. Accepted: at most 100"):
        read_plain(tmp_path / "large", 100)
    assert read_plain(tmp_path / "large", 101) == b"x" * 101


def test_a_file_of_our_own_is_no_link_of_somebody_else_s(tmp_path):
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "link").symlink_to("outside")
    (tmp_path / "dangling").symlink_to("new")
    os.link(tmp_path / "outside", tmp_path / "second")
    os.mkfifo(tmp_path / "pipe")
    for name, said in [("link", "a link"), ("dangling", "a link"), ("second", "hard link"), ("pipe", "a pipe")]:
        for flags in (os.O_RDWR, os.O_WRONLY | os.O_APPEND):
            with pytest.raises(OSError, match=said):
                open_own(tmp_path / name, flags)
    assert (tmp_path / "outside").read_text() == "mine" and not (tmp_path / "new").exists()
    with open(open_own(tmp_path / "log", os.O_WRONLY | os.O_APPEND), "ab") as file:
        file.write(b"line")
    assert (tmp_path / "log").read_bytes() == b"line"


def archive(compression: int, **arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array)
            file.writestr(f"{name}.npy", member.getvalue())
    return buffer.getvalue()


def test_arrays_are_what_numpy_wrote():
    buffer = io.BytesIO()
    given = {"a/b": np.arange(6.0).reshape(2, 3), "none": np.zeros((0, 4), np.int8), "text": np.array(["x", "yz"])}
    given["columns"] = np.asfortranarray(given["a/b"])
    np.savez_compressed(buffer, **given)
    found = read_arrays(buffer.getvalue(), 10_000)
    assert list(found) == list(given)
    for name, array in given.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array)


def test_archives_do_not_inflate_beyond_their_limit():
    zeros = np.zeros(2**22, np.uint8)
    small = archive(zipfile.ZIP_DEFLATED, a=zeros)
    assert len(small) < 2**13
    with pytest.raises(ArchiveError, match="unpacks to 4194432 bytes, at most 1000000 are accepted"):
        read_arrays(small, 10**6)
    # One that lies about its size: in its directory, and before the data.
    lying = small.replace((2**22 + 128).to_bytes(4, "little"), (1000).to_bytes(4, "little"))
    with pytest.raises(ArchiveError, match="is not as long as it says|CRC"):
        read_arrays(lying, 10**6)
    for compression in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):  # which Python unpacks without a bound
        with pytest.raises(ArchiveError, match="another way than stored or deflated"):
            read_arrays(archive(compression, a=zeros), 2**30)


@pytest.mark.parametrize("shape", ["(10**15,)", "(1000000000000,)", "(-1, 0)", "('a',)", "(1,) * 9"])
def test_a_header_that_claims_more_than_there_is_allocates_nothing(shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}".ljust(117).encode() + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x00" * 8
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.npy", data)
    with pytest.raises(ArchiveError):
        read_arrays(buffer.getvalue(), 10**6)


def test_archives_hold_no_python_objects():
    with pytest.raises(ArchiveError, match="Python objects"):
        read_arrays(archive(zipfile.ZIP_STORED, a=np.array([{}], object)), 10**6)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, "more than 100000 values"),
        ("a: &a [*a]", "stands for nothing before it"),
        ("a: *b", "stands for nothing before it"),
        ("[" * 200_000, "levels"),
        ("a: &a " + "[" * 40 + "]" * 40 + "\nb: " + "[" * 40 + "*a" + "]" * 40, "levels"),
        ("seed: " + "9" * 5000, "not valid"),
        ("seed: 0x" + "f" * 5000, "too large a number"),
        ("seed: 2001-99-99", "a whole number"),
        ("seed: !!timestamp x", "not valid"),
        ("seed: !!bool x", "not valid"),
        ("a: \x00", "not valid"),
    ],
)
def test_a_configuration_cannot_grow_without_limit(tmp_path, text, said):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(presets.ConfigError, match=r"config\.yaml") as raised:
        presets.read(path)
    assert said in str(raised.value)


def test_aliases_that_stand_for_little_are_fine(tmp_path):
    check_yaml("a: &a {b: [1, 2]}\nc: *a\nd: [*a, *a]\n" + "e: " + "[" * 60 + "]" * 60)
    (tmp_path / "mine.yaml").write_text("seed: &n 7\ntrain: {batch_size: *n}\n")
    config = presets.read(tmp_path / "mine.yaml")
    assert (config.seed, config.train.batch_size) == (7, 7)
    with pytest.raises(yaml.YAMLError):
        check_yaml("a: [")


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 30, "0x" + "f" * 5000, "-" + "9" * 40, "[*a]", "[" * 5000])
def test_a_setting_of_any_length_is_one_clear_error(value):
    for key in ("seed", "train.batch_size", "env.workers", "model.bayesian.layers"):
        with pytest.raises(presets.ConfigError):
            presets.load([], [f"{key}={value}"])


def test_presets_that_include_each_other_many_times_are_refused(tmp_path):
    for n in range(30):
        (tmp_path / f"p{n}.yaml").write_text(f"presets: [./p{n + 1}.yaml, ./p{n + 1}.yaml]\n")
    (tmp_path / "p30.yaml").write_text("seed: 1\n")
    with pytest.raises(presets.ConfigError, match="fewer than 1000"):
        presets.read(tmp_path / "p0.yaml")


def test_a_configuration_that_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path / "pipe.yaml", "/dev/zero", tmp_path):
        with pytest.raises(presets.ConfigError, match="Cannot read config file"):
            presets.load([f"{path}/" if path == tmp_path else str(path)])
