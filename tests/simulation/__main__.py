"""`make simulate`: many seeds, or one with a trace.

    PYTHONPATH=tests python -m simulation --seeds 1000 [--first 0] [--jobs 2]
    PYTHONPATH=tests python -m simulation --seed 17 [--trace]

A seed and a commit are a run, to the byte: the digest that is printed covers all bytes sent and received, and when.
Exit status 1 if any seed fails; for each that does, what failed, its plan, and the command that runs it again.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from simulation import reached
from simulation.faults import make_plan
from simulation.simulation import Result, Simulation

SEEDS_A_CHUNK = 10


def run_seed(seed: int) -> Result:
    """One run, with what it reached of the state machines among its counts."""
    with reached.counting() as transitions:
        result = Simulation(make_plan(seed)).run()
    result.counts.update(transitions)
    return result


@dataclass(frozen=True, slots=True)
class Failure:
    seed: int
    problems: tuple[str, ...]
    plan: str

    def __str__(self) -> str:
        problems = "\n".join(f"    {problem}" for problem in self.problems[:10])
        return (
            f"seed {self.seed} FAILED\n{problems}\n{self.plan}\n"
            f"again: make simulate ARGS='--seed {self.seed} --trace'\n"
        )


def run_seeds(seeds: Iterable[int], jobs: int) -> Iterator[tuple[Result, Failure | None]]:
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(run_seed, seeds, chunksize=SEEDS_A_CHUNK):
            failed = Failure(result.plan.seed, result.problems, str(result.plan)) if result.problems else None
            yield result, failed


def main() -> int:
    arguments = _arguments()
    if arguments.seed is not None:
        return _replay(arguments.seed, arguments.trace)
    started_s = time.monotonic()
    counts: Counter[str] = Counter()
    virtual_ms = failures = 0
    for result, failure in run_seeds(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs):
        counts.update(result.counts)
        virtual_ms += result.virtual_ms
        if failure is not None:
            failures += 1
            print(failure, flush=True)
    _report(counts, arguments.seeds, virtual_ms, time.monotonic() - started_s)
    print(f"{failures} of {arguments.seeds} seeds failed")
    return 1 if failures else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    return parser.parse_args()


def _replay(seed: int, trace: bool) -> int:
    plan = make_plan(seed)
    print(plan)
    result = Simulation(plan, trace=print if trace else None).run()
    for problem in result.problems:
        print(f"FAILED {problem}")
    print(f"digest {result.digest}")
    return 1 if result.problems else 0


def _report(counts: Counter[str], seeds: int, virtual_ms: int, took_s: float) -> None:
    pairs = reached.all_transitions()
    missed = sorted(pairs - counts.keys())
    print(f"{seeds} seeds, {virtual_ms / 3_600_000:.1f} virtual hours in {took_s:.0f} s")
    for name in sorted(counts.keys() - pairs):
        print(f"  {name:<45} {counts[name]:>12,}")
    print(f"state x event pairs reached: {len(pairs) - len(missed)} of {len(pairs)}")
    for name in sorted(pairs & counts.keys()):
        print(f"  {name:<45} {counts[name]:>12,}")
    for name in missed:
        print(f"  {name:<45}        never")


if __name__ == "__main__":
    sys.exit(main())
