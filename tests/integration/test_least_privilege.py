"""The ACLs of docs, for each guarantee: with exactly those a write succeeds, without any one of them, be it from the
middle on, it says which."""

import itertools
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_admin import groups, open_transactions, produce, producer, read, send
from effort import variants
from exactly_once_runs import ALL_ONCE, incoming
from kafka_reads import offsets_read, reader_of
from kafka_sink.broker import DEFAULT_KAFKA_VERSION
from kafka_sink.errors import GroupNotReadable, TopicAuthorizationFailed
from read_back import read_topic
from secure_kafka import Acl, SecureKafka
from spark_writes import ARROW_BATCH_ROWS, count_in, end_offset, finish, held
from waiting import wait_until

DEADLINE_S = 60
# Half of the time that a write waits for what does not come.
ERROR_S = 30
ROWS = 100
# Of each row of a stream: more than goes out before it is held.
COPIES = 1000
topic_numbers = itertools.count(1)


@pytest.fixture
def topic(secure: SecureKafka) -> str:
    name = f"rows-{next(topic_numbers)}"
    secure.kafka.create_topic(name, 2)
    return name


def at_least_once(topic: str) -> tuple[Acl, ...]:
    return (Acl(ResourceType.TOPIC, topic, AclOperation.WRITE),)


def exactly_once(topic: str) -> tuple[Acl, ...]:
    """The prefix is the topic's name, the commit topic `<topic>-commits`."""
    return (
        *at_least_once(topic),
        # Where transactions begin, and whether they have ended, leaders tell to those who may read.
        Acl(ResourceType.TOPIC, topic, AclOperation.READ),
        Acl(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE, prefixed=True),
        Acl(ResourceType.GROUP, topic, AclOperation.READ, prefixed=True),
        Acl(ResourceType.TOPIC, f"{topic}-commits", AclOperation.READ),
    )


def write(spark: SparkSession, secure: SecureKafka, topic: str, *, tasks: int = 2, **more: str) -> None:
    frame = spark.range(0, ROWS, 1, tasks).selectExpr("cast(id as string) as value")
    options = {**secure.sasl("SCRAM-SHA-512", "bob", max_block_ms="20000"), "topic": topic, **more}
    frame.write.format("pykafka").options(**options).mode("append").save()


def once(topic: str) -> dict[str, str]:
    return {
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic,
        "commitTopic": f"{topic}-commits",
        "kafka.transaction.timeout.ms": "120000",
    }


def values_in(secure: SecureKafka, topic: str) -> list[bytes | None]:
    return [record.value for _, _, record in read_topic(secure.kafka.bootstrap_servers, topic, DEADLINE_S)]


def test_at_least_once(spark: SparkSession, secure: SecureKafka, topic: str) -> None:
    # One task: another could outlive the job that the first one fails, and write once it is allowed to.
    with pytest.raises(PySparkException, match=f"TOPIC {topic} WRITE.*User:bob"):
        write(spark, secure, topic, tasks=1)
    secure.allow(*at_least_once(topic))
    write(spark, secure, topic)
    assert count_in(secure.kafka, topic) == ROWS


def test_exactly_once(spark: SparkSession, secure: SecureKafka, topic: str) -> None:
    secure.allow(*exactly_once(topic))
    with pytest.raises(PySparkException, match=r"TOPIC CREATE .*User:bob"):
        write(spark, secure, topic, **once(topic))
    secure.allow(Acl(ResourceType.TOPIC, f"{topic}-commits", AclOperation.CREATE))
    write(spark, secure, topic, **once(topic))
    assert count_in(secure.kafka, topic) == ROWS
    # It deletes its groups where it may, and is as well without: of two slots, and of the decision, none is gone, as
    # the first that is refused is the last that is asked for.
    left = groups(secure.kafka, f"{topic}.")
    assert len(left) == 3
    secure.allow(Acl(ResourceType.GROUP, topic, AclOperation.DELETE, prefixed=True))
    write(spark, secure, topic, **once(topic))
    assert groups(secure.kafka, f"{topic}.") == left
    assert count_in(secure.kafka, topic) == 2 * ROWS


@pytest.mark.long
@pytest.mark.parametrize("secure", [DEFAULT_KAFKA_VERSION], indirect=True)
@pytest.mark.parametrize("missing", range(len(exactly_once(""))))
def test_exactly_once_without_one_of_them(spark: SparkSession, secure: SecureKafka, topic: str, missing: int) -> None:
    secure.kafka.create_topic(f"{topic}-commits", 2)
    acls = exactly_once(topic)
    acl = acls[missing]
    secure.allow(*(other for other in acls if other is not acl))
    with pytest.raises(PySparkException) as failure:
        write(spark, secure, topic, **once(topic))
    message = str(failure.value)
    assert re.search(rf"ACLs?:? {acl.kind.name} .*{acl.operation.name}.* for principal User:bob", message), message


@pytest.mark.parametrize("secure", [DEFAULT_KAFKA_VERSION], indirect=True)
def test_who_may_not_know_what_a_topic_takes_finds_out_by_its_refusal(
    spark: SparkSession, secure: SecureKafka, topic: str
) -> None:
    small = f"{topic}-small"
    secure.kafka.create_topic(small, 1, config={"max.message.bytes": 500})
    secure.allow(*at_least_once(small))
    lines = spark.range(0, ROWS, 1, 1).selectExpr(
        "if(id = 7, array_join(transform(sequence(1, 999), n -> sha2(string(n), 256)), ''), string(id)) as value"
    )
    options = {**secure.sasl("SCRAM-SHA-512", "bob", max_block_ms="20000"), "topic": small, "badRows": "drop"}
    writer = lines.write.format("pykafka").options(**options).mode("append")
    with pytest.raises(PySparkException, match=r"RecordTooLarge: .* the partition's leader refused it"):
        writer.save()
    before = count_in(secure.kafka, small)
    secure.allow(Acl(ResourceType.TOPIC, small, AclOperation.DESCRIBE_CONFIGS))
    writer.save()
    assert count_in(secure.kafka, small) == before + ROWS - 1


@pytest.mark.long
@pytest.mark.parametrize("secure", [DEFAULT_KAFKA_VERSION], indirect=True)
def test_who_may_not_know_what_a_topic_refuses_leaves_out_what_its_leader_names(
    spark: SparkSession, secure: SecureKafka, topic: str
) -> None:
    """Batches of several hundred rows, several of them in flight."""
    timed, letters = f"{topic}-timed", f"{topic}-letters"
    secure.kafka.create_topic(timed, 1, config={"message.timestamp.before.max.ms": 3_600_000})
    secure.kafka.create_topic(letters, 1)
    secure.kafka.create_topic(f"{timed}-commits", 2)
    secure.allow(*exactly_once(timed), *at_least_once(letters), Acl(ResourceType.TOPIC, letters, AclOperation.READ))
    options = {**secure.sasl("SCRAM-SHA-512", "bob", max_block_ms="20000"), "topic": timed, "kafka.batch.size": "16384"}
    options |= once(timed)
    rows = spark.range(0, 20_000, 1, 1).selectExpr(
        "cast(id AS STRING) AS value", "if(id % 1000 = 7, timestamp_millis(1372914367891), NULL) AS timestamp"
    )
    writer = rows.write.format("pykafka").options(**options).mode("append")
    with pytest.raises(PySparkException, match=r"ProduceRejected: .* is record \d+ of the batch .*DESCRIBE_CONFIGS"):
        writer.save()
    before = count_in(secure.kafka, timed)
    writer.option("badRows", "drop").save()
    expected = [b"%d" % number for number in range(20_000) if number % 1000 != 7]
    assert values_in(secure, timed)[before:] == expected
    writer.option("badRows", "deadLetter").option("deadLetterTopic", letters).save()
    assert values_in(secure, timed)[before + len(expected) :] == expected
    assert sorted(values_in(secure, letters)) == sorted(b"%d" % number for number in range(7, 20_000, 1000))
    limited = writer.option("maxBadRows", "19")
    with pytest.raises(PySparkException, match=r"TooManyBadRows: 20 of 20000 rows .*RefusedByLeader: 20"):
        limited.save()


@pytest.mark.long
@pytest.mark.parametrize("kind", [ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID], ids=lambda kind: kind.name)
def test_an_acl_that_is_revoked_in_a_transaction(
    spark: SparkSession, secure: SecureKafka, topic: str, tmp_path: Path, kind: ResourceType
) -> None:
    """The micro-batch fails, and nobody sees a row of it; with the ACL again, the next start writes each row once."""
    acls = exactly_once(topic)
    acl = next(each for each in acls if (each.kind, each.operation) == (kind, AclOperation.WRITE))
    secure.kafka.create_topic(f"{topic}-commits", 2)
    secure.allow(*acls)
    rows = spark.readStream.schema("value STRING").json(str(incoming(tmp_path / "incoming")))
    # One slot: another one's would perhaps not have begun yet, and fail at that.
    copies = rows.selectExpr("value", f"explode(sequence(1, {COPIES})) AS n").selectExpr("value").coalesce(1)
    gate = tmp_path / "gate"
    query = stream(secure, topic, held(copies, gate, after_rows=3 * ARROW_BATCH_ROWS), tmp_path)
    wait_until(lambda: any(end_offset(secure.kafka, topic, each) for each in range(2)), DEADLINE_S, "rows are there")
    slot = f"{topic}.0"
    assert open_transactions(secure.kafka, topic) == [slot]

    secure.revoke(acl)
    gate.touch()
    started_s = time.monotonic()
    with pytest.raises(StreamingQueryException) as failure:
        finish(query)
    assert time.monotonic() - started_s < ERROR_S
    message = str(failure.value)
    assert re.search(rf"Add the ACL:? {kind.name} .*WRITE.* for principal User:bob", message), message
    assert read(secure.kafka, topic) == Counter()
    if kind == ResourceType.TOPIC:
        assert open_transactions(secure.kafka, topic) == []
    else:
        # A user without WRITE on the transactional id cannot end its transaction.
        assert open_transactions(secure.kafka, topic) == [slot]
        assert f"Produce for {slot!r} was refused" in message
        assert "pykafka transactions describe" in message

    secure.allow(acl)
    finish(stream(secure, topic, copies, tmp_path))
    assert open_transactions(secure.kafka, topic) == []
    assert read(secure.kafka, topic) == Counter(dict.fromkeys(ALL_ONCE, COPIES))
    assert read(secure.kafka, topic, "read_uncommitted").total() > COPIES * len(ALL_ONCE), "nothing was aborted"


def stream(secure: SecureKafka, topic: str, frame: DataFrame, folder: Path) -> StreamingQuery:
    options = {**secure.sasl("SCRAM-SHA-512", "bob"), "topic": topic, **once(topic)}
    writer = frame.writeStream.format("pykafka").options(**options).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def reader(secure: SecureKafka, topic: str, **more: str) -> Any:
    return reader_of("", "offset", **{**secure.sasl("SCRAM-SHA-512", "bob", **more), "subscribe": topic})


def test_a_read_over_tls_with_a_password_needs_one_acl(secure: SecureKafka, topic: str) -> None:
    options = secure.sasl("SCRAM-SHA-512", "alice")
    produce(secure.kafka, topic, ROWS)
    assert offsets_read(reader_of("", "offset", **{**options, "subscribe": topic})) == list(range(ROWS))

    needed = f"TOPIC {topic} READ"
    with pytest.raises(TopicAuthorizationFailed, match=f"{needed}.* principal User:bob"):
        reader(secure, topic).partitions()
    # To be told of a topic is not to read it: the plan passes, and the task fails.
    describe = Acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    secure.allow(describe)
    parts = reader(secure, topic).partitions()
    with pytest.raises(TopicAuthorizationFailed, match=f"{needed}.* principal User:bob"):
        offsets_read(reader(secure, topic), parts)
    secure.revoke(describe)
    secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.READ))
    for isolation in ("read_uncommitted", "read_committed"):
        assert offsets_read(reader(secure, topic, isolation_level=isolation)) == list(range(ROWS))


@pytest.mark.long
@pytest.mark.parametrize("secure", [DEFAULT_KAFKA_VERSION], indirect=True)
def test_a_read_begins_where_a_group_is_that_it_may_only_describe(
    spark: SparkSession, secure: SecureKafka, topic: str, tmp_path: Path
) -> None:
    """A batch and a stream, from offsets with a leader epoch, while the group has a member."""
    produce(secure.kafka, topic, ROWS)
    consumer = Consumer({"bootstrap.servers": secure.kafka.bootstrap_servers, "group.id": topic})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, DEADLINE_S, "it is a member")
        consumer.commit(offsets=[TopicPartition(topic, 0, 60), TopicPartition(topic, 1, 0)], asynchronous=False)
        secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.READ))
        options = {**secure.sasl("SCRAM-SHA-512", "bob"), "subscribe": topic, "startingGroup": topic}
        with pytest.raises(GroupNotReadable, match=f"GROUP {topic} DESCRIBE.* principal User:bob"):
            reader_of("", "offset", **options).partitions()
        secure.allow(Acl(ResourceType.GROUP, topic, AclOperation.DESCRIBE))
        assert offsets_read(reader_of("", "offset", **options)) == list(range(60, ROWS))
        rows = spark.readStream.format("pykafka").options(**options).load()
        seen: list[int] = []
        writer = rows.writeStream.foreachBatch(lambda rows, _: seen.extend(row["offset"] for row in rows.collect()))
        finish(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())
        assert sorted(seen) == list(range(60, ROWS))
    finally:
        consumer.close()


def test_a_pattern_reads_the_topics_that_the_principal_may_see(secure: SecureKafka, topic: str) -> None:
    hidden = f"{topic}-hidden"
    secure.kafka.create_topic(hidden, 1)
    for name in (topic, hidden):
        produce(secure.kafka, name, 1)
    secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.READ))
    pattern = {**secure.sasl("SCRAM-SHA-512", "bob"), "subscribePattern": f"^{topic}"}
    assert [each.topic for part in reader_of("", "offset", **pattern).partitions() for each in part.ranges] == [topic]


@pytest.mark.parametrize("fails", variants("false", "true"))
def test_a_pattern_does_not_take_a_topic_that_it_may_not_see_for_deleted(
    spark: SparkSession, secure: SecureKafka, topic: str, tmp_path: Path, fails: str
) -> None:
    produce(secure.kafka, topic, ROWS)
    acl = Acl(ResourceType.TOPIC, topic, AclOperation.READ, prefixed=fails == "false")
    pattern = {**secure.sasl("SCRAM-SHA-512", "bob"), "subscribePattern": f"^{topic}$", "failOnDataLoss": fails}
    frame = spark.readStream.format("pykafka").options(startingOffsets="earliest", **pattern).load()
    seen: list[int] = []

    def run() -> None:
        writer = frame.writeStream.foreachBatch(lambda rows, _: seen.extend(row["offset"] for row in rows.collect()))
        finish(writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start())

    secure.allow(acl)
    run()
    secure.revoke(acl)
    with pytest.raises(StreamingQueryException, match=f"Add the ACL: TOPIC {topic} READ"):
        run()
    secure.allow(acl)
    run()
    secure.revoke(acl)
    assert seen == list(range(ROWS))


def test_an_acl_that_is_taken_away_during_a_read_ends_it(secure: SecureKafka, topic: str) -> None:
    acl = Acl(ResourceType.TOPIC, topic, AclOperation.READ)
    secure.allow(acl)
    send(producer(secure.kafka, **{"batch.size": 20_000}), topic, [bytes(10_000)] * ROWS)
    bobs = reader(secure, topic, max_partition_fetch_bytes="20000")
    (part,) = bobs.partitions()
    reading = bobs.read(part)
    assert next(reading).column("offset").to_pylist()[0] == 0
    secure.revoke(acl)
    with pytest.raises(TopicAuthorizationFailed):
        list(reading)
