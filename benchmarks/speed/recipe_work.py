"""The work of `laptop`: an actor and values of actions that learn from the replay, and read what the change encoder
gives. As in `roofline`, counted as the algorithm states it."""

import dataclasses
from collections.abc import Iterable

from bayes_planet.config import Config
from bayes_planet.config.constants import TRANSITION_ROWS, TRANSITIONS
from bayes_planet.world_model.networks.encoders import EMBEDDING_SIZE
from benchmarks.speed import roofline
from benchmarks.speed.roofline import Product, Work, dense, head
from benchmarks.speed.settings import sizes_of
from benchmarks.speed.yardsticks.sizes import Sizes


def is_recipe(config: Config) -> bool:
    """Whether these formulas are for `config`; those of `roofline` are for any other from pixels."""
    return config.model.action_value and config.model.image_encoder == "change"


def encoder(sizes: Sizes, images: int) -> list[Product]:
    """Three stride-2 VALID convolutions of two images, and a dense layer."""
    channels = [6, *sizes.encoder_channels[1:4]]
    inputs = sizes.encoder_sides[3] ** 2 * channels[3]
    return [*roofline.convolutions(sizes, channels, images), dense("embedding", images, inputs, EMBEDDING_SIZE)]


def behaviour_products(sizes: Sizes, heads: int) -> list[Product]:
    """Everything one update of actor, values and encoder multiplies."""
    rows, inputs = TRANSITIONS, EMBEDDING_SIZE + sizes.action
    actor = head("actor", sizes, rows, EMBEDDING_SIZE, 2 * sizes.action)
    values = [product for number in range(heads) for product in head(f"value_{number}", sizes, rows, inputs)]
    first, *others = actor
    return [
        *encoder(sizes, rows),
        *values,
        # What follows, by the encoder that learns and the one that targets are from, and what is worth what there.
        *_again([*encoder(sizes, rows), *encoder(sizes, rows), *actor, *values], passes=1),
        # The actor's input is not its own to change; it follows the values' gradient to their input alone.
        dataclasses.replace(first, passes=2),
        *others,
        *_again(values, passes=2),
    ]


def world_model_products(sizes: Sizes, image_fraction: float = 1.0) -> list[Product]:
    """As `roofline.update_products`, of a model that the encoder does not learn from."""
    rows = sizes.batch * sizes.steps
    known = ("convolution", "posterior_hidden")
    products = roofline.update_products(sizes, image_fraction)
    others = [each for each in products if not each.name.startswith(known)]
    return [
        *_again(encoder(sizes, rows), passes=1),
        dense("posterior_hidden", rows, sizes.belief + EMBEDDING_SIZE, sizes.hidden),
        *others,
    ]


def update_work(config: Config) -> Work:
    """One update: of the world model, and `train.behaviour_updates` of actor, values and encoder."""
    sizes, count = sizes_of(config), config.train.behaviour_updates
    products = world_model_products(sizes, config.loss.image_fraction)
    products += count * behaviour_products(sizes, config.model.value_heads)
    return roofline.learning_work(products, sizes.batch * sizes.steps + TRANSITION_ROWS * count * TRANSITIONS)


def decision_products(sizes: Sizes) -> list[Product]:
    """The filter's step, and what the actor says."""
    return [
        *encoder(sizes, 1),
        *roofline.transition(sizes, 1),
        *roofline.gaussian("posterior", sizes, 1, sizes.belief + EMBEDDING_SIZE),
        *head("actor", sizes, 1, EMBEDDING_SIZE, 2 * sizes.action),
    ]


def decision_work(config: Config) -> Work:
    """One decision of the actor."""
    return roofline.forward_work(decision_products(sizes_of(config)))


def _again(products: Iterable[Product], passes: int) -> list[Product]:
    """Products by weights that are counted elsewhere, or that no gradient changes."""
    return [dataclasses.replace(product, passes=passes, parameters=0) for product in products]
