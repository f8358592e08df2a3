"""The agents in pretrained/: small, restorable anywhere, with a belief that has moved, and returns that are published."""

import json
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import BayesPlanet, cli
from bayes_planet.world_model.networks.precision import dtype_policy

ROOT = Path(__file__).parents[1]
PUBLISHED = {
    path.parent: json.loads(path.read_text()) for path in sorted((ROOT / "pretrained").glob("*/published.json"))
}
agents = pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)


@agents
def test_it_is_small(folder):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 7e6


@agents
def test_its_commands_name_its_place_in_the_repository(folder):
    for command in PUBLISHED[folder]["commands"].values():
        assert folder.relative_to(ROOT).as_posix() in command.split()


@agents
def test_its_belief_has_moved_and_differs_by_layer(folder):
    model, published = BayesPlanet.load(folder), PUBLISHED[folder]["weight_kl"]
    nats = {name: float(value) for name, value in model.world_model.weight_kl().items()}
    assert set(nats) == set(published)
    for name, value in nats.items():
        np.testing.assert_allclose(value, published[name], rtol=1e-3)
    assert min(nats.values()) > 1000 and max(nats.values()) > 2 * min(nats.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "method"), [(folder, method) for folder in PUBLISHED for method in PUBLISHED[folder]["returns"]], ids=str
)
def test_it_earns_what_is_published(folder, method, capfd, monkeypatch):
    """The number format differs by processor: elsewhere the returns are others, of the same agent."""
    published = PUBLISHED[folder]["returns"][method]
    number_format = "bfloat16" if dtype_policy("auto") == "mixed_bfloat16" else "float32"
    returns = published.get(number_format) or next(iter(published.values()))
    monkeypatch.chdir(ROOT)
    assert cli.main(PUBLISHED[folder]["commands"][method].split()[1:]) == 0
    found = json.loads(capfd.readouterr().out)
    assert len(found["returns"]) == len(returns)
    error = np.hypot(np.std(returns, ddof=1), np.std(found["returns"], ddof=1)) / np.sqrt(len(returns))
    assert abs(found["mean"] - np.mean(returns)) < 3 * error
