"""Plays a trace to one broker, or to the model, and translates the names in steps to ids there.

Steps name what brokers make up by the order in which it was seen. A producer is a `Who`: the place of its producer id
among those that were handed out, and its epoch. A topic is a slot and, for its id, the how-manieth of that name;
transactional ids and groups are slots. So a step means the same everywhere, and its answer is told in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from fidelity.kinds import wait_until_led
from model.clients import COMES_TO_PASS, GROUP, TRANSACTION, Producer, ReadClient, TransactionClient
from model.settings import FIND_COORDINATOR, METADATA, OFFSET_COMMIT, OFFSET_FETCH, Generation
from model.wire import build, kio_module

MAX_MESSAGE_BYTES = 1_000
# So small that logs of a few batches have an index.
INDEX_INTERVAL_BYTES = 200
# Timestamps of records are that far ahead of the markers', and of each other: order never depends on clocks.
AHEAD_MS, APART_MS = 60_000, 10
# Slots of what nobody ever made, and of what has no name.
UNKNOWN, EMPTY = -1, -2
# Places of the producer id -1, and of one that no broker has handed out.
NO_ONE, NOBODY_ELSE = -1, -2
# Slot of a group by which the end of a deletion is seen.
_WATCH = 2
_ID_OF_NOBODY_ELSE = 10**12
_UNKNOWN_TOPIC_ID = UUID(int=4711)
# Twenty seconds of a real broker, at 5 ms each.
_MOST_PAUSES = 4_000


class Who(NamedTuple):
    place: int
    producer_epoch: int


NOBODY = Who(NO_ONE, -1)


class Topics(Protocol):
    """Makes topics, with MAX_MESSAGE_BYTES and INDEX_INTERVAL_BYTES, and deletes them: on a broker or in the model."""

    def create(self, name: str, partitions: int) -> None: ...

    def delete(self, name: str) -> None: ...


class OneBroker(TransactionClient):
    """Of a cluster of one, whose coordinators are there; for what has no name, no broker could be found."""

    def coordinator(self, key: str | None, key_type: int = TRANSACTION) -> int:
        return self.leader_of("", 0)


@dataclass
class Player:
    """One trace on one broker. `generation`: what the model has for it. `name` begins every name of the trace.
    `now_ms`: by the broker's clock."""

    generation: Generation
    client: OneBroker
    topics: Topics
    name: str
    now_ms: Callable[[], int]
    _seen: list[int] = field(default_factory=list)
    _timestamps: list[int] = field(default_factory=list)
    _topic_ids: dict[tuple[int, int], UUID] = field(default_factory=dict)

    def topic(self, slot: int) -> str:
        return self._named("t", slot)

    def transactional_id(self, slot: int) -> str:
        return self._named("x", slot)

    def group(self, slot: int) -> str:
        return self._named("g", slot)

    def _named(self, what: str, slot: int) -> str:
        if slot == EMPTY:
            return ""
        return f"{self.name}-{what}{slot}" if slot >= 0 else f"{self.name}-{what}-unknown"

    @property
    def reader(self) -> ReadClient:
        return ReadClient(self.client.call)

    def topic_id(self, slot: int, generation: int) -> UUID:
        return self._topic_ids.get((slot, generation), _UNKNOWN_TOPIC_ID)

    def producer(self, who: Who) -> Producer:
        if who.place == NO_ONE:
            return Producer(-1, who.producer_epoch)
        return Producer(self._seen[who.place] if who.place >= 0 else _ID_OF_NOBODY_ELSE, who.producer_epoch)

    def who(self, producer: Producer) -> Who:
        if producer.producer_id < 0:
            return Who(NO_ONE, producer.producer_epoch)
        if producer.producer_id not in self._seen:
            self._seen.append(producer.producer_id)
        return Who(self._seen.index(producer.producer_id), producer.producer_epoch)

    def next_timestamp(self) -> int:
        """Of the next batch: in ms, and later than all before."""
        after = self._timestamps[-1] + APART_MS if self._timestamps else 0
        self._timestamps.append(max(after, self.now_ms() + AHEAD_MS))
        return self._timestamps[-1]

    def timestamp(self, number: int) -> int:
        """Of the batch of that number."""
        return self._timestamps[number]

    def number_of(self, timestamp: int) -> int | None:
        """The number of the batch; None for a timestamp of a marker. None at all (-1) and 1970 (0) are told so."""
        if timestamp <= 0:
            return timestamp
        return self._timestamps.index(timestamp) if timestamp in self._timestamps else None

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(_MOST_PAUSES):
            if condition():
                return
            self.client.pause()
        raise AssertionError(f"not within {_MOST_PAUSES} looks: {what}")

    def wait_while(self, slot: int, *states: str) -> None:
        """As long as a transactional id is in one of `states`."""
        x = self.transactional_id(slot)
        self.wait_until(lambda: self.client.describe_once(x).state not in states, f"{x} is not in {states}")

    def settle(self, slot: int) -> None:
        """Until the coordinator has completed what was ended."""
        self.wait_while(slot, "PrepareCommit", "PrepareAbort")

    def begin(self, partitions: Mapping[int, int]) -> None:
        """With a topic of so many partitions for each slot, and coordinators that are there."""
        for slot, count in partitions.items():
            self.create(slot, count, generation=0)
        for key_type, key in ((TRANSACTION, self.transactional_id(0)), (GROUP, self.group(0))):
            self.wait_until(partial(self._is_coordinated, key, key_type), f"a coordinator of {key}")
        for slot in (0, 1, UNKNOWN):
            if self.generation.describes_transactions:
                self.client.describe(self.transactional_id(slot))
            self.wait_until(partial(self._is_loaded, self.group(slot)), "offsets that are loaded")

    def _is_coordinated(self, key: str, key_type: int) -> bool:
        code, _ = self.client.find_coordinator(key, key_type, self._newest(FIND_COORDINATOR))
        return code == 0

    def _is_loaded(self, group: str) -> bool:
        code, _ = self.client.fetch_group(group, None, version=self._newest(OFFSET_FETCH))
        return code not in COMES_TO_PASS

    def _newest(self, api_key: int) -> int:
        return self.generation.api_versions[api_key][1]

    def create(self, slot: int, partitions: int, generation: int) -> None:
        name = self.topic(slot)
        self.topics.create(name, partitions)
        wait_until_led(self.client, name, partitions)
        if self.generation.has_topic_ids:
            self._topic_ids[slot, generation] = self.metadata(self._newest(METADATA), name).topic_id

    def delete(self, slot: int) -> None:
        name, watch = self.topic(slot), self.group(_WATCH)
        self.client.commit_offset_outside(watch, name, 0, version=self._newest(OFFSET_COMMIT))
        self.topics.delete(name)
        self.wait_until(lambda: bool(self.metadata(self._newest(METADATA), name).error_code == 3), f"{name} is gone")
        # A coordinator drops the topic's offsets a little later, and groups that have none left.
        for group in (self.group(0), self.group(1), watch):
            self.wait_until(partial(self._is_without, group, name), f"{group} has no offsets on {name}")

    def _is_without(self, group: str, topic: str) -> bool:
        _, offsets = self.client.fetch_group(group, None, require_stable=False, version=self._newest(OFFSET_FETCH))
        return all(found[0] != topic for found in offsets)

    def metadata(self, version: int, name: str | None, topic_id: UUID | None = None) -> Any:
        """What kio reads of one topic, by its name or, from version 12 on, by its id."""
        kio_version = kio_module(METADATA, version, "request")
        asked = build(kio_version.MetadataRequestTopic, topic_id=topic_id, name=name)
        message = build(
            kio_version.MetadataRequest, topics=(asked,), allow_auto_topic_creation=False,
            include_topic_authorized_operations=False, include_cluster_authorized_operations=False,
        )  # fmt: skip
        return self.client.call(self.client.leader_of("", 0), METADATA, version, message).topics[0]
