"""Sections to one HTML file that needs nothing else: no network, no script, legible on a laptop and on a phone."""

import base64
import dataclasses
import html
import re
import unicodedata
from collections.abc import Sequence

from bayes_planet.report.pages.section import Cell, Details, Note, Part, Picture, Section, Table, Video
from bayes_planet.report.pages.style import CSS
from bayes_planet.report.pages.video import encode_mp4

MAX_BYTES = 24_000_000
"""Most bytes of a page. Videos and pictures that would pass it are left out, and the page says so."""

# Nothing may be fetched and no script may run, even if something hostile came through.
_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"


@dataclasses.dataclass
class _Budget:
    left: int

    def allows(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def render(title: str, subtitle: str, sections: Sequence[Section], footer: str, max_bytes: int = MAX_BYTES) -> bytes:
    """The page.

    Args:
      title, subtitle, footer: plain text, like every text of the sections: it is escaped here.
      sections: in order; each is a heading and an entry of the table of contents.
      max_bytes: what does not fit any more, in the order of the page, is replaced by a sentence. Text always fits.

    Returns:
      UTF-8 HTML.
    """
    budget = _Budget(max_bytes)
    anchors = _anchors([section.title for section in sections])
    contents = "".join(
        f'<li><a href="#{anchor}">{_text(section.title)}</a></li>'
        for section, anchor in zip(sections, anchors, strict=True)
    )
    body = "".join(_section(section, anchor, budget) for section, anchor in zip(sections, anchors, strict=True))
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{_text(title)}</title><style>{CSS}</style></head><body>"
        '<a class="skip" href="#content">Skip to the content</a>'
        f"<header><h1>{_text(title)}</h1><p>{_text(subtitle)}</p></header>"
        f'<div class="layout"><nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>'
        f'<main id="content">{body}</main></div>'
        f"<footer><p>{_text(footer)}</p></footer></body></html>\n"
    ).encode()


def _section(section: Section, anchor: str, budget: _Budget) -> str:
    intro = f'<p class="intro">{_prose(section.intro)}</p>' if section.intro else ""
    parts = _parts(section.parts, budget)
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{_text(section.title)}</h2>{intro}{parts}</section>'


def _parts(parts: Sequence[Part], budget: _Budget) -> str:
    """Neighbouring pictures and videos share a row where there is room."""
    written: list[str] = []
    row: list[str] = []
    for part in [*parts, None]:
        if isinstance(part, Picture | Video):
            row.append(_picture(part, budget) if isinstance(part, Picture) else _video(part, budget))
            continue
        if row:
            written.append(f'<div class="row">{"".join(row)}</div>')
            row = []
        if isinstance(part, Note):
            written.append(_note(part))
        elif isinstance(part, Table):
            written.append(_table(part))
        elif isinstance(part, Section):
            intro = f'<p class="intro">{_prose(part.intro)}</p>' if part.intro else ""
            written.append(f"<h3>{_text(part.title)}</h3>{intro}{_parts(part.parts, budget)}")
        elif isinstance(part, Details):
            inside = _parts(part.parts, budget)
            written.append(f"<details><summary>{_text(part.summary)}</summary>{inside}</details>")
    return "".join(written)


def _note(note: Note) -> str:
    if note.kind == "text":
        return f"<p>{_prose(note.text)}</p>"
    lead = {"missing": "Missing", "warning": "Mind"}[note.kind]
    return f'<p class="note {note.kind}"><strong>{lead}:</strong> {_prose(note.text)}</p>'


def _table(table: Table) -> str:
    numeric = [
        any(isinstance(row[column], int | float) for row in table.rows)
        and not any(isinstance(row[column], str) for row in table.rows)
        for column in range(len(table.header))
    ]
    kinds = [' class="number"' if each else "" for each in numeric]
    header = "".join(
        f'<th scope="col"{kind}>{_text(name)}</th>' for name, kind in zip(table.header, kinds, strict=True)
    )
    rows = "".join(
        f'<tr><th scope="row"{kinds[0]}>{_cell(row[0])}</th>'
        + "".join(f"<td{kind}>{_cell(cell)}</td>" for cell, kind in zip(row[1:], kinds[1:], strict=True))
        + "</tr>"
        for row in table.rows
        if row
    )
    # A wide table scrolls in its own box, which the keyboard must reach; its caption stays.
    caption = f'<p class="caption">{_prose(table.caption)}</p>' if table.caption else ""
    label = _text(table.caption or "table")
    return (
        f'{caption}<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table aria-label="{label}">'
        f"<thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _picture(picture: Picture, budget: _Budget) -> str:
    encoded = base64.b64encode(picture.data).decode()
    if not budget.allows(len(encoded)):
        return _left_out("A picture", picture.caption, len(encoded))
    wide = picture.width > 560
    image = (
        f'<img src="data:{picture.media_type};base64,{encoded}" alt="{_text(picture.alt)}" '
        f'style="--natural:{int(picture.width)}px">'
    )
    if wide:
        image = f'<div class="scroll" tabindex="0" role="group" aria-label="{_text(picture.alt)}">{image}</div>'
    caption = f"<figcaption>{_prose(picture.caption)}</figcaption>" if picture.caption else ""
    return f"<figure{' class=wide' if wide else ''}>{image}{caption}</figure>"


def _video(video: Video, budget: _Budget) -> str:
    height, width = video.frames.shape[1:3]
    encoded = base64.b64encode(encode_mp4(video.frames, video.fps)).decode()
    if not budget.allows(len(encoded)):
        return _left_out("A video", video.caption, len(encoded))
    kind = "wide" if width > 560 else "film"
    return (
        f'<figure class="{kind}"><video controls loop muted playsinline preload="auto" '
        f'width="{width}" height="{height}" aria-label="{_text(video.alt or video.caption)}" '
        f'src="data:video/mp4;base64,{encoded}"></video><figcaption>{_prose(video.caption)}</figcaption></figure>'
    )


def _left_out(what: str, caption: str, size: int) -> str:
    return _note(
        Note(f"{what} of {size / 1e6:.1f} MB is left out, as the page has reached its size limit: {caption}", "missing")
    )


def _cell(cell: Cell) -> str:
    if cell is None:
        return '<span aria-label="none">–</span>'
    if isinstance(cell, float):
        return _text(f"{cell:.4g}" if abs(cell) < 1e4 else f"{cell:.0f}")
    return _text(str(cell))


def _prose(text: str) -> str:
    """As `_text`, with what stands between back-ticks as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", _text(text))


def _text(text: str) -> str:
    """Plain text as HTML; control characters (which no page may hold) are shown as boxes."""
    visible = "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" else c for c in text)
    return html.escape(visible)


def _anchors(titles: Sequence[str]) -> list[str]:
    found: list[str] = []
    for index, title in enumerate(titles, start=1):
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40]
        found.append(f"s{index}-{slug}" if slug else f"s{index}")
    return found
