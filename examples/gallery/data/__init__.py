"""The data of the gallery, from installed packages."""
