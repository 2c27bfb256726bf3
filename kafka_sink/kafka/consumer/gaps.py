"""Whether offsets that no batch of a log has really are in none: compaction leaves gaps, and damage looks like one.

No CRC covers the base offset and the length of a batch. A flipped bit moves a batch to offsets where it is not, and
brokers leave out what they cannot find. A log without compaction has no gap at all, so a gap is looked at:

| In the answers | Meaning |
|---|---|
| a batch begins before the end of the one before it, also of the answer before | damage |
| behind a gap a batch reaches beyond the high watermark, which a later answer still has | damage |
| a gap that begins or ends within an answer, between two batches that ascend | compaction |
| a gap at the begin of an answer: what comes before and behind is not seen together | a look at the batch before |
| a gap before the last batch of an answer: what comes behind that is not seen | a look at the end of the gap |
| no records, although there are some: what was cut off before at this offset is whole if one bit is cleared | damage |

A look is one small Fetch. It finds a batch that is in the gap (the broker has an index of its own), or batches that do
not ascend. A log without compaction takes none. Only the broker that showed the gap can tell: each replica is compacted
by itself, so another one may still have the batch.

Non-obvious: a broker reads the high watermark before the records, so an answer may have batches beyond it. Only a later
answer of the same broker counts.

Source: UnifiedLog.read, LocalLog.read, LogSegment.translateOffset, Partition.readRecords; Java's CompletedFetch skips a
record before the position in silence, and librdkafka hands it over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from kafka_sink.kafka.protocol.apis.fetch import FetchResponse
from kafka_sink.records.record_batch import HEADER_BYTES, Header, Outline, headers, is_damaged_length

# A batch that a reader takes (`records.decoder.Limits`). What claims more is damaged, or cannot be read anyway.
MOST_BATCH_BYTES = 128 * 1024 * 1024
# Of a producer's batch (batch.size), and of most that are larger (max.message.bytes).
_USUAL_BATCH_BYTES = 16 * 1024
_LARGE_BATCH_BYTES = 1024 * 1024
# Answers without records at one position, before it is looked at.
EMPTY_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class Look:
    """A Fetch of `offset`. `first` to before `end`: the gap, which `node_id` showed. `batch_bytes`: of the batch at
    `offset`, 0 if unknown. `more_bytes`: of what is behind it."""

    offset: int
    first: int
    end: int
    epoch: int
    node_id: int
    batch_bytes: int = 0
    more_bytes: int = HEADER_BYTES

    @property
    def max_bytes(self) -> int:
        """Of a batch of unknown size as much as the usual one has."""
        return (self.batch_bytes or _USUAL_BATCH_BYTES) + self.more_bytes


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A batch that reaches to before `end`, in an answer of `node_id` whose high watermark is lower."""

    node_id: int
    end: int


class Gaps:
    """Of one range. `damage`: what was found, an end of the sentence "the batch at offset N is damaged: ..."."""

    def __init__(self) -> None:
        self.damage = ""
        self._looks: deque[Look] = deque()
        self._doubt: _Doubt | None = None
        # Where a batch ended, under which leader epoch, and its size; and the header behind it.
        self._joint: tuple[int, int] | None = None
        self._last_size = 0
        self._next: Header | None = None
        self._has_damaged_length = False
        # Answers without records, and at which position.
        self._empty = (0, 0)

    @property
    def look(self) -> Look | None:
        """What to ask before anything else."""
        return self._looks[0] if self._looks else None

    def forget(self) -> None:
        """The position is no longer where a batch ended, or the log is another one."""
        self._joint = self._next = None
        self._looks.clear()

    def passed(self, position: int, first: int, response: FetchResponse, *, epoch: int, node_id: int) -> None:
        """No batch that may be read begins at `position`. The next one of any kind begins at `first`."""
        self.forget()
        if first > position > max(response.log_start_offset, 0):
            self._looks.append(Look(position - 1, position, first, epoch, node_id))

    def has_doubt(self, found: Outline, response: FetchResponse, *, position: int, epoch: int, node_id: int) -> bool:
        """Take an answer, or doubt it: then it is asked for again, or there is `damage`."""
        is_joined = self._joint == (position, epoch)
        if is_joined and found.first < position:
            self.damage = f"the next batch begins at offset {found.first}, before the end of the one before it"
            return True
        high_watermark = response.high_watermark
        if found.ascends and found.gap is not None and 0 <= high_watermark < found.following:
            doubt, self._doubt = self._doubt, _Doubt(node_id, found.following)
            if doubt is not None and doubt.node_id == node_id and high_watermark < doubt.end:
                self.damage = (
                    f"the batch behind it claims offsets up to {found.following - 1}, and the high watermark is "
                    f"{high_watermark}"
                )
            return True
        self._doubt = None
        if found.ascends:
            look = Look(position - 1, position, found.first, epoch, node_id, self._last_size if is_joined else 0)
            self._look_at_gaps(found, response, look, is_joined=is_joined)
        self._joint, self._last_size, self._next = (found.following, epoch), found.last_size, found.cut_off
        self._has_damaged_length = found.cut_off is not None and is_damaged_length(response.records, found.cut_off)
        self._empty = (0, found.following)
        return False

    def _look_at_gaps(self, found: Outline, response: FetchResponse, before: Look, *, is_joined: bool) -> None:
        """`before`: the look at what is between the position and the answer's first batch."""
        is_seen = is_joined and self._next is not None and self._next.base_offset == found.first
        if found.first > before.first > max(response.log_start_offset, 0) and not is_seen:
            self._looks.append(before)
        if found.gap is not None and not found.is_followed:
            first, end = found.gap
            self._looks.append(replace(before, offset=end - 1, first=first, end=end, batch_bytes=found.last_size))

    def looked(self, response: FetchResponse, *, epoch: int, node_id: int) -> None:
        """Take the answer to `look`. What cannot be seen is believed."""
        look = self._looks.popleft()
        if (look.epoch, look.node_id) != (epoch, node_id):
            return
        before: Header | None = None
        for header in headers(response.records):
            if before is not None and header.base_offset < before.next_offset:
                self.damage = f"a batch begins at offset {header.base_offset}, before the end of the one before it"
                return
            reach = header.next_offset if header.is_whole else header.base_offset + 1
            if look.first < look.end and header.base_offset < look.end and reach > look.first:
                self.damage = f"a batch at offset {header.base_offset} is there, and the log leads past it"
                return
            if not header.is_whole:
                if header.base_offset == look.first == look.end:
                    self._next = header
                    self._has_damaged_length = is_damaged_length(response.records, header)
                return
            if before is not None and header.base_offset >= look.end:
                return
            before = header
        if before is not None and before.at == 0 and look.batch_bytes != before.size:
            # The batch alone has filled the answer.
            self._looks.appendleft(replace(look, batch_bytes=before.size))

    def drop_look(self) -> None:
        """The log does not go back so far."""
        self._looks.popleft()

    def take_nothing(self, response: FetchResponse, position: int, *, epoch: int, node_id: int) -> None:
        """The broker hands out nothing at `position`, although there are records to read."""
        count, at = self._empty
        count = count + 1 if at == position else 1
        self._empty = count, position
        follows = self._next
        if follows is not None and follows.base_offset == position and self._is_too_long(follows):
            self.damage = f"it claims {follows.size} bytes, which the log does not have there"
        elif count == EMPTY_ANSWERS and position > max(response.log_start_offset, 0):
            self._looks.append(Look(position - 1, position, position, epoch, node_id, more_bytes=_LARGE_BATCH_BYTES))

    def _is_too_long(self, header: Header) -> bool:
        return self._has_damaged_length or header.size > MOST_BATCH_BYTES
