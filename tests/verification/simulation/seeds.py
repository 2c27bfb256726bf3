"""A seed is one simulation of producers, one two-phase commit, the reads of one partition, and one stream. This module
runs many seeds, some of them twice, and says what they came to.

A seed and a commit of the project determine a run to the byte. To prove this, some seeds run again in new processes,
where sets of texts have another order.
"""

import hashlib
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from model.explorations import of_seed
from reliability.campaign import Campaign
from simulation import reached
from simulation.faults import make_plan
from simulation.group_streaming import stream_of
from simulation.oracles import ORACLES
from simulation.reached import run_commit
from simulation.reading import run_reads
from simulation.simulation import Simulation

SEEDS_A_CHUNK = 10
# One of so many is run again.
AGAIN_EVERY = 100


@dataclass(frozen=True, slots=True)
class SeedResult:
    """`problems`: empty for a seed as it should be. `plan`: what it decided, as text. `digest`: of all bytes that
    clients and brokers sent each other, with their times, and of all steps of the commit. `virtual_ms`: of the
    producers; the commit has no clock."""

    seed: int
    problems: tuple[str, ...]
    plan: str
    digest: str
    virtual_ms: int
    counts: Counter[str]

    def failure(self) -> str:
        """What to print of it, with the command that runs it again."""
        problems = "\n".join(f"    {problem}" for problem in self.problems[:10])
        again = f"make simulate ARGS='--seed {self.seed} --trace'"
        return f"seed {self.seed} FAILED\n{problems}\n{self.plan}\nagain: {again}\n"


def plan_of(seed: int) -> str:
    return f"{make_plan(seed)}\ntwo-phase commit: {of_seed(seed)}"


def run_seed(seed: int, trace: Callable[[str], None] | None = None) -> SeedResult:
    """With what it reached of the state machines among its counts."""
    with reached.counting() as transitions:
        producers = Simulation(make_plan(seed), trace).run()
    commit = run_commit(of_seed(seed), trace)
    reads = run_reads(seed, trace)
    stream = stream_of(seed, trace)
    digests = f"{producers.digest} {commit.digest} {reads.digest} {stream.digest}"
    return SeedResult(
        seed, problems=(*producers.problems, *filter(None, [commit.problem, reads.problem, stream.problem])),
        plan=plan_of(seed), digest=hashlib.sha256(digests.encode()).hexdigest(), virtual_ms=producers.virtual_ms,
        counts=producers.counts + transitions + commit.counts + reads.counts + stream.counts,
    )  # fmt: skip


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[SeedResult]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=SEEDS_A_CHUNK)


def digests_again(seeds: Iterable[int], jobs: int) -> Iterator[str]:
    """In interpreters of their own."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_digest, seeds)


def _digest(seed: int) -> str:
    return run_seed(seed).digest


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
        yield f"{self.seeds} seeds, {self.virtual_ms / MS_PER_HOUR:.1f} virtual hours in {took}"
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

    def campaign(self) -> Campaign:
        pairs, counts = reached.all_pairs(), self.counts
        writes = sum(times for name, times in counts.items() if name.startswith("write "))
        return Campaign(
            name="simulation", title="Simulation",
            command=f"make simulate SEEDS={self.seeds}" + (f" ARGS='--first {self.first}'" if self.first else ""),
            about=(
                "A seed decides the cluster, its network, its writers and all faults. The shipped producer writes to a "
                f"model of brokers in virtual time, and {len(ORACLES)} oracles judge the contents of the logs. The "
                "same seed takes the shipped two-phase commit through crashes, zombies, second drivers, lost answers "
                "and lost state."
            ),
            figures={
                "seeds": self.seeds, "seeds that failed": len(self.failed), "seeds run again": self.again,
                "of those, to other bytes": self.differing,
                "virtual hours of producers": round(self.virtual_ms / MS_PER_HOUR, 1),
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
