"""The fetcher over a scripted network: what it asks, whom, and what it makes of each answer."""

import random
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apis
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
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.consumer.fetch_range import FetchRange, Loss, after_out_of_range
from kafka_sink.kafka.consumer.fetcher import Fetcher
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.records.record_batch import HEADER_BYTES
from scripted_kafka import HANG_UP, ScriptedKafka, ScriptedNetwork
from scripted_reads import read_settings, readers_metadata

ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
RANGE = FetchRange("orders", ORDERS, 2, 100, 200, leader_epoch=7)
E = TypeVar("E", bound=KafkaSinkError)
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


def records(*batches: tuple[int, int], more: bytes = b"") -> apis.FetchResponse:
    return apis.FetchResponse(0, 0, 500, 500, 0, records=memoryview(b"".join(batch(*each) for each in batches) + more))


def looks(before: tuple[int, int], behind: tuple[int, int], count: int) -> list[apis.FetchResponse]:
    """What is answered where a gap is looked at (`test_gaps.py`)."""
    return [records(before, behind)] * (count - 1) + [records(behind, (behind[1] + 1, behind[1] + 1))]


def listed(offset: int, code: int = 0) -> apis.ListOffsetsResponse:
    return apis.ListOffsetsResponse(0, (apis.ListedOffset("orders", 2, code, -1, offset, 7),))


class Cluster(ScriptedKafka):
    """Scripted brokers, and the fetcher over them. What is not scripted is answered as by an empty log."""

    fetcher: Fetcher

    def __init__(self) -> None:
        super().__init__()
        self.network = ScriptedNetwork(self, last_error="")
        self.poll = self.network.poll
        self.topic_id, self.leader_epoch = ORDERS, 7
        self.change(leader=1)

    def change(self, *, leader: int | None = None, **changes: Any) -> None:
        """What is known of the cluster. `leader`: of all partitions; `connecting`, `last_error`: as its network's."""
        if leader is not None:
            self.leaders = {("orders", number): leader for number in range(3)}
        for name, value in changes.items():
            setattr(self.network if name in ("connecting", "last_error") else self, name, value)

    def _healthy(self, node_id: int, request: Any, code: int) -> Any:
        match request:
            case apis.FetchRequest():
                return apis.FetchResponse(0, code, 100, 100, 0)
            case apis.OffsetForLeaderEpochRequest():
                return apis.OffsetForLeaderEpochResponse(0, code, 7, 500)
            case apis.ListOffsetsRequest(asked=(asked,)):
                return listed(500 if asked.timestamp_ms == apis.LATEST else 0, code)
        return super()._healthy(node_id, request, code)

    def ends(self, *offsets: int) -> None:
        """Script where the log begins or ends, one answer each."""
        self.script(apis.ListOffsetsRequest, *map(listed, offsets))

    def epoch_ends(self, *ends: tuple[int, int]) -> None:
        """Script the last epoch that the leader has, and its end."""
        self.script(
            apis.OffsetForLeaderEpochRequest, *(apis.OffsetForLeaderEpochResponse(0, 0, *each) for each in ends)
        )

    def then(self, answer: Any, *, after_ms: int = 0, **changes: Any) -> Callable[[Any], Any]:
        """An answer that takes its time, and with which the cluster changes."""

        def given(request: Any) -> Any:
            self.now_ms += after_ms
            self.change(**changes)
            return answer(request) if callable(answer) else answer

        return given

    def requests(self, kind: type = apis.FetchRequest) -> list[Any]:
        return [request for _, request in self.asked(kind)]

    def nodes(self, kind: type = apis.FetchRequest) -> list[int]:
        return [node_id for node_id, _ in self.asked(kind)]

    def begin(self, *fetches: Any, range_: FetchRange = RANGE, **changed: Any) -> None:
        """Begin to read, with the answers to fetches that are scripted so far and these."""
        self.script(apis.FetchRequest, *fetches)
        self.fetcher = Fetcher(
            range_, settings=read_settings(**changed), network=self.network, metadata=readers_metadata(),
            rng=random.Random(2), now_ms=self.now_ms,
        )  # fmt: skip

    def read(self, *fetches: Any, **changed: Any) -> list[tuple[int, int]]:
        """Read to the end. Return what was taken."""
        self.begin(*fetches, **changed)
        return self.go_on()

    def go_on(self, until: Callable[[], bool] = lambda: False) -> list[tuple[int, int]]:
        """Drive to the end without a failure. Return what was taken."""
        taken = self.drive(until)
        assert self.fetcher.failure is None
        return taken

    def drive(self, until: Callable[[], bool] = lambda: False) -> list[tuple[int, int]]:
        """Return the first wanted offset and the next one of each record set."""
        taken = []
        for _ in range(MOST_TURNS):
            if self.fetcher.is_done or until():
                return taken
            record_set = self.fetcher.take(self.now_ms)
            if record_set is not None:
                taken.append((record_set.offset, record_set.next_offset))
            self.turn()
        raise AssertionError("it turns without an end")

    def turn(self) -> None:
        self.fetcher.handle(self.poll(self.fetcher.run_once(self.now_ms)), self.now_ms)

    def turn_until(self, kind: type, count: int = 1) -> None:
        """Turn without taking anything, until so many requests of a kind were sent."""
        for _ in range(MOST_TURNS):
            if len(self.asked(kind)) >= count:
                return
            self.turn()
        raise AssertionError("it turns without an end")

    def fails(self, error: type[E], *fetches: Any, **changed: Any) -> E:
        self.begin(*fetches, **changed)
        self.drive()
        assert isinstance(self.fetcher.failure, error)
        return self.fetcher.failure

    def reads_on(self, *fetches: Any, **changed: Any) -> tuple[list[tuple[int, int]], list[Loss]]:
        """What was taken, and what is lost, if the user says so."""
        return self.read(*fetches, fail_on_data_loss=False, **changed), self.fetcher.losses

    def loses(self, *fetches: Any, **changed: Any) -> tuple[int, int, LossCause]:
        lost = self.fails(OffsetsLost, *fetches, **changed)
        return lost.first, lost.end, lost.cause


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def following(count: int) -> Callable[[apis.FetchRequest], apis.FetchResponse]:
    """The next so many records."""
    return lambda request: records((request.offset, request.offset + count - 1))


WHOLE, ALL = records((100, 199)), [(100, 200)]
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
EMPTY = apis.FetchResponse(0, 0, 500, 500, 0)
LAST_RECORDS_ARE_OPEN = apis.FetchResponse(0, 0, 500, 100, 0)
THROTTLED, NOTHING = apis.FetchResponse(50, 0), apis.FetchResponse(0, 0, 0, 0, 0)
SHORT = apis.FetchResponse(0, 0, 100, 100, 0)
OF_COMMITTED = {"isolation_level": COMMITTED}
AN_OPEN_TRANSACTION = "An open transaction begins at offset 100."
REFUSED = "broker 9: Connection refused"
TRUNCATED = LossCause.TRUNCATED

# What passes: cut connections, errors, a position that is said not to be there, an answer that is empty, that names a
# replica, or that is throttled. None: a healthy answer.
OF_A_RESPONSE = [EMPTY, replace(EMPTY, preferred_read_replica=2), THROTTLED]
TROUBLES: list[Any] = [None, HANG_UP, *(6, 74, 75, 78, 9, 3, 1), *OF_A_RESPONSE]


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
        fetches = records((90, 120), (121, 150)), records((151, 199))
        taken = cluster.read(*fetches, fetch_max_bytes=5_000, fetch_min_bytes=3, fetch_max_wait_ms=70, client_rack="a")
        assert taken == [(100, 151), (151, 200)]
        expected = apis.FetchRequest("orders", ORDERS, 2, 100, 7, UNCOMMITTED, 5_000, 3, 70, "a")
        assert cluster.asked(apis.FetchRequest) == [(1, expected), (1, replace(expected, offset=151))]
        assert not any(request.allow_auto_topic_creation for request in cluster.requests(apis.MetadataRequest))

    def test_ends_when_the_position_passes_its_end(self, cluster: Cluster) -> None:
        """Not by a count: transactions and compaction leave gaps."""
        fetches = [
            records((150, 150)), *looks((90, 99), (150, 150), 2),
            records((300, 310)), *looks((150, 150), (300, 310), 2),
        ]  # fmt: skip
        assert cluster.read(*fetches) == [(100, 151), (151, 311)]

    def test_compaction_may_leave_a_gap_before_an_open_transaction(self, cluster: Cluster) -> None:
        """Nothing of the range may be read any more. The open transaction's batch, which is not delivered, shows it."""
        fetches = replace(EMPTY, last_stable_offset=150), records((150, 180))
        assert not cluster.read(*fetches, range_=replace(RANGE, end=150), fetch_max_bytes=5_000, **OF_COMMITTED)
        asked = [(each.isolation_level, each.max_bytes, each.offset) for each in cluster.requests()]
        assert asked == [(COMMITTED, 5_000, 100), (UNCOMMITTED, 1, 100), (UNCOMMITTED, 16 * 1024 + 61, 99)]

    @pytest.mark.parametrize("level", list(IsolationLevel))
    @pytest.mark.parametrize("empty_answers", [1, 2, 3, 7])
    def test_an_answer_without_records_is_no_gap(
        self, cluster: Cluster, level: IsolationLevel, empty_answers: int
    ) -> None:
        """A leader whose remote storage is slow, or throttled, answers so: with the end of the log and nothing else."""
        there = [lambda request: records((request.offset, 199))] * 3
        assert cluster.read(*[EMPTY] * empty_answers, *there, isolation_level=level) == ALL
        assert any(request.max_bytes == 1 for request in cluster.requests()) == (level is COMMITTED)

    @pytest.mark.parametrize("more", [b"", batch(100, 150)[:40]], ids=["none", "cut off"])
    def test_only_a_whole_batch_shows_a_gap(self, cluster: Cluster, more: bytes) -> None:
        fetches = EMPTY, replace(EMPTY, records=memoryview(more)), WHOLE
        assert cluster.read(*fetches, isolation_level=COMMITTED) == ALL

    def test_a_log_that_does_not_go_back_to_before_a_gap_is_no_loss(self, cluster: Cluster) -> None:
        assert cluster.read(records((150, 199)), 1, *[records((150, 199))] * 6) == [(100, 200)]
        assert not cluster.requests(apis.ListOffsetsRequest)

    def test_the_last_batch_may_be_cut_off(self, cluster: Cluster) -> None:
        assert (cluster.read(range_=replace(RANGE, end=100)), cluster.requests()) == ([], [])
        fetches = records((100, 150), more=batch(151, 180)[:40]), records((151, 199))
        assert cluster.read(*fetches) == [(100, 151), (151, 200)]

    def test_one_record_set_waits_while_another_is_used(self, cluster: Cluster) -> None:
        """So two are in memory at most."""
        cluster.begin(records((100, 110)), records((111, 120)), records((121, 199)))
        cluster.turn_until(apis.FetchRequest)
        for _ in range(5):
            cluster.fetcher.handle(cluster.poll(cluster.fetcher.run_once(0)), 0)
        assert len(cluster.requests()) == 1
        assert cluster.fetcher.take(0) is not None
        cluster.fetcher.run_once(0)
        assert len(cluster.requests()) == 2

    def test_one_request_is_under_way(self, cluster: Cluster) -> None:
        cluster.held = {apis.FetchRequest}
        cluster.begin(WHOLE)
        cluster.go_on(until=lambda: cluster.now_ms > 10_000)
        assert len(cluster.requests()) == 1
        cluster.held = set()
        assert cluster.go_on() == ALL
        cluster.fetcher.run_once(cluster.now_ms)
        assert len(cluster.requests()) == 1

    def test_nothing_is_asked_after_a_failure(self, cluster: Cluster) -> None:
        failure = cluster.fails(TopicAuthorizationFailed, 29)
        assert (failure.topic, failure.operation) == ("orders", "READ")
        assert (cluster.fetcher.run_once(cluster.now_ms + 200_000), len(cluster.requests())) == (0, 1)
        assert cluster.fetcher.failure is failure

    def test_isolation_level_and_aborted_transactions(self, cluster: Cluster) -> None:
        response = replace(WHOLE, aborted_transactions=((5, 100),))  # type: ignore[arg-type]
        cluster.begin(response, isolation_level=COMMITTED)
        cluster.turn_until(apis.FetchRequest)
        record_set = cluster.fetcher.take(0)
        assert record_set is not None
        assert record_set.aborted_transactions == ((5, 100),)
        assert cluster.requests()[0].isolation_level is COMMITTED

    @pytest.mark.parametrize(("response", "reason"), [
        (records(more=batch(100, 150)[:40]), "the answer has no whole batch"),
        (records((80, 90)), "it ends before offset 91"),
        (records((80, 99)), "it ends before offset 100"),
    ], ids=["cut", "before", "just before"])  # fmt: skip
    def test_an_answer_that_goes_no_further_is_damage(
        self, cluster: Cluster, response: apis.FetchResponse, reason: str
    ) -> None:
        failure = cluster.fails(RecordsCorrupt, response)
        assert (failure.topic, failure.partition, failure.offset, failure.reason) == ("orders", 2, 100, reason)

    @settings(max_examples=examples(200), deadline=None)
    @given(logs(), st.lists(st.sampled_from(TROUBLES), max_size=20), st.sampled_from(IsolationLevel))
    def test_every_batch_is_handed_over_once_whatever_fails(
        self, log: list[tuple[int, int]], troubles: list[Any], level: IsolationLevel
    ) -> None:
        def answer(request: apis.FetchRequest) -> Any:
            if troubles and (trouble := troubles.pop()) is not None:
                return trouble
            return records(*[each for each in log if each[1] >= request.offset][: 1 if request.max_bytes == 1 else 2])

        cluster = Cluster()
        taken = cluster.read(*[answer] * 500, isolation_level=level, client_rack="a")
        assert not cluster.fetcher.losses
        wanted = [(max(100, first), last + 1) for first, last in log if last >= 100 and first < 200]
        assert all(end <= start for (_, end), (start, _) in pairwise(taken))
        assert all(any(start <= first and last <= end for start, end in taken) for first, last in wanted)


NEED_METADATA = [6, 74, 75, 3, 100, 103, 9, 5, 56]


class TestErrors:
    @pytest.mark.parametrize("code", [*NEED_METADATA, 78, -1, 7])
    def test_that_pass(self, cluster: Cluster, code: int) -> None:
        assert cluster.read(cluster.then(code, leader=2), WHOLE) == ALL
        assert cluster.now_ms > 0  # it has backed off
        assert cluster.nodes()[-1] == (2 if code in NEED_METADATA else 1)

    def test_one_that_always_breaks_is_named(self, cluster: Cluster) -> None:
        assert "Last: broker 1: cut." in str(cluster.fails(ReadStalled, *[HANG_UP] * 1_000))

    def test_metadata_that_does_not_come_is_asked_for_again(self, cluster: Cluster) -> None:
        cluster.script(apis.MetadataRequest, HANG_UP, HANG_UP)
        assert (cluster.read(WHOLE), len(cluster.requests(apis.MetadataRequest))) == (ALL, 3)
        assert cluster.network.known == {1, 2, 3}

    @pytest.mark.parametrize(("before", "after", "metadata"), [
        pytest.param({"held": {apis.MetadataRequest}}, {"held": set()}, 1, id="metadata is asked for once"),
        pytest.param({"connecting": {1, 2, 3}}, {"connecting": set()}, 0, id="metadata waits for a connection"),
        pytest.param({"connecting": {1}}, {"connecting": set()}, 1, id="so does a fetch"),
        pytest.param({"down": {1}, "last_error": REFUSED}, {"leader": 2}, 5, id="the leader is down"),
        pytest.param({"leader_epoch": 6}, {"leader_epoch": 7}, 5, id="an older epoch than the range's is not believed"),
    ])  # fmt: skip
    def test_a_fetch_waits_for_what_it_needs(
        self, cluster: Cluster, before: dict[str, Any], after: dict[str, Any], metadata: int
    ) -> None:
        cluster.change(**before)
        cluster.begin(WHOLE)
        cluster.go_on(until=lambda: cluster.now_ms > 3_000)
        assert not cluster.requests()
        assert (len(cluster.requests(apis.MetadataRequest)) == metadata) == (metadata < 5)
        cluster.change(**after)
        assert cluster.go_on() == ALL

    @pytest.mark.parametrize(("code", "refreshes"), [(78, False), (6, True)])
    def test_the_first_retry_comes_soon(self, cluster: Cluster, code: int, refreshes: bool) -> None:
        """And the next ones later."""
        cluster.read(records((100, 149)), code, records((150, 179)), code, records((180, 199)))
        assert 2 * 80 <= (began_ms := cluster.now_ms) <= 2 * 120
        assert (len(cluster.requests(apis.MetadataRequest)) > 1) == refreshes
        cluster.read(code, code, code, WHOLE)
        assert 0.8 * (100 + 200 + 400) <= cluster.now_ms - began_ms <= 1.2 * (100 + 200 + 400)

    @pytest.mark.parametrize(("trouble", "problem"), [
        pytest.param({"topic_error": 17}, "INVALID_TOPIC_EXCEPTION (error 17)", id="of the topic"),
        pytest.param({"down": {1}, "last_error": REFUSED}, f"Last: {REFUSED}.", id="down"),
        pytest.param({"down": {1}}, "Last: broker 1 is not among the brokers of the cluster.", id="unknown"),
        pytest.param({"down": {1, 2, 3}, "last_error": REFUSED}, f"Last: {REFUSED}.", id="all are down"),
        pytest.param({"leader": -1}, "no leader", id="no leader"),
        pytest.param({"leader_epoch": 6}, "brokers know leader epoch 6, older than 7 of the range", id="old epoch"),
    ])  # fmt: skip
    def test_what_stays_is_named(self, cluster: Cluster, trouble: dict[str, Any], problem: str) -> None:
        cluster.change(**trouble)
        assert problem in str(cluster.fails(KafkaSinkError))
        assert len(cluster.requests(apis.MetadataRequest)) < 300

    @pytest.mark.parametrize(
        ("code", "name"), [(2, "CORRUPT_MESSAGE"), (76, "UNSUPPORTED_COMPRESSION_TYPE"), (999, "")]
    )
    def test_that_no_retry_helps_against(self, cluster: Cluster, code: int, name: str) -> None:
        failure = cluster.fails(FetchRefused, code)
        assert (failure.offset, failure.code) == (100, code)
        assert name in failure.name


class TestOutOfRange:
    def test_deleted_records_are_a_loss(self, cluster: Cluster) -> None:
        cluster.ends(150, 500)
        assert cluster.loses(1) == (100, 150, LossCause.DELETED)
        times = [request.asked[0].timestamp_ms for request in cluster.requests(apis.ListOffsetsRequest)]
        assert times == [apis.EARLIEST, apis.LATEST]
        # Whether it is still the same topic.
        assert len(cluster.requests(apis.MetadataRequest)) == 2

    @pytest.mark.parametrize(("earliest", "taken"), [(150, [(150, 200)]), (300, [])])
    def test_what_is_there_is_read_if_the_user_says_so(self, cluster: Cluster, earliest: int, taken: list[Any]) -> None:
        cluster.ends(earliest, 500)
        loss = Loss(100, min(earliest, 200), LossCause.DELETED)
        assert cluster.reads_on(1, records((150, 199))) == (taken, [loss])

    def test_a_log_that_ends_before_is_truncated(self, cluster: Cluster) -> None:
        """There is nothing more to read."""
        cluster.ends(0, 50, 50)
        assert cluster.loses(1) == (100, 200, TRUNCATED)
        cluster.ends(0, 50, 50)
        assert cluster.reads_on(1) == ([], [Loss(100, 200, TRUNCATED)])

    def test_a_truncation_is_told_from_where_the_log_ends(self, cluster: Cluster) -> None:
        """Other records may stand there soon, at offsets that were handed over before."""
        cluster.ends(0, 120, 130)
        assert cluster.reads_on(records((100, 149)), 1) == ([(100, 150)], [Loss(120, 200, TRUNCATED)])

    def test_a_bound_that_cannot_be_is_asked_for_again(self, cluster: Cluster) -> None:
        cluster.ends(-1, 0, 500)
        assert cluster.read(1, WHOLE) == ALL
        # One pause for each of the two, the second longer; and metadata that may be newer.
        assert cluster.now_ms >= 0.8 * (100 + 200)
        assert len(cluster.requests(apis.MetadataRequest)) == 3

    @pytest.mark.parametrize("fail_on_data_loss", [True, False])
    def test_a_leader_that_contradicts_itself_is_asked_ever_more_rarely(
        self, cluster: Cluster, fail_on_data_loss: bool
    ) -> None:
        failure = cluster.fails(ReadStalled, *[1] * 1_000, poll_timeout_ms=60_000, fail_on_data_loss=fail_on_data_loss)
        assert "OFFSET_OUT_OF_RANGE (error 1)" in str(failure)
        assert len(cluster.requests()) < 80

    @given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
    def test_why_a_position_is_out_of_range(self, position: int, earliest: int, length: int) -> None:
        latest = earliest + length
        cause = after_out_of_range(position, earliest, latest)
        assert (cause is None) == (earliest <= position <= latest)
        assert (cause is LossCause.DELETED) == (position < earliest)


def epochs_asked(cluster: Cluster) -> list[tuple[int, int]]:
    """The epoch of the leader that is asked, and the one whose end is asked for."""
    asked = cluster.requests(apis.OffsetForLeaderEpochRequest)
    return [(request.current_leader_epoch, request.leader_epoch) for request in asked]


class TestEpochs:
    def test_a_new_leader_is_asked_for_the_end_of_the_ranges_epoch(self, cluster: Cluster) -> None:
        cluster.leader_epoch = 9
        assert cluster.read(WHOLE) == ALL
        (asked,) = cluster.asked(apis.OffsetForLeaderEpochRequest)
        assert asked == (1, apis.OffsetForLeaderEpochRequest("orders", 2, 9, 7))
        assert cluster.requests()[0].leader_epoch == 9

    @pytest.mark.parametrize(("epoch", "known", "asked"), [
        pytest.param(7, {"record_epoch": 4}, [], id="the leader of the plan has not changed"),
        pytest.param(9, {"record_epoch": 4}, [(9, 4)], id="the leader of the time may have written nothing"),
        pytest.param(1, {"leader_epoch": 0}, [(1, 0)], id="the first epoch is one, too"),
        pytest.param(9, {"leader_epoch": -1}, [], id="an unknown epoch is not checked"),
    ])  # fmt: skip
    def test_that_is_the_epoch_of_the_ranges_last_record(
        self, cluster: Cluster, epoch: int, known: dict[str, Any], asked: list[tuple[int, int]]
    ) -> None:
        cluster.leader_epoch = epoch
        assert cluster.read(WHOLE, range_=replace(RANGE, **known)) == ALL
        assert epochs_asked(cluster) == asked

    @pytest.mark.parametrize(
        ("epoch", "end_offset", "parts"), [(4, 500, None), (3, 500, 150), (3, 120, 120), (4, 120, 120)]
    )
    def test_a_leader_without_a_record_of_the_epoch_has_lost_its_records(
        self, cluster: Cluster, epoch: int, end_offset: int, parts: int | None
    ) -> None:
        cluster.leader_epoch = 9
        cluster.epoch_ends((epoch, end_offset))
        range_ = replace(RANGE, record_epoch=4, record_start=150)
        if parts is None:
            assert cluster.read(WHOLE, range_=range_) == ALL
        else:
            assert cluster.loses(WHOLE, range_=range_) == (parts, 200, TRUNCATED)

    def test_a_leader_that_a_broker_names_is_asked_at_once(self, cluster: Cluster) -> None:
        """First for the end of the range's epoch, as any new leader."""
        moved = apis.FetchResponse(0, 6, leader=apis.NamedLeader(2, 8, apis.Broker(2, "host2", 9092)))
        assert cluster.read(cluster.then(moved, leader=2), WHOLE) == ALL
        assert (cluster.nodes(), epochs_asked(cluster)) == ([1, 2], [(8, 7)])
        assert cluster.now_ms < 80

    @pytest.mark.parametrize("leader", [
        pytest.param(apis.NamedLeader(2, 7), id="of the same epoch"),
        pytest.param(apis.NamedLeader(2, 3), id="of an older epoch"),
        pytest.param(apis.NamedLeader(9, 8), id="at no address"),
    ])  # fmt: skip
    def test_a_leader_named_wrongly_is_not_asked(self, cluster: Cluster, leader: apis.NamedLeader) -> None:
        assert cluster.read(apis.FetchResponse(0, 6, leader=leader), WHOLE) == ALL
        assert cluster.nodes() == [1, 1]
        assert cluster.now_ms >= 80

    def test_brokers_that_name_each_other_are_asked_ever_more_rarely(self, cluster: Cluster) -> None:
        def moved(request: apis.FetchRequest) -> apis.FetchResponse:
            other = 3 - cluster.asked(apis.FetchRequest)[-1][0]
            return apis.FetchResponse(0, 6, leader=apis.NamedLeader(other, request.leader_epoch + 1))

        cluster.fails(ReadStalled, *[moved] * 1_000, poll_timeout_ms=60_000)
        assert len(cluster.requests()) < 200

    def test_once_for_each_epoch(self, cluster: Cluster) -> None:
        fenced = [cluster.then(74, leader=2, leader_epoch=epoch) for epoch in (8, 9)]
        taken = cluster.read(records((100, 149)), fenced[0], 0, fenced[1], records((150, 199)))
        assert taken == [(100, 150), (150, 200)]
        assert [current for current, _ in epochs_asked(cluster)] == [8, 9]

    @pytest.mark.parametrize("end_offset", [199, 120, 0, -1])
    def test_a_truncated_log_is_a_loss(self, cluster: Cluster, end_offset: int) -> None:
        cluster.leader_epoch = 8
        cluster.epoch_ends((6, end_offset))
        assert cluster.loses() == (max(100, end_offset), 200, TRUNCATED)
        assert not cluster.requests()

    def test_the_rest_of_it_is_read_if_the_user_says_so(self, cluster: Cluster) -> None:
        cluster.leader_epoch = 8
        cluster.epoch_ends((6, 150))
        cluster.ends(160)
        found = cluster.reads_on(records((100, 159)), isolation_level=COMMITTED)
        assert found == ([(100, 160)], [Loss(150, 200, TRUNCATED)])
        # As far as it may be read: an open transaction may never end.
        (asked,) = cluster.requests(apis.ListOffsetsRequest)
        assert (asked.asked[0].timestamp_ms, asked.isolation_level) == (apis.LATEST, COMMITTED)

    @pytest.mark.parametrize("fail_on_data_loss", [True, False])
    def test_a_truncation_is_told_from_where_the_logs_part(self, cluster: Cluster, fail_on_data_loss: bool) -> None:
        cluster.epoch_ends((7, 120))
        fetches = records((100, 149)), cluster.then(74, leader_epoch=8), records((150, 199))
        if fail_on_data_loss:
            assert cluster.loses(*fetches) == (120, 200, TRUNCATED)
        else:
            assert cluster.reads_on(*fetches) == ([(100, 150), (150, 200)], [Loss(120, 200, TRUNCATED)])

    @pytest.mark.parametrize(("reads_replacements", "end"), [(True, 200), (False, 120)])
    def test_what_replaced_lost_records_may_be_for_another_range(
        self, cluster: Cluster, reads_replacements: bool, end: int
    ) -> None:
        """One answer may have records of both."""
        cluster.leader_epoch = 8
        cluster.epoch_ends((7, 120))
        cluster.begin(records((100, 119), (120, 199)), fail_on_data_loss=False, reads_replacements=reads_replacements)
        cluster.turn_until(apis.FetchRequest)
        cluster.fetcher.handle(cluster.poll(0), cluster.now_ms)
        record_set = cluster.fetcher.take(cluster.now_ms)
        assert record_set is not None
        assert (record_set.offset, record_set.end, record_set.next_offset) == (100, end, end)
        assert cluster.fetcher.is_done
        assert cluster.fetcher.losses == [Loss(120, 200, TRUNCATED)]

    def test_a_truncation_may_take_the_end_of_a_transaction(self, cluster: Cluster) -> None:
        """Then its records, before where the logs part, may not be read any more."""
        cluster.leader_epoch = 8
        cluster.epoch_ends((7, 150))
        cluster.ends(140)
        found = cluster.reads_on(records((100, 139)), isolation_level=COMMITTED)
        assert found == ([(100, 140)], [Loss(140, 200, TRUNCATED)])

    def test_what_was_told_once_is_not_told_again(self, cluster: Cluster) -> None:
        """From then on the range is of the new log: the next leader is asked for the end of the new epoch."""
        cluster.leader_epoch = 8
        cluster.epoch_ends((7, 150), (8, 160))
        cluster.ends(160)
        fetches = records((100, 129)), cluster.then(74, leader_epoch=9), records((130, 159))
        assert cluster.reads_on(*fetches) == ([(100, 130), (130, 160)], [Loss(150, 200, TRUNCATED)])
        assert epochs_asked(cluster) == [(8, 7), (9, 8)]

    def test_nor_if_yet_another_leads_before_the_end_is_known(self, cluster: Cluster) -> None:
        cluster.leader_epoch = 8
        cluster.epoch_ends((7, 150))
        cluster.script(apis.ListOffsetsRequest, cluster.then(74, leader_epoch=9))
        cluster.ends(160)
        assert cluster.reads_on(records((100, 159))) == ([(100, 160)], [Loss(150, 200, TRUNCATED)])
        assert len(epochs_asked(cluster)) == 1

    def test_a_broker_that_does_not_tell_does_not_stop_a_replica_from_being_read(self, cluster: Cluster) -> None:
        cluster.leader_epoch, cluster.spoken = 9, lambda request: None
        assert (cluster.read(nearer(2), WHOLE, client_rack="a"), cluster.nodes()) == (ALL, [1, 2])


GONE = [{"topic_id": OTHER}, {"topic_error": 3}]


class TestTopics:
    @pytest.mark.parametrize(("change", "partition", "cause"), [
        pytest.param({"topic_id": OTHER}, 2, LossCause.TOPIC_RECREATED, id="made again"),
        pytest.param({"topic_error": 3}, 2, LossCause.TOPIC_DELETED, id="deleted"),
        pytest.param({"topic_id": None}, 3, LossCause.TOPIC_DELETED, id="made again with fewer partitions, no ids"),
    ])  # fmt: skip
    def test_made_again(self, cluster: Cluster, change: dict[str, Any], partition: int, cause: LossCause) -> None:
        """It is believed after a while."""
        cluster.change(**change)
        assert cluster.loses(range_=replace(RANGE, partition=partition)) == (100, 200, cause)
        assert not cluster.requests()
        assert ABSENT_PATIENCE_MS <= cluster.now_ms < 2 * ABSENT_PATIENCE_MS

    def test_a_broker_that_still_knows_the_topic_before_is_no_loss(self, cluster: Cluster) -> None:
        """The topic was made again before the range was planned, and one broker lags."""
        cluster.topic_id = OTHER
        cluster.begin(WHOLE)
        cluster.go_on(until=lambda: cluster.now_ms > ABSENT_PATIENCE_MS - 1_000)
        assert not cluster.requests()
        cluster.topic_id = ORDERS
        assert cluster.go_on() == ALL

    def test_a_broker_that_has_just_started_is_no_proof(self, cluster: Cluster) -> None:
        """It lists no brokers, and knows no topic."""
        cluster.topic_error, cluster.lists_brokers = 3, False
        cluster.begin(WHOLE)
        cluster.go_on(until=lambda: cluster.now_ms > 3 * ABSENT_PATIENCE_MS)
        assert cluster.fetcher.failure is None
        cluster.topic_error, cluster.lists_brokers = 0, True
        assert cluster.go_on() == ALL

    @pytest.mark.parametrize("change", GONE)
    def test_one_answer_is_no_proof_however_long_the_caller_pauses(
        self, cluster: Cluster, change: dict[str, Any]
    ) -> None:
        """A broker that has just started answers once without the topic. Then the caller works for a minute."""
        cluster.begin(records((100, 149)), cluster.then(6, **change), records((150, 199)))
        cluster.turn_until(apis.FetchRequest)
        assert cluster.fetcher.take(0) is not None
        cluster.turn_until(apis.MetadataRequest, 2)
        answers = cluster.poll(0)
        cluster.now_ms += 60_000
        cluster.change(topic_id=ORDERS, topic_error=0)
        cluster.fetcher.handle(answers, cluster.now_ms)
        assert cluster.go_on() == [(150, 200)]

    def test_a_leader_that_hands_out_records_knows_the_topic(self, cluster: Cluster) -> None:
        """However often another broker says that there is none."""
        slowly = cluster.then(following(10), after_ms=2_000)
        assert cluster.read(cluster.then(6, topic_error=3), *[slowly] * 20)[-1] == (190, 200)
        assert len(cluster.requests(apis.MetadataRequest)) > 3

    def test_an_answer_that_is_read_late_confirms_nothing(self, cluster: Cluster) -> None:
        """It was on its way while the caller paused."""
        cluster.begin(cluster.then(6, topic_error=3), *[lambda _: 78 if cluster.held else WHOLE] * 50)
        cluster.turn_until(apis.MetadataRequest, 2)
        cluster.held = {apis.MetadataRequest}
        cluster.turn_until(apis.MetadataRequest, 3)
        cluster.now_ms += 60_000
        cluster.held = set()
        late = cluster.poll(0)
        cluster.fetcher.handle(late, cluster.now_ms)
        assert any(isinstance(answer.request, apis.MetadataRequest) for answer in late)
        cluster.topic_error = 0
        assert cluster.go_on() == ALL

    def test_that_may_not_be_described(self, cluster: Cluster) -> None:
        cluster.topic_error = 29
        cluster.fails(TopicAuthorizationFailed)
        assert cluster.now_ms < 1_000

    @pytest.mark.parametrize("change", GONE)
    def test_no_failure_if_the_user_says_so(self, cluster: Cluster, change: dict[str, Any]) -> None:
        cluster.change(**change)
        taken, (loss,) = cluster.reads_on()
        assert (taken, loss.first, loss.end) == ([], 100, 200)

    def test_made_again_in_the_middle(self, cluster: Cluster) -> None:
        recreated = cluster.then(100, topic_id=OTHER, leader_epoch=0)
        assert cluster.loses(records((100, 149)), recreated) == (150, 200, LossCause.TOPIC_RECREATED)


def nearer(replica: int) -> apis.FetchResponse:
    """The leader names a replica, without records, although there are some."""
    return replace(EMPTY, preferred_read_replica=replica)


class TestReplicas:
    def test_the_leader_names_a_nearer_one(self, cluster: Cluster) -> None:
        fetches = nearer(2), records((100, 149)), records((150, 199))
        assert cluster.read(*fetches, client_rack="a") == [(100, 150), (150, 200)]
        assert (cluster.nodes(), cluster.now_ms) == ([1, 2, 2], 0)

    def test_it_is_asked_for_anew_after_a_while(self, cluster: Cluster) -> None:
        later = cluster.then(records((100, 149)), after_ms=400)
        cluster.read(nearer(2), later, nearer(2), records((150, 199)), metadata_max_age_ms=300)
        assert cluster.nodes() == [1, 2, 1, 2]

    @pytest.mark.parametrize("trouble", [1, 6, 9, HANG_UP])
    def test_in_trouble_the_leader_is_asked(self, cluster: Cluster, trouble: Any) -> None:
        """A replica that lags may know less than the leader: its out of range is no loss."""
        assert (cluster.read(nearer(2), trouble, WHOLE), cluster.nodes()) == (ALL, [1, 2, 1])
        assert not cluster.requests(apis.ListOffsetsRequest)

    def test_that_the_leader_has_what_a_compacted_one_has_not_is_no_damage(self, cluster: Cluster) -> None:
        compacted, whole = records((100, 109), (150, 199)), records((140, 149), (150, 199))
        assert cluster.read(nearer(2), compacted, HANG_UP, whole) == [(100, 200)]
        assert cluster.nodes() == [1, 2, 2, 1]
        cluster.fails(RecordsCorrupt, compacted, whole)

    def test_a_replica_in_trouble_is_left_alone(self, cluster: Cluster) -> None:
        """This client does not reach it, and the leader does not know."""
        cluster.down = {2}
        prefers = [lambda request: nearer(2) if request.rack_id else following(10)(request)] * 50
        assert cluster.read(*prefers, client_rack="a")[-1] == (190, 200)
        assert cluster.now_ms < 5_000
        assert [request.rack_id for request in cluster.requests()] == ["a", *[""] * 10]

    def test_for_a_while(self, cluster: Cluster) -> None:
        later = cluster.then(following(50), after_ms=400)
        cluster.read(nearer(2), HANG_UP, later, later, client_rack="a", metadata_max_age_ms=300)
        assert [request.rack_id for request in cluster.requests()] == ["a", "a", "", "a"]

    def test_a_replica_that_names_another_is_not_believed(self, cluster: Cluster) -> None:
        cluster.fails(ReadStalled, nearer(2), *[nearer(1)] * 300, poll_timeout_ms=10_000)
        assert (cluster.nodes()[0], set(cluster.nodes()[1:])) == (1, {2})

    @pytest.mark.parametrize("named", [1, 2], ids=["the leader itself", "a replica"])
    def test_records_that_come_with_a_name_count(self, cluster: Cluster, named: int) -> None:
        fetches = replace(records((100, 149)), preferred_read_replica=named), records((150, 199))
        assert cluster.read(*fetches, client_rack="a") == [(100, 150), (150, 200)]
        assert cluster.nodes() == [1, named]

    @pytest.mark.parametrize("fenced", [False, True], ids=["without an error: metadata was due", "fenced"])
    def test_a_new_epoch_is_checked_with_the_leader(self, cluster: Cluster, fenced: bool) -> None:
        answer, after_ms = (74, 0) if fenced else (records((100, 149)), 400_000)
        moved = cluster.then(answer, after_ms=after_ms, leader_epoch=8)
        cluster.begin(nearer(2), moved, *[WHOLE if fenced else EMPTY] * 3, metadata_max_age_ms=10**9)
        cluster.go_on(until=lambda: bool(epochs_asked(cluster)))
        assert cluster.nodes(apis.OffsetForLeaderEpochRequest) == [1]

    def test_without_a_leader_none_is_asked(self, cluster: Cluster) -> None:
        cluster.begin(nearer(2), records((100, 149)), metadata_max_age_ms=10**9)
        cluster.turn_until(apis.FetchRequest, 2)
        cluster.change(leader=-1, now_ms=400_000)
        cluster.turn()
        assert cluster.fetcher.take(cluster.now_ms) is not None
        cluster.go_on(until=lambda: cluster.now_ms > 410_000)
        assert len(cluster.requests()) == 2


def waits(cluster: Cluster, answer: apis.FetchResponse) -> Callable[[Any], Any]:
    """As a broker that waits for records for as long as it may."""
    return cluster.then(answer, after_ms=500)


class TestWaiting:
    def test_an_open_transaction(self, cluster: Cluster) -> None:
        fetches = [waits(cluster, LAST_RECORDS_ARE_OPEN)] * 1_000
        failure = cluster.fails(ReadStalled, *fetches, poll_timeout_ms=10_000, isolation_level=COMMITTED)
        assert (failure.offset, failure.end, failure.waited_ms) == (100, 200, 10_000)
        assert AN_OPEN_TRANSACTION in str(failure)
        assert 10_000 <= cluster.now_ms < 11_000
        assert {request.isolation_level for request in cluster.requests()} == {COMMITTED}

    @pytest.mark.parametrize(("first", "then", "words", "changed"), [
        pytest.param(6, LAST_RECORDS_ARE_OPEN, AN_OPEN_TRANSACTION, OF_COMMITTED, id="an error that is over"),
        # Its answer has no partition, and tells no end of the log.
        pytest.param(LAST_RECORDS_ARE_OPEN, THROTTLED, AN_OPEN_TRANSACTION, OF_COMMITTED, id="a throttle"),
        pytest.param(0, SHORT, "The partition ends at offset 100.", {}, id="a log that is short"),
        pytest.param(NOTHING, NOTHING, "The partition ends at offset 0.", {"range_": replace(RANGE, first=0)}),
    ])  # fmt: skip
    def test_nothing_else_hides_why(
        self, cluster: Cluster, first: Any, then: apis.FetchResponse, words: str, changed: dict[str, Any]
    ) -> None:
        cluster.network.last_error = REFUSED
        assert words in str(cluster.fails(ReadStalled, first, *[then] * 1_000, poll_timeout_ms=10_000, **changed))

    @pytest.mark.parametrize("level", list(IsolationLevel))
    def test_records_that_are_withheld(self, cluster: Cluster, level: IsolationLevel) -> None:
        """No transaction is to blame: a reader of uncommitted records reads on behind the last stable offset."""
        answers = [replace(EMPTY, last_stable_offset=500 if level else 50)] * 1_000
        failure = cluster.fails(ReadStalled, *answers, poll_timeout_ms=10_000, isolation_level=level)
        assert "the broker hands out none, although the log goes to offset 500" in str(failure)
        assert "transaction" not in str(failure)

    def test_answers_without_records_are_not_asked_for_faster_than_errors(self, cluster: Cluster) -> None:
        """A broker that waits for records is asked again at once. With fetch.max.wait.ms of 0 they come at once."""
        assert cluster.read(waits(cluster, apis.FetchResponse(0, 0, 100, 100, 0)), WHOLE) == ALL
        assert (cluster.now_ms, len(cluster.requests())) == (500, 2)
        cluster.fails(ReadStalled, poll_timeout_ms=10_000, fetch_max_wait_ms=0)
        assert 50 < len(cluster.requests()) < 110

    @pytest.mark.parametrize("times", [19, 1_000])
    def test_a_quota_that_lets_nothing_through_ends_a_read(self, cluster: Cluster, times: int) -> None:
        """Up to then, time in which a broker throttles does not count."""

        def throttles(_: apis.FetchRequest) -> apis.FetchResponse:
            cluster.now_ms += 5_000
            cluster.throttled[1] = (0, cluster.now_ms)
            return apis.FetchResponse(5_000, 0)

        if times == 19:
            assert cluster.read(*[throttles] * times, WHOLE, poll_timeout_ms=10_000) == ALL
        else:
            failure = cluster.fails(ReadStalled, *[throttles] * times, poll_timeout_ms=10_000)
            assert failure.throttled_ms == 100_000
            assert "consumer_byte_rate" in str(failure)

    def test_time_that_the_caller_takes_does_not_count(self, cluster: Cluster) -> None:
        cluster.begin(records((100, 149)), records((150, 199)), poll_timeout_ms=10_000)
        # The wait begins, and ends with the first record set.
        assert cluster.fetcher.take(0) is None
        cluster.turn_until(apis.FetchRequest)
        assert cluster.fetcher.take(0) is not None
        cluster.fetcher.run_once(0)
        cluster.now_ms, cluster.held = 1_000_000, {apis.FetchRequest}
        assert cluster.fetcher.take(cluster.now_ms) is None
        cluster.turn()
        cluster.held = set()
        assert cluster.go_on() == [(150, 200)]

    def test_an_answer_that_is_there_counts_however_late_it_is_read(self, cluster: Cluster) -> None:
        """The process was suspended while it waited."""
        cluster.held = {apis.FetchRequest}
        cluster.begin(WHOLE, poll_timeout_ms=10_000)
        cluster.go_on(until=lambda: cluster.now_ms > 3_000)
        assert cluster.fetcher.take(cluster.now_ms) is None
        cluster.now_ms += 1_000_000
        cluster.fetcher.run_once(cluster.now_ms)
        cluster.held = set()
        cluster.fetcher.handle(cluster.poll(0), cluster.now_ms)
        assert cluster.go_on() == ALL

    def test_a_range_may_take_longer_than_a_topic_is_remembered(self, cluster: Cluster) -> None:
        """Metadata forgets a topic that nobody used for max_idle_ms: a range uses its own until it ends."""
        assert cluster.read(*[cluster.then(following(10), after_ms=200_000)] * 10)[-1] == (190, 200)
        assert all(request.topics == ("orders",) for request in cluster.requests(apis.MetadataRequest))
        assert len(cluster.requests(apis.MetadataRequest)) > 3

    def test_an_answer_to_the_range_before_is_left_alone(self, cluster: Cluster) -> None:
        """A range that fails may leave a request unanswered, and the next range has the same connections."""
        cluster.begin(records((100, 150)), WHOLE)
        assert 0 <= cluster.fetcher.run_once(0) <= LONGEST_POLL_MS
        cluster.fetcher.handle(cluster.poll(0), 0)
        cluster.fetcher.run_once(0)
        cluster.begin(range_=replace(RANGE, partition=1))
        left_over = cluster.poll(0)
        assert [type(answer.request) for answer in left_over] == [apis.FetchRequest]
        cluster.fetcher.handle(left_over, 0)
        assert cluster.fetcher.take(0) is None
        assert cluster.go_on() == ALL
