"""The agent in pretrained/: small, restorable anywhere, with a belief that has moved; and it earns what is published."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bayes_planet import BayesPlanet, cli, presets
from bayes_planet.world_model.precision import dtype_policy

FOLDER = Path(__file__).parents[1] / "pretrained" / "cheetah_run"
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


def test_the_recipe_ends_with_its_configuration():
    recipe = (FOLDER.parent / "README.md").read_text().split("```bash\n")[2].partition("```")[0]
    shell = 'bayes-planet() { echo "$*"; }\n' + recipe
    said = subprocess.run(["bash", "-ec", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    stack, overrides = ["bayes_planet", "cheetah_run", "laptop"], [item for item in said[-1].split() if "=" in item]
    assert len(said) == 7 and said[-1].startswith(f"train --change --config {' '.join(stack)} --logdir")
    there = presets.read(FOLDER / "config.yaml")
    differences = presets.differences(presets.load(stack, overrides), there)
    assert differences.pop("env.render_quality") == ("auto", "fast")  # where it was trained the processor drew
    assert set(differences) <= {"train.episodes"}


@pytest.mark.slow
def test_it_earns_what_is_published(capfd):
    """The number format differs by processor: elsewhere the returns are others, of the same agent."""
    assert cli.main(["evaluate", str(FOLDER), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    returns = PUBLISHED["returns" if dtype_policy("auto") == "mixed_bfloat16" else "returns_in_float32"]
    error = np.hypot(np.std(returns, ddof=1), np.std(found["returns"], ddof=1)) / np.sqrt(len(returns))
    assert abs(found["mean"] - np.mean(returns)) < 3 * error
