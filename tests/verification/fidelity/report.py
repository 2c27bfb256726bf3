"""What a run of traces found, counted: for people at the end of the run, and as the campaign of docs/reliability."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from fidelity.traces import Difference, Trace
from reliability.campaign import Campaign, Figure


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
        name="fidelity",
        title="The model against real brokers",
        command=command,
        about=(
            "The model and a real broker get the same random requests of producers, idempotent and transactional, and "
            "of readers, valid and invalid, step by step. Both must answer with the same error codes, base offsets, "
            "log starts, producer ids and epochs, committed offsets, and descriptions of transactions for operators; "
            "with the same batches, cut off at the same byte, the same aborted transactions, and the same offsets by "
            "time. Brokers before Kafka 3.0 get no transactions: exactly-once needs more than they offer."
        ),
        figures=figures,
        passed=not any(found.differences for found in findings),
        explained=tuple(f"Kafka {found.kafka_version}: {line}" for found in findings for line in found.requests_told()),
    )
