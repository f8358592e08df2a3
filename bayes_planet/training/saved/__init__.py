"""A trained agent to a folder and back: checkpoints of a run, saved models, and the best one."""
