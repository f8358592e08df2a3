"""The snippets of docs/environments.md run as written, and what they print is what the page says."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np

from bayes_planet.config import Config, presets

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text(encoding="utf-8")


def test_snippets_run_and_print_what_their_comments_say():
    snippets = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        exec(compile(snippets, "environments.md", "exec"), names)
    promised = [line.split("# ")[1] for line in snippets.splitlines() if line.strip().startswith("print(")]
    assert len(promised) == 3 and printed.getvalue().splitlines() == promised
    own = names["make"](names["EnvConfig"](observations="state", action_repeat=1), factory=names["PointMass"])
    own.reset(seed=0)
    rewards = [own.step(np.ones(1, np.float32))[1:3] for _ in range(3)]
    assert not any(ended for _, ended in rewards) and 0.5 <= rewards[0][0] <= 1


def test_presets_and_settings_on_the_page_exist():
    stacks = re.findall(r"bayes-planet train --config ([a-z_ ]+) --logdir", PAGE)
    assert len(stacks) >= 4
    for stack in stacks:
        presets.load(stack.split())
    known = presets.flatten(Config())
    named = re.findall(r"`((?:env|model|loss|train)\.[a-z_]+)", PAGE)
    assert len(named) > 5 and [name for name in named if name not in known] == []
