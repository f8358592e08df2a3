"""The larger models of the gallery."""
