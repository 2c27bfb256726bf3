"""Samples memory, descriptors and threads of the running application's processes, checks if they grow, and draws them.

Each life of the application is judged by itself, as a new one begins anew. The first quarter of the longest warms up;
after it the last quarter is compared with the second. The largest worker stands for all of them: Spark starts and ends
workers as it likes.

Source: proc(5).
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

import processes

JVM, DRIVER, PLANNER, WORKER = ROLES = ("JVM", "driver's Python", "planner of the source", "largest worker")
MB = 1_000_000
# Less than a quarter has in which to grow: no verdict.
FEWEST_SAMPLES = 40


@dataclass(frozen=True, slots=True)
class Held:
    """By one process."""

    memory_mb: float
    descriptors: int
    threads: int


RESOURCES = ("memory_mb", "descriptors", "threads")
# By how much a median may be larger: by a tenth, and by this much in any case.
SLACK: Mapping[str, float] = {"memory_mb": 15, "descriptors": 5, "threads": 3}


@dataclass(frozen=True, slots=True)
class Sample:
    """`life`: which start of the application it is of. `held`: by role; without a role that has no process."""

    at_s: float
    life: int
    held: Mapping[str, Held]


def take(at_s: float, life: int, living: Sequence[processes.Process]) -> Sample:
    by_role: dict[str, list[Held]] = {}
    workers = set(processes.workers(living))
    for process in living:
        role = WORKER if process in workers else role_of_driver(process)
        held = held_by(process.process_id) if role else None
        if role and held:
            by_role.setdefault(role, []).append(held)
    return Sample(at_s, life, {role: largest(held) for role, held in by_role.items()})


def role_of_driver(process: processes.Process) -> str | None:
    """None: the daemon, which does nothing but fork."""
    if processes.WORKERS_COMMAND in process.command:
        return None
    if processes.PLANNERS_MODULE in process.command:
        return PLANNER
    return JVM if "org.apache.spark.deploy" in process.command else DRIVER


def held_by(process_id: int) -> Held | None:
    """None if it has ended."""
    folder = Path("/proc", str(process_id))
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        descriptors = len(list((folder / "fd").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if "VmRSS" not in status:  # it is ending
        return None
    return Held(int(status["VmRSS"].split()[0]) * 1024 / MB, descriptors, int(status["Threads"]))


def largest(held: Iterable[Held]) -> Held:
    held = list(held)
    return Held(*(max(getattr(each, resource) for each in held) for resource in RESOURCES))


@dataclass(frozen=True, slots=True)
class Growth:
    """Of one resource of one role: medians of the second and of the last quarter of the longest life."""

    role: str
    resource: str
    before: float
    after: float

    @property
    def flat(self) -> bool:
        """The JVM's memory is not judged: it takes its heap as it needs it, until it has all of it."""
        room = max(self.before / 10, SLACK[self.resource])
        return self.after <= self.before + room or (self.role == JVM and self.resource == "memory_mb")

    def __str__(self) -> str:
        return f"{self.before:.0f} -> {self.after:.0f}" + ("" if self.flat else ", GROWS")


def growths(samples: Sequence[Sample], *, fewest: int = FEWEST_SAMPLES) -> list[Growth]:
    """Of every role and resource; nothing when no life was long enough to tell, which takes `fewest` samples."""
    lives = [list(life) for _, life in groupby(samples, lambda sample: sample.life)]
    longest = max(lives, key=len, default=[])
    quarter = len(longest) // 4
    if len(longest) < fewest:
        return []
    found = []
    for role in ROLES:
        early = [sample.held[role] for sample in longest[quarter : 2 * quarter] if role in sample.held]
        late = [sample.held[role] for sample in longest[-quarter:] if role in sample.held]
        if early and late:
            for resource in RESOURCES:
                before, after = (statistics.median(getattr(each, resource) for each in part) for part in (early, late))
                found.append(Growth(role, resource, before, after))
    return found


WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 170, 60, 16, 34, 24
TITLES = {"memory_mb": "Memory, MB", "descriptors": "Open descriptors", "threads": "Threads"}
COLOURS = ("#9aa4af", "#3b82c4", "#3f9c5a", "#d1571e")


def svg(samples: Sequence[Sample], faults_at_s: Sequence[float]) -> str:
    """A panel a resource, a line a role, a dashed line a fault. A line is broken where the application was started
    again."""
    end_s = max((sample.at_s for sample in samples), default=0.0) or 1.0
    tops = range(0, PANEL_HEIGHT * len(RESOURCES), PANEL_HEIGHT)
    panels = (_panel(each, samples, faults_at_s, end_s, top) for each, top in zip(RESOURCES, tops, strict=True))
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
        there = [sample for sample in samples if role in sample.held]
        for _, line in groupby(there, lambda sample: sample.life):
            points = " ".join(f"{x(sample.at_s):.1f},{y(getattr(sample.held[role], resource)):.1f}" for sample in line)
            parts.append(f'<polyline points="{points}" style="stroke:{colour}"/>')
    return "\n".join(parts)
