"""The reference reader and the oracle agree, over random faults: what is kept is read once, and nothing else is read.

So the model serves what it says it serves. Each check also fails for a reader with one mistake.
"""

from __future__ import annotations

import functools
import random
from collections import Counter

import pytest

from model.byte_client import client_of_topic
from model.read_client import Got
from model.read_faults import WEIGHTS, ReadFaults
from model.read_journal import Isolation
from model.read_traffic import ReadTraffic
from model.readable_records import Fate, ReadableRecord
from model.record_batches import RecordBatch, decode_stored_records
from model.reference_reader import Delivered, ReferenceReader
from model.settings import KAFKA_3_3

STEPS = 300
SEEDS = range(30)
RACKS = {0: "a", 1: "b", 2: "a"}
_PRODUCE_VERSION = 9


class Run:
    """One seed: faults for a while, then a healthy cluster, until the reader is at the end."""

    def __init__(self, seed: int, reader_type: type[ReferenceReader] = ReferenceReader, **weights: int) -> None:
        rng = random.Random(seed)
        client = client_of_topic(
            3, 1, seed=seed, generation=KAFKA_3_3, replica_lag_time_max_ms=100, failure_detection_ms=(10, 100),
            racks=rng.choice([{}, RACKS]), metadata_lag_ms=(1, 30), high_watermark_checkpoint_interval_ms=500,
        )  # fmt: skip
        self.cluster, self.isolation = client.cluster, rng.choice(list(Isolation))
        self.topic_id = client.cluster.topic_id("t")
        # Of the range that is read.
        self.first_offset = rng.choice([0, 0, 3, 7])
        writer = ReadTraffic(client, rng)
        self.reader = reader_type(
            client,
            "t",
            0,
            self.isolation,
            rng,
            fetch_version=rng.choice([12, 13]),
            rack=rng.choice(["a", "b"]),
            first_offset=self.first_offset,
            topic_id=self.topic_id,
        )
        # A topic of the same name has a log of its own. Without its id a reader cannot see it.
        topic_again = WEIGHTS["topic_again"] if self.reader.fetch_version >= 13 else 0
        faults = ReadFaults(client.cluster, "t", rng, {**WEIGHTS, "topic_again": topic_again, **weights})
        self.struck: list[str] = []
        for _ in range(STEPS):
            what = rng.choices(["write", "read", "fault", "time"], [40, 30, 8, 22])[0]
            if what == "write":
                writer.step()
            elif what == "read":
                self.reader.step()
            elif what == "fault" and (done := faults.strike()) is not None:
                self.struck.append(done)
            elif what == "time":
                client.run(rng.choice([1, 10, 100, 300]))
        self._heal(faults, writer)
        self._read_to_the_end()

    def _heal(self, faults: ReadFaults, writer: ReadTraffic) -> None:
        faults.heal()
        writer.client.run(3_000)
        for partition in range(self.cluster.partition_count("t")):
            if self.cluster.leader("t", partition) is None:
                self.cluster.elect("t", partition, unclean=True)
        writer.client.run(3_000)
        writer.finish()
        writer.client.run(1_000)

    def _read_to_the_end(self) -> None:
        end_offset = self.cluster.high_watermark("t", 0, self.cluster.leader("t", 0) or 0)
        assert self.cluster.last_stable_offset("t", 0) == end_offset
        for _ in range(5_000):
            if self.reader.is_topic_gone or self.reader.position == max(end_offset, self.first_offset):
                return
            self.reader.step()
        raise AssertionError(f"at {self.reader.position} of {end_offset}")

    @property
    def records(self) -> list[ReadableRecord]:
        return self.cluster.readable_records("t", 0, self.isolation, self.first_offset, topic_id=self.topic_id)

    def mistakes(self) -> list[str]:
        """What is wrong with what was delivered."""
        readable = {Delivered(*record[:-1]): record.fate for record in self.records}
        delivered = Counter(self.reader.delivered)
        found = [f"{record} was never readable there" for record in delivered if record not in readable]
        found += [f"{record} was read {count} times" for record, count in delivered.items() if count > 1]
        for record, fate in readable.items():
            if fate is Fate.KEPT and record not in delivered and not self._is_noticed(record):
                found.append(f"{record} was left out")
        return found

    def _is_noticed(self, record: Delivered) -> bool:
        """Passed over with what had been deleted; or below what diverged, where another record had been before."""
        has_read_another = any(other.offset == record.offset for other in self.reader.delivered)
        return any(
            (lost.why == "deleted" and lost.first_offset <= record.offset < lost.end_offset)
            or (lost.why == "truncated" and (has_read_another or lost.first_offset <= record.offset < lost.end_offset))
            for lost in self.reader.lost
        )


@functools.cache
def honest_run(seed: int) -> Run:
    return Run(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_delivers_what_is_kept_and_nothing_that_was_never_readable(seed: int) -> None:
    assert honest_run(seed).mistakes() == []


def test_the_faults_are_real() -> None:
    runs = [honest_run(seed) for seed in SEEDS]
    fates = Counter(record.fate for run in runs for record in run.records)
    assert all(fates[fate] for fate in Fate), fates
    kinds = {struck.split()[0] for run in runs for struck in run.struck}
    assert kinds == set(WEIGHTS)
    assert {lost.why for run in runs for lost in run.reader.lost} == {"deleted", "truncated"}
    assert sum(len(run.reader.delivered) for run in runs) > 3_000


# --- readers with a mistake -------------------------------------------------------------------------------------------


class TakesAborted(ReferenceReader):
    def _deliver(self, got: Got) -> None:
        super()._deliver(got._replace(aborted=()))


class TakesWholeBatches(ReferenceReader):
    """It delivers a batch whole, wherever its position is."""

    def _deliver_batch(self, batch: RecordBatch) -> None:
        records = decode_stored_records(batch)
        self.delivered += [Delivered(*record, leader_epoch=batch.leader_epoch) for record in records]


class TellsNoEpoch(ReferenceReader):
    def _deliver(self, got: Got) -> None:
        super()._deliver(got)
        self.last_epoch = -1


@pytest.mark.parametrize("reader_type", [TakesAborted, TakesWholeBatches, TellsNoEpoch])
def test_a_reader_with_a_mistake_is_found(reader_type: type[ReferenceReader]) -> None:
    assert any(Run(seed, reader_type, lag=30, unclean_election=30).mistakes() for seed in SEEDS)
