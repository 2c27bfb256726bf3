"""What was held over time, as an SVG text: a panel a resource, a line a role, a dashed line a fault. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from soak.usage import RESOURCES, ROLES, Sample

WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 170, 60, 16, 34, 24
TITLES = {"memory_mb": "Memory, MB", "descriptors": "Open descriptors", "threads": "Threads"}
COLOURS = ("#9aa4af", "#3b82c4", "#3f9c5a", "#d1571e")


def svg(samples: Sequence[Sample], faults_at_s: Sequence[float]) -> str:
    """A line is broken where the application was started again."""
    end_s = max((sample.at_s for sample in samples), default=0.0) or 1.0
    panels = [_panel(resource, samples, faults_at_s, end_s, top) for resource, top in _tops()]
    height = PANEL_HEIGHT * len(RESOURCES) + BOTTOM
    legend = "".join(
        f'<text x="{LEFT + 190 + 150 * number}" y="20" style="fill:{colour}">{escape(role)}</text>'
        for number, (role, colour) in enumerate(zip(ROLES, COLOURS, strict=True))
    )
    body = "\n".join([*panels, legend])
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">
<style>
text {{ font: 12px sans-serif; fill: #24292f }} .title {{ font-weight: bold }}
polyline {{ fill: none; stroke-width: 1.5 }}
.axis {{ stroke: #9aa4af }} .fault {{ stroke: #9aa4af; stroke-dasharray: 2 3 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} }}
</style>
{body}
</svg>
"""


def _tops() -> list[tuple[str, int]]:
    return [(resource, number * PANEL_HEIGHT) for number, resource in enumerate(RESOURCES)]


def _panel(resource: str, samples: Sequence[Sample], faults_at_s: Sequence[float], end_s: float, top: int) -> str:
    values = [getattr(held, resource) for sample in samples for held in sample.held.values()]
    most = max(values, default=0) or 1
    floor = top + PANEL_HEIGHT - BOTTOM

    def x(at_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at_s / end_s

    def y(value: float) -> float:
        return floor - (PANEL_HEIGHT - TOP - BOTTOM) * value / most

    parts = [
        f'<text class="title" x="{LEFT}" y="{top + 20}">{TITLES[resource]}</text>',
        f'<text x="{LEFT - 6}" y="{y(most) + 4:.0f}" text-anchor="end">{most:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{floor + 4}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - RIGHT}" y="{floor + 16}" text-anchor="end">{end_s / 60:.0f} min</text>',
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{floor}" y2="{floor}"/>',
        *(
            f'<line class="fault" x1="{x(at_s):.1f}" x2="{x(at_s):.1f}" y1="{top + TOP}" y2="{floor}"/>'
            for at_s in faults_at_s
        ),
    ]
    for role, colour in zip(ROLES, COLOURS, strict=True):
        for line in _unbroken([sample for sample in samples if role in sample.held]):
            points = " ".join(f"{x(sample.at_s):.1f},{y(getattr(sample.held[role], resource)):.1f}" for sample in line)
            parts.append(f'<polyline points="{points}" style="stroke:{colour}"/>')
    return "\n".join(parts)


def _unbroken(samples: Sequence[Sample]) -> list[list[Sample]]:
    lines = [list(samples[:1])]
    for before, sample in pairwise(samples):
        if sample.life != before.life:
            lines.append([])
        lines[-1].append(sample)
    return [line for line in lines if line]
