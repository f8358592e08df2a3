"""Initial weights of the layers under test are the same in every run, whatever ran before."""

import pytest


@pytest.fixture(autouse=True)
def initial_weights():
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
