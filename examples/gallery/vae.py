"""A variational auto-encoder of digits: a stochastic encoder, a stochastic decoder, and new digits out of noise.

The twin is the same auto-encoder without noise and KL. Images are black or white; figures are of held-out ones.

    python -m examples.gallery.vae [--seed 0] [--full] [--picture vae.png]

Tran et al. 2018, "Bayesian Layers", Figure 7; Kingma and Welling 2014; Burda et al. 2016 for IWAE.
"""

from pathlib import Path
from typing import Any

import numpy as np
from tensorflow_probability import distributions as tfd

import bayes_planet  # noqa: F401  (selects Keras 2)
from bayes_planet import bayesian_layers as bl
from examples.gallery.command import Figures, run
from examples.gallery.data import images_and_tables as data

import tensorflow as tf  # isort: skip

keras = tf.keras.layers
SIZE = 20  # of the code
PRIOR = tfd.Normal(0.0, 1.0)


class AutoEncoder(tf.keras.Model):
    """Images [N, 28, 28, 1] to a coin for each pixel, through a code [N, 20] that is random or, of the twin, not."""

    def __init__(self, stochastic: bool) -> None:
        super().__init__()
        hidden = [keras.Flatten(), keras.Dropout(0.2), keras.Dense(400, "relu"), keras.Dense(200, "relu")]
        code = [keras.Dense(2 * SIZE), bl.Normal()] if stochastic else [keras.Dense(SIZE)]
        self.stochastic, self.encoder = stochastic, tf.keras.Sequential([*hidden, *code])
        dense = [keras.Dense(200, "relu"), keras.Dense(400, "relu"), keras.Dense(784)]
        self.decoder = tf.keras.Sequential([*dense, keras.Reshape([28, 28, 1]), bl.Bernoulli()])

    def call(self, images: tf.Tensor, training: Any = None) -> Any:
        code = self.encoder(images, training=training)
        if self.stochastic:
            kl = tfd.kl_divergence(code.distribution, PRIOR)
            self.add_loss(tf.reduce_mean(tf.reduce_sum(kl, -1)))
        return self.decoder(code)


def bounds(model: AutoEncoder, images: np.ndarray, samples: int) -> tuple[float, float]:
    """-ELBO, and the importance-weighted bound of `samples` codes (IWAE), nats an image."""

    @tf.function
    def log_weight(images: tf.Tensor) -> tf.Tensor:
        code = model.encoder(images)
        log_prior, log_posterior = (tf.reduce_sum(p.log_prob(code.value), -1) for p in (PRIOR, code.distribution))
        fitted = tf.reduce_sum(model.decoder(code.value).distribution.log_prob(images), [1, 2, 3])
        return fitted + log_prior - log_posterior

    weights = tf.stack([log_weight(tf.constant(images)) for _ in range(samples)])
    best = tf.reduce_logsumexp(weights, 0) - np.log(samples)
    return -float(tf.reduce_mean(weights)), -float(tf.reduce_mean(best))


def main(seed: int = 0, full: bool = False, tiny: bool = False, picture: Path | None = None) -> Figures:
    train, test, epochs, samples = (256, 64, 3, 3) if tiny else (4000, 1000, 200 if full else 60, 50)
    digits = data.load_digits(train, test, seed)
    x, x_test = ((images > 0.5).astype(np.float32) for images in (digits.x, digits.x_test))
    figures: Figures = {}
    models = {}
    for name in ("twin", "vae"):
        tf.keras.utils.set_random_seed(seed)
        model = models[name] = AutoEncoder(stochastic=name == "vae")
        schedule = tf.keras.optimizers.schedules.CosineDecay(1e-3, epochs * -(-train // 64))
        model.compile(tf.keras.optimizers.Adam(schedule), bl.NegativeLogLikelihood())
        losses = model.fit(x, x, batch_size=64, epochs=epochs, verbose=0).history["loss"]
        fitted = model.decoder(model.encoder(x_test)).distribution.log_prob(x_test)
        figures[name] = {"reconstruction, nats an image": -float(tf.reduce_mean(tf.reduce_sum(fitted, [1, 2, 3])))}
    elbo, iwae = bounds(models["vae"], x_test, samples)
    figures["vae"] |= {"-ELBO": elbo, f"IWAE-{samples}": iwae, "bits a pixel": iwae / 784 / np.log(2)}
    figures["training"] = {"first_loss": losses[0], "last_loss": losses[-1]}
    if picture is not None:
        draw(picture, models, x, x_test, seed)
    return figures


def draw(path: Path, models: dict, x: np.ndarray, x_test: np.ndarray, seed: int) -> None:
    """Held-out digits and what both make of them; images of random codes, the twin's scaled as its codes are."""
    from matplotlib.figure import Figure

    noise = np.random.default_rng(seed).normal(size=[60, SIZE]).astype(np.float32)
    codes = np.asarray(models["twin"].encoder(x))
    twin, vae = models["twin"].decoder, models["vae"].decoder
    codes_kept = (tf.convert_to_tensor(model.encoder(x_test[:20])) for model in models.values())
    kept = [model.decoder(code).distribution.mean() for model, code in zip(models.values(), codes_kept, strict=True)]
    blocks = {
        "held-out digits; as the twin gives them back; as the VAE does": np.concatenate([x_test[:20], *kept]),
        "new: the twin's": twin(codes.mean(0) + codes.std(0) * noise).distribution.mean(),
        "new: the VAE's": vae(noise).distribution.mean(),
    }
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    for axis, (title, images) in zip(figure.subplots(3, 1), blocks.items(), strict=True):
        rows = np.asarray(images).reshape(3, 20, 28, 28).transpose(0, 2, 1, 3).reshape(3 * 28, 20 * 28)
        axis.imshow(rows, cmap="gray_r")
        axis.set_title(title, fontsize=10)
        axis.axis("off")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    run(main, __doc__)
