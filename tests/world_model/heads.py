"""What tests of a further head share: its loss, the same model without it, and training on one batch."""

import tensorflow as tf

from bayes_planet.behaviour.learning import loss_and_gradients
from bayes_planet.world_model import WorldModel
from bayes_planet.world_model.world_model import LossTerms
from tests.world_model.tiny import seed, tiny_config, tiny_model


def terms(model: WorldModel, batch: dict, num_data: float = 9.0) -> LossTerms:
    return learnt(model, batch, [], num_data)[0]


def learnt(
    model: WorldModel, batch: dict, variables: list[tf.Variable], num_data: float = 9.0
) -> tuple[LossTerms, list[tf.Tensor]]:
    """The losses, and what these variables learn from them."""
    options = {"num_data": tf.constant(num_data), "weight_kl_scale": tf.constant(1.0)}
    return loss_and_gradients(model, variables, batch, seed=seed(1), weight_seed=seed(2), **options)


def with_and_without(setting: str, **changes) -> tuple[WorldModel, WorldModel, list[tf.Variable]]:
    """A model with the head of `model.SETTING`, one without that has the same other variables, and these of the first."""
    ours = tiny_model(tiny_config(model={setting: True}, **changes))
    theirs = tiny_model(tiny_config(**changes))
    head = {id(each) for each in getattr(ours, f"_{setting}_head").trainable_variables}
    others = [variable for variable in ours.trainable_variables if id(variable) not in head]
    for variable, other in zip(others, theirs.trainable_variables, strict=True):
        other.assign(variable)
    return ours, theirs, others


def train(model: WorldModel, batch: dict, learning_rate: float, updates: int) -> None:
    """Adam on one batch, with the same random numbers in every update."""
    optimizer = tf.keras.optimizers.legacy.Adam(learning_rate)

    @tf.function
    def update():
        _, gradients = learnt(model, batch, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    for _ in range(updates):
        update()
