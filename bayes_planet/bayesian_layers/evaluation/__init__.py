"""How sure predictions over weight samples are, and how good."""
