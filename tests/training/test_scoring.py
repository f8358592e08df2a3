"""A film is of the episode that the score is about, however many episodes are planned for together."""

import numpy as np
import pytest

from bayes_planet.envs import Workers
from bayes_planet.evaluation.scoring import film
from tests.agents.small import model_in
from tests.envs.toy import CountingEnv


class Filmed(Workers):
    """Keeps the actions; frames are 4 x 4 pixels, as the toy task draws none."""

    def render(self, indices=None):
        return np.zeros((1, 4, 4, 3), np.uint8)

    def step(self, actions, *arguments):
        self.actions = [*getattr(self, "actions", []), np.array(actions)[0]]
        return super().step(actions, *arguments)


@pytest.mark.parametrize("episodes", [3, 2])
def test_a_film_has_the_actions_of_the_first_episode(tmp_path, episodes):
    with model_in(tmp_path / "run", {"evaluation": {"workers": 3, "every_episodes": 0, "videos": 0}}) as model:
        episode = model.evaluate(episodes).episodes[0]
        with Filmed(model.config.env, 1, None, CountingEnv) as environments:
            frames = film(model.actor, 0, environments, min(3, episodes))
    np.testing.assert_array_equal(np.stack(environments.actions), episode["action"][1:])
    assert len(frames) == len(episode["action"])
