"""An environment of your own: a point mass in the plane, pushed to a goal. Learnt from its state, filmed by `render`.

Any `gymnasium.Env` with bounded Box actions will do. Give its class, or a function that makes it, to `BayesPlanet`: it
is called in the processes that collect, so the environment itself is never sent anywhere.

    python examples/own_environment.py --episodes 20 --video point_mass.mp4
"""

import argparse

import gymnasium
import numpy as np

from bayes_planet import BayesPlanet


class PointMass(gymnasium.Env):
    """A unit mass in [-1, 1] x [-1, 1] with friction. Two forces push it; the reward is near 1 at the origin.

    Args:
      steps: after which an episode is cut (truncated: it could go on).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}
    render_mode = "rgb_array"  # `render` gives an image; without it the agent can only learn from the state

    def __init__(self, steps: int = 50):
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.steps = steps

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        self.velocity = np.zeros(2)
        self.count = 0
        return self.state(), {}

    def step(self, action):
        self.velocity = 0.9 * self.velocity + 0.1 * np.asarray(action, np.float64)
        self.position = np.clip(self.position + 0.1 * self.velocity, -1.0, 1.0)
        self.count += 1
        reward = float(np.exp(-4.0 * np.sum(self.position**2)))
        return self.state(), reward, False, self.count >= self.steps, {}

    def state(self) -> np.ndarray:
        return np.concatenate([self.position, self.velocity]).astype(np.float32)

    def render(self) -> np.ndarray:
        """uint8 [64, 64, 3]: the mass in white, the goal in green. Other sizes are resized to 64 x 64."""
        image = np.zeros((64, 64, 3), np.uint8)
        for (x, y), color in ((np.zeros(2), (0, 160, 0)), (self.position, (255, 255, 255))):
            row, column = int(32 - 28 * y), int(32 + 28 * x)
            image[row - 2 : row + 3, column - 2 : column + 3] = color
        return image


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Trains, evaluates and films. Gives the mean return before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50, help="of an episode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logdir", help="the run's folder; none: a temporary one")
    parser.add_argument("--video", help="where to film the trained agent, .mp4 or .gif")
    parser.add_argument("--size", choices=["small", "test"], default="small", help="test: seconds, learns nothing")
    options = parser.parse_args(arguments)

    steps = options.steps  # what the function uses is sent to the processes along with it
    config = ["state"] if options.size == "small" else ["state", "debug"]
    with BayesPlanet(lambda: PointMass(steps), config, seed=options.seed, logdir=options.logdir, verbose=1) as model:
        before = model.evaluate(episodes=5).mean
        model.learn(episodes=options.episodes, progress_bar=True)
        after = model.evaluate(episodes=5).mean
        print(f"return {before:.1f} before, {after:.1f} after {model.num_env_steps} steps; at best near {steps}")
        if options.video:
            print(f"film: {model.record_video(options.video)}")
    return before, after


if __name__ == "__main__":
    main()
