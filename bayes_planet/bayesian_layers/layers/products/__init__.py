"""Products of inputs and random weights: per sample, with flipped signs, with gates side by side."""
