"""What is known of the true state: by closed forms, and one small measurement from end to end."""

import json

import numpy as np

from benchmarks.planning import sight
from benchmarks.planning.sight import probe_error, state_of


def test_what_is_seen_is_known_and_what_is_not_costs_one_standard_deviation():
    generator = np.random.default_rng(0)
    true = generator.normal(3.0, 5.0, (4000, 2))
    seen = np.concatenate([2.0 * true[:, :1] - 7.0, generator.normal(size=(4000, 3))], 1)
    error = probe_error(seen[:3000], true[:3000], seen[3000:], true[3000:])
    assert error[0] < 0.15
    assert 0.9 < error[1] < 1.4


def test_angles_are_sines_and_cosines():
    state = np.array([[0.5, np.pi / 2, -1.0], [0.25, 0.0, 2.0]])
    np.testing.assert_allclose(state_of({"state": state}, [1]), [[1, 0, 0.5, -1], [0, 1, 0.25, 2]], atol=1e-12)


def test_errors_are_printed_by_entry(capsys):
    sizes = ["env.episode_env_steps=80", "train.batch_size=2"]
    sight.main(
        ["--episodes", "3", "--updates", "1", "2", "--config", "bayes_planet", "cartpole_swingup", "debug", *sizes]
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["updates"] for row in rows] == [1, 2]
    for row in rows:
        assert len(row["embedding"]) == len(row["latent"]) == 5  # position, cosine, sine, two velocities
        assert np.all(np.isfinite(row["embedding"] + row["latent"]))
