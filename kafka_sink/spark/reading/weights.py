"""How many bytes of each log a micro-batch reads: `maxBytesPerTrigger`, on the driver.

    what earlier samples weigh ─> candidate ends ─> samples up to there ─> ends

Tasks cannot report to the process that plans, and no request tells how many bytes lie between two offsets. So the
planner weighs: it fetches the first batches at some offsets (`admin.offsets.samples`). In between, a log weighs as much
an offset as the samples beside it on average. What was weighed stays for later micro-batches. The end of one is the
start of the next, so a query that runs takes samples only of what lies ahead; one that starts, also of its start.

Non-obvious:

* Offsets are weighed, also those without a record: what compaction took weighs nothing.
* A micro-batch ends between batches, where the samples show one. A batch that it shares with the next is fetched twice.
* A partition whose share is less than a batch takes turns with others of its kind, as those of a Fetch do (KIP-74).
* The samples of each of both steps have a 16th of what a micro-batch reads, or are LEAST_SAMPLES.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_sink.kafka.admin.offsets import SAMPLE_BYTES, Place, Sample
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.positions import Positions

# For so many micro-batches a partition waits at most, while others have the bytes.
MOST_TURNS = 10
# In one micro-batch, and of them of one partition.
LEAST_SAMPLES, MOST_SAMPLES, MOST_OF_PARTITION = 8, 64, 8
# Samples have this part of the bytes of a micro-batch.
_SAMPLED_PART = 16
# Of one partition, that are kept.
_MOST_KEPT = 16

Weigh = Callable[[Sequence[Place]], Mapping[Place, Sample]]


@dataclass(frozen=True, slots=True)
class Backlog:
    """What there is of a partition, `first` to before `end`. `samples`: in the order of their offsets, at least one.
    `turns`: how many micro-batches have left the partition out."""

    first: int
    end: int
    samples: tuple[Sample, ...]
    turns: int = 0

    @property
    def bytes(self) -> float:
        """How much it weighs by its samples."""
        return sum((end - first) * weight for first, end, weight in self._parts())

    @property
    def one_batch(self) -> Backlog:
        """The first batch of it, which is as long as the one of the sample before. Of a sample of several batches only
        the end of the first one is known: then all that is left of the sample."""
        before = [each for each in self.samples if each.first <= self.first] or self.samples[:1]
        batch_end = before[-1].batch_end
        if batch_end <= self.first < before[-1].end:
            batch_end = before[-1].end
        elif batch_end <= self.first:
            batch_end = self.first + batch_end - before[-1].first
        return replace(self, end=min(self.end, max(batch_end, self.first + 1)))

    def up_to(self, most_bytes: float) -> int:
        """Return the offset before which there are about so many bytes; at least one offset of what there is."""
        left = most_bytes
        for first, end, weight in self._parts():
            size = (end - first) * weight
            if size > left:
                return max(min(first + int(left / weight), end), self.first + 1)
            left -= size
        return self.end

    def between_batches(self, offset: int) -> int:
        """Return the end of the batch that a sample shows to go beyond `offset`, or else `offset`."""
        for each in self.samples:
            if each.first < offset < each.batch_end:
                return min(each.batch_end, self.end)
        return offset

    def _parts(self) -> Iterator[tuple[int, int, float]]:
        """Yield parts with an equal weight an offset, which is that of the samples around them on average."""
        at, before = self.first, _weight(self.samples[0])
        for each in self.samples:
            if each.first > at:
                end = min(each.first, self.end)
                yield at, end, (before + _weight(each)) / 2
                if end == self.end:
                    return
                at = end
            before = _weight(each)
        yield at, self.end, before


def _weight(sample: Sample) -> float:
    return sample.size_bytes / (sample.end - sample.first)


def _is_weighed(samples: Sequence[Sample], offset: int) -> bool:
    return any(sample.first <= offset < sample.end for sample in samples)


def shared_out(limit: int, backlogs: Mapping[TopicPartition, Backlog]) -> dict[TopicPartition, int]:
    """Return where a micro-batch of about `limit` bytes ends: each partition in proportion to the bytes that it has.

    Partitions whose share is less than a batch have their shares in common. Those that have waited for the most turns
    get a batch, as long as there are bytes left; and those that have waited for MOST_TURNS, whatever is left. Some
    partition always gets something, unless there is nothing.
    """
    sizes = {each: backlog.bytes for each, backlog in backlogs.items()}
    total = sum(sizes.values())
    if total <= limit:
        return {each: backlog.end for each, backlog in backlogs.items()}
    ends = {each: backlog.first for each, backlog in backlogs.items()}
    small: dict[TopicPartition, Backlog] = {}
    left = 0.0
    for each, backlog in backlogs.items():
        share, batch = limit * (sizes[each] / total), backlog.one_batch
        if batch.bytes <= share:
            ends[each] = backlog.up_to(share)
        elif batch.first < batch.end:
            small[each] = batch
            left += share
    for each, batch in sorted(small.items(), key=lambda item: -item[1].turns):
        if left > 0 or batch.turns >= MOST_TURNS:
            ends[each] = batch.end
            left -= batch.bytes
    return ends


class ByteLimit:
    """Of one stream: how many bytes a micro-batch has (maxBytesPerTrigger), what the logs weigh, and who waits."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._samples: dict[TopicPartition, tuple[Sample, ...]] = {}
        self._have_gaps: set[TopicPartition] = set()
        # When a partition was weighed last, in micro-batches.
        self._weighed: dict[TopicPartition, int] = {}
        self._micro_batches = 0
        self._turns: Counter[TopicPartition] = Counter()
        self._sample_bytes = float(SAMPLE_BYTES)

    def limited(self, start: Positions, ends: Positions, weigh: Weigh) -> Positions:
        """Return where the micro-batch ends. `start`: of each partition of `ends`. Where that has no new offset, the
        end stays. `weigh`: fetches samples; a place whose broker does not answer is missing."""
        new = {each: (start[each], end) for each, end in ends.items() if end > start[each]}
        self._micro_batches += 1
        self._forget(start, new)
        self._learn(weigh(self._starts(new)), are_starts=True)
        backlogs = self._backlogs(new)
        candidates = shared_out(self._limit, backlogs)
        asked = {each: replace(backlogs[each], end=end) for each, end in candidates.items() if end > new[each][0]}
        self._learn(weigh(self._places(asked)), are_starts=False)
        # Not beyond what was weighed now.
        backlogs = self._backlogs({each: (backlog.first, backlog.end) for each, backlog in asked.items()})
        found = shared_out(self._limit, backlogs)
        for each, (first, end) in new.items():
            got = found.get(each, first)
            if each in self._samples and first < got < end:
                found[each] = replace(backlogs[each], end=end).between_batches(got)
            self._turns[each] = 0 if got > first else self._turns[each] + 1
        return {**ends, **{each: found.get(each, first) for each, (first, _) in new.items()}}

    def _forget(self, start: Positions, new: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Keep of each partition the last sample that begins up to its start, and those behind it."""
        for known in (self._samples, self._weighed, self._turns):
            for each in known.keys() - start.keys():
                del known[each]
        self._have_gaps &= start.keys()
        for each in self._samples.keys() & new.keys():
            kept = self._samples[each]
            last = bisect_right(kept, new[each][0], key=lambda sample: sample.first)
            self._samples[each] = kept[max(last - 1, 0) :]

    def _most_samples(self, read_bytes: float) -> int:
        """Of a micro-batch that reads so much."""
        wanted = int(read_bytes / _SAMPLED_PART / self._sample_bytes)
        return min(max(wanted, LEAST_SAMPLES), MOST_SAMPLES)

    def _starts(self, new: Mapping[TopicPartition, tuple[int, int]]) -> list[Place]:
        """Return where to weigh first: where partitions begin whose records were never weighed, and some of those whose
        samples end before."""
        known = self._backlogs({each: offsets for each, offsets in new.items() if each in self._samples})
        most = self._most_samples(min(self._limit, sum(backlog.bytes for backlog in known.values())))
        behind = [each for each, backlog in known.items() if not _is_weighed(backlog.samples, backlog.first)]
        chosen = [each for each in new if each not in known] + sorted(behind, key=self._weighed.__getitem__)[:most]
        return [(each, new[each][0]) for each in chosen[: self._most_samples(self._limit)]]

    def _places(self, asked: Mapping[TopicPartition, Backlog]) -> list[Place]:
        """Return where to weigh: in each partition, at offsets that divide what a micro-batch is to read of it into
        equal parts, and at its end. If there are too many partitions, those that were not weighed for longest."""
        most = self._most_samples(sum(backlog.bytes for backlog in asked.values()))
        chosen = sorted(asked, key=lambda each: self._weighed.get(each, 0))[:most]
        places = []
        for each in chosen:
            backlog = asked[each]
            size, fitting = backlog.end - backlog.first, int(backlog.bytes / self._sample_bytes)
            count = max(min(most // len(chosen), MOST_OF_PARTITION, fitting, size), 1)
            offsets = (backlog.first - 1 + size * number // count for number in range(1, count + 1))
            weighed = self._samples.get(each, ())
            places += [(each, offset) for offset in offsets if not _is_weighed(weighed, offset)]
        return places

    def _learn(self, samples: Mapping[Place, Sample], *, are_starts: bool) -> None:
        self._have_gaps |= {each for (each, _), sample in samples.items() if sample.begins_in_gap}
        for (each, _), sample in samples.items():
            self._weighed[each] = self._micro_batches
            self._sample_bytes += (sample.size_bytes - self._sample_bytes) / _SAMPLED_PART
            known = self._samples.get(each, ())
            # One batch does not tell the gaps around it, but for the one that begins at the end of the batch before.
            if are_starts or not known or sample.end > sample.batch_end or each not in self._have_gaps:
                others = [other for other in known if other.first != sample.first]
                self._samples[each] = tuple(sorted([*others, sample], key=lambda kept: kept.first)[:_MOST_KEPT])

    def _backlogs(self, new: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, Backlog]:
        """Return what there is. A partition that was not weighed counts as the others on average. If none was, there is
        one offset of each."""
        last = [each[-1] for each in self._samples.values()]
        found = {}
        for each, (first, end) in new.items():
            samples = self._samples.get(each)
            if samples is None and last:
                samples = (_average(last, first),)
            elif samples is None:
                end, samples = first + 1, (Sample(first, first + 1, first + 1, 1),)
            found[each] = Backlog(first, end, samples, self._turns[each])
        return found


def _average(samples: Sequence[Sample], first: int) -> Sample:
    """Return a sample of one batch that begins at `first`, as the others are on average."""
    length = max(sum(each.batch_end - each.first for each in samples) // len(samples), 1)
    weight = sum(map(_weight, samples)) / len(samples)
    return Sample(first, first + length, first + length, max(int(length * weight), 1))
