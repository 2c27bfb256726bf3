"""The fetcher over a scripted network: what it asks, whom, and what it makes of each answer."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from kafka_sink.errors import (
    FetchRefused,
    KafkaSinkError,
    OffsetsLost,
    ReadStalled,
    RecordsCorrupt,
    TopicAuthorizationFailed,
)
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, after_out_of_range
from kafka_sink.kafka.consumer.fetcher import Fetcher, FetchSettings
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, Metadata
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.records.record_batch import HEADER_BYTES

ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
RANGE = FetchRange("orders", ORDERS, 2, 100, 200, leader_epoch=7)
# Java's defaults.
SETTINGS: dict[str, Any] = {
    "isolation_level": IsolationLevel.READ_UNCOMMITTED,
    "max_bytes": 1024 * 1024,
    "min_bytes": 1,
    "max_wait_ms": 500,
    "client_rack": "",
    "request_timeout_ms": 30_000,
    "metadata_max_age_ms": 300_000,
    "retry_backoff_ms": 100,
    "retry_backoff_max_ms": 1_000,
    "no_progress_ms": 120_000,
    "fail_on_data_loss": True,
    "goes_on": True,
}
# Enough turns for every script. A fetcher that turns more does not wait.
MOST_TURNS = 2_000


def batch(first: int, last: int) -> bytes:
    """A header and one byte are enough: the fetcher looks at nothing else."""
    header = bytearray(HEADER_BYTES + 1)
    header[0:8] = first.to_bytes(8, "big")
    header[8:12] = (len(header) - 12).to_bytes(4, "big")
    header[16] = 2
    header[23:27] = (last - first).to_bytes(4, "big")
    return bytes(header)


def records(*batches: tuple[int, int], more: bytes = b"") -> FetchResponse:
    return FetchResponse(0, 0, 500, 500, 0, records=memoryview(b"".join(batch(*each) for each in batches) + more))


def looks(before: tuple[int, int], behind: tuple[int, int], count: int) -> list[FetchResponse]:
    """What is answered where a gap is looked at (`test_gaps.py`)."""
    return [records(before, behind)] * (count - 1) + [records(behind, (behind[1] + 1, behind[1] + 1))]


class Cluster:
    """A network, and the cluster behind it. `answers`: a fetch, epoch or bounds answer, by the request's type; each is
    a response, an error code, or a function of the request. What is not scripted is answered as by an empty log."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.leader, self.epoch, self.topic_id = 1, 7, ORDERS
        self.topic_error = 0
        self.answers: dict[type, list[Any]] = {
            FetchRequest: [],
            OffsetForLeaderEpochRequest: [],
            ListOffsetsRequest: [],
        }
        self.asked: list[tuple[int, Any]] = []
        self.down: set[int] = set()
        # Neither ready nor down.
        self.connecting: set[int] = set()
        # Requests of these types wait for their answer.
        self.held: set[type] = set()
        # Instead of the answer to the next Metadata requests.
        self.metadata_errors: list[str] = []
        self.brokers: tuple[Broker, ...] = ()
        self.unsupported: set[type] = set()
        self.throttled = 0
        self.last_error = ""
        self.interruptions = self.handshakes = 0
        self._sent: list[tuple[int, Any, object, int]] = []

    # --- as a network -------------------------------------------------------------------------------------------------

    def ready(self, node_id: int, now_ms: int) -> bool:
        return node_id not in self.down | self.connecting

    def is_down(self, node_id: int) -> bool:
        return node_id in self.down

    def least_loaded_node(self, now_ms: int) -> int | None:
        return next((node_id for node_id in (3, 2, 1) if self.ready(node_id, now_ms)), None)

    def api_version(self, node_id: int, request: Any) -> int | None:
        return None if type(request) in self.unsupported else 1

    def throttled_ms(self, now_ms: int) -> int:
        return self.throttled

    def throttles(self, now_ms: int) -> dict[int, tuple[int, int]]:
        return {}

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        assert self.ready(node_id, now_ms)
        assert type(request) not in self.unsupported
        self.asked.append((node_id, request))
        self._sent.append((node_id, request, token, now_ms))

    def update_brokers(self, brokers: Sequence[Broker]) -> None:
        self.brokers = tuple(brokers)

    def learn(self, broker: Broker) -> None:
        pass

    # --- as a test ----------------------------------------------------------------------------------------------------

    def poll(self, wait_ms: int) -> list[ClientResponse]:
        assert wait_ms >= 0
        sent = [each for each in self._sent if type(each[1]) not in self.held]
        self._sent = [each for each in self._sent if each not in sent]
        answers = [self._answered(*each) for each in sent]
        if not answers:
            self.now_ms += wait_ms
        return answers

    def _answered(self, node_id: int, request: Any, token: object, sent_ms: int) -> ClientResponse:
        if isinstance(request, MetadataRequest):
            response = self.metadata_errors.pop(0) if self.metadata_errors else self._metadata()
        else:
            response = self._scripted(node_id, request)
        error = response if isinstance(response, str) else None
        latency_ms = self.now_ms - sent_ms
        return ClientResponse(node_id, request, token, None if error else response, error, latency_ms)  # type: ignore[arg-type]

    def _metadata(self) -> MetadataResponse:
        partitions = tuple(PartitionMetadata(0, number, self.leader, self.epoch) for number in range(3))
        topic = TopicMetadata(self.topic_error, "orders", self.topic_id, () if self.topic_error else partitions)
        brokers = tuple(Broker(number, "h", number) for number in (1, 2, 3))
        return MetadataResponse(0, "c", 1, brokers, (topic,))

    def _scripted(self, node_id: int, request: Any) -> Any:
        script = self.answers[type(request)]
        said = script.pop(0) if script else 0
        said = said(request) if callable(said) else said
        if not isinstance(said, int):
            return said
        match request:
            case FetchRequest():
                return FetchResponse(0, said, 100, 100, 0)
            case OffsetForLeaderEpochRequest():
                return OffsetForLeaderEpochResponse(0, said, 7, 500)
            case ListOffsetsRequest(asked=(asked,)):
                offset = {EARLIEST: 0, LATEST: 500}[asked.timestamp_ms]
                return ListOffsetsResponse(0, (ListedOffset("orders", 2, said, -1, offset, 7),))
        raise AssertionError(request)

    def bounds(self, earliest: int, latest: int) -> None:
        self.answers[ListOffsetsRequest] += [
            ListOffsetsResponse(0, (ListedOffset("orders", 2, 0, -1, offset, 7),)) for offset in (earliest, latest)
        ]

    def ends(self, offset: int) -> None:
        self.answers[ListOffsetsRequest].append(ListOffsetsResponse(0, (ListedOffset("orders", 2, 0, -1, offset, 7),)))

    def of(self, kind: type) -> list[tuple[int, Any]]:
        return [(node_id, request) for node_id, request in self.asked if isinstance(request, kind)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def fetcher_of(cluster: Cluster, range_: FetchRange = RANGE, **changed: Any) -> Fetcher:
    metadata = Metadata(
        max_age_ms=300_000, max_idle_ms=300_000, backoff_initial_ms=100, backoff_max_ms=1_000, rng=random.Random(1),
        creates_topics=False,
    )  # fmt: skip
    return Fetcher(
        range_,
        settings=FetchSettings(**{**SETTINGS, **changed}),
        network=cluster,
        metadata=metadata,
        rng=random.Random(2),
        now_ms=cluster.now_ms,
    )


def run(cluster: Cluster, fetcher: Fetcher, until: Callable[[], bool] = lambda: False) -> list[tuple[int, int]]:
    """Drive to the end. Return what was taken: the first wanted offset and the next one of each record set."""
    taken = []
    for _ in range(MOST_TURNS):
        if fetcher.is_done or until():
            return taken
        record_set = fetcher.take(cluster.now_ms)
        if record_set is not None:
            taken.append((record_set.offset, record_set.next_offset))
        fetcher.handle(cluster.poll(fetcher.run_once(cluster.now_ms)), cluster.now_ms)
    raise AssertionError("it turns without an end")


def failure_of(cluster: Cluster, fetcher: Fetcher) -> KafkaSinkError:
    run(cluster, fetcher)
    assert fetcher.failure is not None
    return fetcher.failure


def turn_until(cluster: Cluster, fetcher: Fetcher, condition: Callable[[], bool]) -> None:
    """Turn without taking anything."""
    for _ in range(MOST_TURNS):
        if condition():
            return
        fetcher.handle(cluster.poll(fetcher.run_once(cluster.now_ms)), cluster.now_ms)
    raise AssertionError("it turns without an end")


# What passes: cut connections, errors, a position that is said not to be there, an answer that is empty, that names a
# replica, or that is throttled. None: a healthy answer.
TROUBLES: list[Any] = [
    None,
    "cut",
    *(6, 74, 75, 78, 9, 3, 1),
    FetchResponse(0, 0, 500, 500, 0),
    FetchResponse(0, 0, 500, 500, 0, preferred_read_replica=2),
    FetchResponse(50, 0),
]


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int]]:
    """First and last offsets of batches, with gaps as compaction leaves them, up to behind the range."""
    batches, offset = [], 80
    while offset < 200:
        first = offset + draw(st.sampled_from([0, 0, 1, 30]))
        offset = first + draw(st.integers(1, 40))
        batches.append((first, offset - 1))
    return [*batches, (offset, offset)]


class TestARange:
    def test_is_read_from_the_leader_in_order(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [records((90, 120), (121, 150)), records((151, 199))]
        fetcher = fetcher_of(cluster, max_bytes=5_000, min_bytes=3, max_wait_ms=70, client_rack="a")
        assert run(cluster, fetcher) == [(100, 151), (151, 200)]
        assert fetcher.failure is None
        first, second = (request for _, request in cluster.of(FetchRequest))
        expected = FetchRequest("orders", ORDERS, 2, 100, 7, IsolationLevel.READ_UNCOMMITTED, 5_000, 3, 70, "a")
        assert (first, second) == (expected, replace(expected, offset=151))
        assert {node_id for node_id, _ in cluster.of(FetchRequest)} == {1}
        assert not any(request.allow_auto_topic_creation for _, request in cluster.of(MetadataRequest))

    def test_ends_when_the_position_passes_its_end(self, cluster: Cluster) -> None:
        """Not by a count: transactions and compaction leave gaps."""
        cluster.answers[FetchRequest] += [
            records((150, 150)), *looks((90, 99), (150, 150), 2),
            records((300, 310)), *looks((150, 150), (300, 310), 2),
        ]  # fmt: skip
        assert run(cluster, fetcher_of(cluster)) == [(100, 151), (151, 311)]

    def test_compaction_may_leave_a_gap_before_an_open_transaction(self, cluster: Cluster) -> None:
        """Nothing of the range may be read any more. The open transaction's batch, which is not delivered, shows it."""
        empty = FetchResponse(0, 0, 500, 150, 0)
        cluster.answers[FetchRequest] += [empty, records((150, 180))]
        range_ = replace(RANGE, end=150)
        fetcher = fetcher_of(cluster, range_, isolation_level=IsolationLevel.READ_COMMITTED, max_bytes=5_000)
        assert run(cluster, fetcher) == []
        assert fetcher.failure is None
        asked = [(each.isolation_level, each.max_bytes, each.offset) for _, each in cluster.of(FetchRequest)]
        assert asked == [
            (IsolationLevel.READ_COMMITTED, 5_000, 100), (IsolationLevel.READ_UNCOMMITTED, 1, 100),
            (IsolationLevel.READ_UNCOMMITTED, 16 * 1024 + 61, 99),
        ]  # fmt: skip

    def test_a_gap_within_the_range_is_passed_too(self, cluster: Cluster) -> None:
        empty = FetchResponse(0, 0, 500, 150, 0)
        looked = records((90, 99), (150, 180))
        cluster.answers[FetchRequest] += [empty, records((150, 180)), looked, records((150, 199))]
        fetcher = fetcher_of(cluster, isolation_level=IsolationLevel.READ_COMMITTED)
        assert run(cluster, fetcher) == [(150, 200)]
        asked = [(each.isolation_level, each.offset) for _, each in cluster.of(FetchRequest)]
        any_level, committed = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
        assert asked == [(committed, 100), (any_level, 100), (any_level, 99), (committed, 150)]

    @pytest.mark.parametrize("level", list(IsolationLevel))
    @pytest.mark.parametrize("empty_answers", [1, 2, 3, 7])
    def test_an_answer_without_records_is_no_gap(
        self, cluster: Cluster, level: IsolationLevel, empty_answers: int
    ) -> None:
        """A leader whose remote storage is slow, or throttled, answers so: with the end of the log and nothing else."""

        def there(request: FetchRequest) -> FetchResponse:
            return records((request.offset, 199))

        cluster.answers[FetchRequest] = [FetchResponse(0, 0, 500, 500, 0)] * empty_answers + [there] * 3
        assert run(cluster, fetcher_of(cluster, isolation_level=level)) == [(100, 200)]
        looks_ahead = [request.max_bytes == 1 for _, request in cluster.of(FetchRequest)]
        assert any(looks_ahead) == (level is IsolationLevel.READ_COMMITTED)

    @pytest.mark.parametrize("more", [b"", batch(100, 150)[:40]], ids=["none", "cut off"])
    def test_only_a_whole_batch_shows_a_gap(self, cluster: Cluster, more: bytes) -> None:
        empty = FetchResponse(0, 0, 500, 500, 0)
        cluster.answers[FetchRequest] += [empty, replace(empty, records=memoryview(more)), records((100, 199))]
        fetcher = fetcher_of(cluster, isolation_level=IsolationLevel.READ_COMMITTED)
        assert run(cluster, fetcher) == [(100, 200)]

    def test_may_be_empty(self, cluster: Cluster) -> None:
        assert run(cluster, fetcher_of(cluster, replace(RANGE, end=100))) == []
        assert not cluster.of(FetchRequest)

    def test_the_last_batch_may_be_cut_off(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [records((100, 150), more=batch(151, 180)[:40]), records((151, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 151), (151, 200)]

    def test_one_record_set_waits_while_another_is_used(self, cluster: Cluster) -> None:
        """So two are in memory at most."""
        cluster.answers[FetchRequest] += [records((100, 110)), records((111, 120)), records((121, 199))]
        fetcher = fetcher_of(cluster)
        turn_until(cluster, fetcher, lambda: len(cluster.of(FetchRequest)) == 1)
        for _ in range(5):
            fetcher.handle(cluster.poll(fetcher.run_once(0)), 0)
        assert len(cluster.of(FetchRequest)) == 1
        assert fetcher.take(0) is not None
        fetcher.run_once(0)
        assert len(cluster.of(FetchRequest)) == 2

    def test_one_request_is_under_way(self, cluster: Cluster) -> None:
        cluster.held = {FetchRequest}
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 10_000)
        assert len(cluster.of(FetchRequest)) == 1
        cluster.held = set()
        cluster.answers[FetchRequest].append(records((100, 199)))
        assert run(cluster, fetcher) == [(100, 200)]
        fetcher.run_once(cluster.now_ms)
        assert len(cluster.of(FetchRequest)) == 1

    def test_nothing_is_asked_after_a_failure(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [29]
        fetcher = fetcher_of(cluster)
        failure = failure_of(cluster, fetcher)
        assert fetcher.run_once(cluster.now_ms + 200_000) == 0
        assert len(cluster.of(FetchRequest)) == 1
        assert fetcher.failure is failure

    def test_isolation_level_and_aborted_transactions(self, cluster: Cluster) -> None:
        response = replace(records((100, 199)), aborted_transactions=((5, 100),))  # type: ignore[arg-type]
        cluster.answers[FetchRequest].append(response)
        fetcher = fetcher_of(cluster, isolation_level=IsolationLevel.READ_COMMITTED)
        turn_until(cluster, fetcher, lambda: bool(cluster.of(FetchRequest)))
        record_set = fetcher.take(0)
        assert record_set is not None
        assert record_set.aborted_transactions == ((5, 100),)
        assert cluster.of(FetchRequest)[0][1].isolation_level is IsolationLevel.READ_COMMITTED

    @pytest.mark.parametrize(
        ("response", "reason"),
        [
            (records(more=batch(100, 150)[:40]), "the answer has no whole batch"),
            (records((80, 90)), "it ends before offset 91"),
            (records((80, 99)), "it ends before offset 100"),
        ],
        ids=["cut", "before", "just before"],
    )
    def test_an_answer_that_goes_no_further_is_damage(
        self, cluster: Cluster, response: FetchResponse, reason: str
    ) -> None:
        cluster.answers[FetchRequest].append(response)
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, RecordsCorrupt)
        assert (failure.topic, failure.partition, failure.offset, failure.reason) == ("orders", 2, 100, reason)

    @settings(max_examples=examples(200), deadline=None)
    @given(logs(), st.lists(st.sampled_from(TROUBLES), max_size=20), st.sampled_from(IsolationLevel))
    def test_every_batch_is_handed_over_once_whatever_fails(
        self, log: list[tuple[int, int]], troubles: list[Any], level: IsolationLevel
    ) -> None:
        def answer(request: FetchRequest) -> Any:
            if troubles and (trouble := troubles.pop()) is not None:
                return trouble
            return records(*[each for each in log if each[1] >= request.offset][: 1 if request.max_bytes == 1 else 2])

        cluster = Cluster()
        cluster.answers[FetchRequest] = [answer] * 500
        fetcher = fetcher_of(cluster, isolation_level=level, client_rack="a")
        taken = run(cluster, fetcher)
        assert fetcher.failure is None
        assert not fetcher.losses
        wanted = [(max(100, first), last + 1) for first, last in log if last >= 100 and first < 200]
        got = [(start, end) for start, end in taken]
        assert all(end <= start for (_, end), (start, _) in pairwise(got))
        assert all(any(start <= first and last <= end for start, end in got) for first, last in wanted)
        assert fetcher.is_done


class TestErrors:
    @pytest.mark.parametrize("code", [6, 74, 75, 3, 100, 103, 9, 5, 56, 78, -1, 7])
    def test_that_pass(self, cluster: Cluster, code: int) -> None:
        cluster.answers[FetchRequest] += [code, records((100, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert cluster.now_ms > 0  # it has backed off

    @pytest.mark.parametrize("code", [6, 74, 75, 3, 100, 103, 9, 5, 56])
    def test_that_need_new_metadata(self, cluster: Cluster, code: int) -> None:
        def moved(_: FetchRequest) -> int:
            cluster.leader, cluster.epoch = 2, 7
            return code

        cluster.answers[FetchRequest] += [moved, records((100, 199))]
        run(cluster, fetcher_of(cluster))
        assert [node_id for node_id, _ in cluster.of(FetchRequest)][-1] == 2

    def test_a_connection_that_breaks(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += ["broker 1: cut", records((100, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert len(cluster.of(MetadataRequest)) == 2

    def test_one_that_always_breaks_is_named(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] = ["broker 1: cut"] * 1_000
        assert "Last: broker 1: cut." in str(failure_of(cluster, fetcher_of(cluster)))

    def test_metadata_that_does_not_come_is_asked_for_again(self, cluster: Cluster) -> None:
        cluster.metadata_errors = ["broker 3: cut", "broker 3: cut"]
        cluster.answers[FetchRequest].append(records((100, 199)))
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert len(cluster.of(MetadataRequest)) == 3
        assert {broker.node_id for broker in cluster.brokers} == {1, 2, 3}

    def test_metadata_is_asked_for_once_at_a_time(self, cluster: Cluster) -> None:
        cluster.held = {MetadataRequest}
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 3_000)
        assert len(cluster.of(MetadataRequest)) == 1
        cluster.held = set()
        assert run(cluster, fetcher) == [(100, 200)]

    def test_metadata_waits_for_a_connection(self, cluster: Cluster) -> None:
        cluster.connecting = {1, 2, 3}
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 3_000)
        assert not cluster.asked
        cluster.connecting = set()
        assert run(cluster, fetcher) == [(100, 200)]

    def test_a_leader_that_is_being_connected_to_is_no_error(self, cluster: Cluster) -> None:
        cluster.connecting = {1}
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 3_000)
        assert len(cluster.of(MetadataRequest)) == 1
        cluster.connecting = set()
        assert run(cluster, fetcher) == [(100, 200)]

    @pytest.mark.parametrize(("code", "refreshes"), [(78, False), (6, True)])
    def test_the_first_retry_comes_soon(self, cluster: Cluster, code: int, refreshes: bool) -> None:
        cluster.answers[FetchRequest] += [records((100, 149)), code, records((150, 179)), code, records((180, 199))]
        run(cluster, fetcher_of(cluster))
        assert 2 * 80 <= cluster.now_ms <= 2 * 120
        assert (len(cluster.of(MetadataRequest)) > 1) == refreshes

    def test_the_next_ones_later(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [78, 78, 78, records((100, 199))]
        run(cluster, fetcher_of(cluster))
        assert 0.8 * (100 + 200 + 400) <= cluster.now_ms <= 1.2 * (100 + 200 + 400)

    def test_an_error_of_the_topic_is_named(self, cluster: Cluster) -> None:
        cluster.topic_error = 17
        assert "INVALID_TOPIC_EXCEPTION (error 17)" in str(failure_of(cluster, fetcher_of(cluster)))

    def test_a_leader_that_is_down(self, cluster: Cluster) -> None:
        cluster.down = {1}
        cluster.last_error = "broker 1: Connection refused"
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 5_000)
        assert not cluster.of(FetchRequest)
        cluster.leader = 2
        assert run(cluster, fetcher) == [(100, 200)]

    @pytest.mark.parametrize(
        ("last_error", "problem"),
        [
            ("broker 1: Connection refused", "broker 1: Connection refused"),
            ("", "broker 1 is not among the brokers of the cluster"),
        ],
    )
    def test_one_that_stays_down_is_named(self, cluster: Cluster, last_error: str, problem: str) -> None:
        cluster.down, cluster.last_error = {1}, last_error
        assert f"Last: {problem}." in str(failure_of(cluster, fetcher_of(cluster)))

    def test_no_leader(self, cluster: Cluster) -> None:
        cluster.leader = -1
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, ReadStalled)
        assert "no leader" in str(failure)
        assert len(cluster.of(MetadataRequest)) < 300

    def test_a_missing_acl(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest].append(29)
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, TopicAuthorizationFailed)
        assert (failure.topic, failure.operation) == ("orders", "READ")

    @pytest.mark.parametrize(
        ("code", "name"), [(2, "CORRUPT_MESSAGE"), (76, "UNSUPPORTED_COMPRESSION_TYPE"), (999, "")]
    )
    def test_that_no_retry_helps_against(self, cluster: Cluster, code: int, name: str) -> None:
        cluster.answers[FetchRequest].append(code)
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, FetchRefused)
        assert (failure.offset, failure.code) == (100, code)
        assert name in failure.name


class TestOutOfRange:
    def test_deleted_records_are_a_loss(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest].append(1)
        cluster.bounds(150, 500)
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert (failure.first, failure.end, failure.cause) == (100, 150, LossCause.DELETED)
        asked = [request.asked[0].timestamp_ms for _, request in cluster.of(ListOffsetsRequest)]
        assert asked == [EARLIEST, LATEST]
        # Whether it is still the same topic.
        assert len(cluster.of(MetadataRequest)) == 2

    @pytest.mark.parametrize(("earliest", "next_offset", "lost"), [(150, 150, 150), (300, None, 200)])
    def test_what_is_there_is_read_if_the_user_says_so(
        self, cluster: Cluster, earliest: int, next_offset: int | None, lost: int
    ) -> None:
        cluster.answers[FetchRequest] += [1, records((150, 199))]
        cluster.bounds(earliest, 500)
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == ([] if next_offset is None else [(150, 200)])
        assert fetcher.losses == [Loss(100, lost, LossCause.DELETED)]

    def test_a_log_that_ends_before_is_truncated(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest].append(1)
        cluster.bounds(0, 50)
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert (failure.first, failure.end, failure.cause) == (100, 200, LossCause.TRUNCATED)

    def test_such_a_log_has_nothing_more_to_read(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest].append(1)
        cluster.bounds(0, 50)
        cluster.ends(50)
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == []
        assert fetcher.losses == [Loss(100, 200, LossCause.TRUNCATED)]
        assert fetcher.failure is None

    def test_an_answer_that_was_late_is_no_loss(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [1, records((100, 199))]
        cluster.bounds(0, 500)
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert cluster.now_ms > 0

    def test_a_truncation_is_told_from_where_the_log_ends(self, cluster: Cluster) -> None:
        """Other records may stand there soon, at offsets that were handed over before."""
        cluster.answers[FetchRequest] += [records((100, 149)), 1]
        cluster.bounds(0, 120)
        cluster.ends(130)
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == [(100, 150)]
        assert fetcher.losses == [Loss(120, 200, LossCause.TRUNCATED)]

    def test_a_bound_that_cannot_be_is_asked_for_again(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [1, records((100, 199))]
        cluster.ends(-1)
        cluster.bounds(0, 500)
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        # One pause for each of the two, the second longer; and metadata that may be newer.
        assert cluster.now_ms >= 0.8 * (100 + 200)
        assert len(cluster.of(MetadataRequest)) == 3

    @pytest.mark.parametrize("fail_on_data_loss", [True, False])
    def test_a_leader_that_contradicts_itself_is_asked_ever_more_rarely(
        self, cluster: Cluster, fail_on_data_loss: bool
    ) -> None:
        cluster.answers[FetchRequest] = [1] * 1_000
        fetcher = fetcher_of(cluster, no_progress_ms=60_000, fail_on_data_loss=fail_on_data_loss)
        failure = failure_of(cluster, fetcher)
        assert isinstance(failure, ReadStalled)
        assert "OFFSET_OUT_OF_RANGE (error 1)" in str(failure)
        assert len(cluster.of(FetchRequest)) < 80

    @given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
    def test_why_a_position_is_out_of_range(self, position: int, earliest: int, length: int) -> None:
        latest = earliest + length
        cause = after_out_of_range(position, earliest, latest)
        assert (cause is None) == (earliest <= position <= latest)
        assert (cause is LossCause.DELETED) == (position < earliest)


class TestEpochs:
    def test_a_new_leader_is_asked_for_the_end_of_the_ranges_epoch(self, cluster: Cluster) -> None:
        cluster.epoch = 9
        cluster.answers[FetchRequest].append(records((100, 199)))
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert cluster.of(OffsetForLeaderEpochRequest) == [(1, OffsetForLeaderEpochRequest("orders", 2, 9, 7))]
        assert cluster.of(FetchRequest)[0][1].leader_epoch == 9

    def test_that_is_the_epoch_of_the_ranges_last_record(self, cluster: Cluster) -> None:
        """The leader of the time may have written nothing."""
        range_ = replace(RANGE, record_epoch=4)
        cluster.answers[FetchRequest] += [records((100, 199))] * 2
        run(cluster, fetcher_of(cluster, range_))
        assert not cluster.of(OffsetForLeaderEpochRequest), "the leader of the plan has not changed"
        cluster.epoch = 9
        run(cluster, fetcher_of(cluster, range_))
        assert cluster.of(OffsetForLeaderEpochRequest) == [(1, OffsetForLeaderEpochRequest("orders", 2, 9, 4))]

    @pytest.mark.parametrize(
        ("epoch", "end_offset", "parts"), [(4, 500, None), (3, 500, 150), (3, 120, 120), (4, 120, 120)]
    )
    def test_a_leader_without_a_record_of_the_epoch_has_lost_its_records(
        self, cluster: Cluster, epoch: int, end_offset: int, parts: int | None
    ) -> None:
        cluster.epoch = 9
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, epoch, end_offset))
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster, replace(RANGE, record_epoch=4, record_start=150))
        if parts is None:
            assert run(cluster, fetcher) == [(100, 200)]
        else:
            failure = failure_of(cluster, fetcher)
            assert isinstance(failure, OffsetsLost)
            assert (failure.first, failure.end, failure.cause) == (parts, 200, LossCause.TRUNCATED)

    def test_once_for_each_epoch(self, cluster: Cluster) -> None:
        def fenced(_: FetchRequest) -> int:
            cluster.leader, cluster.epoch = 2, cluster.epoch + 1
            return 74

        cluster.answers[FetchRequest] += [records((100, 149)), fenced, 0, fenced, records((150, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 150), (150, 200)]
        assert [request.current_leader_epoch for _, request in cluster.of(OffsetForLeaderEpochRequest)] == [8, 9]

    @pytest.mark.parametrize("end_offset", [199, 120, 0, -1])
    def test_a_truncated_log_is_a_loss(self, cluster: Cluster, end_offset: int) -> None:
        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 6, end_offset))
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert (failure.first, failure.end) == (max(100, end_offset), 200)
        assert failure.cause == LossCause.TRUNCATED
        assert not cluster.of(FetchRequest)

    def test_the_rest_of_it_is_read_if_the_user_says_so(self, cluster: Cluster) -> None:
        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 6, 150))
        cluster.ends(160)
        cluster.answers[FetchRequest].append(records((100, 159)))
        committed = IsolationLevel.READ_COMMITTED
        fetcher = fetcher_of(cluster, fail_on_data_loss=False, isolation_level=committed)
        assert run(cluster, fetcher) == [(100, 160)]
        assert fetcher.losses == [Loss(150, 200, LossCause.TRUNCATED)]
        # As far as it may be read: an open transaction may never end.
        (asked,) = (request for _, request in cluster.of(ListOffsetsRequest))
        assert (asked.asked[0].timestamp_ms, asked.isolation_level) == (LATEST, committed)

    @pytest.mark.parametrize("fail_on_data_loss", [True, False])
    def test_a_truncation_is_told_from_where_the_logs_part(self, cluster: Cluster, fail_on_data_loss: bool) -> None:
        def replaced(_: FetchRequest) -> int:
            cluster.epoch = 8
            return 74

        cluster.answers[FetchRequest] += [records((100, 149)), replaced, records((150, 199))]
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 7, 120))
        fetcher = fetcher_of(cluster, fail_on_data_loss=fail_on_data_loss)
        taken = run(cluster, fetcher)
        if fail_on_data_loss:
            assert isinstance(fetcher.failure, OffsetsLost)
            assert (fetcher.failure.first, fetcher.failure.end) == (120, 200)
        else:
            assert taken == [(100, 150), (150, 200)]
            assert fetcher.losses == [Loss(120, 200, LossCause.TRUNCATED)]

    @pytest.mark.parametrize(("goes_on", "end"), [(True, 200), (False, 120)])
    def test_what_replaced_lost_records_may_be_for_another_range(
        self, cluster: Cluster, goes_on: bool, end: int
    ) -> None:
        """One answer may have records of both."""
        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 7, 120))
        cluster.answers[FetchRequest].append(records((100, 119), (120, 199)))
        fetcher = fetcher_of(cluster, fail_on_data_loss=False, goes_on=goes_on)
        turn_until(cluster, fetcher, lambda: bool(cluster.of(FetchRequest)))
        fetcher.handle(cluster.poll(0), cluster.now_ms)
        record_set = fetcher.take(cluster.now_ms)
        assert record_set is not None
        assert (record_set.offset, record_set.end, record_set.next_offset) == (100, end, end)
        assert fetcher.is_done
        assert fetcher.losses == [Loss(120, 200, LossCause.TRUNCATED)]

    def test_a_truncation_may_take_the_end_of_a_transaction(self, cluster: Cluster) -> None:
        """Then its records, before where the logs part, may not be read any more."""
        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 7, 150))
        cluster.ends(140)
        cluster.answers[FetchRequest].append(records((100, 139)))
        fetcher = fetcher_of(cluster, fail_on_data_loss=False, isolation_level=IsolationLevel.READ_COMMITTED)
        assert run(cluster, fetcher) == [(100, 140)]
        assert fetcher.losses == [Loss(140, 200, LossCause.TRUNCATED)]

    def test_what_was_told_once_is_not_told_again(self, cluster: Cluster) -> None:
        """From then on the range is of the new log: the next leader is asked for the end of the new epoch."""

        def replaced(_: FetchRequest) -> int:
            cluster.epoch = 9
            return 74

        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest] += [
            OffsetForLeaderEpochResponse(0, 0, 7, 150),
            OffsetForLeaderEpochResponse(0, 0, 8, 160),
        ]
        cluster.ends(160)
        cluster.answers[FetchRequest] += [records((100, 129)), replaced, records((130, 159))]
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == [(100, 130), (130, 160)]
        assert fetcher.losses == [Loss(150, 200, LossCause.TRUNCATED)]
        asked = [(each.current_leader_epoch, each.leader_epoch) for _, each in cluster.of(OffsetForLeaderEpochRequest)]
        assert asked == [(8, 7), (9, 8)]

    def test_nor_if_yet_another_leads_before_the_end_is_known(self, cluster: Cluster) -> None:
        def replaced(_: ListOffsetsRequest) -> int:
            cluster.epoch = 9
            return 74

        cluster.epoch = 8
        cluster.answers[OffsetForLeaderEpochRequest].append(OffsetForLeaderEpochResponse(0, 0, 7, 150))
        cluster.answers[ListOffsetsRequest].append(replaced)
        cluster.ends(160)
        cluster.answers[FetchRequest].append(records((100, 159)))
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == [(100, 160)]
        assert fetcher.losses == [Loss(150, 200, LossCause.TRUNCATED)]
        assert len(cluster.of(OffsetForLeaderEpochRequest)) == 1

    def test_metadata_of_an_older_epoch_is_not_believed(self, cluster: Cluster) -> None:
        cluster.epoch = 6
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 3_000)
        assert not cluster.of(FetchRequest)
        cluster.epoch = 7
        assert run(cluster, fetcher) == [(100, 200)]

    def test_a_broker_that_does_not_tell(self, cluster: Cluster) -> None:
        cluster.epoch, cluster.unsupported = 9, {OffsetForLeaderEpochRequest}
        cluster.answers[FetchRequest].append(records((100, 199)))
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]

    def test_nor_does_it_stop_a_replica_from_being_read(self, cluster: Cluster) -> None:
        cluster.epoch, cluster.unsupported = 9, {OffsetForLeaderEpochRequest}
        nearer = FetchResponse(0, 0, 500, 500, 0, preferred_read_replica=2)
        cluster.answers[FetchRequest] += [nearer, records((100, 199))]
        run(cluster, fetcher_of(cluster, client_rack="a"))
        assert [node_id for node_id, _ in cluster.of(FetchRequest)] == [1, 2]

    def test_the_first_epoch_is_one_too(self, cluster: Cluster) -> None:
        cluster.epoch = 1
        cluster.answers[FetchRequest].append(records((100, 199)))
        run(cluster, fetcher_of(cluster, replace(RANGE, leader_epoch=0)))
        assert cluster.of(OffsetForLeaderEpochRequest) == [(1, OffsetForLeaderEpochRequest("orders", 2, 1, 0))]

    def test_a_range_whose_epoch_is_unknown_is_not_checked(self, cluster: Cluster) -> None:
        cluster.epoch = 9
        cluster.answers[FetchRequest].append(records((100, 199)))
        assert run(cluster, fetcher_of(cluster, replace(RANGE, leader_epoch=-1))) == [(100, 200)]
        assert not cluster.of(OffsetForLeaderEpochRequest)


class TestTopics:
    def test_made_again(self, cluster: Cluster) -> None:
        cluster.topic_id = OTHER
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert (failure.first, failure.end, failure.cause) == (100, 200, LossCause.TOPIC_RECREATED)
        assert not cluster.of(FetchRequest)

    def test_made_again_in_the_middle(self, cluster: Cluster) -> None:
        def recreated(_: FetchRequest) -> int:
            cluster.topic_id, cluster.epoch = OTHER, 0
            return 100

        cluster.answers[FetchRequest] += [records((100, 149)), recreated]
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert (failure.first, failure.cause) == (150, LossCause.TOPIC_RECREATED)

    def test_a_broker_that_still_knows_the_topic_before_is_no_loss(self, cluster: Cluster) -> None:
        """The topic was made again before the range was planned, and one broker lags."""
        cluster.topic_id = OTHER
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster)
        run(cluster, fetcher, until=lambda: cluster.now_ms > ABSENT_PATIENCE_MS - 1_000)
        assert not cluster.of(FetchRequest)
        cluster.topic_id = ORDERS
        assert run(cluster, fetcher) == [(100, 200)]
        assert fetcher.failure is None

    @pytest.mark.parametrize("change", [{"topic_id": OTHER}, {"topic_error": 3}])
    def test_one_answer_is_no_proof_however_long_the_caller_pauses(
        self, cluster: Cluster, change: dict[str, Any]
    ) -> None:
        """A broker that has just started answers once without the topic. Then the caller works for a minute."""

        def strays(_: FetchRequest) -> int:
            vars(cluster).update(change)
            return 6

        cluster.answers[FetchRequest] += [records((100, 149)), strays, records((150, 199))]
        fetcher = fetcher_of(cluster)
        turn_until(cluster, fetcher, lambda: bool(cluster.of(FetchRequest)))
        assert fetcher.take(0) is not None
        turn_until(cluster, fetcher, lambda: len(cluster.of(MetadataRequest)) == 2)
        answers = cluster.poll(0)
        cluster.now_ms += 60_000
        vars(cluster).update({"topic_id": ORDERS, "topic_error": 0})
        fetcher.handle(answers, cluster.now_ms)
        assert run(cluster, fetcher) == [(150, 200)]
        assert fetcher.failure is None

    def test_a_leader_that_hands_out_records_knows_the_topic(self, cluster: Cluster) -> None:
        """However often another broker says that there is none."""

        def slowly(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += 2_000
            return records((request.offset, request.offset + 9))

        def strays(_: FetchRequest) -> int:
            cluster.topic_error = 3
            return 6

        cluster.answers[FetchRequest] = [strays, *[slowly] * 20]
        fetcher = fetcher_of(cluster)
        assert run(cluster, fetcher)[-1] == (190, 200)
        assert fetcher.failure is None
        assert len(cluster.of(MetadataRequest)) > 3

    def test_an_answer_that_is_read_late_confirms_nothing(self, cluster: Cluster) -> None:
        """It was on its way while the caller paused."""

        def strays(_: FetchRequest) -> int:
            cluster.topic_error = 3
            return 6

        cluster.answers[FetchRequest] = [strays] + [lambda _: 78 if cluster.held else records((100, 199))] * 50
        fetcher = fetcher_of(cluster)
        turn_until(cluster, fetcher, lambda: len(cluster.of(MetadataRequest)) == 2)
        cluster.held = {MetadataRequest}
        turn_until(cluster, fetcher, lambda: len(cluster.of(MetadataRequest)) == 3)
        cluster.now_ms += 60_000
        cluster.held = set()
        late = cluster.poll(0)
        fetcher.handle(late, cluster.now_ms)
        assert any(isinstance(answer.request, MetadataRequest) for answer in late)
        cluster.topic_error = 0
        assert run(cluster, fetcher) == [(100, 200)]
        assert fetcher.failure is None

    def test_a_partition_that_is_gone(self, cluster: Cluster) -> None:
        """The topic was made again with fewer, and its brokers have no ids."""
        cluster.topic_id = None  # type: ignore[assignment]
        failure = failure_of(cluster, fetcher_of(cluster, replace(RANGE, partition=3)))
        assert isinstance(failure, OffsetsLost)
        assert failure.cause == LossCause.TOPIC_DELETED

    def test_that_may_not_be_described(self, cluster: Cluster) -> None:
        cluster.topic_error = 29
        assert isinstance(failure_of(cluster, fetcher_of(cluster)), TopicAuthorizationFailed)
        assert cluster.now_ms < 1_000

    def test_deleted_is_believed_after_a_while(self, cluster: Cluster) -> None:
        cluster.topic_error = 3
        failure = failure_of(cluster, fetcher_of(cluster))
        assert isinstance(failure, OffsetsLost)
        assert failure.cause == LossCause.TOPIC_DELETED
        assert ABSENT_PATIENCE_MS <= cluster.now_ms < 2 * ABSENT_PATIENCE_MS

    @pytest.mark.parametrize("change", [{"topic_id": OTHER}, {"topic_error": 3}])
    def test_no_failure_if_the_user_says_so(self, cluster: Cluster, change: dict[str, Any]) -> None:
        for name, value in change.items():
            setattr(cluster, name, value)
        fetcher = fetcher_of(cluster, fail_on_data_loss=False)
        assert run(cluster, fetcher) == []
        assert fetcher.failure is None
        assert [(loss.first, loss.end) for loss in fetcher.losses] == [(100, 200)]


class TestReplicas:
    def nearer(self, replica: int) -> FetchResponse:
        # Without records, although there are some.
        return FetchResponse(0, 0, 500, 500, 0, preferred_read_replica=replica)

    def test_the_leader_names_a_nearer_one(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [self.nearer(2), records((100, 149)), records((150, 199))]
        assert run(cluster, fetcher_of(cluster, client_rack="a")) == [(100, 150), (150, 200)]
        assert [node_id for node_id, _ in cluster.of(FetchRequest)] == [1, 2, 2]
        assert cluster.now_ms == 0

    def test_it_is_asked_for_anew_after_a_while(self, cluster: Cluster) -> None:
        def later(_: FetchRequest) -> FetchResponse:
            cluster.now_ms += 400
            return records((100, 149))

        cluster.answers[FetchRequest] += [self.nearer(2), later, self.nearer(2), records((150, 199))]
        run(cluster, fetcher_of(cluster, metadata_max_age_ms=300))
        assert [node_id for node_id, _ in cluster.of(FetchRequest)] == [1, 2, 1, 2]

    @pytest.mark.parametrize("trouble", [1, 6, 9, "cut"])
    def test_in_trouble_the_leader_is_asked(self, cluster: Cluster, trouble: Any) -> None:
        """A replica that lags may know less than the leader: its out of range is no loss."""
        cluster.answers[FetchRequest] += [self.nearer(2), trouble, records((100, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert [node_id for node_id, _ in cluster.of(FetchRequest)] == [1, 2, 1]
        assert not cluster.of(ListOffsetsRequest)

    def test_a_replica_that_is_down(self, cluster: Cluster) -> None:
        def gone(_: FetchRequest) -> FetchResponse:
            cluster.down = {2}
            return self.nearer(2)

        cluster.answers[FetchRequest] += [gone, records((100, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]

    def test_a_replica_in_trouble_is_left_alone(self, cluster: Cluster) -> None:
        """This client does not reach it, and the leader does not know."""
        cluster.down = {2}

        def prefers(request: FetchRequest) -> FetchResponse:
            return self.nearer(2) if request.rack_id else records((request.offset, request.offset + 9))

        cluster.answers[FetchRequest] = [prefers] * 50
        assert run(cluster, fetcher_of(cluster, client_rack="a"))[-1] == (190, 200)
        assert cluster.now_ms < 5_000
        assert [request.rack_id for _, request in cluster.of(FetchRequest)] == ["a", *[""] * 10]

    def test_for_a_while(self, cluster: Cluster) -> None:
        def later(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += 400
            return records((request.offset, request.offset + 49))

        cluster.answers[FetchRequest] += [self.nearer(2), "cut", later, later]
        run(cluster, fetcher_of(cluster, client_rack="a", metadata_max_age_ms=300))
        assert [request.rack_id for _, request in cluster.of(FetchRequest)] == ["a", "a", "", "a"]

    def test_a_leader_that_names_itself_hands_out_records(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest].append(replace(records((100, 199)), preferred_read_replica=1))
        assert run(cluster, fetcher_of(cluster, client_rack="a")) == [(100, 200)]
        assert len(cluster.of(FetchRequest)) == 1

    def test_a_replica_that_names_another_is_not_believed(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] = [self.nearer(2), *[self.nearer(1)] * 300]
        assert isinstance(failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000)), ReadStalled)
        nodes = [node_id for node_id, _ in cluster.of(FetchRequest)]
        assert nodes[:2] == [1, 2]
        assert set(nodes[1:]) == {2}

    def test_records_that_come_with_a_name_count(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [replace(records((100, 149)), preferred_read_replica=2), records((150, 199))]
        assert run(cluster, fetcher_of(cluster, client_rack="a")) == [(100, 150), (150, 200)]
        assert [node_id for node_id, _ in cluster.of(FetchRequest)] == [1, 2]

    def test_an_epoch_that_metadata_tells_is_checked_with_the_leader(self, cluster: Cluster) -> None:
        """Without an error: metadata was due."""

        def moved(_: FetchRequest) -> FetchResponse:
            cluster.now_ms, cluster.epoch = cluster.now_ms + 400_000, 8
            return records((100, 149))

        cluster.answers[FetchRequest] += [self.nearer(2), moved, *[FetchResponse(0, 0, 500, 500, 0)] * 3]
        fetcher = fetcher_of(cluster, metadata_max_age_ms=10**9)
        run(cluster, fetcher, until=lambda: bool(cluster.of(OffsetForLeaderEpochRequest)))
        assert [node_id for node_id, _ in cluster.of(OffsetForLeaderEpochRequest)] == [1]

    def test_without_a_leader_none_is_asked(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [self.nearer(2), records((100, 149))]
        fetcher = fetcher_of(cluster, metadata_max_age_ms=10**9)
        turn_until(cluster, fetcher, lambda: len(cluster.of(FetchRequest)) == 2)
        cluster.leader, cluster.now_ms = -1, 400_000
        fetcher.handle(cluster.poll(fetcher.run_once(cluster.now_ms)), cluster.now_ms)
        assert fetcher.take(cluster.now_ms) is not None
        run(cluster, fetcher, until=lambda: cluster.now_ms > 410_000)
        assert len(cluster.of(FetchRequest)) == 2

    def test_a_new_epoch_is_checked_with_the_leader(self, cluster: Cluster) -> None:
        def moved(_: FetchRequest) -> int:
            cluster.epoch = 8
            return 74

        cluster.answers[FetchRequest] += [self.nearer(2), moved, records((100, 199))]
        run(cluster, fetcher_of(cluster))
        assert [node_id for node_id, _ in cluster.of(OffsetForLeaderEpochRequest)] == [1]


class TestWaiting:
    def test_an_open_transaction(self, cluster: Cluster) -> None:
        def waits(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += request.max_wait_ms
            return FetchResponse(0, 0, 500, 100, 0)

        cluster.answers[FetchRequest] = [waits] * 1_000
        committed = IsolationLevel.READ_COMMITTED
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000, isolation_level=committed))
        assert isinstance(failure, ReadStalled)
        assert (failure.offset, failure.end, failure.waited_ms) == (100, 200, 10_000)
        assert "An open transaction begins at offset 100." in str(failure)
        assert 10_000 <= cluster.now_ms < 11_000
        assert {request.isolation_level for _, request in cluster.of(FetchRequest)} == {committed}

    def test_an_end_that_the_log_does_not_reach(self, cluster: Cluster) -> None:
        def waits(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += request.max_wait_ms
            return FetchResponse(0, 0, 100, 100, 0)

        cluster.answers[FetchRequest] = [waits] * 1_000
        assert "The partition ends at offset 100." in str(failure_of(cluster, fetcher_of(cluster)))

    def test_an_error_that_is_over_hides_nothing(self, cluster: Cluster) -> None:
        cluster.last_error = "broker 9: Connection refused"
        cluster.answers[FetchRequest] = [6, *[FetchResponse(0, 0, 500, 100, 0)] * 1_000]
        committed = IsolationLevel.READ_COMMITTED
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000, isolation_level=committed))
        assert "An open transaction begins at offset 100." in str(failure)

    def test_a_throttle_hides_nothing_either(self, cluster: Cluster) -> None:
        """Its answer has no partition, and tells no end of the log."""
        answers = [FetchResponse(0, 0, 500, 100, 0), *[FetchResponse(50, 0)] * 1_000]
        cluster.answers[FetchRequest] = answers
        committed = IsolationLevel.READ_COMMITTED
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000, isolation_level=committed))
        assert "An open transaction begins at offset 100." in str(failure)

    def test_an_empty_log(self, cluster: Cluster) -> None:
        cluster.last_error = "broker 9: Connection refused"
        cluster.answers[FetchRequest] = [FetchResponse(0, 0, 0, 0, 0)] * 1_000
        failure = failure_of(cluster, fetcher_of(cluster, replace(RANGE, first=0), no_progress_ms=10_000))
        assert "The partition ends at offset 0." in str(failure)

    def test_brokers_that_cannot_be_reached_at_all(self, cluster: Cluster) -> None:
        cluster.last_error = "broker 9: Connection refused"
        cluster.down = {1, 2, 3}
        assert "Last: broker 9: Connection refused." in str(failure_of(cluster, fetcher_of(cluster)))

    @pytest.mark.parametrize("level", list(IsolationLevel))
    def test_records_that_are_withheld(self, cluster: Cluster, level: IsolationLevel) -> None:
        """No transaction is to blame: a reader of uncommitted records reads on behind the last stable offset."""
        stable = 500 if level else 50
        cluster.answers[FetchRequest] = [FetchResponse(0, 0, 500, stable, 0)] * 1_000
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000, isolation_level=level))
        assert isinstance(failure, ReadStalled)
        assert "the broker hands out none, although the log goes to offset 500" in str(failure)
        assert "transaction" not in str(failure)

    def test_answers_without_records_are_not_asked_for_faster_than_errors(self, cluster: Cluster) -> None:
        """With fetch.max.wait.ms or fetch.min.bytes of 0 they come at once."""
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000, max_wait_ms=0))
        assert isinstance(failure, ReadStalled)
        assert 50 < len(cluster.of(FetchRequest)) < 110

    def test_a_broker_that_waits_for_records_is_asked_again_at_once(self, cluster: Cluster) -> None:
        def waits(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += request.max_wait_ms
            return FetchResponse(0, 0, 100, 100, 0)

        cluster.answers[FetchRequest] = [waits, records((100, 199))]
        assert run(cluster, fetcher_of(cluster)) == [(100, 200)]
        assert cluster.now_ms == 500

    def test_why_no_leader_is_asked(self, cluster: Cluster) -> None:
        cluster.epoch = 6
        failure = failure_of(cluster, fetcher_of(cluster))
        assert "brokers know leader epoch 6, older than 7 of the range" in str(failure)

    def test_time_in_which_a_broker_throttles_does_not_count(self, cluster: Cluster) -> None:
        def throttles(_: FetchRequest) -> FetchResponse:
            cluster.now_ms += 5_000
            cluster.throttled += 5_000
            return FetchResponse(5_000, 0)

        cluster.answers[FetchRequest] = [throttles] * 19 + [records((100, 199))]
        assert run(cluster, fetcher_of(cluster, no_progress_ms=10_000)) == [(100, 200)]

    def test_a_quota_that_lets_nothing_through_ends_a_read(self, cluster: Cluster) -> None:
        def throttles(_: FetchRequest) -> FetchResponse:
            cluster.now_ms += 5_000
            cluster.throttled += 5_000
            return FetchResponse(5_000, 0)

        cluster.answers[FetchRequest] = [throttles] * 1_000
        failure = failure_of(cluster, fetcher_of(cluster, no_progress_ms=10_000))
        assert isinstance(failure, ReadStalled)
        assert failure.throttled_ms == 100_000
        assert "consumer_byte_rate" in str(failure)

    def test_time_that_the_caller_takes_does_not_count(self, cluster: Cluster) -> None:
        cluster.answers[FetchRequest] += [records((100, 149)), records((150, 199))]
        fetcher = fetcher_of(cluster, no_progress_ms=10_000)
        # The wait begins, and ends with the first record set.
        assert fetcher.take(0) is None
        turn_until(cluster, fetcher, lambda: bool(cluster.of(FetchRequest)))
        assert fetcher.take(0) is not None
        fetcher.run_once(0)
        cluster.now_ms = 1_000_000
        assert run(cluster, fetcher) == [(150, 200)]
        assert fetcher.failure is None

    def test_an_answer_that_is_there_counts_however_late_it_is_read(self, cluster: Cluster) -> None:
        """The process was suspended while it waited."""
        cluster.held = {FetchRequest}
        cluster.answers[FetchRequest].append(records((100, 199)))
        fetcher = fetcher_of(cluster, no_progress_ms=10_000)
        run(cluster, fetcher, until=lambda: cluster.now_ms > 3_000)
        assert fetcher.take(cluster.now_ms) is None
        cluster.now_ms += 1_000_000
        fetcher.run_once(cluster.now_ms)
        cluster.held = set()
        fetcher.handle(cluster.poll(0), cluster.now_ms)
        assert run(cluster, fetcher) == [(100, 200)]
        assert fetcher.failure is None

    def test_a_wait_is_bounded(self, cluster: Cluster) -> None:
        assert 0 <= fetcher_of(cluster).run_once(0) <= LONGEST_POLL_MS

    def test_a_range_may_take_longer_than_a_topic_is_remembered(self, cluster: Cluster) -> None:
        """Metadata forgets a topic that nobody used for max_idle_ms: a range uses its own until it ends."""

        def later(request: FetchRequest) -> FetchResponse:
            cluster.now_ms += 200_000
            return records((request.offset, request.offset + 9))

        cluster.answers[FetchRequest] = [later] * 10
        fetcher = fetcher_of(cluster)
        assert run(cluster, fetcher)[-1] == (190, 200)
        assert fetcher.failure is None
        assert all(request.topics == ("orders",) for _, request in cluster.of(MetadataRequest))
        assert len(cluster.of(MetadataRequest)) > 3

    def test_an_answer_to_the_range_before_is_left_alone(self, cluster: Cluster) -> None:
        """A range that fails may leave a request unanswered, and the next range has the same connections."""
        cluster.answers[FetchRequest] += [records((100, 150)), records((100, 199))]
        first = fetcher_of(cluster)
        first.run_once(0)
        first.handle(cluster.poll(0), 0)
        first.run_once(0)
        second = fetcher_of(cluster, replace(RANGE, partition=1))
        left_over = cluster.poll(0)
        assert [type(answer.request) for answer in left_over] == [FetchRequest]
        second.handle(left_over, 0)
        assert second.take(0) is None
        assert run(cluster, second) == [(100, 200)]

    def test_answers_of_somebody_elses_requests_are_left_alone(self, cluster: Cluster) -> None:
        fetcher = fetcher_of(cluster)
        fetcher.handle([ClientResponse(1, None, object(), records((100, 199)), None, 0)], 0)  # type: ignore[arg-type]
        assert fetcher.take(0) is None
