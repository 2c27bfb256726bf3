"""`make simulate`: many seeds, or one with a trace.

    PYTHONPATH=tests/verification python -m simulation --seeds 1000 [--first 0] [--jobs 2] [--results FILE]
    PYTHONPATH=tests/verification python -m simulation --seed 17 [--trace]

A seed is a run of producers, a two-phase commit, the reads of a partition, and a stream (`seeds.py`). The printed
digest covers all bytes sent and received, their times, and all steps of the commit. The first of every hundred seeds
runs again and must have the same digest. Exit status 1 if any seed fails. Each failure is printed with its plan and the
command that runs it again. With enough seeds the status is also 1 if the reached pairs differ from `reached.UNREACHED`.
"""

import argparse
import logging
import os
import sys
import time
from pathlib import Path

from simulation.seeds import AGAIN_EVERY, Report, digests_again, plan_of, run_seed, run_seeds


def main() -> int:
    arguments = _arguments()
    # What the product logs of the faults that it meets.
    logging.disable()
    try:
        if arguments.seed is not None:
            return _replay(arguments.seed, arguments.trace)
        report = _run(range(arguments.first, arguments.first + arguments.seeds), arguments.jobs)
    finally:
        # A test calls `main` in a process of other tests.
        logging.disable(logging.NOTSET)
    print("\n".join(report.lines()))
    if arguments.results is not None:
        report.campaign().write(arguments.results)
    return 0 if report.passed else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--results", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: print every event")
    return parser.parse_args()


def _run(seeds: range, jobs: int) -> Report:
    """Prints each failure as it is found."""
    report, started_s = Report(seeds.start), time.monotonic()
    once_more = seeds[::AGAIN_EVERY]
    digests = {}
    for result in run_seeds(seeds, jobs):
        report.add(result)
        if result.seed in once_more:
            digests[result.seed] = result.digest
        if result.problems:
            print(result.failure(), flush=True)
    for seed, digest_again in zip(once_more, digests_again(once_more, jobs), strict=True):
        if differs := report.compare(seed, digests[seed], digest_again):
            print(differs, flush=True)
    report.took_s = time.monotonic() - started_s
    used = os.times()
    report.processor_s = used.user + used.system + used.children_user + used.children_system
    return report


def _replay(seed: int, trace: bool) -> int:
    print(plan_of(seed))
    result = run_seed(seed, trace=print if trace else None)
    for problem in result.problems:
        print(f"FAILED {problem}")
    print(f"digest {result.digest}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
