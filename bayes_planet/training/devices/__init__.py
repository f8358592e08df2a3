"""Which devices and processes a run is trained on."""
