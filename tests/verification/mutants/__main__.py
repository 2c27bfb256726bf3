"""`make mutants`: tries each mutant in a copy of the tree, and prints the test that kills it.

    PYTHONPATH=tests/verification python -m mutants [--only words] [--places] [--simulate 1000] [--results FILE]

First each mutant must have its one place in the package; with `--places` that is all, in seconds. Then all killers must
pass without a mutant, or a kill would mean nothing. Then two mutants at a time.
With `--simulate` each is also given to the simulation, whatever its killer is, and the table says which seed finds it.
Exit status 1 if a mutant survives its killer, does not apply, or the control fails; that the simulation misses one is
told, and no failure.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mutants.anchor import MutantBroken, mutated
from mutants.mutant import Mutant
from mutants.table import FROM_HISTORY, MUTANTS
from mutants.trial import Outcome, Verdict, package, try_mutant, try_none
from reliability.campaign import Campaign

PROCESSES = 2


def main() -> int:
    arguments = _arguments()
    chosen = [mutant for mutant in MUTANTS if arguments.only in mutant.name]
    started_s = time.monotonic()
    if unplaced := list(_without_a_place(chosen)):
        print("\n".join(unplaced))
        return 1
    if arguments.places:
        print(f"{len(chosen)} mutants have one place each")
        return 0
    killers = [mutant.killer for mutant in chosen]
    control = try_none([*killers, arguments.simulate] if arguments.simulate else killers)
    print(f"{'without a mutant':<100} {_told(control)}", flush=True)
    if control.outcome is not Outcome.SURVIVED:
        print("The control failed: a kill would mean nothing.")
        return 1
    lived: list[Mutant] = []
    for mutant, verdict, simulated in _try_all(chosen, arguments.simulate):
        if verdict.outcome is not Outcome.KILLED:
            lived.append(mutant)
        found = f"; {_told(simulated)}" if simulated else ""
        print(f"{mutant.name:<100} {_told(verdict)}{found}", flush=True)
    print(f"{len(chosen) - len(lived)} of {len(chosen)} mutants killed in {time.monotonic() - started_s:.0f} s")
    if arguments.results:
        campaign(chosen, lived).write(arguments.results)
    return 1 if lived else 0


def campaign(chosen: Sequence[Mutant], lived: Sequence[Mutant]) -> Campaign:
    by_simulation = sum(isinstance(mutant.killer, int) for mutant in chosen)
    return Campaign(
        name="mutants", title="Known mistakes put back", command="make mutants",
        about="Mistakes that an author of a Kafka producer can make. Some of them once lost, doubled or reordered rows "
        "in a Kafka client. Each mistake breaks a written rule of the guarantees, the design or a KIP. Each is put "
        "into a copy of the sources, and the test for it must fail there.",
        figures={
            "mistakes": len(chosen),
            "of these from the history of Kafka clients": sum(mutant in FROM_HISTORY for mutant in chosen),
            "found": len(chosen) - len(lived), "with a test of their own": len(chosen) - by_simulation,
            "with the simulation": by_simulation,
        },
        passed=not lived, explained=tuple(f"Not found: {mutant.name}" for mutant in lived),
    )  # fmt: skip


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="mutants with these words in their name")
    parser.add_argument("--places", action="store_true", help="only look whether each has one place in the package")
    parser.add_argument("--simulate", type=int, default=0, metavar="SEEDS", help="also within so many seeds")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures there, as JSON")
    return parser.parse_args()


def _without_a_place(chosen: Sequence[Mutant]) -> Iterator[str]:
    """A line for each mutant whose pattern does not match once, or that leaves no Python."""
    sources = package()
    for mutant in chosen:
        try:
            mutated(sources, mutant)
        except MutantBroken as broken:
            yield f"{mutant.name}: {broken.reason}"


def _try_all(chosen: Sequence[Mutant], seeds: int) -> Iterator[tuple[Mutant, Verdict, Verdict | None]]:
    with ThreadPoolExecutor(PROCESSES) as pool:
        yield from pool.map(partial(_try, seeds=seeds), chosen)


def _try(mutant: Mutant, seeds: int) -> tuple[Mutant, Verdict, Verdict | None]:
    return mutant, try_mutant(mutant, mutant.killer), try_mutant(mutant, seeds) if seeds else None


def _told(verdict: Verdict) -> str:
    return f"{verdict.outcome.value} {verdict.by} ({verdict.took_s:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
