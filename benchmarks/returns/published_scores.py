"""What others reach on the six tasks of the PlaNet paper from pixels, mean and stddev over seeds, with sources.

Their action repeats are PlaNet's, so an env step is one of ours. Figures are facts; no file of theirs is here.
"""

from collections.abc import Mapping
from typing import NamedTuple

from bayes_planet.config import presets

TASKS = ("finger_spin", "cartpole_swingup", "reacher_easy", "cheetah_run", "walker_walk", "cup_catch")
"""Names of the presets, in the order of the published tables."""
PRESET_OF = {presets.load([preset]).env.name: preset for preset in TASKS}
"""Their presets by the names of the tasks."""

MLR = "table of the MLR authors (Yu et al. 2022), github.com/microsoft/Mask-based-Latent-Reconstruction figs/DMC.png"
COVR = "Table 4 of COVR (AAAI 2026), whose figures for earlier methods are cited there"


class Published(NamedTuple):
    """A row of a published table.

    scores: by task, (mean, stddev over seeds), either None where it is not printed. source: where it is printed.
    """

    method: str
    scores: Mapping[str, tuple[float | None, float | None]]
    source: str


def _row(method: str, text: str, source: str = MLR) -> Published:
    """Of 'mean±stddev' for each of TASKS, in order; '-' for none."""
    cells = [cell.split("±") for cell in text.split()]
    pairs = [
        (None, None) if cell == ["-"] else (float(cell[0]), float(cell[1]) if cell[1:] else None) for cell in cells
    ]
    return Published(method, dict(zip(TASKS, pairs, strict=True)), source)


PUBLISHED = {
    100_000: (
        _row("PlaNet", "136±216 297±39 20±50 138±88 224±48 0±0"),
        _row("Dreamer", "341±70 326±27 314±155 235±137 277±12 246±174"),
        _row("SAC+AE", "740±64 311±11 274±14 267±24 394±22 391±82"),
        _row("SLAC", "693±141 - - 319±56 361±73 512±110"),
        _row("CURL", "767±56 582±146 538±233 299±48 403±24 769±43"),
        _row("DrQ", "901±104 759±92 601±213 344±67 612±164 913±53"),
        _row("PlayVirtual", "915±49 816±36 785±142 474±50 460±173 926±31"),
        _row("MLR", "907±58 806±48 866±103 482±38 643±114 933±16"),
        _row("SVEA", "859±77 727±86 811±115 375±54 747±65 915±71", COVR),
        _row("TACO", "876±67 782±51 821±97 402±62 601±103 902±54", COVR),
        _row("MaDi", "810±95 704±54 766±101 432±44 574±94 884±36", COVR),
        _row("ResAct", "974±42 819±44 917±59 503±42 772±65 948±44", COVR),
        _row("COVR", "976±9 872±2 969±18 504±13 802±25 960±23", COVR),
    ),
    500_000: (
        _row("PlaNet", "561±284 475±71 210±390 305±131 351±58 460±380"),
        _row("Dreamer", "796±183 762±27 793±164 570±253 897±49 879±87"),
        _row("SAC+AE", "884±128 735±63 627±58 550±34 847±48 794±58"),
        _row("SLAC", "673±92 - - 640±19 842±51 852±71"),
        _row("CURL", "926±45 841±45 929±44 518±28 902±43 959±27"),
        _row("DrQ", "938±103 868±10 942±71 660±96 921 963±9"),
        _row("PlayVirtual", "963±40 865±11 942±66 719±51 928±30 967±5"),
        _row("MLR", "973±31 872±5 957±41 674±37 939±10 964±14"),
    ),
}
"""By env steps."""
