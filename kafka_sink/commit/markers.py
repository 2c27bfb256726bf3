"""What the two-phase commit writes down in Kafka, and under which names.

    transactional ids   <sink>.<slot>  a slot's rows and marker      <sink>.driver  the driver's decision
    consumer groups     <sink>.<slot>  the slot's marker             <sink>.decision, <sink>.decision-1, ...

Nobody joins the groups: a group is a place for one offset and a string of metadata, on partition 0 of the commit topic,
which a transaction can write together with rows. The offset is the micro-batch's id, the metadata one of the texts
below. A slot is a Spark partition number; its transactional id is the same for every attempt, so that a new attempt
fences the old one, and the number of ids is the largest number of slots there ever was.

Before a sink's first decision its group says that nothing was decided, and before a slot's first marker that group says
that nothing was committed: so a group without an offset has lost it, by DeleteGroups, OffsetDelete or expiry.

A text begins with its version, so that a later release can tell what an earlier one wrote. A broker keeps at most
`offset.metadata.max.bytes` of it (4096 by default): a decision that is longer is spread over several groups, all
written in one transaction.

Pure values; reading fails with `UnreadableState` rather than with a guess.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import takewhile
from uuid import UUID

from kafka_sink.errors import UnreadableState

VERSION = "1"
# GroupCoordinatorConfig.OFFSET_METADATA_MAX_SIZE_DEFAULT
METADATA_MAX_CHARACTERS = 4096
# OffsetFetch's answer for a group without an offset.
NO_OFFSET = -1
# What tells a topic from a pin: no topic's name has one.
TOPIC_SIGN = "@"
# What tells the id of the topic before it. Code without ids takes it for one more topic, of a name that no broker has.
TOPIC_ID_SIGN = "@@"
# What the digest of a fingerprint begins with: no fingerprint does. Behind TOPIC_SIGN in a decision, for such code too.
DIGEST_SIGN = "~"
# No query and no rows have these.
NO_QUERY = FORGOTTEN = ""
# Of 100 slots or more each: far beyond any micro-batch, so that somebody else's text has not us ask for a billion.
MAX_PARTS = 99_999
# What the fields of a request hold.
_MAX_PRODUCER_ID = 2**63 - 1
_MAX_PRODUCER_EPOCH = 2**15 - 1
_is_digest = re.compile(TOPIC_SIGN + DIGEST_SIGN + "[0-9a-f]{8}").fullmatch


@dataclass(frozen=True, slots=True)
class Ids:
    """A producer id and its epoch: one run of one transactional id."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def read(cls, text: str) -> Ids:
        """Raises ValueError."""
        id_text, _, epoch_text = text.partition(":")
        producer_id, producer_epoch = int(id_text), int(epoch_text)
        if not (0 <= producer_id <= _MAX_PRODUCER_ID and 0 <= producer_epoch <= _MAX_PRODUCER_EPOCH):
            raise ValueError(text)
        return cls(producer_id, producer_epoch)


def digest_of(fingerprint: str) -> str:
    """Short, as a decision has one of each slot: other rows have the same once in 2**32."""
    return DIGEST_SIGN + blake2s(fingerprint.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one sink. `sink` is its `transactionalIdPrefix`."""

    sink: str
    commit_topic: str

    @property
    def driver(self) -> str:
        return f"{self.sink}.driver"

    def slot(self, slot: int) -> str:
        return f"{self.sink}.{slot}"

    def decision(self, part: int) -> str:
        # Not with a dot: that is the group of another sink's slot.
        return f"{self.sink}.decision" + (f"-{part}" if part else "")

    def is_slot(self, transactional_id: str) -> bool:
        return re.fullmatch(re.escape(self.sink) + r"\.[0-9]{1,10}", transactional_id) is not None


@dataclass(frozen=True, slots=True)
class Marker:
    """A slot's: these rows of this micro-batch became visible together with it. `fingerprint`: where the marker was
    lost, and it was proved that the rows are visible, the digest of it that the decision has, or FORGOTTEN."""

    micro_batch_id: int
    query_id: str
    fingerprint: str

    @property
    def text(self) -> str:
        return "|".join((VERSION, self.query_id, self.fingerprint))

    @property
    def is_restored(self) -> bool:
        return self.fingerprint == FORGOTTEN or self.fingerprint.startswith(DIGEST_SIGN)

    def may_be_of(self, fingerprint: str) -> bool:
        """Whether these are rows with this fingerprint, as far as can be told."""
        return self.fingerprint in (fingerprint, digest_of(fingerprint), FORGOTTEN)

    @classmethod
    def read(cls, group_id: str, offset: int, text: str) -> Marker | None:
        """None where nothing was ever committed. Raises UnreadableState."""
        if offset == NO_OFFSET:
            return None
        try:
            version, query_id, fingerprint = text.split("|")
        except ValueError:
            raise UnreadableState(group=group_id, found=text) from None
        if version != VERSION:
            raise UnreadableState(group=group_id, found=text)
        return cls(offset, query_id, fingerprint)


# Instead of a slot's marker: nothing of the slot was ever committed, or not what the last decision pins.
NOTHING_COMMITTED = Marker(0, NO_QUERY, FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Decision:
    """The driver's: the transactions of these slots are to be committed, whatever happens.

    `pinned`: a slot's ids, None for one whose rows were visible before. `generation`: the driver's own ids, which make
    two drivers' decisions about the same micro-batch differ. `decided_ms`: wall-clock time. `topics`: all that rows of
    the micro-batch are in. `topic_ids`: theirs, by name, as far as brokers have ids: a topic that is created again has
    another. `digests`: of the slots' fingerprints; none in a decision of before there were any.
    """

    micro_batch_id: int
    query_id: str
    generation: Ids
    transaction_version: int
    decided_ms: int
    pinned: tuple[Ids | None, ...]
    topics: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    digests: tuple[str, ...] = ()

    def created_again(self, topic_ids: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
        """The topics that have another id by now, as `topic_ids` says: old and new one, by name."""
        return {
            topic: (old_id, new_id)
            for topic, old_id in self.topic_ids.items()
            if (new_id := topic_ids.get(topic)) is not None and new_id != old_id
        }

    @classmethod
    def nothing(cls, generation: Ids, transaction_version: int) -> Decision:
        """Stands for the first one: nothing was decided yet."""
        return cls(0, NO_QUERY, generation, transaction_version, 0, ())

    @property
    def is_nothing(self) -> bool:
        return self.query_id == NO_QUERY

    def texts(self, max_characters: int = METADATA_MAX_CHARACTERS) -> list[str]:
        """The metadata of each of its groups. All but pins and topics is in every one, so that none stands for
        another's."""
        items = ["-" if ids is None else str(ids) for ids in self.pinned]
        items += [f"{TOPIC_SIGN}{digest}" for digest in self.digests]
        for topic in self.topics:
            items.append(f"{TOPIC_SIGN}{topic}")
            if topic in self.topic_ids:
                items.append(f"{TOPIC_ID_SIGN}{_id_text(self.topic_ids[topic])}")
        # As long as a head can get.
        room = max_characters - len(self._head(MAX_PARTS, MAX_PARTS))
        parts: list[list[str]] = [[]]
        used = 0
        for item in items:
            if used + len(item) + 1 > room:
                parts.append([])
                used = 0
            parts[-1].append(item)
            used += len(item) + 1
        return [self._head(part, len(parts)) + ",".join(texts) for part, texts in enumerate(parts)]

    def _head(self, part: int, parts: int) -> str:
        version, decided = self.transaction_version, self.decided_ms
        return "|".join(
            (VERSION, self.query_id, f"{self.generation}", f"{version}", f"{decided}", f"{part}/{parts}", "")
        )

    @staticmethod
    def parts(group_id: str, offset: int, text: str) -> int:
        """How many groups a decision is spread over, told by its first; 0 where there is none."""
        if offset == NO_OFFSET:
            return 0
        try:
            version, *_, place, _items = text.split("|")
            part, _, parts = place.partition("/")
            if version != VERSION or int(part) != 0 or not 1 <= int(parts) <= MAX_PARTS:
                raise ValueError(place)
            return int(parts)
        except ValueError:
            raise UnreadableState(group=group_id, found=text) from None

    @classmethod
    def read(cls, groups: Sequence[tuple[str, int, str]]) -> Decision:
        """From (group id, offset, metadata) of each of its groups. Raises UnreadableState, also for parts that do not
        belong together: they were written in one transaction, so somebody else wrote one of them since."""
        found: set[tuple[str, ...]] = set()
        items: list[str] = []
        for part, (group_id, offset, text) in enumerate(groups):
            try:
                version, query_id, generation, transaction_version, decided_ms, place, of_part = text.split("|")
            except ValueError:
                raise UnreadableState(group=group_id, found=text) from None
            if version != VERSION or place != f"{part}/{len(groups)}":
                raise UnreadableState(group=group_id, found=text)
            found.add((str(offset), query_id, generation, transaction_version, decided_ms))
            items += of_part.split(",") if of_part else []
        group_id, _, text = groups[0]
        if len(found) != 1:
            raise UnreadableState(group=group_id, found=text)
        offset_text, query_id, generation, transaction_version, decided_ms = found.pop()
        of_topics = [item for item in items if item.startswith(TOPIC_SIGN)]
        pins = items[: len(items) - len(of_topics)]
        digests = tuple(item.removeprefix(TOPIC_SIGN) for item in takewhile(_is_digest, of_topics))
        try:
            topics, topic_ids = _read_topics(of_topics[len(digests) :])
            if len(digests) not in (0, len(pins)) or any(topic.startswith(DIGEST_SIGN) for topic in topics):
                raise ValueError(digests)
            return cls(
                micro_batch_id=int(offset_text),
                query_id=query_id,
                generation=Ids.read(generation),
                transaction_version=int(transaction_version),
                decided_ms=int(decided_ms),
                pinned=tuple(None if pin == "-" else Ids.read(pin) for pin in pins),
                topics=topics,
                topic_ids=topic_ids,
                digests=digests,
            )
        except ValueError:
            raise UnreadableState(group=group_id, found=text) from None


def _read_topics(items: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Raises ValueError."""
    topics: list[str] = []
    topic_ids: dict[str, str] = {}
    for item in items:
        if not item.startswith(TOPIC_ID_SIGN):
            topics.append(item.removeprefix(TOPIC_SIGN))
        elif not topics or topics[-1] in topic_ids:
            raise ValueError(item)
        else:
            topic_ids[topics[-1]] = _read_id(item.removeprefix(TOPIC_ID_SIGN))
    return tuple(topics), topic_ids


def _id_text(topic_id: str) -> str:
    """As Kafka's tools print it (Uuid.toString): 22 characters, and a decision has few."""
    return urlsafe_b64encode(UUID(topic_id).bytes).rstrip(b"=").decode()


def _read_id(text: str) -> str:
    """Raises ValueError."""
    topic_id = str(UUID(bytes=urlsafe_b64decode(text.encode("ascii") + b"==")))
    if _id_text(topic_id) != text:
        raise ValueError(text)
    return topic_id
