"""What lies in a run's folder: its files, checkpoints, metrics, random streams, and models saved from it."""
