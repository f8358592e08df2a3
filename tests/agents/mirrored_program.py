"""Trains on two replicas (logical processors) with the Learner of TF-Agents; prints what it saw as JSON.

TensorFlow is imported first on purpose: `tf.keras` stays Keras 2 all the same.
"""
# ruff: noqa: I001

import json
import sys

import tensorflow as tf

from bayes_planet.agents import GymnasiumPyEnvironment, model_batch
from tests.agents import toy
from tf_agents.drivers import py_driver
from tf_agents.policies import random_py_policy
from tf_agents.train import learner
from tf_agents.train.utils import train_utils

ROWS, LENGTH = 48, 6


def experience():
    """Eight chunks [8, 6, ...] of one stream of rows."""
    environment = GymnasiumPyEnvironment(toy.Echo())
    policy = random_py_policy.RandomPyPolicy(environment.time_step_spec(), environment.action_spec(), seed=0)
    rows = []
    py_driver.PyDriver(environment, policy, [rows.append], max_steps=ROWS).run(environment.reset())
    stream = tf.nest.map_structure(lambda *values: tf.stack(values[:ROWS]), *rows)
    return tf.nest.map_structure(lambda value: tf.reshape(value, [-1, LENGTH, *value.shape[1:]]), stream)


def main(root: str) -> None:
    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        step = train_utils.create_train_step()
        agent = toy.make_agent(toy.config(), num_data=ROWS, train_step_counter=step)
    # The strategy gives batches of 4 to its replicas in turn.
    chunks = experience()
    dataset = tf.data.Dataset.from_tensor_slices((chunks, ())).batch(4, drop_remainder=True).repeat()
    trainer = learner.Learner(
        root, step, agent, lambda: dataset,
        checkpoint_interval=-1, summary_interval=0, strategy=strategy,
    )  # fmt: skip
    info = trainer.run(iterations=2)
    values = [strategy.experimental_local_results(variable) for variable in agent.world_model.trainable_variables]
    print(
        json.dumps(
            {
                "keras": tf.keras.layers.Layer.__module__,
                "step": int(step.numpy()),
                "metrics": {name: float(value) for name, value in info.extra.items()},
                "loss": float(info.loss),
                "replicas": len(values[0]),
                "apart": max(float(tf.reduce_max(tf.abs(one - other))) for one, other in values),
                "valid_rows": int(tf.math.count_nonzero(model_batch(chunks)["mask"])),
                "weight_kl": float(sum(agent.world_model.weight_kl().values())),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
