"""Encoder, RSSM, decoders and reward head together, and the loss they are trained with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.config import Config
from bayes_planet.config.constants import VECTOR_LAYERS
from bayes_planet.world_model.loss_scales import InformationRate, LearntScales
from bayes_planet.world_model.losses import (
    continuation_nll,
    diagonal_gaussian_kl,
    free_nats_kl,
    unit_gaussian_constant,
    unit_gaussian_nll,
)
from bayes_planet.world_model.networks import images
from bayes_planet.world_model.networks.decoders import DenseHead, ImageDecoder
from bayes_planet.world_model.networks.encoders import make_encoder
from bayes_planet.world_model.networks.normaliser import StateNormaliser
from bayes_planet.world_model.rssm import RSSM, State
from bayes_planet.world_model.subsets import choose_rows, share, size

CONTINUATION_SCALE = 10.0
"""Factor on the continuation's negative log-likelihood."""


class Seen(NamedTuple):
    """Results of the world model's loss that the actor and the value use too.

    The posterior State [B, T, ...], and one weight sample of the transition.
    """

    posterior: State
    weights: dict


class LossTerms(NamedTuple):
    """The training loss, a float32 scalar to minimise, the scalars to log, and what behaviour learns from, if any."""

    total: tf.Tensor
    metrics: dict[str, tf.Tensor]
    seen: Seen | None = None


class WorldModel(tf.Module):
    """A sequential VAE with an RSSM inside (arXiv:1811.04551), whose transition may hold a belief over its weights.

    Args:
      config: the run's configuration; `model` and `loss` are read.
      observation_shapes: {'image': (64, 64, 3)} and/or {'state': (n,)}.
      action_size: A.
      dtype_policy: Keras dtype policy of matrix products and convolutions.

    Attributes:
      normaliser: scales state observations; None without them.
    """

    def __init__(
        self,
        config: Config,
        observation_shapes: Mapping[str, tuple[int, ...]],
        action_size: int,
        dtype_policy: str = "float32",
        name: str = "world_model",
    ):
        super().__init__(name)
        known = {"image", "state"}
        if not observation_shapes or not set(observation_shapes) <= known:
            raise ValueError(
                f"observation_shapes has keys {sorted(observation_shapes)}. Accepted: image, state, or both."
            )
        self.config = config
        self.observation_shapes = {key: tuple(shape) for key, shape in observation_shapes.items()}
        self.action_size = action_size
        model = config.model
        self.normaliser: StateNormaliser | None = None
        self._encoders = {name: make_encoder(model, name, dtype_policy) for name in sorted(self.observation_shapes)}
        self._decoders: dict[str, tf.Module] = {}
        if "image" in self.observation_shapes:
            self._decoders["image"] = ImageDecoder(model.convolution_depth, model.activation, dtype_policy)
        if "state" in self.observation_shapes:
            size = self.observation_shapes["state"][0]
            self._decoders["state"] = DenseHead(
                VECTOR_LAYERS, model.belief_units, size, model.activation, dtype_policy, "vector_decoder"
            )
            self.normaliser = StateNormaliser(size)
        embedding_size = sum(encoder.embedding_size for encoder in self._encoders.values())
        self.rssm = RSSM(model, action_size, embedding_size, dtype_policy)

        def head(name: str) -> DenseHead:
            return DenseHead(model.reward_layers, model.reward_units, 0, model.activation, dtype_policy, name)

        self._reward_head = head("reward_head")
        self._continuation_head = head("continuation_head") if model.continuation else None
        self._scales = LearntScales(["reward"]) if model.learnt_scales else None
        self._rate = InformationRate() if model.learnt_scales else None
        self._build()

    def prepared_zeros(self) -> dict[str, tf.Tensor]:
        """One prepared observation of zeros, which makes the variables of what reads it."""
        types = {"image": tf.uint8, "state": tf.float32}
        zeros = {key: tf.zeros((1, *shape), types[key]) for key, shape in self.observation_shapes.items()}
        return self.prepare(zeros, tf.constant([0, 0]))

    def _build(self) -> None:
        self.embed(self.prepared_zeros())
        features = tf.zeros([1, self.rssm.feature_size])
        self.decode(features)
        self.reward(features)
        if self.continues:
            self.continuation(features)

    @property
    def encoders(self) -> dict[str, tf.Module]:
        """What embeds each observation, by its name."""
        return dict(self._encoders)

    @property
    def decoders(self) -> dict[str, tf.Module]:
        """What predicts each observation, by its name."""
        return dict(self._decoders)

    @property
    def heads(self) -> dict[str, Any]:
        """What predicts from the latent features beside observations, by name: reward, continuation, ...."""
        found = {"reward": self._reward_head, "continuation": self._continuation_head}
        return {name: head for name, head in found.items() if head is not None}

    @property
    def trains_encoder(self) -> bool:
        """Whether the encoder learns by `loss`."""
        return True

    @property
    def sees_change(self) -> bool:
        """Whether what is encoded of an image depends on the image before (`model.image_encoder=change`)."""
        return "image" in self.observation_shapes and self.config.model.image_encoder == "change"

    def prepare(self, observation: Mapping[str, tf.Tensor], seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """What the environment gives, as the model sees it: images quantised with fresh noise, states normalised.

        With `model.image_encoder=change` images stay bytes, and 'previous_image' is the one before.

        Args:
          observation: 'image' uint8 [B, 64, 64, 3] or [B, T, 64, 64, 3], and/or 'state' float32 [..., n]. With
            `model.image_encoder=change` 'previous_image' of the same shape; without it the one before in time, and
            before the first its own.
          seed: int32 [2].
        """
        missing = set(self.observation_shapes) - set(observation)
        if missing:
            raise ValueError(f"The observation lacks {sorted(missing)}. Accepted: {sorted(self.observation_shapes)}.")
        prepared: dict[str, tf.Tensor] = {}
        if "image" in self.observation_shapes:
            image = observation["image"]
            if self.sees_change:
                before = observation.get("previous_image")
                if before is None:
                    before = images.one_step_before(image) if len(image.shape) == 5 else image
                prepared |= {"image": image, "previous_image": before}
            else:
                prepared["image"] = images.preprocess(image, seed)
        if "state" in self.observation_shapes:
            state = tf.cast(observation["state"], tf.float32)
            prepared["state"] = state if self.normaliser is None else self.normaliser.normalise(state)
        return prepared

    def embed(self, prepared: Mapping[str, tf.Tensor], encoders: Mapping[str, tf.Module] | None = None) -> tf.Tensor:
        """Embedding [..., E] of prepared observations, by other `encoders` than its own if they are given."""
        encoders = self._encoders if encoders is None else encoders
        inputs = {key: [prepared[key]] for key in sorted(self._encoders)}
        if self.sees_change:
            inputs["image"].append(prepared["previous_image"])
        return tf.concat([encoders[key](*values) for key, values in inputs.items()], -1)

    def decode(self, features: tf.Tensor, normalised: bool = False) -> dict[str, tf.Tensor]:
        """Mean of each observation, float32, for features [..., Z + H].

        Images are on the model's scale (`images.to_uint8`), states in the environment's units, or `normalised`.
        """
        decoded = {key: decoder(features) for key, decoder in self._decoders.items()}
        if self.normaliser is not None and not normalised:
            decoded["state"] = self.normaliser.restore_units(decoded["state"])
        return decoded

    def reward(self, features: tf.Tensor) -> tf.Tensor:
        """Mean reward [...] of the step that led to the state, for features [..., Z + H]."""
        return self._reward_head(features)

    @property
    def continues(self) -> bool:
        """Whether the model predicts if the episode goes on (`model.continuation`)."""
        return self._continuation_head is not None

    def continuation(self, features: tf.Tensor) -> tf.Tensor:
        """Probability [...] that the episode goes on after the state, for features [..., Z + H]."""
        return tf.sigmoid(self._continuation_logits(features))

    def _continuation_logits(self, features: tf.Tensor) -> tf.Tensor:
        if self._continuation_head is None:
            raise ValueError(
                "The model does not predict whether the episode goes on. Accepted: model.continuation=true."
            )
        return self._continuation_head(features)

    def sample_weights(self, seed: tf.Tensor, steps: int) -> tuple[dict, bool]:
        """A weight sample for training as `model.bayesian.weight_sampling` wants it, and whether it is per step."""
        scope = self.config.model.bayesian.weight_sampling
        if scope == "mean":
            return bayesian_layers.posterior_mean(self.rssm, compact=True), False
        if scope == "per_step":
            return bayesian_layers.sample_weights(self.rssm, seed, samples=steps), True
        return bayesian_layers.sample_weights(self.rssm, seed), False

    def weight_kl(self) -> dict[str, tf.Tensor]:
        """KL(q || p) in nats of each variational layer, by name; empty for a deterministic transition."""
        return {layer.name: tf.add_n(list(layer.kl_terms().values())) for layer in self._variational_layers()}

    def weight_stddev(self) -> dict[str, tf.Tensor]:
        """Mean posterior stddev of each variational layer's weights, by name."""
        return {
            layer.name: tf.reduce_mean(
                tf.concat([tf.reshape(posterior.stddev_value(), [-1]) for posterior in layer.posteriors().values()], 0)
            )
            for layer in self._variational_layers()
        }

    def _variational_layers(self) -> list[bayesian_layers.VariationalLayer]:
        return bayesian_layers.variational_layers(self.rssm)

    def observe(
        self, batch: Mapping[str, tf.Tensor], seed: tf.Tensor, weights: dict | None = None
    ) -> tuple[State, State]:
        """Posterior and prior [B, T, ...] of a batch of sequences, under the posterior mean or a weight sample."""
        fold = tf.random.experimental.stateless_fold_in
        prepared = self.prepare(batch, fold(seed, 0))
        return self.rssm.observe(self.embed(prepared), batch["action"], seed=fold(seed, 1), weights=weights)

    def _prepared_and_seen(
        self, batch: Mapping[str, tf.Tensor], seed: tf.Tensor, shift_seed: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """What is decoded, as `_likelihood` takes it, and what is encoded, moved by `loss.image_shift`."""
        shift = self.config.loss.image_shift
        if self.sees_change:  # to move bytes is faster than to move numbers
            seen = self.prepare({**batch, "image": images.random_shift(batch["image"], shift, shift_seed)}, seed)
            return {key: batch[key] if key == "image" else seen[key] for key in self.observation_shapes}, seen
        prepared = self.prepare(batch, seed)
        if "image" not in prepared:
            return prepared, prepared
        return prepared, {**prepared, "image": images.random_shift(prepared["image"], shift, shift_seed)}

    def _likelihood(
        self, key: str, target: tf.Tensor, features: tf.Tensor, mask: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """Sum over valid steps of -log p(observation | features), for images from `image_fraction` of the steps.

        The target is prepared, but for images with `model.image_encoder=change`, which are bytes.
        """
        event_axes = len(self.observation_shapes[key])
        fraction = self.config.loss.image_fraction if key == "image" else 1.0
        steps = size(mask, 0) * mask.shape[1]
        chosen = choose_rows(steps, fraction, seed)
        if chosen is not None:
            target, features, mask = (
                tf.gather(tf.reshape(value, [steps, *value.shape[2:]]), chosen) for value in (target, features, mask)
            )
            mask *= share(steps, size(chosen, 0))
        if key == "image" and self.sees_change:
            target = images.preprocess(target, seed)
        return tf.reduce_sum(unit_gaussian_nll(target, self._decoders[key](features), event_axes) * mask)

    def loss(
        self,
        batch: Mapping[str, tf.Tensor],
        *,
        seed: tf.Tensor,
        weight_seed: tf.Tensor,
        num_data: tf.Tensor,
        weight_kl_scale: tf.Tensor,
        valid_steps: tf.Tensor | None = None,
        replicas: int = 1,
    ) -> LossTerms:
        """The sequential-VAE loss with the weights' KL: image + 10 reward + max(0, KL - free nats) + weight KL / N.

        With `model.continuation` 10 times the continuation's negative log-likelihood is added. With
        `model.learnt_scales` rewards (`LearntScales`) and what is observed (`InformationRate`) count by factors that
        are learnt. With `loss.image_shift` the encoder sees images that are moved, and the decoder learns them as they
        are.

        Args:
          batch: 'image' uint8 [B, T, 64, 64, 3] and/or 'state' [B, T, n], 'action' [B, T, A] that led to the
            row, 'reward' [B, T], 'mask' bool [B, T] (false rows are padding), and with `model.continuation`
            'is_terminal' bool [B, T] (the task ended the episode in this row).
          seed: int32 [2], for dequantisation and state noise.
          weight_seed: int32 [2], for the weight draw.
          num_data: float32, N, the time steps that the weights were fitted to: those in the replay.
          weight_kl_scale: float32, factor on weight KL / N.
          valid_steps: float32, true entries of `mask` over all replicas; None: those of this batch.
          replicas: copies whose losses are summed; the weight KL is shared among them, so that it counts once.

        Returns:
          LossTerms. Likelihoods and state KL are means over valid time steps, so with scale 1, no free nats and
          reward scale 1 the total is the negative ELBO of the replay per time step.

        Source: arXiv:1811.04551, Eq. 3; google-research/planet; Bayesian Layers v1, Sec. 3.2.
        """
        if self.continues and "is_terminal" not in batch:
            raise ValueError(f"The batch has {sorted(batch)}. Accepted with model.continuation: also is_terminal.")
        scales = self.config.loss
        fold = tf.random.experimental.stateless_fold_in
        mask = tf.cast(batch["mask"], tf.float32)
        valid_steps = tf.reduce_sum(mask) if valid_steps is None else valid_steps

        def mean(value: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(value * mask) / valid_steps

        prepared, seen = self._prepared_and_seen(batch, fold(seed, 0), fold(seed, 4))
        weights, per_step = self.sample_weights(weight_seed, batch["action"].shape[1])
        embedded = self.embed(seen) if self.trains_encoder else tf.stop_gradient(self.embed(seen))
        posterior, prior = self.rssm.observe(
            embedded, batch["action"], seed=fold(seed, 1), weights=weights, weights_per_step=per_step
        )
        features = posterior.features
        likelihoods = {
            key: self._likelihood(key, target, features, mask, fold(seed, 2)) / valid_steps
            for key, target in prepared.items()
        }
        reward = mean(unit_gaussian_nll(batch["reward"][..., None], self.reward(features)[..., None], 1))
        state_kl = diagonal_gaussian_kl(posterior.mean, posterior.stddev, prior.mean, prior.stddev)
        charged_kl = mean(free_nats_kl(state_kl, scales.free_nats))
        state_kl = mean(state_kl)
        weight_kl = self.weight_kl()
        weight_kl_per_step = tf.add_n(list(weight_kl.values())) / num_data / replicas if weight_kl else tf.constant(0.0)

        metrics = {f"loss/{key}": value for key, value in likelihoods.items()}

        counted_reward = reward
        if self._scales is not None:
            # The learnt factor goes by what is above a constant that nothing gets rid of.
            above = reward - unit_gaussian_constant(1) * (tf.reduce_sum(mask) / valid_steps)
            counted_reward = self._scales("reward", above, replicas)
            factor = tf.exp(-self._scales.log_scale("reward"))
            metrics["loss_scale/reward"] = scales.reward_scale * factor / replicas
        scale = {"image": scales.image_scale, "state": scales.state_scale}
        observed = tf.add_n([scale[key] * value for key, value in likelihoods.items()])
        if self._rate is not None:
            metrics["loss_scale/observations"] = tf.exp(self._rate.log_scale) / replicas
            observed = self._rate(observed, state_kl, replicas)
        total = observed + scales.reward_scale * counted_reward + charged_kl + weight_kl_scale * weight_kl_per_step
        if per_step:  # a rollout has one draw
            weights = tf.nest.map_structure(lambda value: value[0], weights)
        metrics["loss/reward"] = reward
        metrics["loss/state_kl"] = charged_kl
        metrics["state_kl"] = state_kl
        metrics["elbo"] = -(tf.add_n(list(likelihoods.values())) + reward + state_kl + weight_kl_per_step)
        if self.continues:
            continuation = mean(continuation_nll(batch["is_terminal"], self._continuation_logits(features)))
            total += CONTINUATION_SCALE * continuation
            metrics["loss/continuation"] = continuation
            metrics["elbo"] -= continuation
        if weight_kl:
            metrics["loss/weight_kl"] = weight_kl_scale * weight_kl_per_step
        metrics["state/posterior_stddev"] = mean(tf.reduce_mean(posterior.stddev, -1))
        metrics["state/prior_stddev"] = mean(tf.reduce_mean(prior.stddev, -1))
        metrics["loss/total"] = total
        return LossTerms(total, metrics, Seen(posterior, weights))
