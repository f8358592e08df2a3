"""YAML from anywhere, looked through before it is built: a few aliases can stand for more than memory holds."""

import yaml

MOST_BYTES = 2**20
MOST_VALUES = 100_000
MOST_LEVELS = 64


def check_yaml(text: str) -> None:
    """Raises ValueError where a text would become too large or too deep, or has an alias inside what it stands for;
    yaml.YAMLError where it is no YAML."""
    sizes: dict[str, tuple[int, int]] = {}  # of what an anchor names: values in it, levels of it
    stack: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # of what is open: anchor, values, most levels inside
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append((event.anchor, 1, 0))
            added = (0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, levels = stack.pop()
            added = values, levels + 1
            if anchor is not None:
                sizes[anchor] = added
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias *{event.anchor} stands for nothing before it")
            added = sizes[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor is not None:
                sizes[event.anchor] = 1, 0
            added = 1, 0
        else:
            continue
        anchor, values, levels = stack[-1]
        stack[-1] = anchor, values + added[0], max(levels, added[1])
        if values + added[0] > MOST_VALUES:
            raise ValueError(f"it stands for more than {MOST_VALUES} values, aliases counted")
        if len(stack) - 1 + added[1] > MOST_LEVELS:
            raise ValueError(f"it has more than {MOST_LEVELS} levels")
