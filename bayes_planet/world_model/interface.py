"""What a world model must have: to be trained and to act, and beyond that to be looked into. `WorldModel` has it all.

Tensors are float32 and seeds int32 [2] unless said otherwise. Functions are traced by tf.function, on any number of
rows; variables must exist once the model is made.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from bayes_planet.config import Config
from bayes_planet.world_model.rssm import State
from bayes_planet.world_model.world_model import LossTerms


class Imagination(Protocol):
    """The part of a transition that planning and prediction share."""

    def imagine(
        self,
        actions: tf.Tensor,
        state: State,
        *,
        seed: tf.Tensor,
        weights: Any = None,
        shared_noise: bool = False,
        unroll: bool = False,
    ) -> State:
        """The State [B, T, ...] after each of the actions [B, T, A], without observations.

        Where `weights` holds S draws there is an axis S in front of everything. None: the posterior mean.
        With `shared_noise` a row has the same state noise under every draw. `unroll` may be ignored.
        """


class Transition(Imagination, Protocol):
    """`world_model.rssm`, a tf.Module: how latent states follow each other. Weight samples are drawn from the layers
    inside it (`bayesian_layers.sample_weights(world_model.rssm, seed)`), and handed back as `weights`."""

    def initial_state(self, *batch: Any) -> State:
        """The State [B, ...] before the first observation. It is zeros, as the actor forgets a past by zeros."""

    def observe_step(
        self, embedded: tf.Tensor, action: tf.Tensor, state: State, *, seed: tf.Tensor, weights: Any = None
    ) -> State:
        """The State [B, ...] after an observation [B, E] and the action [B, A] that led to it."""


class PredictiveTransition(Imagination, Protocol):
    """`world_model.rssm` of a model that predicts whole sequences."""

    def observe(
        self,
        embedded: tf.Tensor,
        actions: tf.Tensor,
        state: State | None = None,
        *,
        seed: tf.Tensor,
        weights: Any = None,
    ) -> tuple[State, State]:
        """(posterior, prior) State [B, T, ...] for embedded [B, T, E] and actions [B, T, A] that led to them."""


class Perception(Protocol):
    """The part of a world model that acting and prediction share.

    Attributes:
      normaliser: None, or what scales state observations by the replay, with `catch_up` as in `StateNormaliser`.
    """

    normaliser: Any

    def prepare(self, observation: Mapping[str, tf.Tensor], seed: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """What the environment gives ('image' uint8 [..., 64, 64, 3] and/or 'state' [..., n]), as `embed` takes it."""

    def embed(self, prepared: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """[..., E]."""

    def reward(self, features: tf.Tensor) -> tf.Tensor:
        """Mean reward [...] of the step that led to a state, for `State.features` [..., Z + H]."""


class TrainableWorldModel(Perception, Protocol):
    """What collecting, planning, learning, evaluating and saving ask of a world model; it is a tf.Module.

    Where `continues`, it also has `continuation(features)`: the probability [...] that the episode goes on. With
    `model.value` it has `value(features)`: the discounted return after a state, [...]. With `model.policy` it has
    `behaviour_features(state, embedded)`, [..., F], what the policy reads of a State and an embedding [..., E];
    `policy(features)`: mean and stddev of its action, each [..., A]; and `act(features)`: the action in [-1, 1] of its
    mean, [..., A].

    Attributes:
      action_size: A.
    """

    action_size: int

    @property
    def rssm(self) -> Transition: ...

    @property
    def continues(self) -> bool: ...

    @property
    def variables(self) -> Sequence[tf.Variable]: ...

    @property
    def trainable_variables(self) -> Sequence[tf.Variable]: ...

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
        """To minimise, and scalars to log by name; arguments as of `WorldModel.loss`."""

    def weight_kl(self) -> Mapping[str, tf.Tensor]:
        """KL(q || p) of the weights in nats, by layer; {} where nothing is random."""

    def weight_stddev(self) -> Mapping[str, tf.Tensor]:
        """Mean posterior stddev, by layer; {} where nothing is random."""


class PredictiveWorldModel(Perception, Protocol):
    """What open-loop prediction asks for: videos while training, `analyse`, `imagine`, `uncertainty`.

    Attributes:
      observation_shapes: {'image': (64, 64, 3)} and/or {'state': (n,)}.
    """

    observation_shapes: Mapping[str, tuple[int, ...]]

    @property
    def rssm(self) -> PredictiveTransition: ...

    def observe(self, batch: Mapping[str, tf.Tensor], seed: tf.Tensor, weights: Any = None) -> tuple[State, State]:
        """As of the transition, for observations that are not prepared yet."""

    def decode(self, features: tf.Tensor, normalised: bool = False) -> Mapping[str, tf.Tensor]:
        """Mean of each observation: images in [-0.5, 0.5], states in the environment's units, or `normalised`."""


WorldModelFactory = Callable[[Config, Mapping[str, tuple[int, ...]], int, str], TrainableWorldModel]
"""Makes one from the configuration, {'image' and/or 'state': shape}, A, and the Keras dtype policy of
`train.precision`. The class `WorldModel` is one."""


def missing(world_model: Any, protocol: type) -> list[str]:
    """Names of a world model's protocol that an object lacks, 'rssm.NAME' those of its transition."""
    found = [name for name in names_of(protocol) if not hasattr(world_model, name)]
    if "rssm" not in found:
        transition = PredictiveTransition if protocol is PredictiveWorldModel else Transition
        found += [f"rssm.{name}" for name in names_of(transition) if not hasattr(world_model.rssm, name)]
    return found


def require_predictive(world_model: Any, what: str) -> None:
    """Raises ValueError unless the world model can predict observations; `what` needs it."""
    lacking = missing(world_model, PredictiveWorldModel)
    if lacking:
        raise ValueError(
            f"{what} needs a world model with {', '.join(lacking)}; {type(world_model).__name__} has none. Accepted: "
            "what bayes_planet.world_model.interface.PredictiveWorldModel says."
        )


def names_of(protocol: type) -> list[str]:
    """Methods, properties and attributes of a protocol, sorted."""
    names = {
        name: None
        for each in protocol.__mro__
        if getattr(each, "_is_protocol", False) and each is not Protocol
        for name in (*vars(each).get("__annotations__", {}), *vars(each))
        if not name.startswith("_")
    }
    return sorted(names)
