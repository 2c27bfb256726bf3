"""Decoders under Atheris, one after the other: inputs that reach new branches are kept and changed further.

    PYTHONPATH=tests/verification python -m fuzz.guided FOLDER

FOLDER/plan.json has the seed, and how many inputs each decoder gets, by its name. Each leaves a folder of its number
there: `tally.json`, or at the first fault none; `log`, in which libFuzzer tells its progress, and the traceback of a
fault; `corpus`, the inputs that reached something new, and as `crash-...` the one that is a fault.

libFuzzer ends its process, so that each decoder has one, forked off from one that has imported and instrumented all.

A decoder must not allocate for an array that claims 2^31 elements. While inputs are decoded, the process may allocate
at most `MORE_ADDRESS_SPACE_BYTES` more. A larger allocation raises MemoryError, which counts as a fault.
"""

import contextlib
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import atheris

# From here on imports of these are instrumented.
with atheris.instrument_imports(include=["kafka_sink"], enable_loader_override=False):
    from fuzz.decoders import BY_NAME, Decoder
    from fuzz.judge import judge

MORE_ADDRESS_SPACE_BYTES = 256 * 1024 * 1024
# Of the clock: what never ends, ends here. `judge` measures what is slow.
TIMEOUT_S = 20
MOST_INPUT_BYTES = 8192


def main() -> None:
    folder = Path(sys.argv[1])
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    for number, (name, inputs) in enumerate(plan["inputs"].items()):
        place = folder / str(number)
        (place / "corpus").mkdir(parents=True)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            fuzz(BY_NAME[name], inputs, plan["seed"], place)
        _, status = os.waitpid(child, 0)
        print(f"{name}: {inputs:,} inputs" if status == 0 else f"{name}: FAULT")


def fuzz(decoder: Decoder, inputs: int, seed: int, place: Path) -> NoReturn:
    corpus = place / "corpus"
    for number, valid in enumerate(decoder.seeds):
        (corpus / f"seed-{number}").write_bytes(valid)
        # What is imported and made at the first input of a kind is none of an input's memory.
        with contextlib.suppress(*decoder.errors):
            decoder.decode(valid)
    _limit_address_space()
    # libFuzzer takes a seed of 0 for the time of day.
    options = [
        f"-seed={seed}", f"-timeout={TIMEOUT_S}", f"-max_len={MOST_INPUT_BYTES}",
        f"-artifact_prefix={corpus}/", "-rss_limit_mb=0",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(corpus)], _counted(decoder, inputs, place / "tally.json"))
    atheris.Fuzz()
    raise AssertionError("libFuzzer ends its process")


def _counted(decoder: Decoder, inputs: int, results: Path) -> Callable[[bytes], None]:
    outcomes: Counter[str] = Counter()
    # Of the processor, for one input.
    slowest_s = 0.0

    def one_input(data: bytes) -> None:
        nonlocal slowest_s
        begun_s = time.process_time()
        outcomes[judge(decoder, data)] += 1
        slowest_s = max(slowest_s, time.process_time() - begun_s)
        if outcomes.total() == inputs:
            tally = {"inputs": inputs, "slowest_s": slowest_s, "outcomes": outcomes}
            results.write_text(json.dumps(tally), encoding="utf-8")
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
