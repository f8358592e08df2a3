"""An Image Transformer with a discretised mixture of logistics: colour patches of photographs, number by number.

Each of the 192 numbers of an 8 x 8 patch is predicted from those before it, by attention within two rows. Two outputs
of one network are compared at equal steps: a mixture of five logistics whose mass in each of the 256 levels counts, and
a 256-way softmax. Baselines: the histogram of the numbers, and PNG's best filter with an ideal code.

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
SIDE, LENGTH = 8, 8 * 8 * 3


def image_transformer(mixture: bool, size: int, layers: int) -> tf.keras.Model:
    """Whole numbers [N, 8, 8, 3] to a random variable [N, 192]: each number given those before it."""
    plain = {"kernel_initializer": "glorot_uniform"}
    table = {"embeddings_initializer": "uniform"}
    inputs = tf.keras.Input([SIDE, SIDE, 3], dtype=tf.int32)
    levels = keras.Reshape([LENGTH, 1])(keras.Rescaling(1 / 127.5, -1.0)(inputs))
    x = bl.ChannelEmbedding(size, **table)(inputs)
    x = keras.Reshape([LENGTH, size])(x) + keras.Dense(size)(levels)
    x = keras.Cropping1D([0, 1])(keras.ZeroPadding1D([1, 0])(x))  # each place sees the number before it
    x = bl.PositionalEmbedding(LENGTH, **table)(x)
    for _ in range(layers):
        y = keras.LayerNormalization()(x)
        x += bl.MaskedLocalAttention1D(4, size // 4, 2 * SIDE * 3, **plain)(y)
        y = keras.Dense(4 * size, "relu")(keras.LayerNormalization()(x))
        x += keras.Dense(size)(y)
    x = keras.LayerNormalization()(x)
    if mixture:
        outputs = bl.Discretize()(bl.MixtureLogistic(5)(x))  # values in [-1, 1]
    else:
        outputs = bl.Categorical(256)(x)  # values 0 ... 255
    return tf.keras.Model(inputs, outputs)


def log_prob(model: tf.keras.Model, mixture: bool, patches: tf.Tensor) -> tf.Tensor:
    """Log probability of each number, [N, 192] nats."""
    numbers = tf.reshape(patches, [-1, LENGTH])
    values = tf.cast(numbers, tf.float32) / 127.5 - 1 if mixture else numbers
    return model(patches).distribution.log_prob(values)


def fit(model: tf.keras.Model, mixture: bool, patches: np.ndarray, steps: int, seed: int) -> list[float]:
    """Adam on the negative log-likelihood, with a rate that falls to 0; bits for a number at each step."""
    random = np.random.default_rng(seed)
    optimizer = tf.keras.optimizers.Adam(tf.keras.optimizers.schedules.CosineDecay(3e-3, steps), clipnorm=1.0)

    @tf.function
    def step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(log_prob(model, mixture, batch))
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
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


def code_length(known: np.ndarray, new: np.ndarray) -> float:
    """Bits for one of `new` under the shares of `known`, whole numbers modulo 256, each level counted once more."""
    shares = (np.bincount(np.ravel(known % 256), minlength=256) + 1) / (known.size + 256)
    return float(-np.mean(np.log2(shares[new % 256])))


def png(known: np.ndarray, new: np.ndarray) -> float:
    """Bits for a number when the best of PNG's filters on the training patches has taken its guess away."""

    def differences(patches: np.ndarray) -> list[np.ndarray]:
        padded = np.pad(patches, [(0, 0), (1, 0), (1, 0), (0, 0)])
        left, up, corner = padded[:, 1:, :-1], padded[:, :-1, 1:], padded[:, :-1, :-1]
        guesses = np.stack([left, up, corner])
        paeth = np.take_along_axis(guesses, np.abs(guesses - (left + up - corner)).argmin(0)[None], 0)[0]
        return [patches - guess for guess in (left, up, (left + up) // 2, paeth)]

    pairs = zip(differences(known), differences(new), strict=True)
    return code_length(*min(pairs, key=lambda pair: code_length(pair[0], pair[0])))


def complete(model: tf.keras.Model, mixture: bool, patches: np.ndarray, draws: int) -> np.ndarray:
    """The lower halves of patches drawn number by number: [draws, N, 8, 8, 3]."""
    drawn = np.repeat(patches[None], draws, 0).reshape(-1, LENGTH)
    value = tf.function(lambda numbers: model(tf.reshape(numbers, [-1, SIDE, SIDE, 3])).distribution.sample())
    for place in range(LENGTH // 2, LENGTH):
        found = value(tf.constant(drawn))[:, place].numpy()
        drawn[:, place] = np.round((found + 1) * 127.5) if mixture else found
    return drawn.reshape(draws, -1, SIDE, SIDE, 3)


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    steps, size, layers = (4, 8, 1) if tiny else (6000, 96, 4) if full else (700, 48, 2)
    known, new = load(40 if tiny else 8000, 8 if tiny else 600, seed)
    figures: Figures = {
        "uniform": {"bits a number": 8.0},
        "histogram": {"bits a number": code_length(known, new)},
        "PNG's filters": {"bits a number": png(known, new)},
    }
    models = {}
    for row in ("softmax", "mixture"):
        tf.keras.utils.set_random_seed(seed)
        mixture = row == "mixture"
        model = models[row] = image_transformer(mixture, size, layers)
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

    half = patches.copy()
    half[:, SIDE // 2 :] = 255
    rows = {"held-out patches": patches, "what is given": half}
    for name, model in models.items():
        drawn = complete(model, name == "mixture", patches, 2)
        rows |= {f"{name}, draw {number + 1}": drawn[number] for number in range(2)}
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axis, (title, images) in zip(figure.subplots(len(rows), 1), rows.items(), strict=True):
        padded = np.pad(images, [(0, 0), (0, 0), (0, 2), (0, 0)], constant_values=255)
        axis.imshow(np.concatenate(list(padded), 1).astype(np.uint8))
        axis.set_title(title, loc="left", fontsize=9, pad=2)
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    run(main, __doc__)
