"""The steps of a trace: each is a request as data, and the evaluation of its answer.

What follows an end of a transaction waits until the coordinator has completed it, so that no step meets a race. The
steps of READING change nothing: what a broker tells a moment later may be compared as well.

Source: the requests of Kafka's protocol, by their names there. Which of them a producer would send is the generator's
business.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from fidelity.player import MAX_MESSAGE_BYTES, NOBODY, Player, Who
from model import settings as api
from model.clients import CONSUMER, FIRST_FETCH_BY_ID, GROUP, PLENTY, Got, Producer, Wanted, record_batch
from model.clients import NOBODY as NO_PRODUCER
from model.read_apis import NO_EPOCH
from model.read_journal import Isolation
from model.record_batches import changed_attributes, decode_marker, decode_stored_records, next_batch

CONCURRENT_TRANSACTIONS = 51
_FIRST_PRODUCE_BY_ID = 13
_CONTROL_BIT = 0b100000
_CRC = slice(17, 21)


class Answer(NamedTuple):
    """`codes`: by which the step is counted. `told`: what else must be alike."""

    codes: tuple[int, ...]
    told: tuple[Any, ...] = ()


class Step(Protocol):
    def play(self, player: Player) -> Answer: ...


# --- producers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """`slot`: of the transactional id, None without one. `expected`: who the producer says it is."""

    slot: int | None
    version: int
    timeout_ms: int = 60_000
    expected: Who = NOBODY

    def play(self, player: Player) -> Answer:
        x = player.transactional_id(self.slot) if self.slot is not None else None
        code, producer = player.client.try_init(
            x, timeout_ms=self.timeout_ms, expected=player.producer(self.expected), version=self.version
        )
        if code == CONCURRENT_TRANSACTIONS and self.slot is not None:
            player.settle(self.slot)
        return Answer((code,), (player.who(producer),))


@dataclass(frozen=True, slots=True)
class Produce:
    """One batch of `count` records. `topic` is a slot and, from version 13 on, `generation` tells which topic of that
    name is meant. `is_damaged`: its CRC is wrong. `is_control`: it says so."""

    slot: int | None
    who: Who
    topic: int
    generation: int
    partition: int
    base_sequence: int
    version: int
    count: int = 1
    is_transactional: bool = True
    acks: int = -1
    is_too_large: bool = False
    is_damaged: bool = False
    is_control: bool = False
    value_bytes: int = 1

    def play(self, player: Player) -> Answer:
        produced = player.client.append(
            player.transactional_id(self.slot) if self.slot is not None else None,
            self.records(player.producer(self.who), player.next_timestamp()),
            player.topic(self.topic), self.partition, acks=self.acks, version=self.version,
            topic_id=player.topic_id(self.topic, self.generation) if self.version >= _FIRST_PRODUCE_BY_ID else None,
        )  # fmt: skip
        return Answer((produced.code,), (produced.base_offset, produced.log_start_offset))

    def records(self, producer: Producer, timestamp_ms: int) -> bytes:
        value = bytes(MAX_MESSAGE_BYTES if self.is_too_large else self.value_bytes)
        records = record_batch(
            *[value] * self.count, base_sequence=self.base_sequence, is_transactional=self.is_transactional,
            timestamp_ms=timestamp_ms, **producer._asdict(),
        )  # fmt: skip
        if self.is_control:
            records = changed_attributes(records, _CONTROL_BIT)
        return records[: _CRC.start] + bytes(4) + records[_CRC.stop :] if self.is_damaged else records


# --- transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """`partitions`: slots of topics, and numbers."""

    slot: int
    who: Who
    partitions: tuple[tuple[int, int], ...]
    version: int

    def play(self, player: Player) -> Answer:
        topics: dict[str, list[int]] = {}
        for topic, partition in self.partitions:
            topics.setdefault(player.topic(topic), []).append(partition)
        x, producer = player.transactional_id(self.slot), player.producer(self.who)
        answer = player.client.ask(
            player.client.coordinator(x), api.ADD_PARTITIONS_TO_TXN, self.version, v3_and_below_transactional_id=x,
            v3_and_below_producer_id=producer.producer_id, v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": tuple(each)} for topic, each in topics.items()],
        )  # fmt: skip
        codes = sorted(
            (topic.name, partition.partition_index, int(partition.partition_error_code))
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        )
        return Answer(tuple(code for *_, code in codes))


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    slot: int
    who: Who
    group: int
    version: int

    def play(self, player: Player) -> Answer:
        x, ids = player.transactional_id(self.slot), player.producer(self.who)._asdict()
        answer = player.client.ask(
            player.client.coordinator(x), api.ADD_OFFSETS_TO_TXN, self.version, transactional_id=x,
            group_id=player.group(self.group), **ids,
        )  # fmt: skip
        return Answer((int(answer.error_code),))


@dataclass(frozen=True, slots=True)
class TxnOffsetCommit:
    """`metadata_length`: None for none. `generation_id`, `member_id`: of a member, which no group has here."""

    slot: int
    who: Who
    group: int
    topic: int
    partition: int
    offset: int
    version: int
    metadata_length: int | None = 0
    generation_id: int = -1
    member_id: str = ""

    def play(self, player: Player) -> Answer:
        code = player.client.commit_offset(
            api.TXN_OFFSET_COMMIT, self.version, player.group(self.group), player.topic(self.topic), self.offset,
            transactional_id=player.transactional_id(self.slot), **player.producer(self.who)._asdict(), **_of(self),
        )  # fmt: skip
        return Answer((code,))


@dataclass(frozen=True, slots=True)
class EndTxn:
    slot: int
    who: Who
    is_commit: bool
    version: int

    def play(self, player: Player) -> Answer:
        x = player.transactional_id(self.slot)
        code, following = player.client.end(x, player.producer(self.who), self.is_commit, version=self.version)
        player.settle(self.slot)
        return Answer((code,), (player.who(following) if following is not None else None,))


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No request: the coordinator ends a transaction whose time is over."""

    slot: int

    def play(self, player: Player) -> Answer:
        player.wait_while(self.slot, "Ongoing", "PrepareAbort")
        return Answer(())


# --- offsets ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Outside of transactions."""

    group: int
    topic: int
    partition: int
    offset: int
    version: int
    metadata_length: int | None = 0
    generation_id: int = -1
    member_id: str = ""

    def play(self, player: Player) -> Answer:
        group, topic = player.group(self.group), player.topic(self.topic)
        return Answer((player.client.commit_offset_surely(self.version, group, topic, self.offset, **_of(self)),))


def _of(step: TxnOffsetCommit | OffsetCommit) -> dict[str, Any]:
    metadata = "m" * step.metadata_length if step.metadata_length is not None else None
    member = {"generation": step.generation_id, "member_id": step.member_id}
    return {"partition": step.partition, "metadata": metadata, **member}


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """`topic`: None for all that the group has."""

    group: int
    topic: int | None
    partition: int
    require_stable: bool
    version: int

    def play(self, player: Player) -> Answer:
        topic = player.topic(self.topic) if self.topic is not None else None
        code, offsets = player.client.fetch_group(
            player.group(self.group), topic, partition=self.partition, require_stable=self.require_stable,
            version=self.version,
        )  # fmt: skip
        return Answer(tuple(sorted({code, *(each[2] for each in offsets)})), tuple(sorted(offsets)))


# --- what is where ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """`key_type` 0: of a group, 1: of a transactional id, others are none."""

    key_type: int
    slot: int
    version: int

    def play(self, player: Player) -> Answer:
        key = player.group(self.slot) if self.key_type == GROUP else player.transactional_id(self.slot)
        code, node_id = player.client.find_coordinator(key, self.key_type, self.version)
        return Answer((code,), (node_id >= 0,))


@dataclass(frozen=True, slots=True)
class Metadata:
    """`generation`: which topic of that name is asked for, by its id; None: by its name."""

    topic: int
    generation: int | None
    version: int

    def play(self, player: Player) -> Answer:
        if self.generation is None:
            metadata = player.metadata(self.version, player.topic(self.topic))
        else:
            metadata = player.metadata(self.version, None, player.topic_id(self.topic, self.generation))
        partitions = sorted(
            (partition.partition_index, int(partition.error_code), partition.leader_id >= 0)
            for partition in metadata.partitions
        )
        return Answer((int(metadata.error_code),), (metadata.name, *partitions))


@dataclass(frozen=True, slots=True)
class DescribeTransactions:
    """When it began counts while it is open: 3.9 goes on telling of the one before."""

    slot: int

    def play(self, player: Player) -> Answer:
        found = player.client.describe(player.transactional_id(self.slot))
        producer = Producer(int(found.producer_id), int(found.producer_epoch)) if not found.error_code else NO_PRODUCER
        partitions = sorted((topic.topic, partition) for topic in found.topics for partition in topic.partitions)
        return Answer(
            (int(found.error_code),),
            (found.transaction_state, round(found.transaction_timeout.total_seconds() * 1_000), player.who(producer),
             tuple(partitions), found.transaction_state == "Ongoing" and int(found.transaction_start_time) >= 0),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DescribeProducers:
    topic: int
    partition: int

    def play(self, player: Player) -> Answer:
        topic = player.topic(self.topic)
        asked = ({"name": topic, "partition_indexes": (self.partition,)},)
        node_id = player.client.leader_of(topic, self.partition)
        found = player.client.ask(node_id, api.DESCRIBE_PRODUCERS, 0, topics=asked).topics[0].partitions[0]
        producers = sorted(
            (player.who(Producer(int(each.producer_id), int(each.producer_epoch))), int(each.last_sequence),
             int(each.current_txn_start_offset))
            for each in found.active_producers
        )  # fmt: skip
        return Answer((int(found.error_code),), tuple(producers))


# --- what readers ask -------------------------------------------------------------------------------------------------


class FetchedPartition(NamedTuple):
    """`topic`: its slot; `generation` tells which topic of that name is meant, where ids are used."""

    topic: int
    generation: int
    partition: int
    offset: int
    max_bytes: int = PLENTY
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Fetch:
    partitions: tuple[FetchedPartition, ...]
    isolation: Isolation
    version: int
    max_bytes: int = PLENTY

    def play(self, player: Player) -> Answer:
        wanted = [
            Wanted(
                player.topic(each.topic), each.partition, each.offset, each.max_bytes, each.current_leader_epoch,
                each.last_fetched_epoch, player.topic_id(each.topic, each.generation),
            )
            for each in self.partitions
        ]  # fmt: skip
        answer = player.reader.fetch(
            player.client.leader_of("", 0), wanted,
            version=self.version, isolation=self.isolation, max_bytes=self.max_bytes,
        )  # fmt: skip
        places = [each.topic_id if self.version >= FIRST_FETCH_BY_ID else each.topic for each in wanted]
        told = [
            (places.index(got.topic), *got[1:6], _aborted(player, got), *got[7:10], stored_batches(player, got.records))
            for got in answer.partitions
        ]
        return Answer((answer.code, *(got.code for got in answer.partitions)), tuple(told))


def _aborted(player: Player, got: Got) -> tuple[Any, ...] | None:
    """By place of the producer id and first offset."""
    if got.aborted is None:
        return None
    return tuple((player.who(Producer(producer_id, 0)).place, offset) for producer_id, offset in got.aborted)


def stored_batches(player: Player, records: bytes) -> tuple[Any, ...]:
    """Every field of each batch that broker and model must have alike, and how many bytes follow the last whole one."""
    batches: list[Any] = []
    while (batch := next_batch(records)) is not None:
        sizes = [(record.offset, len(record.value or b"")) for record in decode_stored_records(batch)]
        contents = decode_marker(batch).is_commit if batch.is_control else tuple(sizes)
        batches.append(
            (batch.base_offset, batch.last_offset_delta, batch.record_count, batch.leader_epoch, batch.attributes,
             player.who(Producer(batch.producer_id, batch.producer_epoch)), batch.base_sequence, len(batch.data),
             contents, player.number_of(batch.max_timestamp))
        )  # fmt: skip
        records = records[len(batch.data) :]
    return (*batches, len(records))


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """`timestamp`: LATEST, EARLIEST or LARGEST_TIMESTAMP, or else added to the one of the batch of that `number`; None:
    it is the timestamp."""

    topic: int
    partition: int
    timestamp: int
    number: int | None
    isolation: Isolation
    version: int
    current_leader_epoch: int = NO_EPOCH

    def play(self, player: Player) -> Answer:
        timestamp = self.timestamp if self.number is None else player.timestamp(self.number) + self.timestamp
        code, found = player.reader.list_offset(
            player.client.leader_of("", 0), player.topic(self.topic), timestamp, self.partition,
            isolation=self.isolation, version=self.version, current_leader_epoch=self.current_leader_epoch,
        )  # fmt: skip
        return Answer((code,), (player.number_of(found.timestamp), found.offset, found.leader_epoch))


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpoch:
    topic: int
    partition: int
    leader_epoch: int
    version: int
    current_leader_epoch: int = NO_EPOCH

    def play(self, player: Player) -> Answer:
        asked = {
            "partition": self.partition, "current_leader_epoch": self.current_leader_epoch,
            "leader_epoch": self.leader_epoch,
        }  # fmt: skip
        answer = player.client.ask(
            player.client.leader_of("", 0), api.OFFSET_FOR_LEADER_EPOCH, self.version, replica_id=CONSUMER,
            topics=({"topic": player.topic(self.topic), "partitions": (asked,)},),
        )  # fmt: skip
        (found,) = answer.topics[0].partitions
        return Answer((int(found.error_code),), (int(found.leader_epoch), int(found.end_offset)))


READING = (
    OffsetFetch, FindCoordinator, Metadata, DescribeTransactions, DescribeProducers, Fetch, ListOffsets,
    OffsetForLeaderEpoch,
)  # fmt: skip


# --- logs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """`offset`: -1 for all."""

    topic: int
    partition: int
    offset: int
    version: int

    def play(self, player: Player) -> Answer:
        asked = {"partition_index": self.partition, "offset": self.offset}
        answer = player.client.ask(
            player.client.leader_of("", 0), api.DELETE_RECORDS, self.version, timeout=timedelta(seconds=10),
            topics=({"name": player.topic(self.topic), "partitions": (asked,)},),
        )  # fmt: skip
        (deleted,) = answer.topics[0].partitions
        return Answer((int(deleted.error_code),), (int(deleted.low_watermark),))


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """No request of a producer's."""

    topic: int

    def play(self, player: Player) -> Answer:
        player.delete(self.topic)
        return Answer(())


@dataclass(frozen=True, slots=True)
class TopicMade:
    """`generation`: the how-manieth of that name."""

    topic: int
    partitions: int
    generation: int

    def play(self, player: Player) -> Answer:
        player.create(self.topic, self.partitions, self.generation)
        return Answer(())
