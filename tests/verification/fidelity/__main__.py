"""`make fidelity`: traces of the model, replayed on real brokers.

    PYTHONPATH=tests/verification:tests/support python -m fidelity --traces 500 --kafka-version 4.3.1 2.1.1 --seed 1

Seeds count up from --seed; a seed is a trace, on every machine. Exit status 1 if a broker and the model ever differ.
Each difference is printed with the steps before it, both answers, and the command to run it again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from fidelity.player import BROKER_CONFIG
from fidelity.traces import PROTOCOLS, Difference, Trace, make_trace, replay
from reliability.campaign import Campaign, Figure
from zookeeper_kafka import kafka_of


@dataclass
class Findings:
    """Of one Kafka version. `pairs`: how often each code came to each request, on both sides."""

    kafka_version: str
    traces: int = 0
    steps: int = 0
    pairs: Counter[tuple[str, int]] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def count(self, trace: Trace, difference: Difference | None) -> None:
        self.traces += 1
        alike = len(trace.steps) if difference is None else difference.place
        self.steps += alike
        for step, answer in zip(trace.steps[:alike], trace.answers[:alike], strict=True):
            self.pairs.update((type(step).__name__, code) for code in set(answer.codes))
        if difference is not None:
            self.differences.append(difference)

    @classmethod
    def of(cls, kafka_version: str, parts: Iterable[Findings]) -> Findings:
        whole = cls(kafka_version)
        for part in parts:
            if part.kafka_version == kafka_version:
                whole.traces += part.traces
                whole.steps += part.steps
                whole.pairs += part.pairs
                whole.differences += part.differences
        return whole

    @property
    def requests(self) -> list[str]:
        return sorted({request for request, _ in self.pairs})

    def told(self) -> Iterator[str]:
        """What came of it, and a line for each request, with its codes and how often each came."""
        yield (
            f"Kafka {self.kafka_version}: {self.traces} traces, {self.steps:,} steps answered alike, "
            f"{len(self.differences)} traces with a difference"
        )
        yield from (f"  {line}" for line in self.requests_told())

    def requests_told(self) -> Iterator[str]:
        for request in self.requests:
            codes = sorted((code, count) for (name, code), count in self.pairs.items() if name == request)
            yield f"{request}: " + ", ".join(f"{ErrorCode(code).name.upper()} {count:,}" for code, count in codes)


def campaign(findings: list[Findings], command: str) -> Campaign:
    figures: dict[str, Figure] = {}
    for found in findings:
        version = f"Kafka {found.kafka_version}"
        figures |= {
            f"{version}: traces replayed": found.traces,
            f"{version}: steps answered alike": found.steps,
            f"{version}: pairs of request and error code": len(found.pairs),
            f"{version}: differences": len(found.differences),
        }
    return Campaign(
        name="fidelity", title="The model against real brokers", command=command,
        about=(
            "The model and a real broker get the same random requests of producers, idempotent and transactional, and "
            "of readers, valid and invalid, step by step. Both must answer with the same error codes, base offsets, "
            "log starts, producer ids and epochs, committed offsets, and descriptions of transactions for operators; "
            "with the same batches, cut off at the same byte, the same aborted transactions, and the same offsets by "
            "time. Brokers before Kafka 3.0 get no transactions: exactly-once needs more than they offer."
        ),
        figures=figures, passed=not any(found.differences for found in findings),
        explained=tuple(f"Kafka {found.kafka_version}: {line}" for found in findings for line in found.requests_told()),
    )  # fmt: skip


TRACES_A_LINE = 25


def main() -> int:
    arguments = _arguments()
    seeds = range(arguments.seed, arguments.seed + arguments.traces)
    shares = [(version, seeds[start :: arguments.brokers])
              for version in arguments.kafka_version for start in range(arguments.brokers)]  # fmt: skip
    with ProcessPoolExecutor(len(shares)) as pool:
        parts = list(pool.map(replay_share, *zip(*shares, strict=True)))
    findings = [Findings.of(version, parts) for version in arguments.kafka_version]
    for found in findings:
        print("\n".join(found.told()))
    if arguments.results is not None:
        versions = " ".join(arguments.kafka_version)
        options = f"--kafka-version {versions} --seed {arguments.seed}"
        campaign(findings, f"make fidelity TRACES={arguments.traces} ARGS='{options}'").write(arguments.results)
    return 1 if any(found.differences for found in findings) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", type=int, default=500, help="how many, on each version")
    parser.add_argument("--kafka-version", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS), help="brokers")
    parser.add_argument("--seed", type=int, default=1, help="of the first trace")
    parser.add_argument("--brokers", type=int, default=1, help="of each version, each in a process with its share")
    parser.add_argument("--results", type=Path, help="the file of the campaign")
    return parser.parse_args()


def replay_share(kafka_version: str, seeds: range) -> Findings:
    """One trace at a time: a broker that asks coordinators about several producers at once lets the first one decide
    by which codes all are answered (AddPartitionsToTxnManager), so that traces would meddle with each other."""
    findings = Findings(kafka_version)
    with kafka_of(kafka_version, config=BROKER_CONFIG) as kafka:
        # It outlives the broker for a moment, and would say so on stderr.
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        for seed in seeds:
            trace = make_trace(seed, kafka_version)
            difference = replay(trace, kafka, admin)
            findings.count(trace, difference)
            if difference is not None:
                print(difference, flush=True)
            if findings.traces % TRACES_A_LINE == 0:
                print(f"Kafka {kafka_version}: {findings.traces} of {len(seeds)} traces", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
