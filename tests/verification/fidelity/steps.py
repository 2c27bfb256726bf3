"""The steps of a trace: each is a request as data, and the evaluation of its answer.

What follows an end of a transaction waits until the coordinator has completed it, so that no step meets a race. The
steps of READING change nothing: what a broker tells a moment later may be compared as well.

Source: the requests of Kafka's protocol, by their names there. Which of them a producer would send is the generator's
business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from fidelity.player import MAX_MESSAGE_BYTES, NOBODY, Player, Who
from model.clients import FIRST_FETCH_BY_ID, GROUP, PLENTY, Got, Producer, Wanted, record_batch
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
        codes = player.client.add_partitions(
            player.transactional_id(self.slot), player.producer(self.who), topics, self.version
        )
        return Answer(tuple(code for _, code in sorted(codes.items())))


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    slot: int
    who: Who
    group: int
    version: int

    def play(self, player: Player) -> Answer:
        x, group = player.transactional_id(self.slot), player.group(self.group)
        return Answer((player.client.add_offsets(x, player.producer(self.who), group, self.version),))


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
            player.transactional_id(self.slot), player.producer(self.who), player.group(self.group),
            player.topic(self.topic), self.offset, partition=self.partition,
            metadata="m" * self.metadata_length if self.metadata_length is not None else None,
            generation=self.generation_id, member_id=self.member_id, version=self.version,
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
        code = player.client.commit_offset_outside(
            player.group(self.group), player.topic(self.topic), self.offset, partition=self.partition,
            metadata="m" * self.metadata_length if self.metadata_length is not None else None,
            generation=self.generation_id, member_id=self.member_id, version=self.version,
        )  # fmt: skip
        return Answer((code,))


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
        described = player.client.describe_once(player.transactional_id(self.slot))
        return Answer(
            (described.code,),
            (described.state, described.timeout_ms, player.who(described.producer), described.partitions,
             described.state == "Ongoing" and described.start_ms >= 0),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class DescribeProducers:
    topic: int
    partition: int

    def play(self, player: Player) -> Answer:
        code, producers = player.client.active_producers(player.topic(self.topic), self.partition)
        return Answer((code,), tuple(sorted((player.who(producer), *rest) for producer, *rest in producers)))


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
        code, found = player.reader.end_of_epoch(
            player.client.leader_of("", 0), player.topic(self.topic), self.leader_epoch, self.partition,
            version=self.version, current_leader_epoch=self.current_leader_epoch,
        )  # fmt: skip
        return Answer((code,), tuple(found))


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
        code, low_watermark = player.reader.delete_records(
            player.client.leader_of("", 0), player.topic(self.topic), self.offset, self.partition, version=self.version
        )
        return Answer((code,), (low_watermark,))


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
