"""`bayes-planet configs`: what presets there are, and what they make together."""

from collections.abc import Sequence

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from bayes_planet.commands.errors import UserError, user_errors
from bayes_planet.config import presets
from bayes_planet.config.reference import reference


def configs(names: Sequence[str], all_settings: bool = False) -> int:
    """Lists the presets, or prints the configuration that `names` (presets, files, key=value) give as YAML.

    With `all_settings`, prints the reference of settings and presets instead.
    """
    if all_settings:
        if names:
            raise UserError(f"--reference is about every preset, but {names[0]!r} was given. Leave one of them out.")
        print(reference(), end="")
        return 0
    if not names:
        table = Table("preset", "what it is for", box=None)
        for name, description in presets.list_presets().items():
            table.add_row(name, description)
        Console().print(table)
        return 0
    with user_errors(presets.ConfigError):
        config = presets.load(*presets.apart(names))
    print(OmegaConf.to_yaml(OmegaConf.structured(config)), end="")
    return 0
