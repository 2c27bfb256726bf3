"""`make campaigns`: all campaigns, one after the other, each with a budget and a limit on its time.

    PYTHONPATH=tests/verification:tests/support python -m reliability.campaigns

The budgets add up to about 45 minutes on two quiet cores; the page says each. A campaign that does not end within its
limit is ended and counts as failed, as one does that leaves no figures. Figures are put into docs/reliability at the
end. Exit status 1 if a campaign failed, or if the tree has changes: `make reliability` writes the page from the figures
of one commit only.
"""

import argparse
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import processes
from reliability.campaign import CHANGED, ROOT, Campaign, commit_of

# Not yet in docs/reliability: a test among the campaigns compares what is there with the page.
FOLDER = Path("build/campaigns")
# A few tests for each guarantee. `make chaos` takes 35 minutes.
CHAOS = "TestCluster and killed and 4.3.1 or TestNetwork and cuts or dies_in_mid_commit or killed_before_it_commits"


@dataclass(frozen=True, slots=True)
class Planned:
    """`name`: of the file of results. `budget`: variables of make. `options`: those of the campaign itself."""

    name: str
    title: str
    target: str
    limit_minutes: int
    budget: tuple[str, ...] = ()
    options: str = ""

    @property
    def results(self) -> Path:
        return FOLDER / f"{self.name}.json"

    @property
    def command(self) -> tuple[str, ...]:
        arguments = f"--results {self.results} {self.options}".rstrip()
        return "make", self.target, *self.budget, f"ARGS={arguments}"


# Minutes on two quiet cores: 2, 3, 2, 8, 4, 2, 6, 5, 6, 10.
PLAN = (
    Planned("simulation", "Simulation", "simulate", 10, ("SEEDS=1000",)),
    Planned("explorations", "Exploration of the two-phase commit", "explore", 15, (), "--worlds 200 --seeds 2000"),
    Planned("fidelity", "The model against real brokers", "fidelity", 10, ("TRACES=50",)),
    Planned("mutants", "Known mistakes put back", "mutants", 25),
    Planned("mutation", "Mutation by rule", "mutation", 20, (), "--sample 3"),
    Planned("fuzz", "Fuzzing", "fuzz", 10, ("INPUTS=100000",)),
    Planned("chaos", "Real brokers, real Spark", "chaos", 20, (), f"-k '{CHAOS}'"),
    Planned("soak", "Soak", "soak", 15, ("BATCHES=150",), "--apart 12 20"),
    Planned("soak_topics", "Soak, from topic to topic", "soak-topics", 15, ("MINUTES=5",)),
    Planned("flakes", "The tests of the gate, under load", "flakes", 35, ("RUNS=1",)),
)
# As `processes.run`.
Run = Callable[[Sequence[str], float], int | None]


def main() -> int:
    argparse.ArgumentParser(
        prog="python -m reliability.campaigns", description=(__doc__ or "").splitlines()[0]
    ).parse_args()
    if commit_of(ROOT).endswith(CHANGED):
        print("The tree has changes. Commit them first: figures are of a commit.")
        return 1
    shutil.rmtree(ROOT / FOLDER, ignore_errors=True)
    failed = [planned.name for planned in PLAN if not passes(planned, ROOT, processes.run)]
    for planned in PLAN:
        for written in (ROOT / FOLDER).glob(f"{planned.name}.*"):
            shutil.copy(written, ROOT / "docs" / "reliability")
    print(f"== failed: {', '.join(failed) or 'nothing'}. `make reliability` writes the page.")
    return 1 if failed else 0


def passes(planned: Planned, root: Path, run: Run) -> bool:
    """Run a campaign, and see to its file of results."""
    said = shlex.join(planned.command)
    print(f"\n== {planned.name}, at most {planned.limit_minutes} minutes: {said}", flush=True)
    results, started_s = root / planned.results, time.monotonic()
    results.unlink(missing_ok=True)
    status = run(planned.command, 60 * planned.limit_minutes)
    if status is None or not results.exists():
        Campaign(
            name=planned.name, title=planned.title, command=said, about="This run left no figures.",
            figures={"limit, in minutes": planned.limit_minutes}, passed=False,
            explained=(f"It ended with status {status}." if status is not None else "It was ended at its limit.",),
        ).write(results)  # fmt: skip
    passed = status == 0 and Campaign.read(results).passed
    print(f"== {planned.name}: {'ok' if passed else 'FAILED'}, {time.monotonic() - started_s:.0f} s", flush=True)
    return passed


if __name__ == "__main__":
    # `kill` ends everything, too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
