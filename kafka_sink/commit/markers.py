"""The state that the two-phase commit keeps in Kafka, and its names.

    transactional ids   <sink>.<slot>  a slot's rows and marker      <sink>.driver  the driver's decision
    consumer groups     <sink>.<slot>  the slot's marker             <sink>.decision, <sink>.decision-1, ...

No consumer joins the groups. A group stores one offset and a metadata string, for partition 0 of the commit topic. A
transaction can write them together with rows. The offset is the id of the micro-batch, and the metadata is one of the
texts below. A slot is a Spark partition number. Its transactional id is the same for every attempt, so a new attempt
fences the old one. The number of ids is the largest number of slots that the sink ever had.

Before the first decision of a sink, its group stores that nothing was decided. Before the first marker of a slot, its
group stores that nothing was committed. So a group without an offset has lost it by DeleteGroups, OffsetDelete or
expiry.

A text begins with its version, so that a later release can read texts of an earlier one. A broker keeps at most
`offset.metadata.max.bytes` of a text (4096 by default). A longer decision is spread over several groups, all written in
one transaction.

Pure values. Reading an unknown text raises `UnreadableState`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2s
from itertools import takewhile
from typing import Protocol
from uuid import UUID

from kafka_sink.errors import UnreadableState

VERSION = "1"
# GroupCoordinatorConfig.OFFSET_METADATA_MAX_SIZE_DEFAULT
METADATA_MAX_CHARACTERS = 4096
# OffsetFetch returns this for a group without an offset.
NO_OFFSET = -1
# Marks a topic in the list of items, because no topic name contains it.
TOPIC_SIGN = "@"
# Marks the id of the topic before it. Releases without ids read it as one more topic, with a name that no broker has.
TOPIC_ID_SIGN = "@@"
# Marks the list of slots that rested. Releases before it read it as one more topic, with a name that no broker has, and
# give those slots a marker.
RESTING_SIGN = "="
# Their list must fit one group's text: it has a character for each four slots.
MOST_RESTING_SLOTS = 8_192
# First character of a digest; no fingerprint begins with it. A decision puts TOPIC_SIGN before it for such releases.
DIGEST_SIGN = "~"
# No query has this id, and no rows have this fingerprint.
NO_QUERY = FORGOTTEN = ""
# A part has 100 slots or more, so this exceeds any micro-batch. It limits the requests for a text of another program.
MAX_PARTS = 99_999
# The largest values of the request's fields (int64, int16).
_MAX_PRODUCER_ID = 2**63 - 1
_MAX_PRODUCER_EPOCH = 2**15 - 1
_is_digest = re.compile(TOPIC_SIGN + DIGEST_SIGN + "[0-9a-f]{8}").fullmatch
_is_hex = re.compile("[1-9a-f][0-9a-f]*").fullmatch


class HasIds(Protocol):
    """An answer of a broker, such as a description of a transaction."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Ids:
    """A producer id and its epoch. They identify one run of a transactional id."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def of(cls, found: HasIds) -> Ids:
        return cls(found.producer_id, found.producer_epoch)

    @classmethod
    def read(cls, text: str) -> Ids:
        """Parse `str(ids)`. Raises ValueError."""
        id_text, _, epoch_text = text.partition(":")
        producer_id, producer_epoch = int(id_text), int(epoch_text)
        if not (0 <= producer_id <= _MAX_PRODUCER_ID and 0 <= producer_epoch <= _MAX_PRODUCER_EPOCH):
            raise ValueError(text)
        return cls(producer_id, producer_epoch)


def digest_of(fingerprint: str) -> str:
    """Return a short digest, because a decision has one for each slot. Other rows have the same once in 2**32."""
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
        # A hyphen, because `<sink>.decision.1` is the group of slot 1 of a sink `<sink>.decision`.
        return f"{self.sink}.decision" + (f"-{part}" if part else "")

    def slot_of(self, transactional_id: str) -> int:
        """Return the slot of a transactional id for which `is_slot` is true."""
        return int(transactional_id.removeprefix(f"{self.sink}."))

    def is_slot(self, transactional_id: str) -> bool:
        return re.fullmatch(re.escape(self.sink) + r"\.[0-9]{1,10}", transactional_id) is not None


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker of a slot: these rows of this micro-batch became visible together with the marker.

    `fingerprint`: the fingerprint of the rows. A restored marker has only the digest from the decision, or FORGOTTEN.
    """

    micro_batch_id: int
    query_id: str
    fingerprint: str

    @property
    def text(self) -> str:
        return "|".join((VERSION, self.query_id, self.fingerprint))

    @classmethod
    def nothing(cls, ids: Ids, version: int) -> Marker:
        """Return the marker before a slot's first rows, which says by which transaction it was written itself."""
        return cls(0, NO_QUERY, f"{ids}:{version}")

    @property
    def is_nothing(self) -> bool:
        return self.query_id == NO_QUERY

    @property
    def written_by(self) -> tuple[Ids, int] | None:
        """The ids and the version of the transaction that wrote a marker of nothing; None if it does not say."""
        ids, _, version = self.fingerprint.rpartition(":")
        try:
            return (Ids.read(ids), int(version)) if self.is_nothing else None
        except ValueError:
            return None

    @property
    def is_restored(self) -> bool:
        return self.fingerprint == FORGOTTEN or self.fingerprint.startswith(DIGEST_SIGN)

    def may_be_of(self, fingerprint: str) -> bool:
        """Return True if the marker may belong to rows with this fingerprint. A digest or FORGOTTEN cannot exclude
        it."""
        return self.fingerprint in (fingerprint, digest_of(fingerprint), FORGOTTEN)

    @classmethod
    def read(cls, group_id: str, offset: int, text: str) -> Marker | None:
        """Return the marker of a group, or None if the group has no offset. Raises UnreadableState."""
        if offset == NO_OFFSET:
            return None
        try:
            version, query_id, fingerprint = text.split("|")
        except ValueError:
            raise UnreadableState(group=group_id, found=text) from None
        if version != VERSION:
            raise UnreadableState(group=group_id, found=text)
        return cls(offset, query_id, fingerprint)


# Stands for a slot's marker: the last decision's transaction was not committed. Earlier releases also wrote it before a
# slot's first rows, where it is `Marker.nothing` now.
NOTHING_COMMITTED = Marker(0, NO_QUERY, FORGOTTEN)


@dataclass(frozen=True, slots=True)
class Decision:
    """The driver's decision: the transactions of these slots must be committed, whatever happens.

    `pinned`: the ids of each slot, None for a slot that was visible before. `generation`: the driver's ids, so that the
    decisions of two drivers about one micro-batch differ. `decided_ms`: wall-clock time, ms since 1970. `topics`: the
    topics of the micro-batch's rows. `topic_ids`: their ids by name, if the brokers have ids: a recreated topic has
    another id. `digests`: the digests of the slots' fingerprints, empty in decisions of earlier releases. `resting`:
    the slots without rows and without a transaction. They pin the ids of their last commit, as decided before.
    """

    micro_batch_id: int
    query_id: str
    generation: Ids
    transaction_version: int
    decided_ms: int
    pinned: Sequence[Ids | None]
    topics: tuple[str, ...] = ()
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    digests: tuple[str, ...] = ()
    resting: frozenset[int] = frozenset()

    def created_again(self, topic_ids: Mapping[str, str | None]) -> dict[str, tuple[str, str]]:
        """Return the old and the new id of each topic, by name, if its id in `topic_ids` differs."""
        return {
            topic: (old_id, new_id)
            for topic, old_id in self.topic_ids.items()
            if (new_id := topic_ids.get(topic)) is not None and new_id != old_id
        }

    @classmethod
    def nothing(cls, generation: Ids, transaction_version: int) -> Decision:
        """Return the text's value before the first decision: nothing was decided yet."""
        return cls(0, NO_QUERY, generation, transaction_version, 0, ())

    @property
    def is_nothing(self) -> bool:
        return self.query_id == NO_QUERY

    def marker_of(self, slot: int) -> Marker:
        """Return the marker that this decision's commit gives to a slot, with the digest alone."""
        return Marker(self.micro_batch_id, self.query_id, self.digests[slot] if self.digests else FORGOTTEN)

    def texts(self, max_characters: int = METADATA_MAX_CHARACTERS) -> list[str]:
        """Return the metadata of each group of the decision.

        Each text has all fields except the items (pins, digests, topics), so that parts of two decisions never mix.
        """
        items = ["-" if ids is None else str(ids) for ids in self.pinned]
        items += [f"{TOPIC_SIGN}{digest}" for digest in self.digests]
        if self.resting:
            items.append(f"{TOPIC_SIGN}{RESTING_SIGN}{sum(1 << slot for slot in self.resting):x}")
        for topic in self.topics:
            items.append(f"{TOPIC_SIGN}{topic}")
            if topic in self.topic_ids:
                items.append(f"{TOPIC_ID_SIGN}{_id_text(self.topic_ids[topic])}")
        # The longest possible head.
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
        """Return the number of groups of a decision, from its first group; 0 if there is none.

        Raises UnreadableState.
        """
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
        """Return the decision from (group id, offset, metadata) of each of its groups.

        Raises UnreadableState, also if the parts do not belong together. The sink writes them in one transaction, so
        then another writer has changed one since.
        """
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
            resting, named = _read_resting(of_topics[len(digests) :])
            topics, topic_ids = _read_topics(named)
            if len(digests) not in (0, len(pins)) or any(
                topic.startswith((DIGEST_SIGN, RESTING_SIGN)) for topic in topics
            ):
                raise ValueError(digests)
            if any(slot >= len(digests) or pins[slot] == "-" for slot in resting):
                raise ValueError(resting)
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
                resting=resting,
            )
        except ValueError:
            raise UnreadableState(group=group_id, found=text) from None


def _read_resting(items: Sequence[str]) -> tuple[frozenset[int], Sequence[str]]:
    """Return the slots that rested, and the items behind their list. Raises ValueError."""
    sign = TOPIC_SIGN + RESTING_SIGN
    if not items or not items[0].startswith(sign):
        return frozenset(), items
    text = items[0].removeprefix(sign)
    # As written: int() would also read "_", "+" and capitals.
    if not _is_hex(text):
        raise ValueError(text)
    bits = int(text, 16)
    return frozenset(slot for slot in range(bits.bit_length()) if bits >> slot & 1), items[1:]


def _read_topics(items: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return topics, and topic ids by topic. Raises ValueError."""
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
    """Return the id as Kafka's tools print it (Uuid.toString): only 22 characters, to keep a decision short."""
    return urlsafe_b64encode(UUID(topic_id).bytes).rstrip(b"=").decode()


def _read_id(text: str) -> str:
    """Return the id of `_id_text`. Raises ValueError."""
    topic_id = str(UUID(bytes=urlsafe_b64decode(text.encode("ascii") + b"==")))
    if _id_text(topic_id) != text:
        raise ValueError(text)
    return topic_id
