"""PlaNet as a user of TensorFlow or PyTorch would write it: what the package's speed is measured against."""
