import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("django")

from examples.gallery import transformer, transformer_sharded
from examples.gallery.data import translation as data


def test_vocabulary_gives_back_every_training_sentence():
    pairs = data.sentences()[:60]
    texts = [text for pair in pairs for text in pair]
    vocabulary = data.Vocabulary(texts, merges=30)
    for text in texts:
        assert vocabulary.decode(np.array([data.START, *vocabulary.encode(text), data.END, 5])) == text
    assert len(vocabulary.encode(texts[0])) <= len(texts[0])
    assert vocabulary.encode("\u4e2d") == [3]


def test_the_decoder_sees_no_later_token_and_no_padding():
    model = transformer.Transformer(20, 6, size=8, heads=2, hidden=8, blocks=1)
    english, german = np.array([[4, 5, 6, 0, 0, 0]], np.int32), np.array([[1, 7, 8, 9]], np.int32)
    logits = model((english, german)).numpy()
    later = model((english, np.array([[1, 7, 8, 4]], np.int32))).numpy()
    np.testing.assert_allclose(later[:, :3], logits[:, :3], atol=1e-6)
    assert np.abs(later[:, 3] - logits[:, 3]).max() > 1e-3
    padding = model((english[:, :4], german)).numpy()
    np.testing.assert_allclose(padding, logits, atol=1e-6)


def test_runs(tmp_path):
    figures = transformer.main(tiny=True, picture=tmp_path / "transformer.png")
    assert (tmp_path / "transformer.png").stat().st_size > 1000
    for row in ("twin", "bayesian"):
        assert figures[row]["perplexity"] == pytest.approx(np.exp(figures[row]["nll"]))


def test_plan_counts_what_the_layers_have():
    sizes = {"size": 32, "heads": 4, "key_dim": 8, "hidden": 64, "vocabulary": 50, "blocks": 2}
    model = transformer.Transformer(50, 10, size=32, heads=4, hidden=64, blocks=2)
    model((np.ones([1, 5], np.int32), np.ones([1, 4], np.int32)))
    kernels = 0
    for block in (*model.encoder, *model.decoder):
        layers = [block.up, block.down]
        for attention in block.attentions:
            layers += [getattr(attention, f"_{name}_dense") for name in ("query", "key", "value", "output")]
        kernels += sum(int(np.prod(layer.kernel.shape)) for layer in layers)
    assert transformer_sharded.weights_of(**sizes)["random"] == kernels


@pytest.mark.slow
def test_losses_on_two_devices_equal_those_of_one():
    command = [sys.executable, "-m", transformer_sharded.NAME, "--worker", "2", "0", "small"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=280)
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    transformer_sharded.tf.keras.utils.set_random_seed(0)
    plain = transformer_sharded.bayesian(**transformer_sharded.SMALL)
    plain.build(None)
    adam = transformer_sharded.tf.keras.optimizers.Adam(1e-3, jit_compile=False)
    expected = transformer_sharded.steps(plain, 0, 5, adam, transformer_sharded.tf.constant)
    assert found["losses"] == pytest.approx(expected, rel=5e-4)  # Adam makes much of rounding in gradients of nearly 0
    assert found["block bytes"] < 0.55 * found["block bytes, all"]


@pytest.mark.slow
def test_the_bayesian_transformer_is_better_calibrated_at_the_twins_perplexity():
    figures = transformer.main(seed=0)
    assert figures["bayesian"]["ece"] < 0.6 * figures["twin"]["ece"]
    assert figures["bayesian"]["nll"] < figures["twin"]["nll"]
