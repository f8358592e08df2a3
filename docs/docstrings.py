"""Docstrings as the site shows them.

Ours are read in an editor or by `help()`: names stand in `single quotes of code`, snippets between ``` fences. Sphinx
reads reStructuredText, so both are turned into it, and signs that mean something there are escaped.
"""

import re
from typing import Any

_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_SECTION = re.compile(r"^\s*(Args|Attributes|Raises|Returns|Yields|Example|Examples|Note|References):\s*$")
_STATEMENT = re.compile(r"^\s+(\w+ = |from \w|import \w|with \w+[.(]|print\(|\w+\.\w+\()")
_CODE = re.compile(r"(``?[^`]+``?)")


def _escaped(text: str) -> str:
    return re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", re.sub(r"([*|\\])", r"\\\1", text))


def _line(text: str) -> str:
    """Code in double quotes, all else escaped."""
    parts = _CODE.split(text)
    text = "".join(f"\0{part.strip('`')}\1" if index % 2 else _escaped(part) for index, part in enumerate(parts))
    text = re.sub("(?<=[\\w/)])\0", r"\\ \0", re.sub("\1(?=[\\w(])", "\1\\\\ ", text))  # code that touches a word
    return re.sub("[\0\1]", "``", text)


def _is_code(line: str, goes_on: bool) -> bool:
    """Indented by four or more, and a statement or (`goes_on`) any line directly after one."""
    return line.startswith("    ") and (goes_on or bool(_STATEMENT.match(line)))


def to_rst(lines: list[str]) -> list[str]:
    """A docstring's lines as reStructuredText."""
    result: list[str] = []
    fence = literal = section = None
    coded, last = False, 0  # code may stand indented, as in Markdown
    for line in lines:
        after_blank = not "".join(result[-1:]).strip()
        opened = _FENCE.match(line)
        indent = len(line) - len(line.lstrip())
        if line.strip() and fence is None:
            if section is not None and indent <= section:
                section = None
            if _SECTION.match(line):
                section = indent
            elif section is None and indent != last and result and result[-1].strip():
                result.append("")
            last = indent
        if opened:
            if fence is None:
                fence = opened[1]
                result += ["", f"{fence}.. code-block:: {opened[2] or 'text'}", ""]
            else:
                fence = None
                result.append("")
        elif fence is not None:
            result.append(f"   {line}" if line.strip() else "")
        elif section is None and literal is None and (coded or after_blank) and line.strip() and _is_code(line, coded):
            result += [f"   {line}"] if coded else ["", ".. code-block:: python", "", f"   {line}"]
            coded = True
        elif literal is not None and (not line.strip() or indent > literal):
            result.append(line)
        else:
            coded = False
            literal = indent if line.rstrip().endswith("::") else None
            result.append(_line(line))
    return result


def _process(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process, priority=100)  # before napoleon
    return {"parallel_read_safe": True}
