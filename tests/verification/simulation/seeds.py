"""A seed is one simulation of producers, one two-phase commit, the reads of one partition, and one stream. This module
runs many seeds, and some of them twice.

A seed and a commit of the project determine a run to the byte. To prove this, some seeds run again in new processes,
where sets of texts have another order.
"""

from __future__ import annotations

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from model.explorations import of_seed
from simulation import reached
from simulation.faults import make_plan
from simulation.reading import run_reads
from simulation.simulation import Simulation
from simulation.streaming import run_stream
from simulation.two_phase import run_commit

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
    stream = run_stream(seed, trace)
    return SeedResult(
        seed,
        problems=(*producers.problems, *filter(None, [commit.problem, reads.problem, stream.problem])),
        plan=plan_of(seed),
        digest=hashlib.sha256(
            f"{producers.digest} {commit.digest} {reads.digest} {stream.digest}".encode()
        ).hexdigest(),
        virtual_ms=producers.virtual_ms,
        counts=producers.counts + transitions + commit.counts + reads.counts + stream.counts,
    )


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[SeedResult]:
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_seed, seeds, chunksize=SEEDS_A_CHUNK)


def digests_again(seeds: Iterable[int], jobs: int) -> Iterator[str]:
    """In interpreters of their own."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_digest, seeds)


def _digest(seed: int) -> str:
    return run_seed(seed).digest
