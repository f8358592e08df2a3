"""From an agent and environments to episodes: rollouts, rounds, faults, exploration noise."""
