"""`make fuzz`: every decoder under Atheris, one after the other.

    PYTHONPATH=tests/verification python -m fuzz --inputs 1000000 --seed 1 [--only Metadata] [--results FILE]

A seed, a number of inputs and a commit are the same inputs, as long as the same Atheris makes them. Exit status 1 if a
decoder has a fault; then the input is printed as a line for kept.txt, by which the tests run it for good.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.decoders import DECODERS, Decoder
from fuzz.judge import Fault, Lines, kept_inputs, peak_bytes
from reliability.campaign import Campaign, Figure

# libFuzzer's line for an input that reached something new: all that was reached, and how many such inputs there are.
_PROGRESS = re.compile(r"cov: (\d+) ft: \d+ corp: (\d+)/")


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """`branches`: reached by any input. `kept`: inputs that reached something new. `memory`: bytes of the peak, and of
    the input that has it, for the input that takes most. `fault`: what happened, and with which input; empty if
    nothing did."""

    decoder: Decoder
    inputs: int = 0
    branches: int = 0
    kept: int = 0
    slowest_s: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    memory: tuple[int, int] = (0, 0)
    fault: str = ""

    def __str__(self) -> str:
        if self.fault:
            return f"{self.decoder.name}: FAULT\n{self.fault}"
        return (
            f"{self.decoder.name}: {self.inputs:,} inputs, {self.branches} branches, {self.kept} kept, slowest "
            f"{1000 * self.slowest_s:.0f} ms, {self.memory[0]:,} bytes of memory for one of {self.memory[1]:,}"
        )


def fuzz(decoders: Sequence[Decoder], inputs: int, seed: int, lines: Lines) -> list[Fuzzed]:
    """In processes of its own; `lines` counts in this one, for all inputs that were kept."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        plan = {"seed": seed, "inputs": {decoder.name: share for decoder, share in _shares(inputs, decoders)}}
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        with (folder / "log").open("wb") as log:
            subprocess.run([sys.executable, "-m", "fuzz.guided", name], stderr=log, check=True)
        return [_found(decoder, folder / str(number), lines) for number, decoder in enumerate(decoders)]


def _found(decoder: Decoder, place: Path, lines: Lines) -> Fuzzed:
    log, corpus = (place / "log").read_text(encoding="utf-8", errors="replace"), place / "corpus"
    if not (place / "tally.json").exists():
        return Fuzzed(decoder, fault=_fault(decoder, log, corpus))
    tally = json.loads((place / "tally.json").read_text(encoding="utf-8"))
    branches, kept = ([(0, 0), *((int(a), int(b)) for a, b in _PROGRESS.findall(log))])[-1]
    memory, fault = _memory_and_lines(decoder, sorted(corpus.iterdir()), lines)
    return Fuzzed(
        decoder, tally["inputs"], branches, kept, tally["slowest_s"], Counter(tally["outcomes"]), memory, fault
    )


def _fault(decoder: Decoder, said: str, corpus: Path) -> str:
    """The end of what libFuzzer said, without its progress, and the line for kept.txt."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("#", "INFO: "))]
    inputs = [path.read_bytes() for path in corpus.iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
    return "\n".join([*lines[-30:], *(f"{decoder.name}  {data.hex()}" for data in inputs)])


def _memory_and_lines(decoder: Decoder, corpus: Sequence[Path], lines: Lines) -> tuple[tuple[int, int], str]:
    """Under tracemalloc, and under settrace: too slow for all inputs, so for those that reached something new."""
    most = (0, 0)
    for path in corpus:
        data = path.read_bytes()
        try:
            most = max(most, (peak_bytes(decoder, data), len(data)))
        except Fault as fault:
            return most, f"{fault}\n{decoder.name}  {data.hex()}"
        with lines.counting():
            try:
                decoder.decode(data)
            except decoder.errors:
                continue
    return most, ""


def campaign(fuzzed: Sequence[Fuzzed], took_s: float, lines: Lines, command: str) -> Campaign:
    inputs = sum(each.inputs for each in fuzzed)
    outcomes = sum((each.outcomes for each in fuzzed), Counter[str]())
    slowest = max(fuzzed, key=lambda each: each.slowest_s)
    largest = max(fuzzed, key=lambda each: each.memory)
    reached, there = lines.counts
    figures: dict[str, Figure] = {
        "inputs": inputs,
        "minutes": round(took_s / 60, 1),
        "branches reached, all decoders together": sum(each.branches for each in fuzzed),
        "lines of connection, message_reader, sasl and markers reached": f"{reached} of {there}",
        "inputs kept, as they reached something new": sum(each.kept for each in fuzzed),
        "understood": outcomes.pop("understood", 0),
        "refused, with an error of the project's": outcomes.total(),
        "faults: any other exception, or an input over a limit": sum(bool(each.fault) for each in fuzzed),
        "inputs that were faults once, and are tests now": sum(1 for _ in kept_inputs()),
        "slowest input": f"{1000 * slowest.slowest_s:.0f} ms of the processor ({slowest.decoder.name})",
        "most memory": f"{largest.memory[0]:,} bytes for {largest.memory[1]:,} ({largest.decoder.name})",
    }
    for each in fuzzed:
        figures[each.decoder.name] = f"{each.inputs:,} inputs, {each.branches} branches, {each.kept} kept"
    return Campaign(
        name="fuzz", title="Fuzzing", command=command,
        about=(
            "Atheris feeds every decoder that takes bytes from a peer, and varies inputs that reached new branches. "
            "The decoders cover answers of each API, connections in plaintext and with each SASL mechanism. They also "
            "cover the client of all brokers, challenges, answers of a token endpoint, the texts that the commit "
            "stored, record sets, and records of a schema registry. A decoder must understand an input or refuse it "
            "with the project's own error. "
            "It may use half a second, 128 KiB plus 100 bytes for each byte of input, and 256 MiB of address space. "
            "Its error must be printable and short."
        ),
        figures=figures, passed=not any(each.fault for each in fuzzed),
        explained=tuple(
            f"Not reached in {name}: line{'s' if len(missed) > 1 else ''} {', '.join(map(str, missed))}."
            for name, missed in lines.missed()
        ),
    )  # fmt: skip


def _shares(inputs: int, decoders: Sequence[Decoder]) -> Iterator[tuple[Decoder, int]]:
    """No input less than asked for."""
    all_shares = sum(decoder.share for decoder in decoders)
    for decoder in decoders:
        yield decoder, -(-inputs * decoder.share // all_shares)


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all decoders together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=[decoder.name for decoder in DECODERS], help="one decoder")
    parser.add_argument("--results", type=Path, help="where the campaign's figures go, as JSON")
    arguments = parser.parse_args()
    decoders = [decoder for decoder in DECODERS if arguments.only in (None, decoder.name)]
    begun_s = time.monotonic()
    lines = Lines()
    fuzzed = fuzz(decoders, arguments.inputs, arguments.seed, lines)
    for each in fuzzed:
        print(each)
    command = f"make fuzz INPUTS={arguments.inputs} SEED={arguments.seed}"
    result = campaign(fuzzed, time.monotonic() - begun_s, lines, command)
    for name, figure in result.figures.items():
        print(f"{name}: {figure}")
    if arguments.results is not None:
        result.write(arguments.results)
    return 0 if result.passed else 1


if __name__ == "__main__":
    sys.exit(main())
