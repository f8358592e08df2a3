"""The command line: `bayes-planet train | evaluate | configs`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import bayes_planet
from bayes_planet.commands.errors import EXIT_BAD_INPUT, UserError


def parser() -> argparse.ArgumentParser:
    """The whole command line, with its help texts."""
    top = argparse.ArgumentParser(
        prog="bayes-planet",
        description="Bayesian PlaNet: a latent world model from pixels, a belief over its weights, and a planner.",
    )
    top.add_argument("--version", action="version", version=f"bayes-planet {bayes_planet.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser(
        "train",
        help="train an agent, or go on with a run",
        description="Train an agent. The same command on the same --logdir goes on where the run stopped.",
    )
    train.add_argument(
        "--config",
        nargs="+",
        default=["bayes_planet"],
        metavar="PRESET",
        help="presets or YAML files, later ones win (see `bayes-planet configs`); default: bayes_planet",
    )
    train.add_argument("--logdir", required=True, type=Path, help="the run's folder; made if missing")
    train.add_argument(
        "overrides", nargs="*", metavar="key=value", help="single settings, such as seed=1 train.batch_size=16"
    )

    evaluate = commands.add_parser(
        "evaluate",
        help="run a trained agent without noise",
        description="Run noise-free episodes with the newest checkpoint of a run.",
    )
    evaluate.add_argument("run", type=Path, help="the folder of a training run")
    evaluate.add_argument(
        "--episodes", type=int, default=10, help="episodes, each with its own environment seed (default: 10)"
    )
    evaluate.add_argument(
        "--seed", type=int, default=0, help="seed of the environments and of the planner (default: 0)"
    )
    evaluate.add_argument(
        "--video", type=Path, metavar="FILE", help="write what the agent does in the first episode, .mp4 or .gif"
    )
    evaluate.add_argument(
        "--open-loop",
        type=Path,
        metavar="FILE",
        help="write true, predicted and error frames side by side, .mp4 or .gif",
    )
    evaluate.add_argument("--json", action="store_true", help="print the result as JSON")

    configs = commands.add_parser("configs", help="list presets, or print the configuration they make")
    configs.add_argument("presets", nargs="*", metavar="PRESET", help="print what these give together")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0 done, 2 bad input, 75 interrupted and saved."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _run(options: argparse.Namespace) -> int:
    if options.command == "configs":
        from bayes_planet.commands.configs import configs

        return configs(options.presets)
    if options.command == "train":
        from bayes_planet.commands.train import train

        # Behind `--config a b` a key=value item would be taken for a preset, which never holds an equals sign.
        stack = [item for item in options.config if "=" not in item]
        overrides = [item for item in options.config if "=" in item] + options.overrides
        return train(stack, overrides, options.logdir)
    from bayes_planet.commands.evaluate import evaluate

    return evaluate(options)


if __name__ == "__main__":
    sys.exit(main())
