"""Where a Bayesian layer that is trained from scratch should start: posterior and prior that fit the layer's size."""

from __future__ import annotations

from typing import Any

from bayes_planet.bayesian_layers.distributions.arguments.suggestions import did_you_mean
from bayes_planet.bayesian_layers.distributions.kl.kl_divergence import FanInNormalKLDivergence
from bayes_planet.bayesian_layers.distributions.plain_initializers import FanInStddev
from bayes_planet.bayesian_layers.distributions.trainable import TrainableNormal

# Mean of the kernel's posterior at the start, and stddev of the prior before it is divided by sqrt(fan_in).
_STDDEV, _RECURRENT_STDDEV, _RECURRENT_PRIOR = 0.1, 0.03, 10.0
_STARTS = {"he": ("he_normal", 2**0.5), "glorot": ("glorot_uniform", 1.0), "lecun": ("lecun_normal", 1.0)}


def start(
    name: str = "he", stddev: float | None = None, recurrent: bool = False, prior_stddev: float | None = None
) -> dict[str, Any]:
    """Keyword arguments for a layer: posterior and prior of its kernel, from where its Keras twin starts.

    ```python
    layer = DenseFlipout(200, "relu", **start("he"))
    cell = LSTMCellFlipout(64, **start("glorot", recurrent=True))
    ```

    The posterior begins at `N(m, (stddev / sqrt(fan_in))^2)`, m drawn as Keras' initializer draws a weight (a recurrent
    kernel orthogonal), and the prior is `N(0, prior_stddev^2 / fan_in)`. So the noise of a layer's output begins at
    `stddev` times the size of its input, however wide the layer is: `fan_in` is how many inputs an output sums over,
    in transposed convolutions and attention too. The papers' default, mean 0 and stddev 0.05 with the prior N(0, 1),
    has noise of `0.05 sqrt(fan_in)` times that size and no signal. (Embeddings and depthwise convolutions name their
    weights otherwise: give them `TrainableNormal(name, FanInStddev(0.1))` and FanInNormalKLDivergence.)

    A recurrent layer has a prior ten times as wide and less noise: its states are small, so its gates need weights far
    beyond Glorot's, which the narrow prior charges several nats each, and its noise adds up over the steps.

    Args:
        name: 'he' (for relu: prior stddev sqrt(2)), 'glorot' (tanh, linear outputs, gates: 1) or 'lecun' (selu: 1).
        stddev: of the posterior, times sqrt(fan_in); positive. None: 0.1, with `recurrent` 0.03.
        recurrent: whether the layer has a recurrent kernel.
        prior_stddev: of the prior, times sqrt(fan_in). None: that of the name, with `recurrent` ten times that.

    Returns:
        `kernel_initializer` and `kernel_regularizer`, and with `recurrent` the two of the recurrent kernel. New objects
        at each call.

    Raises:
        ValueError: an unknown name, numbers that are not positive.

    Source: He et al. 2015; Glorot and Bengio 2010. Measured by benchmarks/layers/starts.py.
    """
    if name not in _STARTS:
        raise ValueError(f"Unknown start {name!r}.{did_you_mean(name, _STARTS)} Accepted: {', '.join(_STARTS)}.")
    mean, scale = _STARTS[name]
    stddev = (_RECURRENT_STDDEV if recurrent else _STDDEV) if stddev is None else stddev
    scale = scale * (_RECURRENT_PRIOR if recurrent else 1.0) if prior_stddev is None else prior_stddev
    means = {"kernel": mean, **({"recurrent": "orthogonal"} if recurrent else {})}
    made: dict[str, Any] = {}
    for weight, initializer in means.items():
        made[f"{weight}_initializer"] = TrainableNormal(initializer, FanInStddev(stddev))
        made[f"{weight}_regularizer"] = FanInNormalKLDivergence(stddev=scale)
    return made
