"""`python -m bayes_planet`: the command line."""

import sys

from bayes_planet.cli import run

if __name__ == "__main__":
    sys.exit(run())
