"""Model parallelism: variables of layers laid out over a mesh of devices."""
