"""What many seeds came to: totals, what they reached, what failed; printed, and as a campaign's figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from reliability.campaign import Campaign
from simulation import reached
from simulation.oracles import ORACLES
from simulation.seeds import SeedResult

MS_PER_HOUR = 3_600_000


@dataclass(slots=True)
class Report:
    """`first`: the lowest seed. `failed`: seeds that failed, or came to other bytes when they were run again. `again`:
    how many were; `differing`: how many of those to other bytes. `processor_s`: of all processes, which a machine
    that is busy with other things does not change."""

    first: int = 0
    seeds: int = 0
    failed: set[int] = field(default_factory=set)
    again: int = 0
    differing: int = 0
    virtual_ms: int = 0
    took_s: float = 0
    processor_s: float = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, result: SeedResult) -> None:
        self.seeds += 1
        self.virtual_ms += result.virtual_ms
        self.counts.update(result.counts)
        if result.problems:
            self.failed.add(result.seed)

    def compare(self, seed: int, digest: str, digest_again: str) -> str:
        """What is wrong with the second run, or nothing."""
        self.again += 1
        if digest == digest_again:
            return ""
        self.differing += 1
        self.failed.add(seed)
        return f"seed {seed} FAILED\n    two runs differ: {digest} and {digest_again}\n"

    def coverage_problems(self) -> list[str]:
        return reached.wrong(self.counts) if self.seeds >= reached.ENOUGH_SEEDS else []

    @property
    def passed(self) -> bool:
        return not self.failed and not self.coverage_problems()

    def lines(self) -> Iterator[str]:
        pairs = reached.all_pairs()
        found = pairs & self.counts.keys()
        took = f"{self.took_s:.0f} s, {self.processor_s:.0f} s of processors"
        yield f"{self.seeds} seeds, {self._virtual_hours:.1f} virtual hours in {took}"
        for name in sorted(self.counts.keys() - pairs):
            yield f"  {name:<45} {self.counts[name]:>12,}"
        yield f"state x event pairs reached: {len(found)} of {len(pairs)}"
        for name in sorted(found):
            yield f"  {name:<45} {self.counts[name]:>12,}"
        for name in sorted(pairs - found):
            yield f"  {name:<45}        never: {reached.UNREACHED.get(name, 'not in these seeds')}"
        yield from (f"FAILED {problem}" for problem in self.coverage_problems())
        yield f"{self.again} of {self.seeds} seeds run again, {self.differing} of them to other bytes"
        yield f"{len(self.failed)} of {self.seeds} seeds failed"

    @property
    def _virtual_hours(self) -> float:
        return self.virtual_ms / MS_PER_HOUR

    def campaign(self) -> Campaign:
        pairs, counts = reached.all_pairs(), self.counts
        writes = sum(times for name, times in counts.items() if name.startswith("write "))
        return Campaign(
            name="simulation",
            title="Simulation",
            command=f"make simulate SEEDS={self.seeds}" + (f" ARGS='--first {self.first}'" if self.first else ""),
            about=(
                "A seed decides the cluster, its network, its writers and all faults. The shipped producer writes to a "
                f"model of brokers in virtual time, and {len(ORACLES)} oracles judge the contents of the logs. The "
                "same seed takes the shipped two-phase commit through crashes, zombies, second drivers, lost answers "
                "and lost state."
            ),
            figures={
                "seeds": self.seeds, "seeds that failed": len(self.failed), "seeds run again": self.again,
                "of those, to other bytes": self.differing, "virtual hours of producers": round(self._virtual_hours, 1),
                "faults": sum(times for name, times in counts.items() if name.startswith("fault ")), "writes": writes,
                "of those, acknowledged whole": counts["write ok"], "rows": counts["rows"],
                "requests": counts["requests"], "batches sent again": counts["batches sent again"],
                "requests executed after the client gave up": counts["requests executed after the client gave up"],
                "effects of two-phase commits": counts["commit effects carried out"],
                "state x event pairs reached": f"{len(pairs & counts.keys())} of {len(pairs)}",
                "processor minutes": round(self.processor_s / 60, 1),
            },
            passed=self.passed,
            explained=tuple(self._explained(sorted(pairs - counts.keys()))),
        )  # fmt: skip

    def _explained(self, missing: list[str]) -> Iterator[str]:
        by_reason: dict[str, list[str]] = defaultdict(list)
        for pair in missing:
            by_reason[reached.UNREACHED.get(pair, "not in these seeds")].append(f"`{pair}`")
        for reason, named in by_reason.items():
            yield f"Never reached: {', '.join(named)}: {reason}."
        yield from self.coverage_problems()
