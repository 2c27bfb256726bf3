"""`make mutation`: small mistakes by rule, in the modules that keep rows whole, and how many the tests find.

    PYTHONPATH=tests/verification python -m mutation [--only words] [--sample 30] [--seed 1] [--jobs 2] [--results FILE]

Of each module `--sample` mutants are tried (0: all), the same ones for the same seed and text. Without a mutant the
module's tests must pass: that is tried first, or a kill would mean nothing. Exit status 1 if they do not, if fewer than
nine in ten mutants are killed, or if one survives that `EXPLAINED` does not explain.

`make mutants` puts known mistakes back, each with the test that is for it; this asks what nobody thought of.

No library does it here. mutmut 3 comes near, and is as quick: it forks, too. But it mutates nothing outside of
functions, nor properties, and has no rule that leaves a statement out or always takes one branch of an `if`: of
sequences.py it made 65 mutants, two of which lived, and these rules 100, of which eight did. cosmic-ray writes each
mutant into the sources, and begins an interpreter for it, whose imports take longer than the tests do.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.trial import ROOT, copy_of_tree
from mutation.operators import Mutation, mutations
from mutation.subjects import EXPLAINED, SUBJECTS, Explained, Subject
from mutation.trial import ControlFailed, Outcome, Verdict, try_all, try_none
from reliability.campaign import Campaign, Figure

LEAST_KILLED = 0.9
SAMPLE = 30


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of the mutants of one module, of `possible` in all."""

    subject: Subject
    possible: int
    verdicts: Sequence[Verdict]

    @property
    def killed(self) -> int:
        return len(self.verdicts) - len(self.survivors)

    @property
    def survivors(self) -> list[Mutation]:
        lived = [verdict.mutation for verdict in self.verdicts if verdict.outcome is Outcome.SURVIVED]
        return sorted(lived, key=lambda mutation: (mutation.start, mutation.end, mutation.text))


def main() -> int:
    arguments = _arguments()
    started_s = time.monotonic()
    tried: list[Tried] = []
    try:
        with copy_of_tree() as tree:
            for subject in SUBJECTS:
                if arguments.only in subject.path:
                    tried.append(_try(tree, subject, arguments))
    except ControlFailed as failed:
        print(failed)
        return 1
    problems = _problems(tried)
    for problem in problems:
        print(problem)
    print(f"{_share(tried)} in {time.monotonic() - started_s:.0f} s")
    if arguments.results:
        command = f"make mutation ARGS='--sample {arguments.sample}'"
        campaign(tried, passed=not problems, command=command).write(arguments.results)
    return 1 if problems else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="modules with these words in their path")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help="mutants of each module; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the figures there, as JSON")
    return parser.parse_args()


def _try(tree: Path, subject: Subject, arguments: argparse.Namespace) -> Tried:
    possible = mutations_of(subject)
    started_s = time.monotonic()
    control = try_none(tree, subject)
    verdicts = []
    for verdict in try_all(
        tree, subject, sample(possible, arguments.sample, arguments.seed), control, jobs=arguments.jobs
    ):
        verdicts.append(verdict)
        if verdict.outcome is Outcome.SURVIVED and not explanation(verdict.mutation):
            print(f"  {_told(verdict.mutation)}", flush=True)
    tried = Tried(subject, len(possible), verdicts)
    print(f"{subject.path}: {_share([tried])} in {time.monotonic() - started_s:.0f} s", flush=True)
    return tried


def mutations_of(subject: Subject) -> list[Mutation]:
    return mutations(subject.path, (ROOT / subject.path).read_text(encoding="utf-8"))


def sample(possible: Sequence[Mutation], count: int, seed: int) -> list[Mutation]:
    """`count` of them, or all, in their order; the same ones for the same seed. A small sample is a part of the usual
    one, whose survivors are explained."""
    if not count or count >= len(possible):
        return list(possible)
    largest = min(max(count, SAMPLE), len(possible))
    chosen = random.Random(f"{seed} {possible[0].path}").sample(range(len(possible)), largest)
    return [possible[place] for place in sorted(chosen[:count])]


def explanation(mutation: Mutation) -> Explained | None:
    return next((each for each in EXPLAINED if each.is_about(mutation)), None)


def stale(entries: Sequence[Explained], possible: Sequence[Mutation]) -> list[Explained]:
    """Those that are about no mutation any more."""
    return [entry for entry in entries if not any(entry.is_about(mutation) for mutation in possible)]


def _problems(tried: Sequence[Tried]) -> list[str]:
    """What fails the run."""
    paths = {each.subject.path for each in tried}
    possible = [mutation for each in tried for mutation in mutations_of(each.subject)]
    killed = [verdict for each in tried for verdict in each.verdicts if verdict.outcome is Outcome.KILLED]
    problems = [
        f"Explained, and no mutation any more: {entry.path} {entry.function}: {entry.before} -> {entry.after}"
        for entry in stale([entry for entry in EXPLAINED if entry.path in paths], possible)
    ]
    problems += [
        f"Explained, and killed by {verdict.by}: {_told(verdict.mutation)}"
        for verdict in killed
        if explanation(verdict.mutation) and not _has_a_twin(verdict.mutation, possible)
    ]
    problems += [
        f"Survived: {_told(mutation)}" for each in tried for mutation in each.survivors if not explanation(mutation)
    ]
    total, lived = _counts(tried)
    if total - lived < LEAST_KILLED * total:
        problems.append(f"Fewer than {LEAST_KILLED:.0%} are killed")
    return problems


def _has_a_twin(mutation: Mutation, possible: Sequence[Mutation]) -> bool:
    """Whether another one of its function reads the same."""
    return sum(Explained(mutation.path, mutation.function, mutation.before, mutation.after, "").is_about(each)
               for each in possible) > 1  # fmt: skip


def _counts(tried: Sequence[Tried]) -> tuple[int, int]:
    return sum(len(each.verdicts) for each in tried), sum(len(each.survivors) for each in tried)


def _share(tried: Sequence[Tried]) -> str:
    total, lived = _counts(tried)
    return f"{total - lived} of {total} killed" + (f" ({(total - lived) / total:.1%})" if total else "")


def _told(mutation: Mutation) -> str:
    return f"{mutation.path}:{mutation.line} {mutation.function}: {mutation.before}  ->  {mutation.after}"


def campaign(tried: Sequence[Tried], *, passed: bool, command: str) -> Campaign:
    total, lived = _counts(tried)
    timed_out = sum(verdict.outcome is Outcome.TIMED_OUT for each in tried for verdict in each.verdicts)
    figures: dict[str, Figure] = {
        "mutants that the rules make": sum(each.possible for each in tried), "tried": total, "killed": total - lived,
        "killed, of a hundred": round(100 * (total - lived) / total, 1) if total else 0,
        "of these ended for their time": timed_out, "survivors, each explained below": lived,
    }  # fmt: skip
    figures |= {f"`{each.subject.path}`": _share([each]) for each in tried}
    return Campaign(
        name="mutation", title="Mutation by rule", command=command,
        about="The rules change comparisons, conditions, logic, arithmetic, numbers, results and whole statements of a "
        "module, one at a time. The tests of that module must fail.",
        figures=figures, passed=passed,
        explained=tuple(
            f"`{mutation.path}`, `{mutation.function}`: `{mutation.before}` → `{mutation.after}`: "
            f"{found.reason if (found := explanation(mutation)) else '**not explained**'}"
            for each in tried
            for mutation in each.survivors
        ),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
