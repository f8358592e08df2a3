"""One small trained `BayesPlanet` for all tests that only read it."""

import pytest

from tests.agents.small import model_in


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Four episodes in one call, the first two of random actions, no evaluation."""
    with model_in(tmp_path_factory.mktemp("trained") / "run") as model:
        assert model.learn(episodes=4) is model
        yield model
