"""What a page is made of, and no more: sections of notes, tables, pictures and videos. `page` turns them into HTML."""

import dataclasses
import io
import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from bayes_planet.report.figures import style

Cell = str | float | int | None


@dataclasses.dataclass(frozen=True)
class Note:
    """A paragraph of plain text (escaped when written). `missing`: says what is not there and how to get it."""

    text: str
    kind: Literal["text", "missing", "warning"] = "text"


@dataclasses.dataclass(frozen=True)
class Picture:
    """A finished image; `picture` makes one of a matplotlib figure.

    Attributes:
      data: the bytes of the file.
      media_type: image/svg+xml or image/png.
      caption: shown below; says what is drawn and the units.
      alt: what a reader who cannot see the image must know: the finding, not the looks.
      width: CSS pixels at which its text has the size it was made for. Wider than a phone: it scrolls there.
    """

    data: bytes
    media_type: Literal["image/svg+xml", "image/png"]
    caption: str
    alt: str
    width: int

    def __post_init__(self) -> None:
        if not self.data or not self.alt.strip():
            raise ValueError("A picture has no bytes or no alternative text. Accepted: both, for readers without eyes.")


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of as many cells as `header`. Numbers are shown with four digits, None as a dash; the first column names."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(
                    f"Row {list(row)!r:.80} has {len(row)} cells. Accepted: {len(self.header)}, as {list(self.header)}."
                )


@dataclasses.dataclass(frozen=True)
class Video:
    """frames: uint8 [T, H, W, 3]; fps: frames a second. `alt` as for a picture; empty: the caption."""

    frames: np.ndarray
    fps: float
    caption: str
    alt: str = ""


@dataclasses.dataclass(frozen=True)
class Details:
    """Parts behind a line that a reader opens, such as a full configuration."""

    summary: str
    parts: "Sequence[Part]"


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading (in the table of contents), a paragraph, and the parts in order. Neighbouring pictures share a row.

    A section inside another one, or inside details, has a smaller heading and is not in the table of contents.
    """

    title: str
    intro: str
    parts: "Sequence[Part]"


Part = Note | Picture | Table | Video | Details | Section


def picture(figure: Figure, caption: str, alt: str, kind: Literal["svg", "png"] = "svg") -> Picture:
    """Renders a figure that was made inside `style.theme()`.

    svg for curves: sharp at any size, and its ink follows the reader's light or dark page. png (150 dots an inch, on
    white) for figures that hold many pixels, such as frames and maps.
    """
    buffer = io.BytesIO()
    width = round(figure.get_figwidth() * style.CSS_PIXELS_PER_INCH)
    with style.theme(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        if kind == "png":
            figure.savefig(buffer, format="png", dpi=150, facecolor="white")
            return Picture(buffer.getvalue(), "image/png", caption, alt, width)
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return Picture(style.follow_page(buffer.getvalue()), "image/svg+xml", caption, alt, width)
