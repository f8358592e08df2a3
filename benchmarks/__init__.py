"""How fast the package is, beside plain TensorFlow and PyTorch on the same machine. Run: python -m benchmarks.run"""
