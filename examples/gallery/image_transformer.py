"""An Image Transformer with a discretised mixture of logistics: colour patches of photographs, number by number.

Each of the 192 numbers of an 8 x 8 patch is predicted from those before it, by attention within two rows. Two outputs
of one network are compared at equal steps: a mixture of logistics around guesses from the numbers beside and above,
made discrete, and a softmax of the difference to one guess. Baselines: ideal codes of the numbers and of differences.

    python -m examples.gallery.image_transformer [--seed 0] [--full] [--picture image_transformer.png]

Tran et al. 2018, "Bayesian Layers", Figure 6; Parmar et al. 2018, "Image Transformer"; Salimans et al. 2017,
"PixelCNN++".
"""

from pathlib import Path

import numpy as np

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
SIDE, LENGTH, GUESSES = 8, 8 * 8 * 3, 4


def guesses(levels: tf.Tensor) -> tf.Tensor:
    """Guesses [N, 192, 4] of levels [N, 8, 8, 3] by those before: the best one, by left, by above; JPEG-LS's median."""
    before = tf.pad(levels, [[0, 0], [1, 0], [1, 0], [0, 0]])
    left, above, corner = before[:, 1:, :-1], before[:, :-1, 1:], before[:, :-1, :-1]
    left = tf.concat([above[:, :, :1], left[:, :, 1:]], 2)
    above = tf.concat([left[:, :1], above[:, 1:]], 1)  # at the borders one stands for the other
    median = tf.clip_by_value(left + above - corner, tf.minimum(left, above), tf.maximum(left, above))
    alone = tf.stack([median, left, above], -1)
    missed = tf.pad((levels[..., None] - alone)[:, :, :, :-1], [[0, 0], [0, 0], [0, 0], [1, 0], [0, 0]])
    return tf.reshape(tf.concat([alone + missed, alone[..., :1]], -1), [-1, LENGTH, GUESSES])


def image_transformer(mixture: bool, size: int, layers: int) -> tf.keras.Model:
    """Whole numbers [N, 8, 8, 3] to a random variable [N, 192]: each number given those before it."""
    plain, table = {"kernel_initializer": "glorot_uniform"}, {"embeddings_initializer": "uniform"}
    inputs = tf.keras.Input([SIDE, SIDE, 3], dtype=tf.int32)
    levels = keras.Rescaling(1 / 127.5, -1.0)(inputs)
    guessed = keras.Lambda(guesses)(levels)
    levels = keras.Reshape([LENGTH, 1])(levels)
    x = bl.ChannelEmbedding(size, **table)(inputs)
    x = keras.Reshape([LENGTH, size])(x) + keras.Dense(size)(levels) + keras.Dense(size)(16 * (levels - guessed))
    x = keras.Cropping1D([0, 1])(keras.ZeroPadding1D([1, 0])(x))  # each place sees the number before it
    x = bl.PositionalEmbedding(LENGTH, **table)(x) + keras.Dense(size)(16 * (guessed - guessed[..., :1]))
    for _ in range(layers):
        x += bl.MaskedLocalAttention1D(4, size // 4, 2 * SIDE * 3, **plain)(keras.LayerNormalization()(x))
        x += keras.Dense(size)(keras.Dense(4 * size, "relu")(keras.LayerNormalization()(x)))
    x = keras.LayerNormalization()(x)
    if mixture:
        # Around each guess a logistic for a flat place, a shaded one and an edge: scales of 0.2, 1.4 and 10 levels.
        scales = np.repeat(np.float32([-6.5, -4.5, -2.5]), GUESSES)
        rules = {"loc_constraint": lambda loc: loc / 50, "scale_constraint": lambda raw: tf.exp(raw + scales)}
        pixel = bl.MixtureLogistic(len(scales), **rules)(x, loc=tf.tile(guessed, [1, 1, 3]))
    # Values are in [-1, 1], those of the softmax differences 0 ... 255.
    return tf.keras.Model(inputs, bl.Discretize()(pixel) if mixture else bl.Categorical(256)(x))


def differences(patches: np.ndarray | tf.Tensor, kind: int = 0) -> tf.Tensor:
    """Numbers less a kind of guess, whole and modulo 256: int32 [N, 192]."""
    guess = guesses(tf.cast(patches, tf.float32) / 127.5 - 1)[..., kind]
    return (tf.reshape(patches, [-1, LENGTH]) - tf.cast(tf.round((guess + 1) * 127.5), tf.int32)) % 256


def log_prob(model: tf.keras.Model, mixture: bool, patches: tf.Tensor) -> tf.Tensor:
    """Log probability of each number, [N, 192] nats."""
    levels = tf.cast(tf.reshape(patches, [-1, LENGTH]), tf.float32) / 127.5 - 1
    return model(patches).distribution.log_prob(levels if mixture else differences(patches))


def fit(model: tf.keras.Model, mixture: bool, patches: np.ndarray, steps: int, seed: int) -> list[float]:
    """Adam on the negative log-likelihood, with a rate that falls to 0; bits for a number at each step."""
    random = np.random.default_rng(seed)
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(3e-3, steps), clipnorm=1.0)

    @tf.function
    def step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(log_prob(model, mixture, batch))
        optimizer.minimize(loss, model.trainable_variables, tape)
        return loss / np.log(2)

    return [float(step(tf.constant(patches[random.integers(len(patches), size=32)]))) for _ in range(steps)]


def load(count: int, test: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Patches int32 [N, 8, 8, 3] of two photographs: the left three quarters for training, the rest for the test."""
    random, known, new = np.random.default_rng(seed), [], []
    for photograph in data.photograph_arrays():
        border = photograph.shape[1] * 3 // 4
        for part, found, wanted in ((photograph[:, :border], known, count), (photograph[:, border:], new, test)):
            for _ in range(wanted // 2):
                top, left = (random.integers(side - SIDE + 1) for side in part.shape[:2])
                found.append(part[top : top + SIDE, left : left + SIDE])
    return np.array(known, np.int32), np.array(new, np.int32)


def code_length(known: np.ndarray | tf.Tensor, new: np.ndarray | tf.Tensor) -> float:
    """Bits for one of `new` under the shares of `known`, whole numbers below 256, each level counted once more."""
    counts = np.bincount(np.ravel(known), minlength=256) + 1
    return float(-np.mean(np.log2(counts[np.ravel(new)] / counts.sum())))


def complete(model: tf.keras.Model, mixture: bool, patches: np.ndarray, draws: int) -> np.ndarray:
    """The lower halves of patches drawn number by number: [draws, N, 8, 8, 3]."""
    drawn = np.repeat(patches[None], draws, 0).reshape(-1, SIDE, SIDE, 3)
    numbers = drawn.reshape(-1, LENGTH)  # a view
    value = tf.function(lambda numbers: model(numbers).distribution.sample() - (0 if mixture else differences(numbers)))
    for place in range(LENGTH // 2, LENGTH):
        found = value(tf.constant(drawn))[:, place].numpy()
        numbers[:, place] = np.round((found + 1) * 127.5) if mixture else (numbers[:, place] + found) % 256
    return drawn.reshape(draws, -1, SIDE, SIDE, 3)


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    steps, size, layers = (4, 8, 1) if tiny else (6000, 96, 4) if full else (500, 48, 2)
    known, new = load(40 if tiny else 8000, 8 if tiny else 600, seed)
    figures: Figures = {
        "histogram": {"bits a number": code_length(known, new)},
        "JPEG-LS's guess": {"bits a number": code_length(differences(known, -1), differences(new, -1))},
        "best guess": {"bits a number": code_length(differences(known), differences(new))},
    }
    models = {}
    for row in ("softmax", "mixture"):
        tf.keras.utils.set_random_seed(seed)
        model = models[row] = image_transformer(mixture := row == "mixture", size, layers)
        losses = fit(model, mixture, known, steps, seed)
        judge = tf.function(lambda batch, model=model, mixture=mixture: log_prob(model, mixture, batch))
        found = np.concatenate([judge(tf.constant(part)) for part in np.array_split(new, max(1, len(new) // 50))])
        figures[row] = {"bits a number": float(-found.mean() / np.log(2))}
        figures["training"] = {"first_loss": losses[0], "last_loss": float(np.mean(losses[-20:]))}
    if picture is not None:
        draw(picture, models, new[:: max(1, len(new) // 12)][:12])
    return figures


def draw(path: Path, models: dict, patches: np.ndarray) -> None:
    """Held-out patches, and their lower halves as both models draw them."""
    from matplotlib.figure import Figure

    upper = np.where(np.arange(SIDE)[:, None, None] < SIDE // 2, patches, 255)
    rows = {"held-out patches": patches, "what is given": upper}
    for name, model in models.items():
        rows[f"{name}, draw 1"], rows[f"{name}, draw 2"] = complete(model, name == "mixture", patches, 2)
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axis, (title, images) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        padded = np.pad(images.astype(np.uint8), [(0, 0), (0, 0), (0, 2), (0, 0)], constant_values=255)
        axis.imshow(np.concatenate(list(padded), 1))
        axis.set_title(title, loc="left", fontsize=9, pad=2)
        axis.axis("off")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    run(main, __doc__)
