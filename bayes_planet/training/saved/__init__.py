"""A trained agent to a folder and back: saved models, the best one, packed runs."""
