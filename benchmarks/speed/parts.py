"""The benchmarks of single parts: `replay`, `environment` and `dense`."""

import time
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from bayes_planet import bayesian_layers
from bayes_planet.config import Config
from bayes_planet.envs import Workers
from bayes_planet.replay.store import EpisodeStore
from benchmarks.speed.results import Setup, measure, section
from benchmarks.speed.roofline import BYTES, PARAMETER_PASSES, UPDATE_PASSES, Work
from benchmarks.speed.roofline import dense as dense_product
from benchmarks.speed.settings import ACTION_SIZE, config_of
from benchmarks.timing import Contestant, Measure, timed

EPISODES = 20
WORKERS = (1, 4)
DENSE_SHAPE = (2500, 200, 200)


def replay(setup: Setup) -> list[dict]:
    """One batch of sequences out of a folder of episodes: decoded ones in memory, and all of them on disk."""
    sections = []
    for size in setup.sizes:
        config = config_of(size)
        rows = config.env.episode_env_steps // config.env.action_repeat + 1
        folder = setup.folder / f"episodes-{size}"
        memory = EpisodeStore(folder, config.replay.ram_gigabytes * 1e9)
        for index in range(EPISODES):
            memory.add(make_episode(rows, index), index)
        disk = EpisodeStore(folder, 0.0)
        batch = memory.sample(config.train.batch_size, config.train.sequence_length, (0,))
        size_of_batch = sum(array.nbytes for array in batch.values())
        work = Work(0, dict.fromkeys(BYTES, 2 * size_of_batch))  # read and written once
        entries = [
            Contestant("memory", "episodes in memory", timed(_sampler(memory, config)), work),
            Contestant("disk", "episodes read from disk", timed(_sampler(disk, config)), work),
        ]
        title = f"One batch from the replay, {size}: {EPISODES} episodes of {rows} rows"
        sections.append(section(title, "batch", measure(entries, setup), size, batch_bytes=size_of_batch))
    return sections


def make_episode(rows: int, seed: int) -> dict[str, np.ndarray]:
    """An episode whose images compress about as a rendered one's do: a chequered floor that moves, and some noise."""
    generator = np.random.default_rng(seed)
    place = np.arange(64)
    shift = np.cumsum(generator.integers(0, 3, rows))
    floor = ((place[None, None, :] + shift[:, None, None]) // 8 + place[None, :, None] // 8) % 2
    image = (80 + 60 * floor[..., None] + generator.integers(0, 4, (rows, 64, 64, 1))).astype(np.uint8)
    action = generator.uniform(-1.0, 1.0, (rows, ACTION_SIZE)).astype(np.float32)
    reward = generator.uniform(0.0, 1.0, rows).astype(np.float32)
    action[0], reward[0] = 0.0, 0.0
    terminal = np.zeros(rows, bool)
    return {"image": np.repeat(image, 3, -1), "action": action, "reward": reward, "is_terminal": terminal}


def _sampler(store: EpisodeStore, config: Config) -> Callable[[], dict[str, np.ndarray]]:
    counts: Iterator[int] = iter(range(10**9))
    return lambda: store.sample(config.train.batch_size, config.train.sequence_length, (next(counts),))


def environment(setup: Setup) -> list[dict]:
    """One agent step with rendering, in one and in four worker processes; seconds are for one step of one worker."""
    config = config_of(setup.sizes[0]).env
    pools = [Workers(config, count) for count in WORKERS]
    try:
        entries = [
            Contestant(f"workers/{pool.count}", f"{pool.count} worker" + "s" * (pool.count > 1), make_stepper(pool))
            for pool in pools
        ]
        rows = measure(entries, setup, least_seconds=1.0)
        for row in rows:
            row["note"] = f"{config.action_repeat / row['seconds']['median']:.0f} environment steps a second"
        title = f"One agent step of {config.name} with its image, action repeat {config.action_repeat}"
        return [section(title, "agent step", rows, **pools[0].description)]
    finally:
        for pool in pools:
            pool.close()


def make_stepper(pool: Workers) -> Measure:
    """Steps of one worker; all workers of the pool step side by side, and resets are not counted."""
    generator = np.random.default_rng(0)
    seeds = list(range(pool.count))
    taken = 0

    def step_all() -> float:
        nonlocal taken
        if taken == pool.episode_steps:
            pool.reset(seeds)
            taken = 0
        taken += 1
        actions = generator.uniform(-1.0, 1.0, (pool.count, ACTION_SIZE)).astype(np.float32)
        start = time.perf_counter()
        pool.step(actions)
        return time.perf_counter() - start

    def measure_steps(repeats: int) -> float:
        nonlocal taken
        pool.reset(seeds)  # another contestant may have used them
        taken = 0
        calls = -(-repeats // pool.count)
        return sum(step_all() for _ in range(calls)) * repeats / (calls * pool.count)

    return measure_steps


def dense(setup: Setup) -> list[dict]:
    """A dense layer, forward and backward: Keras's, and the variational one with and without its KL in the loss."""
    rows, inputs, units = DENSE_SHAPE
    product = dense_product("dense", rows, inputs, units)
    flops = 3 * 2 * product.multiply_adds
    # No optimizer here: three of its ten passes over the parameters are left.
    traffic = BYTES["float32"] * (UPDATE_PASSES * product.outputs + (PARAMETER_PASSES - 7) * product.parameters)
    work = Work(flops, dict.fromkeys(BYTES, traffic))
    keras = tf.keras.layers.Dense(units)
    variational = bayesian_layers.VariationalDense(units)
    entries = [
        Contestant("keras", "tf.keras.layers.Dense", timed(_forward_and_backward(keras, False)), work),
        Contestant("variational", "VariationalDense", timed(_forward_and_backward(variational, False)), work),
        Contestant(
            "variational/kl", "VariationalDense and its KL", timed(_forward_and_backward(variational, True)), work
        ),
    ]
    title = f"A dense layer forward and backward, float32, batch {rows}, {inputs} to {units}"
    return [section(title, "pass", measure(entries, setup))]


def _forward_and_backward(layer: tf.keras.layers.Layer, with_kl: bool) -> Callable[[], object]:
    rows, inputs, units = DENSE_SHAPE
    generator = tf.random.Generator.from_seed(0)
    x, cotangent = generator.normal([rows, inputs]), generator.normal([rows, units])
    layer.build(x.shape)

    def step(x: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x) if isinstance(layer, tf.keras.layers.Dense) and not layer.losses else layer(x, seed=seed)
            loss = tf.reduce_sum(y * cotangent)
            if with_kl:
                loss += tf.add_n(layer.losses)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    compiled = tf.function(step, autograph=False)
    seed = tf.constant([1, 2])
    return lambda: compiled(x, seed)[0].numpy()
