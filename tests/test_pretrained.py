"""The agent in pretrained/: small, restorable anywhere, with a belief that has moved; and its return is what is published."""

import json
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import BayesPlanet, cli
from bayes_planet.world_model.networks.precision import dtype_policy

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "pretrained" / "cheetah_run"
PUBLISHED = json.loads((FOLDER / "published.json").read_text())


def test_it_is_small():
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 10e6


def test_its_belief_has_moved_and_differs_by_layer():
    model = BayesPlanet.load(FOLDER)
    beliefs = model.world_model.weight_kl()
    nats = {name: float(value) for name, value in beliefs.items()}
    assert set(nats) == set(PUBLISHED["weight_kl"])
    for name, value in nats.items():
        np.testing.assert_allclose(value, PUBLISHED["weight_kl"][name], rtol=1e-3)
    assert min(nats.values()) > 1000 and max(nats.values()) > 2 * min(nats.values())


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cem", "policy"])
def test_it_earns_what_is_published(method, capfd):
    """The number format differs by processor: elsewhere the returns are others, of the same agent."""
    assert cli.main(["evaluate", str(FOLDER), "--planner", f"method={method}", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    number_format = "bfloat16" if dtype_policy("auto") == "mixed_bfloat16" else "float32"
    returns = PUBLISHED["returns"][method][number_format]
    error = np.hypot(np.std(returns, ddof=1), np.std(found["returns"], ddof=1)) / np.sqrt(len(returns))
    assert abs(found["mean"] - np.mean(returns)) < 3 * error
