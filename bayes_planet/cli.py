"""The command line: `bayes-planet train | sweep | evaluate | analyse | report | export | configs | install`."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bayes_planet.commands.errors import EXIT_NOT_WRITTEN, UserError, require_text
from bayes_planet.commands.parser import parser
from bayes_planet.commands.program import program
from bayes_planet.files.writing import is_disk_full

if TYPE_CHECKING:
    import argparse


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0 done, 2 bad input, 74 could not be saved, 75 interrupted and saved."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        for item in given:
            require_text(item)
        top = parser()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow
            from bayes_planet.completion import complete

            complete(top)
        return _run(top.parse_args(given))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except OSError as error:
        if not is_disk_full(error):
            raise
        where = f" ({os.fsdecode(error.filename)})" if error.filename else ""
        print(
            f"error: The disk is full{where}: {error.strerror}. Make room, then give the same command.", file=sys.stderr
        )
        return EXIT_NOT_WRITTEN


def run() -> int:
    """`main` as the whole program: see `commands.program`."""
    return program(main)


def _run(options: "argparse.Namespace") -> int:
    if options.command == "configs":
        from bayes_planet.commands.configs import configs

        return configs(options.presets, options.reference)
    if options.command == "sweep":
        from bayes_planet.sweeps.command import sweep

        return sweep(options, main)
    if options.command == "install":
        from bayes_planet.commands.install import install

        return install(options)
    if options.command == "export":
        from bayes_planet.commands.export import export

        return export(options)
    if options.command == "train":
        from bayes_planet.commands.train import train
        from bayes_planet.config import presets

        # After `--config a b` a key=value item would be taken for a preset.
        stack, overrides = presets.apart(options.config)
        overrides += options.overrides
        return train(stack, overrides, options.logdir, options.device, options.strategy, options.change)
    if options.command == "report":
        from bayes_planet.commands.report import report

        return report(options)
    if options.command == "analyse":
        from bayes_planet.commands.analyse import analyse

        return analyse(options)
    from bayes_planet.commands.evaluate import evaluate

    return evaluate(options)


if __name__ == "__main__":
    sys.exit(run())
