"""Plans of reads, over scripted brokers."""

import json
import logging
import re
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

import apis
from kafka_sink import errors
from kafka_sink.errors import OffsetNotWritten, OffsetsLost, ReadError
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.kept_clients import once
from kafka_sink.spark.reading.plan import Wanted, plan
from kafka_sink.spark.reading.positions import Offsets, clipped
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_reads import ScriptedLog, Spans, Stream, asked, connect_reads, planned, refused_offsets, serve, spans_of

NO_LEADER, DENIED, INVALID_REQUEST, SERVER_ERROR = 6, 29, 42, -1
A, B = uuid.UUID(int=1), uuid.UUID(int=2)

LOGS = {
    ("a", 0): ScriptedLog(10, 50, stable=40, times={10: 1_000, 30: 3_000, 45: 4_500}, leader_epoch=7),
    ("a", 1): ScriptedLog(0, 0),
    ("b", 0): ScriptedLog(0, 100, times={0: 1_000, 99: 1_500}),
}


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, LOGS)
    made.topic_ids = {"a": A, "b": B}
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_reads(kafka, monkeypatch)


def spans(wanted: Wanted | None = None, **options: str) -> Spans:
    return spans_of(planned(wanted, **options))


def said(**topics: dict[int, int] | str) -> str:
    return json.dumps(topics)


@pytest.mark.parametrize(("code", "error", "words"), [
    (INVALID_REQUEST, errors.FetchRefused, "refused to tell its offsets: INVALID_REQUEST"),
    (DENIED, errors.TopicAuthorizationFailed, "READ"),
])  # fmt: skip
def test_a_leader_that_tells_no_offset_is_not_taken_for_an_empty_partition(
    kafka: ScriptedKafka, code: int, error: type[Exception], words: str
) -> None:
    kafka.always(apis.ListOffsetsRequest, refused_offsets(code))
    with pytest.raises(error, match=words):
        planned(subscribe="b")


def test_a_range_knows_the_topics_id_and_the_epoch_of_its_end() -> None:
    assert planned(subscribe="b,a") == [FetchRange("b", B, 0, 0, 100, 0), FetchRange("a", A, 0, 10, 50, 7)]


@pytest.mark.parametrize(("options", "partitions"), [
    ({"subscribe": "a"}, [("a", 0)]), ({"subscribePattern": "[ab]"}, [("a", 0), ("b", 0)]),
    ({"subscribePattern": "a"}, [("a", 0)]), ({"subscribePattern": "a|x"}, [("a", 0)]),
    ({"subscribePattern": "^$"}, []), ({"assign": '{"b": [0], "a": [1]}'}, [("b", 0)]),
])  # fmt: skip
def test_partitions_with_records_are_those_of_the_option(
    options: dict[str, str], partitions: list[tuple[str, int]]
) -> None:
    assert [(topic, number) for topic, number, _, _ in spans(**options)] == partitions


def test_a_pattern_finds_topics_that_may_be_read_or_says_that_there_is_none(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert planned(subscribePattern="orders-.*") == []
    assert "'orders-.*' matches none of the topics" in caplog.text
    kafka.topic_codes["b"] = DENIED
    # Those of Kafka itself are no user's to read by a pattern.
    serve(kafka, LOGS | {("__consumer_offsets", 0): ScriptedLog(0, 5)})
    assert {topic for topic, *_ in spans(subscribePattern=".*")} == {"a"}
    # Anywhere in a name, as Spark's source finds it.
    serve(kafka, {(topic, 0): ScriptedLog(0, 5) for topic in ("orders", "orders-eu", "all-orders", "order")})
    assert {topic for topic, *_ in spans(subscribePattern="orders")} == {"orders", "orders-eu", "all-orders"}
    assert {topic for topic, *_ in spans(subscribePattern="^orders$")} == {"orders"}


@pytest.mark.parametrize("options", [{"subscribe": "a,b"}, {"subscribePattern": "[ab]"}, {"assign": '{"b": [0]}'}])
def test_a_topic_with_an_error_of_the_broker_is_not_left_out(kafka: ScriptedKafka, options: dict[str, str]) -> None:
    kafka.topic_codes["b"] = SERVER_ERROR
    kafka.at.append((kafka.now_ms + 10_000, kafka.topic_codes.clear))
    assert "b" in {topic for topic, *_ in spans(**options)}
    kafka.topic_codes["b"] = SERVER_ERROR
    with pytest.raises(errors.LeaderUnavailable, match=r"b-0 .*UNKNOWN_SERVER_ERROR"):
        planned(**options)
    # A topic that the pattern does not match may have any trouble.
    assert planned(subscribePattern="a")


def test_a_topic_that_was_made_again_is_asked_for_again(kafka: ScriptedKafka) -> None:
    config = asked({"subscribe": "b"})
    with once(AdminClient, config.consumer) as client:
        assert [each.topic_id for each in plan(client, config, Wanted())] == [B]
        kafka.topic_ids["b"] = A
        assert [each.topic_id for each in plan(client, config, Wanted())] == [A]


def test_a_topic_that_is_not_there_is_an_error_that_names_it_and_makes_none(kafka: ScriptedKafka) -> None:
    with pytest.raises(errors.TopicToReadMissing, match=r"'c'.*ACL TOPIC c READ .* principal User:ANONYMOUS"):
        planned(subscribe="a,c")
    assert not any(request.allow_auto_topic_creation for _, request in kafka.asked(apis.MetadataRequest))
    with pytest.raises(errors.TopicToReadMissing, match="'c'"):
        planned(assign='{"c": [0]}')
    with pytest.raises(errors.PartitionToReadMissing, match="'a' has no partition 2: it has 2"):
        planned(assign='{"a": [0, 2]}')


def test_a_missing_acl_is_an_error_with_the_acl_to_add(kafka: ScriptedKafka) -> None:
    kafka.topic_codes["a"] = DENIED
    with pytest.raises(errors.TopicAuthorizationFailed, match="READ"):
        planned(subscribe="a")
    # Brokers that lack a request are told of before that.
    kafka.lacking = ("Fetch 11 (Kafka 2.3), which reads records",)
    with pytest.raises(errors.BrokerUnsupported, match="Fetch 11"):
        planned(subscribe="a")


def test_brokers_and_leaders_that_stay_away_end_the_plan_in_time(kafka: ScriptedKafka) -> None:
    kafka.leaders["a", 0] = -1
    with pytest.raises(errors.LeaderUnavailable, match=r"kafka\.default\.api\.timeout\.ms"):
        planned(subscribe="a", **{"kafka.default.api.timeout.ms": "5000"})
    assert 4_000 <= kafka.now_ms <= 5_000
    kafka.down |= kafka.brokers
    with pytest.raises(errors.BrokersUnreachable):
        planned(subscribe="a", **{"kafka.default.api.timeout.ms": "5000"})


@pytest.mark.parametrize(("options", "first", "end"), [
    ({}, 10, 50), ({"startingOffsets": said(a={0: 20, 1: -2}), "endingOffsets": said(a={0: 30, 1: -1})}, 20, 30),
    ({"startingOffsets": said(a={0: -2, 1: 0}), "endingOffsets": said(a={0: 50, 1: 0})}, 10, 50),
    ({"startingOffsets": said(a="earliest"), "endingOffsets": said(a="latest")}, 10, 50),
    ({"startingTimestamp": "1001"}, 30, 50), ({"startingTimestamp": "1001", "endingTimestamp": "4000"}, 30, 45),
    # Where no record is as new, the partition is read to its end.
    ({"endingTimestamp": "9000"}, 10, 50),
    ({"startingOffsetsByTimestamp": said(a={0: 3_000, 1: 0}), "endingOffsetsByTimestamp": said(a={0: 4_000, 1: 0})},
     30, 45),
])  # fmt: skip
def test_bounds_become_offsets(options: dict[str, str], first: int, end: int) -> None:
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert spans(subscribe="a", **options, **strategy) == [("a", 0, first, end)]


@pytest.mark.parametrize(("name", "text"), [
    ("startingTimestamp", "4600"), ("startingOffsetsByTimestamp", said(a={0: 4_600})),
])  # fmt: skip
def test_a_partition_without_a_record_that_is_as_new_is_an_error_or_is_not_read(name: str, text: str) -> None:
    since = {"assign": '{"a": [0]}', name: text}
    with pytest.raises(errors.NoRecordSince, match=rf"a-0 has no record from time 4600 \({name}\).*Strategy=latest"):
        planned(**since)
    assert planned(**since, startingOffsetsByTimestampStrategy="latest") == []


@pytest.mark.parametrize(("which", "named", "missing"), [
    ("startingOffsets", {"a": {0: 20}}, "a-1 has none$"), ("endingOffsets", {"a": {0: 20}}, "a-1 has none$"),
    ("startingOffsetsByTimestamp", {"a": {1: 20}}, "a-0 has none"),
    ("endingOffsetsByTimestamp", {"b": {0: 20}}, "a-0, a-1 have none; b-0 is not read; the read has a$"),
    ("startingOffsets", {"a": {0: 20, 1: 0, 2: 0}}, "a-2 is not read$"),
    ("startingOffsets", {"b": "earliest"}, "a-0, a-1 have none; b is not read; the read has a$"),
    ("endingOffsets", {"a": {0: 20, 1: 0}, "b": {0: 20}}, "b-0 is not read; the read has a$"),
])  # fmt: skip
def test_an_option_that_goes_by_partition_names_each_of_the_read_and_no_other(
    which: str, named: dict[str, dict[int, int]], missing: str
) -> None:
    with pytest.raises(errors.InvalidOption, match=f"'{which}'") as failure:
        planned(subscribe="a", **{which: json.dumps(named)})
    assert re.search(f"for each partition of the read and no other: {missing}", failure.value.expected)
    assert failure.value.value is not None and failure.value.value.startswith(next(iter(named)))


def test_offsets_that_are_not_there_are_an_error_or_left_out() -> None:
    before = {"assign": '{"a": [0]}', "startingOffsets": said(a={0: 3})}
    with pytest.raises(errors.OffsetsLost, match="offsets 3 to 9 of a-0"):
        planned(**before)
    assert spans(**before, failOnDataLoss="false") == [("a", 0, 10, 50)]
    after = {"assign": '{"a": [0]}', "endingOffsets": said(a={0: 51})}
    with pytest.raises(errors.OffsetNotWritten, match="endingOffsets names offset 51 of a-0, which ends at 50"):
        planned(**after)
    assert spans(**after, failOnDataLoss="false") == [("a", 0, 10, 50)]


@pytest.mark.parametrize(("options", "problem"), [
    ({"startingOffsets": said(a={0: 31}), "endingTimestamp": "3000"},
     "'endingTimestamp' is '3000'; expected nothing before startingOffsets: a-0 would begin at offset 31"),
    ({"startingTimestamp": "4000", "endingOffsets": said(a={0: 30})},
     "'endingOffsets' is 'a-0: 30'; .* startingTimestamp: .* at offset 45 and end at 30"),
    ({"startingOffsets": said(a={0: 50}), "endingOffsetsByTimestamp": said(a={0: 1_000})},
     "'endingOffsetsByTimestamp' is 'a-0: 1000'; .* at offset 50 and end at 10"),
    ({"startingOffsets": said(a={0: 30}), "endingTimestamp": "3000"}, None),
    ({"startingOffsets": said(a={0: 50}), "endingTimestamp": "9000"}, None), ({"endingOffsets": said(a={0: 4})}, None),
    ({"startingTimestamp": "9000", "endingOffsets": said(a={0: 30})}, None),
])  # fmt: skip
@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_partition_that_ends_before_it_begins_is_an_error_and_not_empty(
    options: dict[str, str], problem: str | None, fail_on_data_loss: str
) -> None:
    options = {"assign": '{"a": [0]}', "startingOffsetsByTimestampStrategy": "latest", **options}
    if problem is None:
        assert planned(**options, failOnDataLoss=fail_on_data_loss) == []
    else:
        with pytest.raises(errors.InvalidOption, match=problem):
            planned(**options, failOnDataLoss=fail_on_data_loss)


def test_a_reader_of_committed_records_ends_before_the_first_open_transaction() -> None:
    committed = {"kafka.isolation.level": "read_committed", "assign": '{"a": [0]}'}
    assert spans(**committed) == [("a", 0, 10, 40)]
    assert spans(**committed, endingTimestamp="4000") == [("a", 0, 10, 40)]
    with pytest.raises(errors.OffsetNotWritten, match=r"offset 45 of a-0, which ends at 40.*read_committed"):
        planned(**committed, endingOffsets=said(a={0: 45}))
    assert spans(assign='{"a": [0]}', endingTimestamp="9000") == [("a", 0, 10, 50)]


def test_filters_leave_partitions_and_offsets_out_and_spare_options_no_check(kafka: ScriptedKafka) -> None:
    assert spans(Wanted(topics=frozenset("b")), subscribe="a,b") == [("b", 0, 0, 100)]
    assert spans(Wanted(first_offset=20, end_offset=60), subscribe="a,b") == [("a", 0, 20, 50), ("b", 0, 20, 60)]
    assert spans(Wanted(timestamp_ms=1_400), subscribe="a,b") == [("a", 0, 30, 50), ("b", 0, 99, 100)]
    assert spans(Wanted(timestamp_ms=9_000), subscribe="a,b") == []
    assert spans(Wanted(timestamp_ms=1_400, first_offset=45), subscribe="a") == [("a", 0, 45, 50)]
    before = len(kafka.asked(apis.ListOffsetsRequest))
    assert spans(Wanted(partitions=frozenset()), subscribe="a,b") == []
    assert len(kafka.asked(apis.ListOffsetsRequest)) == before, "nothing is asked of what nobody wants"
    with pytest.raises(errors.InvalidOption, match=r"other: a-1 has none\."):
        planned(Wanted(partitions=frozenset({0})), subscribe="a", startingOffsets=said(a={0: 20}))


def test_partitions_are_divided_among_tasks_and_a_leader_is_asked_for_all_at_once(kafka: ScriptedKafka) -> None:
    assert spans(subscribe="b", minPartitions="4") == [
        ("b", 0, 0, 25), ("b", 0, 25, 50), ("b", 0, 50, 75), ("b", 0, 75, 100),
    ]  # fmt: skip
    assert len(spans(subscribe="b", maxRecordsPerPartition="30")) == 4
    serve(kafka, {("wide", number): ScriptedLog(0, 5) for number in range(300)})
    kafka.topic_ids["wide"] = uuid.UUID(int=3)
    del kafka.received[:]
    assert len(planned(subscribe="wide")) == 300
    assert len(kafka.asked(apis.ListOffsetsRequest)) == 2


HOUR_S, MINUTE_MS = 3_600, 60_000
# A record a minute, of the brokers' last two hours.
NOW_MS = 1_760_000_000_000
TIMES = {offset: NOW_MS - MINUTE_MS * (119 - offset) for offset in range(120)}


@pytest.mark.parametrize("skew_s", [HOUR_S, 0, -HOUR_S])
def test_a_drivers_wrong_clock_changes_nothing(
    kafka: ScriptedKafka, skew_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Timestamps are compared with those of records, and retention is what brokers have deleted."""
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1_000 + skew_s)
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 10**6 + skew_s * 10**9)
    log = ScriptedLog(0, 120, times=TIMES)
    serve(kafka, {("a", 0): log})
    half_an_hour_ago, part = str(NOW_MS - 30 * MINUTE_MS), {"assign": '{"a": [0]}'}
    assert spans(**part, startingTimestamp=half_an_hour_ago) == [("a", 0, 89, 120)]
    assert spans(**part, startingOffsetsByTimestamp=said(a={0: int(half_an_hour_ago)})) == [("a", 0, 89, 120)]
    assert spans(**part, endingTimestamp=half_an_hour_ago) == [("a", 0, 0, 89)]
    # Of a time to come there is no record, whatever our clock says.
    later = {"startingTimestamp": str(NOW_MS + MINUTE_MS), "startingOffsetsByTimestampStrategy": "latest"}
    assert list(Stream(**part, **later).initial().values()) == [120]
    log.earliest, log.times = 60, {offset: at_ms for offset, at_ms in TIMES.items() if offset >= 60}
    # From before what is left, by the brokers' clock.
    for since in ({}, {"startingTimestamp": str(NOW_MS - 90 * MINUTE_MS)}):
        assert spans(**part, **since) == [("a", 0, 60, 120)]
    with pytest.raises(errors.OffsetsLost, match="offsets 0 to 59 of a-0"):
        planned(**part, startingOffsets=said(a={0: 0}))


PARTITION = TopicPartition("orders", 3)


def clip(first: int, end: int, *, fail: bool) -> Offsets:
    return clipped(PARTITION, Offsets(first, end), Offsets(10, 20), fail_on_data_loss=fail)


@pytest.mark.parametrize(("asked", "lost", "left"), [
    ((5, 15), (5, 10), (10, 15)), ((0, 20), (0, 10), (10, 20)), ((3, 7), (3, 7), (10, 10)),
])  # fmt: skip
def test_deleted_offsets_are_lost_and_told_which(
    asked: tuple[int, int], lost: tuple[int, int], left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetsLost, match=rf"offsets {lost[0]} to {lost[1] - 1} of orders-3.*retention") as failure:
        clip(*asked, fail=True)
    assert (failure.value.first, failure.value.end) == lost
    with caplog.at_level(logging.WARNING):
        assert clip(*asked, fail=False) == Offsets(*left)
    (told,) = caplog.messages
    assert told.startswith(f"orders-3 has the offsets 10 to 19, and the read asks for {asked[0]} to {asked[1] - 1}")


@pytest.mark.parametrize(("asked", "option", "left"), [
    ((10, 21), "endingOffsets names offset 21", (10, 20)), ((21, 25), "startingOffsets names offset 21", (20, 20)),
    ((25, 20), "startingOffsets names offset 25", (20, 20)),
])  # fmt: skip
def test_offsets_that_are_not_written_are_told_with_where_the_log_ends(
    asked: tuple[int, int], option: str, left: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(OffsetNotWritten, match=rf"{option} of orders-3, which ends at 20"):
        clip(*asked, fail=True)
    with caplog.at_level(logging.WARNING):
        assert clip(*asked, fail=False) == Offsets(*left)
    assert len(caplog.messages) == 1


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_it_reads_what_is_asked_and_there_or_fails_for_what_is_not(a: int, b: int, c: int, d: int) -> None:
    (first, end), (earliest, latest) = sorted((a, b)), sorted((c, d))
    there, asked = set(range(earliest, latest)), set(range(first, end))
    log = Offsets(earliest, latest)
    found = clipped(PARTITION, Offsets(first, end), log, fail_on_data_loss=False)
    assert set(range(found.first, found.end)) == asked & there
    assert earliest <= found.first <= found.end <= latest
    try:
        strict = clipped(PARTITION, Offsets(first, end), log, fail_on_data_loss=True)
    except ReadError:
        assert asked - there or first > latest
    else:
        assert strict == found
        assert asked <= there
