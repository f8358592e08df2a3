"""Programs to copy from: each file is one, run as `python -m examples.gallery.NAME`."""
