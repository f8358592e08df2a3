"""What is done for single releases of TensorFlow and tf-keras while they are imported."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

from bayes_planet import bayesian_layers, compatibility

ROOT = Path(__file__).parents[1]


def python(program: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def test_layers_with_random_numbers_build_after_set_random_seed():
    """tf-keras 2.18.0 asks Python 3.12 for randint(1, 1e9) there."""
    tf.keras.utils.set_random_seed(3)
    first = tf.keras.layers.Dropout(0.5)(tf.ones([64]), training=True)
    tf.keras.utils.set_random_seed(3)
    again = tf.keras.layers.Dropout(0.5)(tf.ones([64]), training=True)
    assert set(first.numpy().tolist()) == {0.0, 2.0}
    assert first.numpy().tolist() == again.numpy().tolist()


def test_a_tf_keras_that_needs_nothing_is_left_as_it_is(tmp_path):
    whole = tmp_path / "backend.py"
    whole.write_text("self._rng.randint(1, int(1e9))")
    backend = types.ModuleType("backend")
    backend.__file__ = str(whole)
    backend._SEED_GENERATOR = types.SimpleNamespace()
    backend.RandomGenerator = types.SimpleNamespace(_create_seed="as it was")
    compatibility.mend_seeds(backend)
    assert backend.RandomGenerator._create_seed == "as it was"


def test_layers_that_a_later_release_saved_are_read():
    """tf-keras from 2.19 writes `optional` into every functional model, and `softmax_robust_masking` into attention."""
    attention, word = {"num_heads": 2, "key_dim": 3}, "softmax_robust_masking"
    for layer, new in (
        (tf.keras.layers.InputLayer([4], name="x"), "optional"),
        (tf.keras.layers.MultiHeadAttention(**attention, name="x"), word),
        (bayesian_layers.MultiHeadAttentionFlipout(**attention, name="x"), word),
    ):
        config = layer.get_config() | {new: False}
        assert type(layer).from_config(dict(config)).get_config().items() >= layer.get_config().items()
        if new not in layer.get_config():
            with pytest.raises(TypeError, match=new):
                type(layer).from_config({**config, new: True})
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(input_shape=[4]), tf.keras.layers.Dense(2)])
    config = model.get_config()
    config["layers"][0]["config"]["optional"] = False
    assert tf.keras.Sequential.from_config(config).output_shape == (None, 2)


def test_flags_are_as_before_once_tensorflow_is_there():
    program = (
        "import sys, bayes_planet; before = sys.getdlopenflags(); import tensorflow as tf;"
        "assert sys.getdlopenflags() == before; assert tf.__spec__.loader is tf.__loader__;"
        "print(type(tf.__loader__).__name__, float(tf.reduce_sum(tf.linalg.matmul(tf.ones([2, 3]), tf.ones([3, 2])))))"
    )
    ended = python(program)
    assert ended.stdout.split() == ["SourceFileLoader", "12.0"], ended.stderr


def test_only_a_release_that_shares_its_symbols_is_held_back(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, compatibility.GLOBAL_FLAGS, raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    before = sys.getdlopenflags()
    with compatibility.own_symbols(tmp_path):
        assert sys.getdlopenflags() == before and compatibility.GLOBAL_FLAGS not in sys.modules
    (tmp_path / "python").mkdir()
    (tmp_path / "python" / "pywrap_dlopen_global_flags.py").touch()
    with compatibility.own_symbols(tmp_path):
        affected = sys.platform == "linux"
        assert (sys.getdlopenflags() != before) == affected
    assert sys.getdlopenflags() == before
    monkeypatch.delitem(sys.modules, compatibility.GLOBAL_FLAGS, raising=False)
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libjemalloc.so")
    with compatibility.own_symbols(tmp_path):
        assert sys.getdlopenflags() == before and compatibility.GLOBAL_FLAGS not in sys.modules


DRAW = (
    "env = gymnasium.make('bayes_planet/cheetah-run-v0', render_mode='rgb_array'); env.reset(seed=0);"
    "print(env.step(env.action_space.sample())[0]['image'].std() > 1, env.render().shape); "
)
COUNT = "print(float(tf.reduce_sum(tf.function(lambda x: x @ x, jit_compile=True)(tf.ones([3, 3])))));"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        "import gymnasium, bayes_planet.envs, tensorflow as tf;" + COUNT + DRAW + COUNT,
        "import gymnasium, bayes_planet.envs;" + DRAW + "import tensorflow as tf;" + COUNT + DRAW,
    ],
    ids=["TensorFlow first", "drawing first"],
)
def test_images_are_drawn_beside_tensorflow(program):
    ended = python(program)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("True (64, 64, 3)") == program.count("gymnasium.make"), ended.stdout
    assert "27.0" in ended.stdout


@pytest.mark.thorough
def test_tensorflow_before_the_package_is_an_error_where_it_would_crash():
    """Where it is another TensorFlow or a GPU draws, it draws."""
    program = (
        "import os; os.environ['TF_USE_LEGACY_KERAS'] = '1'; import tensorflow as tf; import gymnasium, bayes_planet.envs;"
        "from bayes_planet import bayesian_layers, compatibility; from bayes_planet.envs import rendering;"
        "print(compatibility.shares_symbols() and rendering.find_backend().software, flush=True);" + DRAW
    )
    ended = python(program)
    if ended.stdout.startswith("True"):
        assert ended.returncode == 1, (ended.returncode, ended.stdout)
        assert (
            "NoGLError" in ended.stderr
            and "import bayes_planet (or bayes_planet.envs) before tensorflow" in ended.stderr
        )
        state = program.replace("render_mode='rgb_array'", "observations='state'").partition("print(env.step")[0]
        assert python(state).returncode == 0
    else:
        assert ended.returncode == 0 and "True (64, 64, 3)" in ended.stdout, ended.stderr[-3000:]
