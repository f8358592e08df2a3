"""Learning from the replay: one update, the loop around it, and what keeps a long run safe."""
