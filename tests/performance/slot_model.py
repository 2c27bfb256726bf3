"""The requests and the log records of one exactly-once micro-batch, on paper: formulas of slots, partitions, brokers.

The formulas hold for a micro-batch without a failure, by clients that know their coordinators. The sink has committed a
micro-batch with as many slots before. `bench_slots` compares them with the requests that go out and with the logs.
`tables()` are the tables of docs/design/performance.md.

Source: `kafka_sink/commit/two_phase.py`. For the transaction log: TransactionCoordinator, AddPartitionsToTxnManager.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from frame import markdown
from kafka_sink.kafka.coordinators import READS_TOGETHER

PLAN, SLOTS, COMMIT = "plan", "slots", "commit"
# Beside the requests of each stage: the records that each log has got by the end.
LOGS = "logs"
TOPIC, CONSUMER_OFFSETS, TRANSACTION_STATE = "the topic", "__consumer_offsets", "__transaction_state"


class Count(NamedTuple):
    """At least `least`, at most `most`."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least:,}" if self.least == self.most else f"{self.least:,} to {self.most:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A micro-batch, and where its parts are in the cluster.

    `rows`: of each slot. `partitions`: those that each slot writes to. `leaders`: the brokers that lead them.
    `transactions_at`, `groups_at`: the number of slots of each coordinator. `parts_before`, `parts`: the groups of the
    last decision and of this one. `later_parts_at`: the last decision's groups but the first, of each coordinator.
    `new_parts`: groups that no earlier decision of the sink had. `parts_logs`: the partitions of __consumer_offsets
    with a group of this decision. `pauses`: how often the commit waited for leaders to end the transactions."""

    transaction_version: int
    slots: int
    rows: int
    partitions: int
    brokers: int
    leaders: int
    transactions_at: Sequence[int]
    groups_at: Sequence[int]
    parts_before: int = 1
    parts: int = 1
    later_parts_at: Sequence[int] = ()
    new_parts: int = 0
    parts_logs: int = 1
    pauses: int = 0

    def if_version_1(self, count: int) -> int:
        return count if self.transaction_version == 1 else 0


def reads(keys_at: Sequence[int]) -> int:
    """Return the requests that read so many keys at each coordinator. READS_TOGETHER keys go as one request."""
    return sum(ceil(keys / READS_TOGETHER) for keys in keys_at)


SYMBOLS: Mapping[str, str] = {
    "S": "slots", "R": "rows of all slots", "P": "partitions that each slot writes to",
    "L": "brokers that lead these partitions", "B": "brokers",
    "D": "groups of the decision: 4,096 characters each, about 200 slots",
    "T": f"reads of all slots' transactions: of each coordinator its slots / {READS_TOGETHER}, rounded up",
    "G": f"reads of all slots' groups: of each coordinator its slots / {READS_TOGETHER}, rounded up",
    "Q": "coordinators of the decision's groups but the first",
    "O": "partitions of `__consumer_offsets` with a group of the decision", "N": "groups that no earlier decision had",
    "W": "pauses in which the commit waits for leaders to end the transactions",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Formula:
    """How often something is in one stage of a micro-batch. `text`: `count` in SYMBOLS."""

    stage: str
    what: str
    text: str
    count: Callable[[Layout], int | Count]

    def of(self, layout: Layout) -> Count:
        count = self.count(layout)
        return count if isinstance(count, Count) else Count(count, count)


def _state_records(of: Layout) -> Count:
    least, most = (1, 1) if of.transaction_version == 1 else (of.leaders, of.partitions)
    of_the_driver = of.parts_logs + 3
    return Count(of.slots * (least + 4) + of_the_driver, of.slots * (most + 4) + of_the_driver)


FORMULAS: tuple[Formula, ...] = (
    # The metadata of topics is used for 1 s.
    Formula(PLAN, "Metadata", "2 to 4", lambda _: Count(2, 4)),
    Formula(PLAN, "InitProducerId", "1", lambda _: 1),
    Formula(PLAN, "ListTransactions", "B", lambda of: of.brokers),
    Formula(
        PLAN, "OffsetFetch", "1 + G; if D > 1: 2 + G + Q",
        lambda of: 1 + reads(of.groups_at) + (1 + reads(of.later_parts_at) if of.parts_before > 1 else 0),
    ),
    Formula(PLAN, "DescribeProducers", "L", lambda of: of.leaders),
    Formula(SLOTS, "DescribeTransactions", "S", lambda of: of.slots),
    Formula(SLOTS, "InitProducerId", "S", lambda of: of.slots),
    Formula(SLOTS, "AddPartitionsToTxn", "version 1: S", lambda of: of.if_version_1(of.slots)),
    # Batches of one leader go out together, unless one of them is ready before another.
    Formula(SLOTS, "Produce", "S L to S P", lambda of: Count(of.slots * of.leaders, of.slots * of.partitions)),
    # A producer that rested for 1 s asks if its connections are open. Produce of version 1 has no topic ids, so each
    # leader is asked if it wrote to the same topic.
    Formula(
        SLOTS, "Metadata", "0 to S; version 1: S L to S L + S",
        lambda of: Count(of.if_version_1(of.slots * of.leaders), of.if_version_1(of.slots * of.leaders) + of.slots),
    ),
    Formula(SLOTS, "AddOffsetsToTxn", "version 1: S", lambda of: of.if_version_1(of.slots)),
    Formula(SLOTS, "TxnOffsetCommit", "S", lambda of: of.slots),
    Formula(COMMIT, "Metadata", "0 to 2 + W", lambda of: Count(0, 2 + of.pauses)),
    Formula(COMMIT, "FindCoordinator", "N", lambda of: of.new_parts),
    Formula(COMMIT, "AddOffsetsToTxn", "version 1: D", lambda of: of.if_version_1(of.parts)),
    Formula(COMMIT, "TxnOffsetCommit", "D", lambda of: of.parts),
    Formula(COMMIT, "DescribeTransactions", "T", lambda of: reads(of.transactions_at)),
    Formula(COMMIT, "DescribeProducers", "L (2 + W)", lambda of: of.leaders * (2 + of.pauses)),
    Formula(COMMIT, "EndTxn", "S + 1", lambda of: of.slots + 1),
    Formula(COMMIT, "OffsetFetch", "G", lambda of: reads(of.groups_at)),
    Formula(LOGS, TOPIC, "R rows, S P markers", lambda of: of.slots * (of.rows + of.partitions)),
    # A slot's transaction has one marker for its group, the driver's has one for each partition of its groups.
    Formula(
        LOGS, CONSUMER_OFFSETS, "S + D offsets, S + O markers", lambda of: 2 * of.slots + of.parts + of.parts_logs
    ),
    # Of each transaction: Init, groups added, prepared, completed, and partitions added. In version 1 the client adds
    # them with one request. In version 2 each Produce adds its own.
    Formula(LOGS, TRANSACTION_STATE, "S (L + 4) + O + 3 to S (P + 4) + O + 3; version 1: 5 S + O + 3", _state_records),
)  # fmt: skip


@dataclass(slots=True)
class Measured:
    """Counts of one micro-batch, by stage and kind.

    `first`: without `again`, the requests that repeat what was refused for now. `pauses`: as in Layout."""

    first: Counter[tuple[str, str]] = field(default_factory=Counter)
    again: Counter[tuple[str, str]] = field(default_factory=Counter)
    pauses: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """One count beside the model."""

    stage: str
    what: str
    text: str
    model: Count
    measured: int
    again: int

    @property
    def is_right(self) -> bool:
        return self.model.least <= self.measured <= self.model.most


def compare(layout: Layout, measured: Measured) -> list[Compared]:
    """Return each count beside the model. A kind that the model does not have must not occur."""
    known = {(each.stage, each.what): each for each in FORMULAS}
    unknown = sorted({key for key, count in measured.first.items() if count} - known.keys())
    formulas = [*known.values(), *(Formula(*key, "none", lambda _: 0) for key in unknown)]
    return [
        Compared(each.stage, each.what, each.text, each.of(layout), measured.first[key], measured.again[key])
        for each in formulas
        for key in [(each.stage, each.what)]
    ]


def comparison(lines: Sequence[Compared]) -> str:
    """Return a table of the model beside the counts. Lines without any count are left out."""
    rows = (
        f"{each.stage} | {each.what} | {each.text} | {each.model} | {each.measured:,} | "
        f"{f'{each.again:,}' if each.again else ''} | {'' if each.is_right else 'DIFFERS'}"
        for each in lines
        if each.model.most or each.measured or each.again
    )
    return markdown("stage | of | formula | model | measured | sent again | ", rows)


def tables() -> tuple[str, str]:
    """Return the tables of the formulas and of the symbols, as a page has them."""
    rows = [(each.stage, f"`{each.what}`" if each.what.startswith("__") else each.what, each.text) for each in FORMULAS]
    return _of_a_page(("Stage", "Of", "Number"), rows), _of_a_page(("Symbol", "Number of"), list(SYMBOLS.items()))


def _of_a_page(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    return "\n".join((lines[0], "|---" * len(head) + "|", *lines[1:]))


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
