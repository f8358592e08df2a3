"""A program that two Pythons run: one trains, saves and writes outputs, the other loads and compares.

`python -m tests.versions.crossing write FOLDER` and `... read FOLDER`. What is written: a run from pixels with its
checkpoint, a saved model, layers in every file format, and, where TF-Agents is installed, an export.
"""

import contextlib
import importlib.util
import io
import sys
from pathlib import Path

import numpy as np

from bayes_planet import BayesPlanet, cli
from tests.bayesian_layers import every_layer_process
from tests.bayesian_layers.battery import tf

LAYERS = ("ActNorm", "Conv2DFlipout", "DenseRank1", "LSTMCellFlipout", "MultiHeadAttentionFlipout", "RealNVP")
TRAIN = ("--config", "bayes_planet", "cartpole_swingup", "debug", "--logdir")


def observations() -> list[dict[str, np.ndarray]]:
    """Three batches of two images, the same everywhere."""
    frames = np.random.default_rng(0).integers(0, 256, [3, 2, 64, 64, 3]).astype(np.uint8)
    return [{"image": frame} for frame in frames]


def actions(model: BayesPlanet) -> np.ndarray:
    """What it does on them, filter and planner included: [3, 2, A]."""
    state, chosen = None, []
    for observation in observations():
        action, state = model.predict(observation, state)
        chosen.append(action)
    return np.stack(chosen)


def write(folder: Path) -> None:
    """Fills the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    assert cli.main(["train", *TRAIN, str(folder / "run"), "evaluation.videos=0"]) == 0
    with BayesPlanet.load(folder / "run") as model:
        model.save(folder / "model")
        np.save(folder / "actions.npy", actions(model))
    for name in LAYERS:
        every_layer_process.save(folder, name)
    if importlib.util.find_spec("tf_agents") is not None:
        assert cli.main(["export", str(folder / "run"), "--out", str(folder / "policy")]) == 0


def read(folder: Path) -> None:
    """Loads everything and compares; the run goes on from its checkpoint."""
    expected = np.load(folder / "actions.npy")
    for name in ("run", "model"):
        with BayesPlanet.load(folder / name) as model:
            np.testing.assert_allclose(actions(model), expected, atol=1e-4, err_msg=name)
    for name in LAYERS:
        for kind in every_layer_process.FORMATS:
            every_layer_process.load(folder, name, kind)
    if (folder / "policy").exists():
        tf.saved_model.load(str(folder / "policy"))
    with contextlib.redirect_stdout(io.StringIO()):
        assert cli.main(["train", *TRAIN, str(folder / "run"), "evaluation.videos=0", "train.episodes=6"]) == 0


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
    print(sys.argv[1], "done")
