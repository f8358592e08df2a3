"""bfloat16 learns what float32 learns: the loss after 500 updates on one data set, equal within the noise of seeds."""

import dataclasses

import numpy as np
import pytest

from bayes_planet.collecting.exploration import RandomPolicy
from bayes_planet.collecting.rollout import rollout
from bayes_planet.config import presets
from bayes_planet.envs import Workers
from bayes_planet.replay import EpisodeStore
from bayes_planet.training.build import build

SIZE = [
    "model.convolution_depth=8",
    "model.belief_units=64",
    "train.batch_size=8",
    "train.sequence_length=16",
    "loss.image_fraction=0.5",
    "env.episode_env_steps=400",
]
SEEDS, UPDATES = 3, 500
PIXELS = 64 * 64 * 3
CONSTANTS = {
    "elbo": 0.5 * np.log(2 * np.pi) * (PIXELS + 1),
    "loss/image": 0.5 * np.log(2 * np.pi) * PIXELS,
    "state_kl": 0.0,
}


def final_losses(config, spaces, replay) -> dict[str, float]:
    learner = build(config, *spaces).learner
    rows = []
    for update in range(UPDATES):
        batch = replay.sample(config.train.batch_size, config.train.sequence_length, (config.seed, 2, update))
        metrics = learner.update(batch, replay.rows)
        if update >= UPDATES - 50:
            rows.append({key: float(metrics[key]) for key in CONSTANTS})
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_loss_after_500_updates_is_that_of_float32(tmp_path, capsys):
    config = presets.load(["bayes_planet", "cheetah_run", "laptop"], SIZE)
    replay = EpisodeStore(tmp_path, 1e9)
    with Workers(config.env, 1) as workers:
        spaces = workers.observation_space, workers.action_space
        for index in range(6):
            policy = RandomPolicy(spaces[1].shape[0], 0, index)
            replay.add(rollout(workers, policy, [index])[0], index)
    losses: dict[str, list[dict[str, float]]] = {"float32": [], "bfloat16": []}
    for seed in range(SEEDS):
        for precision in losses:
            train = dataclasses.replace(config.train, precision=precision)
            losses[precision].append(final_losses(dataclasses.replace(config, seed=seed, train=train), spaces, replay))
    for key in losses["float32"][0]:
        full, half = (np.array([row[key] for row in losses[precision]]) for precision in losses)
        with capsys.disabled():
            print(f"\n{key}: float32 {full.mean():.3f} +- {full.std(ddof=1):.3f}, bfloat16 {half.mean():.3f}")
        # Three standard errors of the difference of two means of three seeds, and 2 percent of what can be learnt:
        # the likelihood's constant, half of log(2 pi) a pixel, is left out.
        noise = np.sqrt((full.var(ddof=1) + half.var(ddof=1)) / SEEDS)
        learnt = abs(full.mean()) - CONSTANTS[key]
        assert learnt > 0 and abs(full.mean() - half.mean()) < 3.0 * noise + 0.02 * learnt, key
