"""Horizontal bars as an SVG text, for a README: light and dark pages, no script, no font of its own. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH = 860
LABEL_WIDTH = 300
VALUE_WIDTH = 90
BAR_HEIGHT = 18
ROW_HEIGHT = 26
TITLE_HEIGHT = 40


@dataclass(frozen=True, slots=True)
class Bar:
    """`text`: the value as it is written behind the bar. `ours`: in the colour that stands out."""

    label: str
    value: float
    text: str
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    bars: tuple[Bar, ...]


def svg(panels: Sequence[Panel]) -> str:
    """The panels one below the other, each with a scale of its own that begins at zero."""
    parts: list[str] = []
    top = 0
    for panel in panels:
        parts.append(f'<text class="title" x="8" y="{top + 26}">{escape(panel.title)}</text>')
        top += TITLE_HEIGHT
        longest = max((bar.value for bar in panel.bars), default=0.0) or 1.0
        for bar in panel.bars:
            parts += _bar(bar, top, longest)
            top += ROW_HEIGHT
    body = "\n".join(parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 8}" width="{WIDTH}" height="{top + 8}" role="img">
<style>
text {{ font: 13px sans-serif; fill: #24292f }} .title {{ font-weight: bold }}
.theirs {{ fill: #9aa4af }} .ours {{ fill: #d1571e }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} .theirs {{ fill: #6e7681 }} .ours {{ fill: #f0883e }} }}
</style>
{body}
</svg>
"""


def _bar(bar: Bar, top: int, longest: float) -> list[str]:
    length = (WIDTH - LABEL_WIDTH - VALUE_WIDTH) * bar.value / longest
    kind = "ours" if bar.ours else "theirs"
    baseline = top + BAR_HEIGHT - 4
    return [
        f'<text x="{LABEL_WIDTH - 8}" y="{baseline}" text-anchor="end">{escape(bar.label)}</text>',
        f'<rect class="{kind}" x="{LABEL_WIDTH}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}"/>',
        f'<text x="{LABEL_WIDTH + length + 6:.1f}" y="{baseline}">{escape(bar.text)}</text>',
    ]
