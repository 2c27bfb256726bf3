"""`make mutants`: each mutant in a copy of the tree, and who kills it.

    PYTHONPATH=tests python -m mutants [--only words] [--simulate 1000]

Without a mutant all killers must pass: that is tried first, or a kill would mean nothing. Then two mutants at a time.
With `--simulate` each is also given to the simulation, whatever its killer is, and the table says which seed finds it.
Exit status 1 if a mutant survives its killer, does not apply, or the control fails; that the simulation misses one is
told, and no failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mutants.table import MUTANTS, Mutant
from mutants.trial import Outcome, Verdict, try_mutant, try_none

PROCESSES = 2


def main() -> int:
    arguments = _arguments()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    started_s = time.monotonic()
    killers = [mutant.killer for mutant in chosen]
    control = try_none([*killers, arguments.simulate] if arguments.simulate else killers)
    print(f"{'without a mutant':<100} {_told(control)}", flush=True)
    if control.outcome is not Outcome.SURVIVED:
        print("The control failed: a kill would mean nothing.")
        return 1
    lived = 0
    for mutant, verdict, simulated in _try_all(chosen, arguments.simulate):
        lived += verdict.outcome is not Outcome.KILLED
        found = f"; {_told(simulated)}" if simulated else ""
        print(f"{mutant.name:<100} {_told(verdict)}{found}", flush=True)
    print(f"{len(chosen) - lived} of {len(chosen)} mutants killed in {time.monotonic() - started_s:.0f} s")
    return 1 if lived else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mutants with these words in their name")
    parser.add_argument("--simulate", type=int, default=0, metavar="SEEDS", help="also within so many seeds")
    return parser.parse_args()


def _try_all(chosen: Sequence[Mutant], seeds: int) -> Iterator[tuple[Mutant, Verdict, Verdict | None]]:
    with ThreadPoolExecutor(PROCESSES) as pool:
        yield from pool.map(partial(_try, seeds=seeds), chosen)


def _try(mutant: Mutant, seeds: int) -> tuple[Mutant, Verdict, Verdict | None]:
    return mutant, try_mutant(mutant, mutant.killer), try_mutant(mutant, seeds) if seeds else None


def _told(verdict: Verdict) -> str:
    return f"{verdict.outcome.value} {verdict.by} ({verdict.took_s:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
