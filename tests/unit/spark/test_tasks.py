"""Writes through the parts that Spark runs (plan, tasks, commit), over scripted brokers that take the rows."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka.record import MemoryRecords
from pyspark import TaskContext

import apis
from exactly_once_runs import QUERY_ID, in_task, plan
from exchange import Exchange
from kafka_sink import errors
from kafka_sink.commit.stream_name import spelled_name
from kafka_sink.kafka.admin import driver
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.producer.acknowledgements import PackedRuns
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import given_options
from kafka_sink.records.row_identity import BATCH, NAMES, QUERY, SLOT
from kafka_sink.spark import rows
from kafka_sink.spark.task_results import Pace, TaskCommitMessage
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from scripted_kafka import HANG_UP, ScriptedKafka

COMMIT_TOPIC = "pykafka-commits"
# The model takes all rows of a slot in one request, which a machine that is busy would send in two.
ONE_REQUEST = {"kafka.compression.type": "none", "kafka.linger.ms": "60000"}
AT_LEAST_ONCE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", **ONE_REQUEST}
EXACTLY_ONCE = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "orders"}
VERSIONED = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once", "txnAppId": "orders", "txnVersion": "0"}
LETTERS = {"badRows": "deadLetter", "deadLetterTopic": "letters"}
BOTH_KINDS = pytest.mark.parametrize("kind", [KafkaBatchWriter, KafkaStreamWriter])
EVERY_WRITE = pytest.mark.parametrize(("kind", "options"), [
    pytest.param(kind, options, id=f"{name} {kind.__name__}")
    for name, options in (("at-least-once", AT_LEAST_ONCE), ("exactly-once", EXACTLY_ONCE))
    for kind in (KafkaBatchWriter, KafkaStreamWriter)
])  # fmt: skip
pytestmark = pytest.mark.usefixtures("clients")


@pytest.fixture
def kafka(exchange: Exchange, kafka: ScriptedKafka) -> ScriptedKafka:
    made = ScriptedKafka(transactions=exchange.kafka)
    made.leaders = {("t", 0): 1, (COMMIT_TOPIC, 0): 1, (COMMIT_TOPIC, 1): 1}
    made.topic_id = kafka.topic_id
    return made


def without(name: str) -> dict[str, str]:
    """Options of exactly-once that lack one."""
    return {each: value for each, value in EXACTLY_ONCE.items() if each != name}


def stream(options: dict[str, str] = EXACTLY_ONCE, **more: str) -> KafkaStreamWriter:
    return KafkaStreamWriter(given_options(options | more))


def batch(options: dict[str, str] = EXACTLY_ONCE, **more: str) -> KafkaBatchWriter:
    return KafkaBatchWriter(given_options(options | more))


def ids_of(kind: type, micro_batch_id: int = 0) -> tuple[int, ...]:
    """What Spark gives to the commit beside messages."""
    return () if kind is KafkaBatchWriter else (micro_batch_id,)


def batches(*values: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"value": pa.array(each)}) for each in values])


def written(
    planned: KafkaBatchWriter | KafkaStreamWriter, slot: int, *values: Sequence[str], micro_batch_id: int = 0
) -> TaskCommitMessage:
    """What a task sends to the commit. Its rows come in as many Arrow batches as there are `values`."""
    with in_task(slot, micro_batch_id):
        return planned.write(batches(*values))


def micro_batch(planned: KafkaStreamWriter, micro_batch_id: int = 0, last: str = "e") -> list[TaskCommitMessage]:
    """Two tasks with the rows a to e, of which the last one may be another."""
    return [
        written(planned, 0, ["a", "b", "c"], ["d"], micro_batch_id=micro_batch_id),
        written(planned, 1, [last], micro_batch_id=micro_batch_id),
    ]


def test_rows_of_exactly_once_are_seen_when_they_are_committed_and_once(exchange: Exchange, kafka: Any) -> None:
    for micro_batch_id in range(2):
        # Spark makes one for each.
        writer = stream()
        before = list(exchange.kafka.visible)
        receipts = micro_batch(plan(writer), micro_batch_id)
        assert (exchange.kafka.visible, exchange.kafka.holding_back()) == (before, ["orders.0", "orders.1"])
        assert [each.record_count for each in receipts] == [4, 1]
        writer.commit(receipts, micro_batch_id)
        assert exchange.kafka.holding_back() == []
        assert sorted(exchange.kafka.visible) == sorted([*before, *"abcde"])
    # Spark has not noted the commit of the last one, which runs again.
    sent = len(kafka.asked(apis.ProduceRequest))
    writer = stream()
    receipts = micro_batch(plan(writer), 1)
    assert [each.record_count for each in receipts] == [4, 1]
    writer.commit(receipts, 1)
    assert (len(kafka.asked(apis.ProduceRequest)), len(exchange.kafka.visible)) == (sent, 10)


@pytest.mark.parametrize("api", [apis.InitProducerIdRequest, apis.ProduceRequest, apis.TxnOffsetCommitRequest])
def test_connections_that_end_in_a_task_are_made_again(exchange: Exchange, kafka: ScriptedKafka, api: type) -> None:
    writer = stream(**{"kafka.retry.backoff.ms": "1"})
    planned = plan(writer)
    kafka.script(api, HANG_UP)
    writer.commit(micro_batch(planned), 0)
    assert sorted(exchange.kafka.visible) == [*"abcde"]


@pytest.mark.parametrize("changed", [{"last": "other"}, {"topic": "u"}])
def test_a_micro_batch_again_with_other_rows_stops(
    exchange: Exchange, kafka: ScriptedKafka, changed: dict[str, str]
) -> None:
    kafka.leaders["u", 0] = 1
    first = stream()
    first.commit(micro_batch(plan(first)), 0)
    again = stream(topic=changed.get("topic", "t"))
    receipts = micro_batch(plan(again), last=changed.get("last", "e"))
    with pytest.raises(errors.NonDeterministicReplay):
        again.commit(receipts, 0)
    assert sorted(exchange.kafka.visible) == list("abcde")


def test_a_version_is_not_compared_with_another_clusters(kafka: ScriptedKafka) -> None:
    for cluster_id in ("c", "d"):
        planned = plan(batch(VERSIONED))
        receipts = [written(planned, 0, ["a"])]
        if cluster_id == "c":
            planned.commit(receipts)
    kafka.cluster_id = "d"
    with pytest.raises(errors.ClusterChanged):
        planned.commit(receipts)


def test_groups_of_another_cluster_are_not_deleted(exchange: Exchange, kafka: ScriptedKafka) -> None:
    planned = plan(batch())
    receipts = [written(planned, 0, ["a"])]

    def move(request: apis.EndTxnRequest) -> int:
        kafka.cluster_id = "d"
        return 0

    kafka.always(apis.EndTxnRequest, move)
    planned.commit(receipts)
    assert exchange.kafka.visible == ["a"]
    assert kafka.asked(apis.DeleteGroupsRequest) == []


def small(request: apis.TopicConfigsRequest) -> apis.TopicConfigsResponse:
    """Topics that take no row of more than 500 bytes; dead letters' topic does."""
    limits = ((topic, {} if topic == "letters" else {"max.message.bytes": "500"}) for topic in request.topics)
    return apis.TopicConfigsResponse(0, tuple(apis.TopicConfigs(topic, 0, limit) for topic, limit in limits))


def with_letters(kafka: ScriptedKafka) -> None:
    kafka.leaders["letters", 0] = 1
    kafka.topic_ids = {"letters": uuid.uuid4()}
    kafka.always(apis.TopicConfigsRequest, small)


@EVERY_WRITE
def test_a_row_that_its_topic_does_not_take_is_bad(kafka: ScriptedKafka, kind: type, options: dict[str, str]) -> None:
    kafka.always(apis.TopicConfigsRequest, small)
    receipt = written(plan(kind(given_options(options | {"badRows": "drop"}))), 0, ["a", "x" * 1_000, "b"])
    assert receipt.bad_rows.dropped == receipt.statistics.dropped == {"RecordTooLarge": 1}
    assert sum(each.record_count for each in receipt.partitions) == 2
    (asked,) = {request.topics for _, request in kafka.asked(apis.TopicConfigsRequest)}
    assert asked == ("t",)


@EVERY_WRITE
def test_a_task_has_no_connections_beside_those_of_its_producer(
    kafka: ScriptedKafka, kind: type, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins a transaction, asks for topics' settings, and writes rows, dead letters and a marker."""
    with_letters(kafka)
    planned = plan(kind(given_options(options | LETTERS)))
    monkeypatch.setattr(driver, "connect", lambda *given, **settings: pytest.fail("a client of its own"))
    receipt = written(planned, 0, ["a"], ["x" * 1_000, "b"])
    assert {each.topic: each.record_count for each in receipt.partitions} == {"t": 2, "letters": 1}
    assert bool(kafka.asked(apis.TxnOffsetCommitRequest)) == (options is EXACTLY_ONCE)


@EVERY_WRITE
def test_a_commit_refuses_too_many_bad_rows_of_all_tasks(
    exchange: Exchange, kafka: ScriptedKafka, kind: type, options: dict[str, str]
) -> None:
    kafka.always(apis.TopicConfigsRequest, small)
    planned = plan(kind(given_options(options | {"badRows": "drop", "maxBadRows": "1"})))
    receipts = [written(planned, slot, ["a", "x" * 1_000]) for slot in range(2)]
    said = "all other rows of the write are in Kafka", "no row of this attempt is visible"
    with pytest.raises(errors.TooManyBadRows, match=said[options is EXACTLY_ONCE]):
        planned.commit(receipts, *ids_of(kind))
    planned.abort(receipts, *ids_of(kind))
    assert (exchange.kafka.visible, exchange.kafka.holding_back()) == ([], [])


def keep_what_is_sent(kafka: ScriptedKafka) -> list[bytes]:
    """The record batches, from now on."""
    sent: list[bytes] = []

    def keep(request: apis.ProduceRequest) -> int:
        sent.extend(bytes(part.records) for part in request.partitions)
        return 0

    kafka.always(apis.ProduceRequest, keep)
    return sent


def headers_of(sent: list[bytes]) -> list[dict[str, str]]:
    found = (record.headers for records in sent for batch in MemoryRecords(records) for record in batch)
    return [{name: value.decode() for name, value in headers} for headers in found if headers]


@BOTH_KINDS
def test_a_dead_letter_of_exactly_once_names_the_write_that_decides_about_it(kafka: ScriptedKafka, kind: type) -> None:
    """In foreachBatch, too, that is the batch write and not the stream."""
    with_letters(kafka)
    sent = keep_what_is_sent(kafka)
    planned = plan(kind(given_options(EXACTLY_ONCE | LETTERS)))
    receipt = written(planned, 3, ["a", "x" * 1_000], micro_batch_id=7)
    (headers,) = headers_of(sent)
    query_id, micro_batch_id = receipt.prepared.query_id, receipt.micro_batch_id
    assert (query_id, micro_batch_id) == (QUERY_ID, 7) or kind is KafkaBatchWriter
    assert (headers[QUERY], headers[BATCH], headers[SLOT]) == (query_id, str(micro_batch_id), "3")


def test_names_and_timeout_of_the_options_are_those_of_the_transactions(kafka: ScriptedKafka) -> None:
    written(plan(stream(**{"commitTopic": "mine", "kafka.transaction.timeout.ms": "130000"})), 0, ["a"])
    for api in (apis.CreateTopicsRequest, apis.TxnOffsetCommitRequest):
        assert {request.topic for _, request in kafka.asked(api)} == {"mine"}
    begun = {
        (each.transactional_id, each.transaction_timeout_ms) for _, each in kafka.asked(apis.InitProducerIdRequest)
    }
    assert begun >= {("orders.driver", 130_000), ("orders.0", 130_000)}


def test_a_transaction_that_is_almost_too_old_is_no_commit(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka.transaction.timeout.ms is 15 minutes: brokers may abort it while the commit is under way."""
    writer = stream()
    monkeypatch.setattr("kafka_sink.spark.exactly_once.plan.monotonic_ms", lambda: monotonic_ms() - 897_000)
    receipts = micro_batch(plan(writer))
    exchange.kafka.now_ms += 897_000
    with pytest.raises(errors.TransactionTimedOut):
        writer.commit(receipts, 0)
    assert exchange.kafka.visible == []


@BOTH_KINDS
def test_a_sink_without_its_state_goes_on_where_that_is_allowed(exchange: Exchange, tmp_path: Path, kind: type) -> None:
    """Micro-batch or version 5, and nothing is known of one before."""
    options = EXACTLY_ONCE if kind is KafkaStreamWriter else VERSIONED | {"txnVersion": "5"}
    options = options | {"receiptsPath": str(tmp_path)}
    ids = ids_of(kind, 5)
    with pytest.raises(errors.StateExpired):
        planned = plan(kind(given_options(options)))
        planned.commit([written(planned, 0, ["a"], micro_batch_id=5)], *ids)
    planned = plan(kind(given_options(options | {"allowLostState": "true"})))
    receipt = written(planned, 0, ["a"], micro_batch_id=5)
    # Were it the commit alone that notices.
    strict = replace(receipt, plan=replace(receipt.plan, allow_lost_state=False))
    for message in (strict, replace(strict, proof=None)):
        with pytest.raises(errors.StateExpired):
            planned.commit([message], *ids)
    assert (exchange.kafka.visible, list(tmp_path.rglob("*.parquet"))) == ([], [])
    planned.commit([receipt], *ids)
    assert exchange.kafka.visible == ["a"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1


def test_tasks_of_a_sink_whose_groups_were_deleted_write_where_that_is_allowed(exchange: Exchange) -> None:
    first = stream()
    first.commit(micro_batch(plan(first)), 0)
    exchange.kafka.forget_offsets()
    with pytest.raises(errors.StateExpired):
        micro_batch(plan(stream()), 1)
    again = stream(allowLostState="true")
    again.commit(micro_batch(plan(again), 1), 1)
    assert sorted(exchange.kafka.visible) == sorted("abcde" * 2)


def test_a_checkpoint_names_the_only_query_that_may_write(tmp_path: Path) -> None:
    """Not so where the user has named the sink."""
    (tmp_path / "metadata").write_text('{"id": "another"}')
    derived = plan(KafkaStreamWriter(given_options(without("transactionalIdPrefix")), checkpoint=str(tmp_path)))
    with pytest.raises(errors.AnotherCheckpoint):
        written(derived, 0, ["a"])
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "metadata").write_text('{"id": "another"}')
    named = plan(KafkaStreamWriter(given_options(EXACTLY_ONCE), checkpoint=str(tmp_path / "named")))
    assert written(named, 0, ["a"]).record_count == 1


@EVERY_WRITE
def test_a_missing_topic_is_made_where_that_is_asked(kafka: ScriptedKafka, kind: type, options: dict[str, str]) -> None:
    name = f"new-{uuid.uuid4()}"
    receipt = written(plan(kind(given_options(options | {"topic": name, "createTopics": "true"}))), 0, ["a"])
    assert {each.topic for each in receipt.partitions} == {name}
    assert name in {request.topic for _, request in kafka.asked(apis.CreateTopicsRequest)}


def test_a_commit_is_told_where_rows_begin(kafka: ScriptedKafka) -> None:
    """By it the commit knows what a leader has open before them."""
    receipts = micro_batch(plan(stream()))
    # The first task alone brings the plan, which is as large as the number of slots.
    assert [each.plan is not None for each in receipts] == [True, False]
    assert [each.prepared.first_offsets for each in receipts] == [{("t", 0): 0}, {("t", 0): 4}]
    assert [each.prepared.partitions for each in receipts] == [(("t", 0),)] * 2
    assert [each.partitions[0].record_count for each in receipts] == [4, 1]
    assert {each.topic_ids["t"] for each in receipts} == {str(kafka.topic_id)}


@BOTH_KINDS
def test_rows_of_exactly_once_know_whose_they_are_where_that_is_asked(kafka: ScriptedKafka, kind: type) -> None:
    sent = keep_what_is_sent(kafka)
    planned = plan(kind(given_options(EXACTLY_ONCE | {"rowIdentity": "true"})))
    receipt = written(planned, 3, ["a"], ["b"], micro_batch_id=7)
    identities = [tuple(headers[name] for name in NAMES) for headers in headers_of(sent)]
    query_id, batch_id = receipt.prepared.query_id, str(receipt.micro_batch_id)
    assert identities == [("t", query_id, batch_id, "3", row) for row in "01"]
    # In foreachBatch the conf is the stream's, and a batch write is its own.
    assert ((query_id, batch_id) == (QUERY_ID, "7")) is (kind is KafkaStreamWriter)


def test_a_failed_task_leaves_no_marker_and_its_abort_nothing_open(exchange: Exchange, kafka: ScriptedKafka) -> None:
    writer = stream()
    planned = plan(writer)
    first = written(planned, 0, ["a"])
    kafka.always(apis.ProduceRequest, ErrorCode.INVALID_RECORD)
    markers = len(kafka.asked(apis.TxnOffsetCommitRequest))
    with pytest.raises(errors.ProduceRejected):
        written(planned, 1, ["b"])
    assert len(kafka.asked(apis.TxnOffsetCommitRequest)) == markers
    writer.abort([first, None], 0)
    assert (exchange.kafka.visible, exchange.kafka.holding_back()) == ([], [])


@EVERY_WRITE
def test_more_tasks_at_once_than_were_told_are_told_by_the_commit(
    caplog: pytest.LogCaptureFixture, kind: type, options: dict[str, str]
) -> None:
    planned = plan(kind(given_options(options | {"maxRowsPerSecond": "1000000", "rateTasks": "1"})))
    receipts = [written(planned, slot, ["a"]) for slot in range(2)]
    assert all(each.pace is not None and each.pace.rate_tasks == 1 for each in receipts)
    planned.commit([replace(each, pace=Pace(1, 0, 9)) for each in receipts], *ids_of(kind))
    assert "2 tasks of this write wrote at once, and rateTasks is 1" in caplog.text


def test_a_rate_that_outlasts_the_transaction_stops_its_task() -> None:
    """The second row would go 1,000 s after the first, and kafka.transaction.timeout.ms is 15 minutes."""
    with pytest.raises(errors.RateOutlastsTransaction):
        written(plan(stream(maxBytesPerSecond="1", rateTasks="1")), 0, ["x" * 1_000, "y"])


def test_a_guarantee_of_the_conf_alone_is_refused_by_tasks(kafka: ScriptedKafka) -> None:
    conf = {"spark.pykafka.deliveryGuarantee": "exactly-once", "spark.pykafka.transactionalIdPrefix": "orders"}
    planned = plan(batch(AT_LEAST_ONCE))
    with in_task(0, 0), pytest.raises(errors.NotPlanned, match="deliveryGuarantee=exactly-once"):
        TaskContext.get()._localProperties.update(conf)  # type: ignore[union-attr]
        planned.write(batches(["a"]))
    assert kafka.asked(apis.ProduceRequest) == []


@pytest.mark.parametrize("left_out", ["kafka.bootstrap.servers", "transactionalIdPrefix"])
def test_an_abort_of_what_could_not_be_planned_is_silent(kafka: ScriptedKafka, left_out: str) -> None:
    """The plan has already raised an error about the option."""
    receipt = written(plan(stream()), 0, ["a"])
    asked = len(kafka.received)
    stream(without(left_out)).abort([None], 0)
    if left_out == "kafka.bootstrap.servers":
        stream(without(left_out)).abort([receipt], 0)
    assert len(kafka.received) == asked


def test_a_plan_without_brokers_says_that_the_micro_batch_runs_again(kafka: ScriptedKafka) -> None:
    kafka.always(apis.MetadataRequest, HANG_UP)
    with pytest.raises(errors.BrokersUnreachable, match="the micro-batch runs again and is written once"):
        plan(stream())


def test_a_stream_that_began_under_its_earlier_name_keeps_it(exchange: Exchange, tmp_path: Path) -> None:
    """Of a build that named it by the checkpoint's spelling."""
    (tmp_path / "metadata").write_text(f'{{"id": "{QUERY_ID}"}}')
    earlier = spelled_name(str(tmp_path))
    before = stream(transactionalIdPrefix=earlier)
    before.commit([written(plan(before), 0, ["a"])], 0)
    now = KafkaStreamWriter(given_options(without("transactionalIdPrefix")), checkpoint=str(tmp_path))
    assert (written(plan(now), 0, ["a"]).sink_name, exchange.kafka.visible) == (earlier, ["a"])


def test_a_first_micro_batch_is_not_written_again_under_the_name_of_another_spelling(exchange: Exchange) -> None:
    """Only Hadoop's default file system says that both are one checkpoint. Its driver died before Spark recorded it."""

    def run(location: str, value: str, micro_batch_id: int) -> None:
        query = KafkaStreamWriter(given_options(without("transactionalIdPrefix")), checkpoint=location)
        messages = [written(plan(query), 0, [value], micro_batch_id=micro_batch_id)]
        try:
            query.commit(messages, micro_batch_id)
        except errors.KafkaSinkError:
            query.abort(messages, micro_batch_id)
            raise

    run("hdfs://nn/checkpoint", "a", 0)
    for _ in range(2):
        with pytest.raises(errors.AnotherName) as raised:
            run("/checkpoint", "a", 0)
        assert raised.value.found_sink == spelled_name("hdfs://nn/checkpoint")
        assert exchange.kafka.visible == ["a"]
    for micro_batch_id, value in enumerate("ab"):
        run("hdfs://NN:8020//checkpoint/", value, micro_batch_id)
    assert exchange.kafka.visible == ["a", "b"]


def test_a_commit_that_is_unknown_names_the_brokers_in_its_command(kafka: ScriptedKafka) -> None:
    planned = plan(batch())
    receipts = [written(planned, 0, ["a"])]
    kafka.always(apis.EndTxnRequest, HANG_UP)
    with pytest.raises(errors.CoordinatorUnavailable, match=r"repair --bootstrap-servers 127\.0\.0\.1:1 "):
        planned.commit(receipts)


@pytest.mark.parametrize("more", [{}, {"receiptsPath": "{tmp_path}"}], ids=["plain", "receipts"])
def test_a_task_without_rows_asks_no_broker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, str]
) -> None:
    monkeypatch.setattr(rows, "lease_producer", lambda *_, **__: pytest.fail("it has a producer"))
    more = {name: value.format(tmp_path=tmp_path) for name, value in more.items()}
    planned = plan(KafkaBatchWriter(given_options(AT_LEAST_ONCE | more)))
    message = written(planned, 7)
    assert (message.spark_partition_id, message.record_count, message.partitions) == (7, 0, ())
    assert message.proof is None or message.proof.runs == PackedRuns()
    planned.commit([message])
