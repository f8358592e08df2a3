"""YAML presets, named by their file: `bayes-planet train --config bayes_planet cheetah_run`."""

if __name__ == "configs":
    raise ImportError("Import bayes_planet.configs: plain `configs` is a folder that the package links to.")
