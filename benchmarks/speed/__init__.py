"""The speed of updates, plans and whole training runs, beside plain TensorFlow and PyTorch on the same machine."""
