"""Sections of the page about the model: what it predicts, how sure it is, and what its latent state knows."""

from typing import Any, Protocol

import numpy as np

from bayes_planet.report.figures.open_loop import open_loop_section
from bayes_planet.report.figures.probe import probe_section
from bayes_planet.report.figures.uncertainty import calibration_section, novelty_section, uncertainty_section
from bayes_planet.report.pages.section import Section


class ModelAnalysis(Protocol):
    """What is drawn: `bayes_planet.evaluation.analysis.Analysis`."""

    @property
    def numbers(self) -> dict[str, Any]: ...

    @property
    def arrays(self) -> dict[str, np.ndarray]: ...


def sections(analysis: ModelAnalysis) -> list[Section]:
    """The sections of one analysed run, in the order a reader wants them. Parts that were not measured say so."""
    numbers, arrays = analysis.numbers, analysis.arrays
    return [
        open_loop_section(numbers, arrays),
        uncertainty_section(numbers, arrays),
        calibration_section(numbers),
        novelty_section(numbers),
        probe_section(numbers, arrays),
    ]
