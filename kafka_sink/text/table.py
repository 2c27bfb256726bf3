"""A table as text: as wide as needed, or wrapped within its cells to the width of a terminal. Pure.

Columns of several words are narrowed first. A word is broken only if nothing else fits.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest

GAP = "  "


def table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, widest: int | None = None
) -> list[str]:
    """Return the lines of the table. `width`: of the terminal; None: any width. `widest`: the widest text of a column,
    if its words allow that. A newline in a cell starts a new line. All other characters must be printable."""
    cells = [[cell.split("\n") for cell in row] for row in (heads, *rows)]
    widths = _widths(cells, width, widest)
    lines = []
    for row in cells:
        wrapped = [_wrapped(paragraphs, wide) for paragraphs, wide in zip(row, widths, strict=True)]
        for line in zip_longest(*wrapped, fillvalue=""):
            lines.append(GAP.join(text.ljust(wide) for text, wide in zip(line, widths, strict=True)).rstrip())
    return lines


def _wrapped(paragraphs: Sequence[str], wide: int) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, wide, break_on_hyphens=False) or [""]]


def _widths(cells: Sequence[Sequence[Sequence[str]]], width: int | None, widest: int | None) -> list[int]:
    columns = [[text for paragraphs in column for text in paragraphs] for column in zip(*cells, strict=True)]
    natural = [max(map(len, column), default=1) or 1 for column in columns]
    words = [max((len(word) for text in column for word in text.split()), default=1) for column in columns]
    if widest is not None:
        natural = [max(word, min(wide, widest)) for wide, word in zip(natural, words, strict=True)]
    if width is None:
        return natural
    room = width - len(GAP) * (len(columns) - 1)
    return _capped(natural, words, room) or _capped(natural, [1] * len(columns), room) or natural


def _capped(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return the widths with the widest columns cut to one width, as little as `room` requires, and no column below its
    `least`. Return None if that does not fit."""
    for cap in range(max(natural), 0, -1):
        capped = [max(low, min(wide, cap)) for wide, low in zip(natural, least, strict=True)]
        if sum(capped) <= room:
            return capped
    return None
