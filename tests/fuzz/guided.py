"""One decoder under Atheris, in a process of its own: inputs that reach new branches are kept and changed further.

    PYTHONPATH=tests python -m fuzz.guided Metadata --inputs 30000 --seed 1 --corpus FOLDER --results FILE

Ends after so many inputs with what became of them in FILE, or at the first fault: with the traceback, and the input in
FOLDER as `crash-...`, where all inputs that reached something new are too.

An array that claims 2^31 elements must not be believed: while inputs are decoded, the process may take
`MORE_ADDRESS_SPACE_BYTES` more than it has, and whoever asks for more gets a MemoryError, a fault as any other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import atheris

# From here on imports of these are instrumented.
with atheris.instrument_imports(include=["kafka_sink"], enable_loader_override=False):
    from fuzz.decoders import BY_NAME, Decoder
    from fuzz.judge import judge

MORE_ADDRESS_SPACE_BYTES = 256 * 1024 * 1024
# Of the clock: what never ends, ends here. `judge` measures what is slow.
TIMEOUT_S = 20
MOST_INPUT_BYTES = 8192


@dataclass(slots=True)
class Tally:
    """`outcomes`: what became of inputs, by its name. `slowest_s`: of the processor, for one input."""

    inputs: int = 0
    slowest_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz.guided", description=__doc__.partition("\n")[0])
    parser.add_argument("decoder", choices=BY_NAME)
    parser.add_argument("--inputs", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    decoder = BY_NAME[arguments.decoder]
    for number, seed in enumerate(decoder.seeds):
        (arguments.corpus / f"seed-{number}").write_bytes(seed)
        # What is imported and made at the first input of a kind is none of an input's memory.
        with contextlib.suppress(*decoder.errors):
            decoder.decode(seed)
    _limit_address_space()
    # libFuzzer takes a seed of 0 for the time of day.
    options = [
        f"-seed={arguments.seed}", f"-timeout={TIMEOUT_S}", f"-max_len={MOST_INPUT_BYTES}",
        f"-artifact_prefix={arguments.corpus}/", "-rss_limit_mb=0",
    ]  # fmt: skip
    one_input = _counted(decoder, arguments.inputs, arguments.results)
    atheris.Setup([sys.argv[0], *options, str(arguments.corpus)], one_input)
    atheris.Fuzz()


def _counted(decoder: Decoder, inputs: int, results: Path) -> Callable[[bytes], None]:
    tally = Tally()

    def one_input(data: bytes) -> None:
        begun_s = time.process_time()
        outcome = judge(decoder, data)
        tally.slowest_s = max(tally.slowest_s, time.process_time() - begun_s)
        tally.outcomes[outcome] = tally.outcomes.get(outcome, 0) + 1
        tally.inputs += 1
        if tally.inputs == inputs:
            results.write_text(json.dumps(asdict(tally)), encoding="utf-8")
            # libFuzzer's own way out goes through the interpreter's, which it has taken apart by then.
            sys.stderr.flush()
            os._exit(0)

    return one_input


def _limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MORE_ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
