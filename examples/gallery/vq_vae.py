"""A vector-quantised auto-encoder of digits: each image becomes 16 of 64 learned codes, 96 bits.

Three ways to learn the table of codes, at equal steps: with penalties that are means over all numbers beside a
likelihood that is a sum over the pixels, so that the codes hardly move; with summed penalties; and with moving averages
and restarts of unused codes. The twin is the auto-encoder without a table.

    python -m examples.gallery.vq_vae [--seed 0] [--full] [--picture vq_vae.png]

Tran et al. 2019, "Bayesian Layers", Figure 17; van den Oord et al. 2017, "Neural Discrete Representation Learning".
"""

from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
CODES, DEPTH, PLACES = 64, 16, 16
WAYS = {
    "twin": None,
    "mean penalties": {"reduction": "mean"},
    "summed penalties": {},
    "averages, restarts": {"ema": 0.99, "restart": 0.1},
}


def encoder() -> tf.keras.Sequential:
    """Images [N, 28, 28, 1] to vectors [N, 4, 4, DEPTH]."""
    options = {"padding": "same", "activation": "relu"}
    return tf.keras.Sequential(
        [
            tf.keras.Input([28, 28, 1]),
            keras.Conv2D(DEPTH, 5, 2, **options),
            keras.Conv2D(2 * DEPTH, 5, 1, **options),
            keras.Conv2D(2 * DEPTH, 5, 2, **options),
            keras.Conv2D(DEPTH, 4),
        ]
    )


def decoder() -> tf.keras.Sequential:
    """Vectors [N, 4, 4, DEPTH] to a coin for each pixel, [N, 28, 28, 1]."""
    options = {"padding": "same", "activation": "relu"}
    return tf.keras.Sequential(
        [
            keras.Conv2DTranspose(2 * DEPTH, 4, activation="relu"),
            keras.Conv2DTranspose(2 * DEPTH, 5, 2, **options),
            keras.Conv2DTranspose(DEPTH, 5, 2, **options),
            keras.Conv2D(1, 5, padding="same"),
            bl.Bernoulli(name="image"),
        ]
    )


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    train, test, epochs = (64, 32, 1) if tiny else (4000, 1000, 60 if full else 12)
    digits = data.load_digits(train, test, seed)
    images, held = ((part > 0.5).astype(np.float32) for part in (digits.x, digits.x_test))
    figures: Figures = {}
    shown: dict[str, tuple] = {}
    for way, options in WAYS.items():
        tf.keras.utils.set_random_seed(seed)
        encode, decode = encoder(), decoder()
        table = None if options is None else bl.VectorQuantizer(CODES, name="latent_code", **options)
        model = tf.keras.Sequential([encode, decode] if table is None else [encode, table, decode])
        model.compile(tf.keras.optimizers.Adam(2e-3), bl.NegativeLogLikelihood())
        history = model.fit(images, images, batch_size=64, epochs=epochs, verbose=0).history["loss"]
        codes = None if table is None else table.codes(encode.predict(held, verbose=0)).numpy()
        reconstructed = bl.predict(model, held, samples=1, seed=[seed, 1])
        figures[way] = {
            "reconstruction, nats an image": float(-tf.reduce_sum(reconstructed.log_prob(held)) / len(held)),
            "pixels wrong, of 784": float(np.sum((reconstructed.mean() > 0.5) != (held > 0.5)) / len(held)),
        }
        if codes is not None:
            shares = np.bincount(codes.ravel(), minlength=CODES) / codes.size
            entropy = -np.sum(shares * np.log(np.maximum(shares, 1e-12)))
            figures[way] |= {
                "codes used, of 64": float(np.sum(shares > 0)),
                "perplexity of the codes": float(np.exp(entropy)),
            }
            figures[way] |= {"bits an image": float(PLACES * entropy / np.log(2))}
            shown[way] = (reconstructed.mean().numpy(), shares)
    figures["training"] = {"first_loss": history[0], "last_loss": history[-1]}
    if picture is not None:
        # New images of the last table: the code of each place drawn as it is in the data, whatever those around it.
        random = np.random.default_rng(seed)
        drawn = np.stack([random.choice(codes[:, i, j], 10) for i in range(4) for j in range(4)], 1).reshape(10, 4, 4)
        draw(picture, held, shown, decode(tf.gather(table.table, drawn)).distribution.mean().numpy())
    return figures


def draw(path: Path, held: np.ndarray, shown: dict, drawn: np.ndarray) -> None:
    """Held-out digits, what each table makes of them, how often each code is used, and images of random codes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.6, 1])
    rows = {"held out": held, **{way: images for way, (images, _) in shown.items()}, "codes at random": drawn}
    for axes, (name, images) in zip(left.subplots(len(rows), 1), rows.items(), strict=True):
        axes.imshow(np.concatenate(list(images[:10, ..., 0]), 1), cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], title=name)
    for axes, (way, (_, shares)) in zip(right.subplots(len(shown), 1), shown.items(), strict=True):
        axes.bar(range(CODES), np.sort(shares)[::-1])
        axes.set(title=f"{way}: {np.sum(shares > 0)} of {CODES} codes", ylabel="share")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    run(main, __doc__)
