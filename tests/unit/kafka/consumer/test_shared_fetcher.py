"""Many ranges in one task over scripted brokers: fairness, order, memory, and errors of the partition that has them."""

from __future__ import annotations

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import apis
from kafka_sink.errors import FetchRefused, KafkaSinkError, OffsetsLost, ReadStalled, TopicAuthorizationFailed
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer import shared_fetcher
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, RecordSet
from kafka_sink.kafka.consumer.shared_fetcher import MOST_ANSWERS, SharedFetcher
from record_sets import plain
from scripted_kafka import HANG_UP, ScriptedKafka, ScriptedNetwork
from scripted_reads import read_settings, readers_metadata

ID = uuid.UUID(int=9)
MOST_TURNS = 5_000
# What a request of the tests asks for.
MAX_BYTES = 2_000
RECORD_BYTES, IN_A_BATCH = 60, 5
NOT_LEADER, OUT_OF_RANGE, UNKNOWN_TOPIC, DENIED, INVALID = 6, 1, 3, 29, 42


class Brokers(ScriptedKafka):
    """Partitions whose batches have five records each. A broker answers as Kafka does: in the order of the request, up
    to its limit, the first batch of all whole. `special`: what a partition answers instead."""

    def __init__(self, ends: Sequence[int], nodes: int = 1) -> None:
        super().__init__()
        self.brokers = set(range(1, nodes + 1))
        self.coordinator = 1
        self.ends = ends
        self.topic_id, self.leader_epoch = ID, 0
        self.leaders = {("t", number): 1 + number % nodes for number in range(len(ends))}
        self.special: defaultdict[int, list[Any]] = defaultdict(list)
        self.starts: Counter[int] = Counter()
        self.network = ScriptedNetwork(self, last_error="")
        # The node and the partitions of each.
        self.fetches: list[tuple[int, list[int]]] = []
        self.responses: list[apis.FetchResponse] = []

    def answer(self, node_id: int, request: Any) -> Any:
        parts = request.parts if isinstance(request, apis.SharedFetchRequest) else (request,)
        if node_id in self.down or not isinstance(parts[0], apis.FetchRequest):
            return super().answer(node_id, request)
        self.fetches.append((node_id, [each.partition for each in parts]))
        left, responses = request.max_bytes, []
        for each in parts:
            response = self._fetched(each, min(left, each.max_bytes), is_first=left == request.max_bytes)
            if response is HANG_UP:
                return None
            left = max(0, left - len(response.records))
            responses.append(response)
        self.responses += responses
        is_shared = isinstance(request, apis.SharedFetchRequest)
        return apis.SharedFetchResponse(0, tuple(responses)) if is_shared else responses[0]

    def _fetched(self, request: apis.FetchRequest, limit: int, *, is_first: bool) -> Any:
        number, end = request.partition, self.ends[request.partition]
        if self.special[number]:
            special = self.special[number].pop(0)
            if callable(special):
                special = special(request)
            if special is not None:
                return apis.FetchResponse(0, special) if isinstance(special, int) else special
        records = b""
        for base in range(request.offset // IN_A_BATCH * IN_A_BATCH, end, IN_A_BATCH):
            batch = bytes(plain(*[b"x" * RECORD_BYTES] * IN_A_BATCH, base_offset=base))
            if len(records) + len(batch) > limit and (records or not is_first):
                # Cut off, but never without a whole batch.
                records += batch[: max(0, limit - len(records))] if records else b""
                break
            records += batch
        return apis.FetchResponse(0, 0, end, end, self.starts[number], records=memoryview(records))

    def _healthy(self, node_id: int, request: Any, code: int) -> Any:
        if isinstance(request, apis.ListOffsetsRequest):
            (asked,) = request.asked
            offset = self.starts[asked.partition] if asked.timestamp_ms == -2 else self.ends[asked.partition]
            listed = apis.ListedOffset("t", asked.partition, code, -1, offset, self.leader_epoch)
            return apis.ListOffsetsResponse(0, (listed,))
        return super()._healthy(node_id, request, code)

    def ranges(self) -> list[FetchRange]:
        return [FetchRange("t", ID, number, 0, end) for number, end in enumerate(self.ends)]


class Read:
    """Drives a fetcher. `sets`: partition, first offset and next offset of what it took, in order."""

    def __init__(self, brokers: Brokers, ranges: Sequence[FetchRange] | None = None, **changed: Any) -> None:
        self.brokers = brokers
        self.sets: list[tuple[int, int, int]] = []
        self.fetcher = SharedFetcher(
            brokers.ranges() if ranges is None else ranges,
            settings=read_settings(**{"fetch_max_bytes": MAX_BYTES, **changed}), network=brokers.network,
            metadata_of=readers_metadata, rng=random.Random(2), now_ms=brokers.now_ms,
        )  # fmt: skip

    def turn(self) -> None:
        fetcher, brokers = self.fetcher, self.brokers
        fetcher.handle(brokers.network.poll(fetcher.run_once(brokers.now_ms)), brokers.now_ms)

    def take(self) -> RecordSet | None:
        found = self.fetcher.take(self.brokers.now_ms)
        if found is None:
            return None
        range_, record_set = found
        self.sets.append((range_.partition, record_set.offset, min(record_set.next_offset, range_.end)))
        return record_set

    def to_end(self) -> Read:
        for _ in range(MOST_TURNS):
            if self.fetcher.is_done:
                return self
            self.take()
            self.turn()
        raise AssertionError("it turns without an end")

    def fails(self, error: type[KafkaSinkError]) -> Any:
        self.to_end()
        assert type(self.fetcher.failure) is error
        return self.fetcher.failure

    def assert_whole(self, ranges: Sequence[FetchRange] | None = None) -> None:
        """Each offset of each range came once, in order."""
        assert self.fetcher.failure is None
        at = {each.partition: each.first for each in reversed(ranges or self.brokers.ranges())}
        for partition, first, end in self.sets:
            assert first == at[partition] < end
            at[partition] = end
        assert at == {each.partition: each.end for each in ranges or self.brokers.ranges()}


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=12),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from([None, HANG_UP, 3, 6, 74, 75, 78, -1])), max_size=12),
    st.sampled_from([1_000, 2_000, 100_000]),
    st.sampled_from([1, 3, 256]),
)
def test_each_record_of_each_range_comes_once_and_in_order_through_whatever_passes(
    ends: list[int], nodes: int, troubles: list[tuple[int, Any]], max_bytes: int, most_open: int
) -> None:
    brokers = Brokers(ends, nodes)
    for number, trouble in troubles:
        brokers.special[number % len(ends)].append(trouble)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_fetcher, "MOST_OPEN", most_open)
        Read(brokers, fetch_max_bytes=max_bytes).to_end().assert_whole()


def test_small_partitions_of_a_leader_come_in_one_request() -> None:
    brokers = Brokers([5] * 200, nodes=2)
    Read(brokers, fetch_max_bytes=1 << 20).to_end().assert_whole()
    assert [(node, len(parts)) for node, parts in brokers.fetches] == [(1, 100), (2, 100)]
    assert len(brokers.asked(apis.MetadataRequest)) == 1


def test_no_request_names_partitions_that_do_not_fit() -> None:
    """Each has more than an answer. The estimate of the first one is too low."""
    brokers = Brokers([60] * 100)
    Read(brokers).to_end().assert_whole()
    assert all(len(parts) <= 3 for _, parts in brokers.fetches)


def test_none_starves() -> None:
    """Partitions of a leader have their turns (KIP-74), and those that were left out go first."""
    brokers = Brokers([100] * 6)
    read, now_ms = Read(brokers), brokers.now_ms
    # As if nearly nothing were left of each, so that all are asked for at once.
    read.fetcher._requests._expected_bytes = lambda request: 0  # type: ignore[method-assign]
    while not read.fetcher.is_done:
        read.fetcher.run_once(now_ms)
        # The caller is quicker than the broker: what it takes is asked for again before the answer comes.
        while read.take() is not None:
            pass
        read.turn()
    read.assert_whole()
    turns = [partition for partition, *_ in read.sets]
    for count in range(len(turns)):
        seen = Counter(turns[:count])
        assert max(seen.values(), default=0) - min(seen[number] for number in range(6)) <= 1


def test_an_answer_that_had_no_room_is_no_sign_of_a_gap() -> None:
    brokers = Brokers([40] * 3)
    read = Read(brokers)
    read.fetcher._requests._expected_bytes = lambda request: 0  # type: ignore[method-assign]
    read.to_end().assert_whole()
    # A look at a gap, or a pause after an empty answer, would take other requests, or time.
    assert {each.max_bytes for _, each in brokers.asked(apis.FetchRequest)} <= {MAX_BYTES}
    assert brokers.now_ms == Brokers([1]).now_ms


@pytest.mark.parametrize(("partitions", "records", "nodes"), [(1, 100, 1), (50, 100, 1), (50, 100, 3), (60, 5, 1)])
def test_two_answers_of_each_leader_are_in_memory_however_many_partitions_there_are(
    partitions: int, records: int, nodes: int
) -> None:
    """Also while the caller takes its time, and what it works on counts."""
    brokers = Brokers([records] * partitions, nodes)
    read = Read(brokers)
    fetcher = read.fetcher
    most = 0
    while not fetcher.is_done:
        worked_on = [each.sent for each in fetcher._ready][:1]
        read.take()
        for _ in range(5):
            read.turn()
            held = {*worked_on, *(each.sent for each in fetcher._ready), *fetcher._requests._under_way.values()}
            most = max(most, *Counter(each.node_id for each in held if each is not None).values(), 0)
    read.assert_whole()
    assert most == MOST_ANSWERS
    assert all(len(response.records) <= MAX_BYTES for response in brokers.responses)


def test_the_next_answer_is_asked_for_while_the_caller_works() -> None:
    brokers = Brokers([100] * 2)
    read = Read(brokers)
    while read.take() is None:
        read.turn()
    asked = len(brokers.fetches)
    for _ in range(3):
        read.turn()
    assert len(brokers.fetches) == asked + 1


def test_ranges_of_one_partition_are_read_one_after_the_other() -> None:
    brokers = Brokers([50, 50])
    ranges = [FetchRange("t", ID, number, first, first + 25) for first in (0, 25) for number in (0, 1)]
    Read(brokers, ranges).to_end().assert_whole(ranges)
    assert all(len(parts) == len(set(parts)) for _, parts in brokers.fetches)


# --- what only one of them has ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"), [(OUT_OF_RANGE, OffsetsLost), (DENIED, TopicAuthorizationFailed), (INVALID, FetchRefused)]
)
def test_an_error_of_one_partition_is_its_own(code: int, error: type[KafkaSinkError]) -> None:
    brokers = Brokers([50] * 5)
    brokers.special[3] = [code] * 2
    brokers.starts[3] = 20
    failure = Read(brokers, fetch_max_bytes=1 << 20).fails(error)
    assert brokers.fetches[0] == (1, [0, 1, 2, 3, 4])
    assert getattr(failure, "partition", 3) == 3
    if error is OffsetsLost:
        assert (failure.first, failure.end, failure.cause) == (0, 20, LossCause.DELETED)


def test_what_one_partition_has_lost_is_told_of_it_and_the_others_are_whole() -> None:
    brokers = Brokers([50] * 4)
    brokers.special[2], brokers.starts[2] = [OUT_OF_RANGE], 20
    read = Read(brokers, fail_on_data_loss=False).to_end()
    (lost,) = read.fetcher.losses
    assert lost == (brokers.ranges()[2], Loss(0, 20, LossCause.DELETED))
    read.assert_whole([replace(each, first=20 if each.partition == 2 else 0) for each in brokers.ranges()])


def test_a_leader_that_moves_for_one_partition_is_followed_by_it_alone() -> None:
    brokers = Brokers([50] * 4, nodes=2)

    def move(request: apis.FetchRequest) -> int:
        brokers.leaders["t", 2] = 2
        return NOT_LEADER

    brokers.special[2] = [move]
    Read(brokers).to_end().assert_whole()
    assert {node for node, parts in brokers.fetches if 0 in parts} == {1}
    assert [node for node, parts in brokers.fetches if 2 in parts][-1] == 2


def test_a_broker_that_dies_is_waited_for_and_the_others_go_on() -> None:
    brokers = Brokers([30] * 6, nodes=2)
    brokers.down = {2}
    brokers.at = [(60_000, brokers.down.clear)]
    read = Read(brokers).to_end()
    read.assert_whole()
    assert [partition % 2 for partition, *_ in read.sets] == sorted(partition % 2 for partition, *_ in read.sets)


def test_a_partition_without_records_stalls_the_task_once_all_others_are_read() -> None:
    """Its limit counts from the last record of any of them, and no work of the caller."""
    brokers = Brokers([30] * 3)
    brokers.special[1] = [apis.FetchResponse(0, 0, 0, 0, 0)] * 10_000
    read = Read(brokers, poll_timeout_ms=10_000)
    while len(read.sets) < 3:
        if read.take() is not None:
            brokers.now_ms += 60_000
        read.turn()
    since_ms = brokers.now_ms
    failure = read.fails(ReadStalled)
    assert (failure.partition, failure.offset) == (1, 0)
    assert 10_000 <= brokers.now_ms - since_ms < 12_000


def test_a_partition_without_records_does_not_keep_the_others_of_its_leader_waiting() -> None:
    """A broker waits for it only if the caller has nothing else to do."""
    brokers = Brokers([100] * 3)
    brokers.special[1] = [apis.FetchResponse(0, 0, 0, 0, 0)] * 10_000
    read = Read(brokers, poll_timeout_ms=10_000)
    read.fails(ReadStalled)
    fetches = apis.FetchRequest | apis.SharedFetchRequest
    waits = [request.max_wait_ms for _, request in brokers.received if isinstance(request, fetches)]
    assert sum(end - first for number, first, end in read.sets if number != 1) == 200
    assert 0 in waits
    assert waits[-1] == 500


def test_a_partition_whose_records_are_hidden_is_not_crowded_out() -> None:
    """Slow storage: it is asked again after a pause, and not without an end."""
    brokers = Brokers([50] * 2)
    brokers.special[0] = [apis.FetchResponse(0, 0, 50, 50, 0)] * 10_000
    assert Read(brokers, poll_timeout_ms=10_000).fails(ReadStalled).partition == 0


def test_a_topic_that_goes_is_lost_for_all_of_its_ranges() -> None:
    brokers = Brokers([50] * 3)
    brokers.special = defaultdict(lambda: [UNKNOWN_TOPIC])
    brokers.topic_error = UNKNOWN_TOPIC
    read = Read(brokers, fail_on_data_loss=False).to_end()
    lost = {(range_.partition, loss.cause) for range_, loss in read.fetcher.losses}
    assert lost == {(number, LossCause.TOPIC_DELETED) for number in range(3)}
    # Once known, the topic's leaders are those of all ranges.
    assert len(brokers.asked(apis.MetadataRequest)) < 20
