"""The yardstick: PlaNet as a PyTorch user would write it, with what PyTorch offers to make it fast.

Deterministic weights, pixels, every row of a batch valid. Imports neither TensorFlow nor bayes_planet: it runs in an
interpreter of its own.
"""

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks.speed.yardsticks.sizes import DECODER_KERNELS, Sizes

Noise = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclasses.dataclass(frozen=True)
class Variant:
    """How PyTorch computes: memory format of images, bfloat16 autocast, torch.compile of the parts."""

    channels_last: bool = False
    bfloat16: bool = False
    compile: bool = False


class GRUCell(nn.Module):
    """The GRU of PlaNet, h' = z h + (1 - z) c: reset gate before the candidate's product, unlike nn.GRUCell."""

    def __init__(self, inputs: int, units: int):
        super().__init__()
        self.units = units
        self.input = nn.Linear(inputs, 3 * units)
        self.gates = nn.Linear(units, 2 * units, bias=False)
        self.candidate = nn.Linear(units, units, bias=False)

    def forward(self, x: torch.Tensor, belief: torch.Tensor) -> torch.Tensor:
        gates, candidate = self.input(x).split([2 * self.units, self.units], -1)
        update, reset = torch.sigmoid(gates + self.gates(belief)).chunk(2, -1)
        candidate = torch.tanh(candidate + self.candidate(reset * belief))
        return (candidate + update * (belief - candidate)).float()


class PlainPlaNet(nn.Module):
    """The `planet` configuration: `update(batch)` trains, `plan(sample, belief)` searches.

    Args:
      sizes: see `Sizes`.
      weights: NumPy arrays by name in Keras's layout, as `benchmarks.speed.ours.weights_of` gives them.
      variant: how to compute.
    """

    def __init__(self, sizes: Sizes, weights: Mapping[str, np.ndarray], variant: Variant = Variant()):
        super().__init__()
        self.sizes, self.variant = sizes, variant
        hidden, channels = sizes.hidden, sizes.encoder_channels
        convolutions = [nn.Conv2d(channels[index], channels[index + 1], 4, 2) for index in range(4)]
        self.encoder = nn.Sequential(*(part for layer in convolutions for part in (layer, nn.ReLU())))
        channels = sizes.decoder_channels
        deconvolutions: list[nn.Module] = []
        for index, kernel in enumerate(DECODER_KERNELS):
            layer = nn.ConvTranspose2d(channels[index], channels[index + 1], kernel, 2)
            deconvolutions += [layer, nn.ReLU()] if index < 3 else [layer]
        self.dense = nn.Linear(sizes.features, sizes.embedding)
        self.decoder = nn.Sequential(*deconvolutions)
        self.prior_input = nn.Linear(sizes.stochastic + sizes.action, hidden)
        self.gru = GRUCell(hidden, sizes.belief)
        for name, inputs in (("prior", sizes.belief), ("posterior", sizes.belief + sizes.embedding)):
            setattr(self, f"{name}_hidden", nn.Linear(inputs, hidden))
            setattr(self, f"{name}_mean", nn.Linear(hidden, sizes.stochastic))
            setattr(self, f"{name}_stddev", nn.Linear(hidden, sizes.stochastic))
        units = [sizes.features, *[sizes.reward_units] * sizes.reward_layers]
        head = [
            part
            for index in range(sizes.reward_layers)
            for part in (nn.Linear(units[index], units[index + 1]), nn.ReLU())
        ]
        self.reward = nn.Sequential(*head, nn.Linear(units[-1], 1))
        self.layers = self._by_name()
        with torch.no_grad():
            self._load(weights)
        self.format = torch.channels_last if variant.channels_last else torch.contiguous_format
        self.to(memory_format=self.format)
        self.optimizer = torch.optim.Adam(self.parameters(), sizes.learning_rate, eps=sizes.adam_epsilon, fused=True)
        compiled = torch.compile if variant.compile else lambda function: function
        self._encode, self._decode = compiled(self.encode), compiled(self.decode)
        self._filter, self._imagine = compiled(self.filter), compiled(self.imagine)
        self._prior, self._rewards = compiled(lambda belief: self.gaussian("prior", belief)), compiled(self.reward)

    def _by_name(self) -> dict[str, nn.Module]:
        """The layers by their names in Keras."""
        layers: dict[str, nn.Module] = {"prior_input": self.prior_input, "gru": self.gru, "dense": self.dense}
        for name in ("prior", "posterior"):
            layers |= {f"{name}_{part}": getattr(self, f"{name}_{part}") for part in ("hidden", "mean", "stddev")}
        for index in range(4):
            layers[f"convolution_{index}"] = self.encoder[2 * index]
            layers[f"deconvolution_{index}"] = self.decoder[2 * index]
        layers |= {f"dense_{index}": self.reward[2 * index] for index in range(self.sizes.reward_layers)}
        return layers | {"output": self.reward[-1]}

    def _load(self, weights: Mapping[str, np.ndarray]) -> None:
        sizes = self.sizes
        array = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}
        # Keras flattens an image as [h, w, channel], PyTorch as [channel, h, w].
        side, depth = sizes.encoder_sides[-1], sizes.encoder_channels[-1]
        kernel = array["posterior_hidden/kernel"]
        embedding = kernel[sizes.belief :].reshape(side, side, depth, sizes.hidden).permute(2, 0, 1, 3)
        array["posterior_hidden/kernel"] = torch.cat([kernel[: sizes.belief], embedding.flatten(0, 2)])
        for name, layer in self.layers.items():
            kernel = array[f"{name}/kernel"]
            if layer is self.gru:
                layer = self.gru.input
                gates, candidate = array["gru/recurrent_kernel"].split([2 * sizes.belief, sizes.belief], 1)
                self.gru.gates.weight.copy_(gates.T)
                self.gru.candidate.weight.copy_(candidate.T)
            # Keras has [h, w, in, out] for both kinds of convolution, where in and out are those of the forward one.
            layer.weight.copy_(kernel.T if kernel.ndim == 2 else kernel.permute(3, 2, 0, 1))
            layer.bias.copy_(array[f"{name}/bias"])

    def autocast(self) -> contextlib.AbstractContextManager:
        """bfloat16 in products and convolutions, where the variant says so."""
        return torch.autocast("cpu", torch.bfloat16) if self.variant.bfloat16 else contextlib.nullcontext()

    def preprocess(self, image: torch.Tensor) -> torch.Tensor:
        """uint8 [N, 64, 64, 3] to float32 [N, 3, 64, 64], at `image_bits` bits with uniform noise between levels."""
        levels = 2**self.sizes.image_bits
        quantised = (
            (image >> (8 - self.sizes.image_bits)).float().permute(0, 3, 1, 2).contiguous(memory_format=self.format)
        )
        return (quantised + torch.rand_like(quantised)) / levels - 0.5

    def encode(self, image: torch.Tensor) -> torch.Tensor:
        """Embedding [N, E] of preprocessed images."""
        return self.encoder(image).flatten(1)

    def decode(self, features: torch.Tensor) -> torch.Tensor:
        """Mean images [N, 3, 64, 64]."""
        return self.decoder(self.dense(features)[:, :, None, None].contiguous(memory_format=self.format))

    def gaussian(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and stddev of the stochastic state; name is 'prior' or 'posterior'."""
        hidden = functional.relu(getattr(self, f"{name}_hidden")(x))
        stddev = functional.softplus(getattr(self, f"{name}_stddev")(hidden).float())
        return getattr(self, f"{name}_mean")(hidden).float(), stddev + self.sizes.min_stddev

    def belief(self, sample: torch.Tensor, belief: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """The next belief."""
        return self.gru(functional.relu(self.prior_input(torch.cat([sample, action], -1))), belief)

    def filter(self, sample, belief, action, embedded, noise):
        """One step of the posterior: mean, stddev, sample and belief."""
        belief = self.belief(sample, belief, action)
        mean, stddev = self.gaussian("posterior", torch.cat([belief, embedded], -1))
        return mean, stddev, mean + stddev * noise, belief

    def imagine(self, sample, belief, action, noise):
        """One step of the prior: sample and belief."""
        belief = self.belief(sample, belief, action)
        mean, stddev = self.gaussian("prior", belief)
        return mean + stddev * noise, belief

    def loss(
        self, image: torch.Tensor, action: torch.Tensor, reward: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        """As in `benchmarks.speed.yardsticks.plain_tf`, but for image, float32 [B T, 3, 64, 64]."""
        sizes = self.sizes
        batch, steps = reward.shape
        with self.autocast():
            embedded = self._encode(image).reshape(batch, steps, sizes.embedding)
            sample, belief = torch.zeros(batch, sizes.stochastic), torch.zeros(batch, sizes.belief)
            rows = []
            for time in range(steps):
                row = self._filter(sample, belief, action[:, time], embedded[:, time], noise[time])
                sample, belief = row[2:]
                rows.append(row)
            mean, stddev, sample, belief = (torch.stack(values, 1) for values in zip(*rows, strict=True))
            prior_mean, prior_stddev = self._prior(belief)
            features = torch.cat([sample, belief], -1)
            decoded = self._decode(features.flatten(0, 1)).float()
            rewards = self._rewards(features).float()
        image_loss = _nll(decoded, image, 3).reshape(batch, steps)
        reward_loss = _nll(rewards, reward[..., None], 1)
        ratio = (stddev / prior_stddev).square()
        distance = ((mean - prior_mean) / prior_stddev).square()
        kl = 0.5 * (ratio + distance - 1.0 - ratio.log()).sum(-1)
        kl = (kl - sizes.free_nats).clamp(min=0.0)
        return (image_loss + sizes.reward_scale * reward_loss + kl).mean()

    def gradient_norms(self) -> dict[str, float]:
        """The norm of each layer's gradients, by its name in Keras, after `backward`."""
        return {
            name: float(nn.utils.get_total_norm([parameter.grad for parameter in layer.parameters()]))
            for name, layer in self.layers.items()
        }

    def update(self, batch: Mapping[str, np.ndarray]) -> float:
        """One update from a NumPy batch; returns the loss."""
        sizes = self.sizes
        image = self.preprocess(torch.from_numpy(batch["image"]).flatten(0, 1))
        action, reward = torch.from_numpy(batch["action"]), torch.from_numpy(batch["reward"])
        loss = self.loss(image, action, reward, torch.randn(sizes.steps, sizes.batch, sizes.stochastic))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), sizes.clip_norm)
        self.optimizer.step()
        return float(loss.detach())

    def plan(self, sample: torch.Tensor, belief: torch.Tensor, noise: Noise | None = None) -> torch.Tensor:
        """One plan [T, A] from a state [1, Z] and [1, H]; noise as in `benchmarks.speed.yardsticks.plain_tf`."""
        sizes = self.sizes
        count, horizon = sizes.candidates, sizes.horizon
        with torch.no_grad(), self.autocast():
            sample, belief = sample.repeat(count, 1), belief.repeat(count, 1)
            mean, stddev = torch.zeros(horizon, sizes.action), torch.ones(horizon, sizes.action)
            for iteration in range(sizes.iterations):
                if noise is None:
                    action_noise = torch.randn(count, horizon, sizes.action)
                    state_noise = torch.randn(horizon, count, sizes.stochastic)
                else:
                    action_noise, state_noise = noise[iteration]
                actions = (mean + stddev * action_noise).clamp(-1.0, 1.0)
                returns = self._returns(sample, belief, actions, state_noise)
                best = actions[returns.topk(sizes.elites, sorted=False).indices]
                mean = best.mean(0)
                stddev = (best.var(0, correction=0) + 1e-6).sqrt()
            return mean

    def _returns(
        self, sample: torch.Tensor, belief: torch.Tensor, actions: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        features = []
        for time in range(self.sizes.horizon):
            sample, belief = self._imagine(sample, belief, actions[:, time], noise[time])
            features.append(torch.cat([sample, belief], -1))
        return self._rewards(torch.stack(features)).float().sum((0, 2))


def _nll(mean: torch.Tensor, target: torch.Tensor, axes: int) -> torch.Tensor:
    """-log N(target; mean, 1), summed over the last `axes` axes."""
    terms = 0.5 * (target - mean).square() + 0.5 * math.log(2 * math.pi)
    return terms.sum(tuple(range(-axes, 0)))
