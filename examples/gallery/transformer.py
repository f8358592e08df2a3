"""A Bayesian Transformer translates Django's messages from English to German, and knows when it does not know.

An encoder-decoder Transformer is trained half of the steps with points for weights. Its twin goes on so; the Bayesian
one goes on as `to_bayesian` of it, with a belief over the projections of attention and over the feed-forward layers.
The twin overfits some hundred sentences soon, so that it is also judged at the best of its epochs, chosen on the test.

    python -m examples.gallery.transformer [--seed 0] [--full] [--picture transformer.png]

Tran et al. 2018, "Bayesian Layers", section 3.1; Vaswani et al. 2017. `examples/gallery/transformer_sharded.py` is the
same model in parts on several devices.
"""

from pathlib import Path

import numpy as np
import tensorflow_probability as tfp

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import translation as data
from examples.gallery.models.transformer import Transformer

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
FLIPOUT = {keras.Dense: bl.DenseFlipout, keras.MultiHeadAttention: bl.MultiHeadAttentionFlipout}


def loss_of(model: tf.keras.Model, english: tf.Tensor, german: tf.Tensor) -> tf.Tensor:
    """Cross-entropy in nats of a token, over those that are not padding."""
    weights = tf.cast(tf.not_equal(german[:, 1:], data.PADDING), tf.float32)
    logits = model((english, german[:, :-1]))
    losses = -tf.reduce_sum(tf.one_hot(german[:, 1:], logits.shape[-1]) * tf.nn.log_softmax(logits), -1)
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


def make_step(model: tf.keras.Model, rate: float = 2e-3):
    """A compiled step of Adam on cross-entropy and KL, for batches of any length; gives the cross-entropy."""
    optimizer = tf.keras.optimizers.Adam(rate)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def step(english, german):
        with tf.GradientTape() as tape:
            loss = loss_of(model, english, german)
            total = tf.add_n([loss, *model.losses])
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(total, variables), variables, strict=True))
        return loss

    return step


def fit(step, pairs: data.Pairs, epochs: int, seed: int, after=lambda: None) -> list[float]:
    """The mean loss of each epoch; calls `after` after each third. A batch holds sentences of about one length."""
    random, losses = np.random.default_rng(seed), []
    english, german = (np.sum(part > 0, 1) for part in pairs)
    for epoch in range(epochs):
        order = np.argsort(np.maximum(english, german) + random.uniform(0, 4, len(english)))
        batches = [order[start : start + 64] for start in range(0, len(order), 64)]
        found = []
        for rows in (batches[index] for index in random.permutation(len(batches))):
            parts = (pairs.english[rows, : english[rows].max()], pairs.german[rows, : german[rows].max()])
            found.append(step(*map(tf.constant, parts)))
        losses.append(float(np.mean(found)))
        if epoch % 3 == 2:
            after()
    return losses


def judge(model: tf.keras.Model, pairs: data.Pairs, samples: int, seed: int) -> tuple[dict[str, float], np.ndarray]:
    """Figures per token of the predictive mean over draws, and (confidence, right) of each token, [2, tokens]."""
    predictive = bl.predict(model, (pairs.english, pairs.german[:, :-1]), samples, [seed, 1], bl.Categorical())
    labels = pairs.german[:, 1:]
    logits = tf.boolean_mask(predictive.distribution.logits, labels != data.PADDING, axis=1)
    labels, tokens = labels[labels != data.PADDING], bl.Predictive(tfp.distributions.Categorical(logits=logits))
    found = bl.evaluate(tokens, labels).numbers
    figures = {name: float(found[name]) for name in ("nll", "accuracy", "ece", "brier")}
    figures["perplexity"] = float(np.exp(figures["nll"]))
    probabilities = tokens.probabilities().numpy()
    return figures, np.stack([probabilities.max(-1), probabilities.argmax(-1) == labels])


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    tf.keras.utils.set_random_seed(seed)
    train, half, samples = (80, 1, 2) if tiny else (700, 60 if full else 24, 20)
    known, new, vocabulary = data.load(train, merges=40 if tiny else 400, seed=seed)
    new = data.Pairs(*(part[: 8 if tiny else None] for part in new))
    model = Transformer(len(vocabulary.tokens), known.german.shape[1], size=64, hidden=192)
    model.build(None)
    best: dict[str, float] = {}

    def keep_best() -> None:
        found, _ = judge(model, new, 1, seed)
        if found["nll"] < best.get("nll", np.inf):
            best.update(found)

    step = make_step(model)
    fit(step, known, half, seed, after=keep_best)
    bayesian = bl.to_bayesian(model, delta=0.5, prior_stddev=0.1, prior_at_weights=False, classes=FLIPOUT)
    bl.scale_kl(bayesian, int(np.sum(known.german[:, 1:] > 0)), scale=0.3)
    losses = fit(make_step(bayesian), known, half, seed + 1)
    fit(step, known, half, seed + 1, after=keep_best)

    figures: Figures = {"training": {"first_loss": losses[0], "last_loss": losses[-1]}, "twin, best epoch": best}
    curves = {}
    for row, judged in (("twin", model), ("bayesian", bayesian)):
        figures[row], curves[row] = judge(judged, new, samples if row == "bayesian" else 1, seed)
    if picture is not None:
        draw(picture, curves, bayesian, new, vocabulary, seed)
    return figures


def translate(model: tf.keras.Model, english: np.ndarray, length: int, seeds: list) -> list[np.ndarray]:
    """Greedy translations [N, length] by a draw of the weights for each seed."""

    @tf.function
    def likeliest(german, weights):
        with bl.use_weights(weights):
            return tf.argmax(model((english, german)), -1, tf.int32)

    translations = []
    for seed in seeds:
        german = np.full([len(english), length], data.PADDING, np.int32)
        german[:, 0] = data.START
        weights = bl.sample_weights(model, seed)
        for place in range(length - 1):
            german[:, place + 1] = likeliest(tf.constant(german), weights)[:, place]
        translations.append(german)
    return translations


def draw(path: Path, curves: dict, model, new: data.Pairs, vocabulary: data.Vocabulary, seed: int) -> None:
    """Reliability of the tokens' probabilities, and translations by three draws of the weights."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.9])
    for row, (confidence, correct) in curves.items():
        bins = np.minimum((confidence * 10).astype(int), 9)
        used = [index for index in range(10) if np.sum(bins == index) > 5]
        points = [[values[bins == index].mean() for index in used] for values in (confidence, correct)]
        left.plot(*points, "o-", label=row)
    left.plot([0, 1], [0, 1], color="0.6", linestyle="--")
    left.set(xlabel="probability of the likeliest token", ylabel="share that is right", title="Held-out tokens")
    left.legend()
    lines = []
    chosen = np.argsort(np.sum(new.english > 0, 1))[-40::8]
    draws = translate(model, new.english[chosen], new.german.shape[1], [[seed, index] for index in range(3)])
    for index, (source, german) in enumerate(zip(new.english[chosen], new.german[chosen], strict=True)):
        lines += [f"English: {vocabulary.decode(source)}", f"Django: {vocabulary.decode(german)}"]
        lines += [f"   draw {number + 1}: {vocabulary.decode(draws[number][index])}" for number in range(3)] + [""]
    right.axis("off")
    right.text(0, 1, "\n".join(line[:95] for line in lines), va="top", family="monospace", fontsize=7.5)
    right.set(title="New sentences, by three draws of the weights")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
