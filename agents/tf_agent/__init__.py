"""The TF-Agents face: the agent, its policies, environments and trajectories."""
