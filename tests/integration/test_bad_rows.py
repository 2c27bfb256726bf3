"""Bad rows with real Spark and a real broker: those that cannot be written, what is done about them, and what is not
taken for one. Read back by confluent-kafka, as committed."""

from __future__ import annotations

import contextlib
import datetime
import socket
from collections import Counter
from typing import Any

import pytest
from kafka import KafkaConsumer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from committed_rows import open_transactions
from comparison import Record
from here import Here
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from spark_writes import finish
from variants import variants

DEADLINE_S = 60
GUARANTEES = ["at-least-once", "exactly-once"]
SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
# Rows of another year are old to a topic that forgets.
KEPT = {"retention.ms": -1}
AT = datetime.datetime(2013, 7, 4, 5, 6, 7, 891_000, datetime.UTC)
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.UTC)
TOO_LARGE_TO_SEND = bytes(1_100_000)
# What zstd makes no smaller: over 10,000 bytes either way; and what it does.
DENSE = b"".join(number.to_bytes(4, "big") for number in (pow(3, exponent, 2**31 - 1) for exponent in range(4_000)))
SPARSE = bytes(16_000)
OWN_HEADERS = [("h", b"1"), ("n", None)]


def options(guarantee: str, **more: str) -> dict[str, str]:
    return {"deliveryGuarantee": guarantee, **more}


def written(frame: DataFrame, kafka: LocalKafka, topic: str | None, given: dict[str, str]) -> None:
    frame.write.mode("append").format("pykafka").options(**{**settings(kafka, topic), **given}).save()


def settings(kafka: LocalKafka, topic: str | None) -> dict[str, str]:
    to_topic = {} if topic is None else {"topic": topic}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **to_topic}


def failed(frame: DataFrame, kafka: LocalKafka, topic: str | None, given: dict[str, str]) -> str:
    with pytest.raises(PySparkException) as failure:
        written(frame, kafka, topic, given)
    return str(failure.value)


def read(kafka: LocalKafka, topic: str) -> list[Record]:
    return [record for _, _, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)]


def values(kafka: LocalKafka, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in read(kafka, topic))


def every_reason(spark: SparkSession, rows_topic: str, small: str) -> DataFrame:
    """A task of good rows, and of one bad row after the other among them."""
    rows: list[Any] = [
        (b"k0", b"good 0", rows_topic, 1, AT, OWN_HEADERS),
        (b"k1", b"too early", rows_topic, 1, BEFORE_1970, OWN_HEADERS),
        (None, b"header without key", rows_topic, None, AT, [("a", b"1"), (None, b"2"), ("b", None)]),
        (b"k3", b"topic is null", None, 0, None, None),
        (b"k4", b"topic is empty", "", None, None, []),
        (b"k5", b"good 5", rows_topic, None, None, None),
        (b"k6", None, rows_topic, 99, AT, None),
        (b"k7", b"negative partition", rows_topic, -1, None, None),
        (b"k8", TOO_LARGE_TO_SEND, rows_topic, None, None, OWN_HEADERS),
        (b"k9", DENSE, small, None, None, None),
        (b"k10", SPARSE, small, None, None, None),
        (b"k11", b"good 11", small, 0, AT, None),
    ]
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


def ours(record: Record) -> dict[str, str]:
    """The headers that the sink adds."""
    return {name: (value or b"").decode() for name, value in record.headers if name.startswith("pykafka.")}


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("bad_rows", ["drop", "deadLetter"])
def test_every_reason_among_good_rows(here: Here, guarantee: str, bad_rows: str) -> None:
    name, small, letters = here.topic(2, KEPT), here.topic(1, KEPT | {"max.message.bytes": 10_000}), here.topic(1, KEPT)
    given = options(guarantee, badRows=bad_rows)
    if bad_rows == "deadLetter":
        given["deadLetterTopic"] = letters
    written(every_reason(here.spark, name, small), here.kafka, None, given)

    assert values(here.kafka, name) == Counter([b"good 0", b"good 5"])
    assert values(here.kafka, small) == Counter([SPARSE, b"good 11"])
    (first,) = (record for record in read(here.kafka, name) if record.value == b"good 0")
    assert (first.key, list(first.headers), first.timestamp_ms) == (b"k0", OWN_HEADERS, int(AT.timestamp() * 1000))
    found = {ours(record)["pykafka.row"]: record for record in read(here.kafka, letters)}
    if bad_rows == "drop":
        assert found == {}
        return
    assert {row: ours(record)["pykafka.reason"] for row, record in found.items()} == {
        "1": "TimestampOutOfRange", "2": "HeaderKeyNull", "3": "TopicNull", "4": "TopicNull",
        "6": "PartitionOutOfRange", "7": "PartitionOutOfRange", "8": "RecordTooLarge", "9": "RecordTooLarge",
    }  # fmt: skip
    assert {row: (record.key, record.value) for row, record in found.items()} == {
        "1": (b"k1", b"too early"), "2": (None, b"header without key"), "3": (b"k3", b"topic is null"),
        "4": (b"k4", b"topic is empty"), "6": (b"k6", None), "7": (b"k7", b"negative partition"),
        # Even the dead letter would be too large with it.
        "8": (b"k8", None), "9": (b"k9", DENSE),
    }  # fmt: skip
    slot = {"pykafka.slot": "0"}
    if guarantee == "exactly-once":
        # A name of its own for each batch write.
        slot |= {"pykafka.query": ours(found["1"])["pykafka.query"], "pykafka.batch": "0"}
        assert len(slot["pykafka.query"]) == 32
    expected = {
        "1": {"pykafka.topic": name, "pykafka.partition": "1", "pykafka.timestamp": "-1000 us"},
        "2": {"pykafka.topic": name, "pykafka.timestamp": "1372914367891000 us", "pykafka.null.key": "2"},
        "3": {"pykafka.partition": "0"},
        "4": {"pykafka.topic": ""},
        "6": {"pykafka.topic": name, "pykafka.partition": "99", "pykafka.timestamp": "1372914367891000 us"},
        "7": {"pykafka.topic": name, "pykafka.partition": "-1"},
        "8": {"pykafka.topic": name, "pykafka.left.out": "value", "pykafka.value.size": "1100000"},
        "9": {"pykafka.topic": small},
    }
    for row, record in found.items():
        told = ours(record)
        size = told.pop("pykafka.size", None)
        assert told == {"pykafka.row": row, "pykafka.reason": told["pykafka.reason"], **slot, **expected[row]}
        assert (size is not None) == (told["pykafka.reason"] == "RecordTooLarge")
        # Kept from the time of the write on, whatever the row's time was.
        assert abs(record.timestamp_ms / 1000 - datetime.datetime.now().timestamp()) < 10 * DEADLINE_S
    assert 1_100_000 < int(ours(found["8"])["pykafka.size"]) < 1_100_200
    assert 16_000 < int(ours(found["9"])["pykafka.size"]) < 16_200
    own = {row: [header for header in record.headers if header[0] not in ours(record)] for row, record in found.items()}
    assert own["1"] == own["8"] == OWN_HEADERS
    assert [(header, value) for header, value in found["2"].headers][:3] == [
        ("a", b"1"), ("pykafka.null.key", b"2"), ("b", None),
    ]  # fmt: skip
    assert own["3"] == own["4"] == []


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", pytest.param("exactly-once", marks=pytest.mark.long)])
def test_texts_of_spark_that_are_not_utf8(here: Here, guarantee: str) -> None:
    """Spark does not check its strings; consumers do, and cannot read past a record that they cannot read."""
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    text = "cast(unhex('FDED') AS STRING)"
    frame = here.spark.range(0, 6, 1, 1).selectExpr(
        "cast(id AS STRING) AS value",
        f"array(struct(if(id = 1, {text}, 'h') AS key, cast('x' AS BINARY) AS value)) AS headers",
        f"CASE id WHEN 2 THEN {text} WHEN 3 THEN concat('{name}', '\n') WHEN 4 THEN concat('{name}', decode(X'00', "
        f"'UTF-8')) ELSE '{name}' END AS topic",
    )
    given = options(guarantee, badRows="deadLetter", deadLetterTopic=letters)
    written(frame, here.kafka, None, given)
    assert values(here.kafka, name) == Counter([b"0", b"5"])
    told = {ours(record)["pykafka.row"]: ours(record) for record in read(here.kafka, letters)}
    assert {row: (each["pykafka.reason"], each["pykafka.topic"]) for row, each in told.items()} == {
        "1": ("HeaderKeyNotUtf8", name), "2": ("TopicNameInvalid", r"\xfd\xed"),
        "3": ("TopicNameInvalid", f"{name}\n"), "4": ("TopicNameInvalid", f"{name}\0"),
    }  # fmt: skip
    assert told["1"]["pykafka.bytes.key.fded"] == "x"
    for broker_topic in (name, letters):
        consumer = KafkaConsumer(
            broker_topic, bootstrap_servers=here.servers, auto_offset_reset="earliest",
            consumer_timeout_ms=2_000, isolation_level="read_committed",
        )  # fmt: skip
        with contextlib.closing(consumer):
            assert len(list(consumer)) == (2 if broker_topic == name else 4)
    written(frame, here.kafka, None, options(guarantee, badRows="drop"))
    assert values(here.kafka, name) == Counter({b"0": 2, b"5": 2})
    fail = options(guarantee)
    assert r"'\\xfd\\xed' is not a name" in failed(frame.where("id = 2"), here.kafka, None, fail)
    assert r"\n' is not a name" in failed(frame.where("id = 3"), here.kafka, None, fail)
    assert "HeaderKeyNotUtf8" in failed(frame.where("id = 1"), here.kafka, None, fail)


@pytest.mark.parametrize("guarantee", variants(*GUARANTEES))
@pytest.mark.parametrize("bad_rows", variants("deadLetter", "drop"))
def test_rows_that_only_the_settings_of_their_topic_refuse(here: Here, guarantee: str, bad_rows: str) -> None:
    hour = {"message.timestamp.after.max.ms": 3_600_000, "message.timestamp.before.max.ms": 3_600_000}
    # Brokers from 4.0 on have a limit of an hour ahead by default.
    any_time = {"message.timestamp.after.max.ms": 2**63 - 1}
    timed, compacted = here.topic(1, KEPT | hour), here.topic(1, KEPT | any_time | {"cleanup.policy": "compact"})
    stamped, letters = here.topic(1, KEPT | hour | {"message.timestamp.type": "LogAppendTime"}), here.topic(1, KEPT)
    now = datetime.datetime.now(datetime.UTC)
    soon, late, early = (now + datetime.timedelta(minutes=minutes) for minutes in (50, 70, -70))
    rows: list[Any] = [
        (b"k", b"now", timed, None, None, None), (None, b"soon", timed, None, soon, None),
        (None, b"late", timed, None, late, None), (None, b"early", timed, None, early, None),
        (b"k", b"key", compacted, None, late, None), (None, b"no key", compacted, None, None, None),
        (b"", b"empty key", compacted, None, AT, None), (None, b"any time", stamped, None, AT, None),
    ]  # fmt: skip
    given = options(guarantee, badRows=bad_rows)
    if bad_rows == "deadLetter":
        given["deadLetterTopic"] = letters
    frame = here.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    written(frame, here.kafka, None, given)
    assert values(here.kafka, timed) == Counter([b"now", b"soon"])
    assert values(here.kafka, compacted) == Counter([b"key", b"empty key"])
    assert values(here.kafka, stamped) == Counter([b"any time"])
    found = {
        ours(record)["pykafka.reason"] + "/" + (record.value or b"").decode() for record in read(here.kafka, letters)
    }
    expected = {"TimestampNotAllowed/late", "TimestampNotAllowed/early", "KeyNull/no key"}
    assert found == (expected if bad_rows == "deadLetter" else set())


def test_a_refusal_by_the_leader_names_the_row_and_what_to_do(here: Here) -> None:
    timed = here.topic(1, KEPT | {"message.timestamp.before.max.ms": 3_600_000})
    compacted = here.topic(1, KEPT | {"cleanup.policy": "compact"})
    frame = here.spark.range(0, 5, 1, 1).selectExpr(
        "if(id < 3, 'k', NULL) AS key", "'a payload' AS value",
        "if(id > 1, timestamp_millis(1372914367891), current_timestamp()) AS timestamp",
    )  # fmt: skip
    message = failed(frame, here.kafka, timed, {})
    assert f"ProduceRejected: the leader of {timed}-0 refused a batch of 5 records" in message
    assert "It names 3 of them; the first is record 2 of the batch (from 0)" in message
    assert "whose timestamp is 1372914367891 ms from 1970: Timestamp 1372914367891" in message
    assert "message.timestamp.before.max.ms" in message and "badRows=drop" in message
    assert "a payload" not in message
    message = failed(frame.drop("timestamp"), here.kafka, compacted, {})
    assert "It names 2 of them; the first is record 3 of the batch (from 0)" in message
    assert "needs a key in every row" in message and "DESCRIBE_CONFIGS" in message


@pytest.mark.parametrize("guarantee", variants(*GUARANTEES))
def test_limits_of_one_task(here: Here, guarantee: str) -> None:
    name = here.topic(1, KEPT)
    frame = here.spark.range(0, 30_000, 1, 1).selectExpr(
        "cast(id AS STRING) AS value", "if(id % 100 = 7, -1, cast(null AS INT)) AS partition"
    )
    given = options(guarantee, badRows="drop")
    written(frame, here.kafka, name, {**given, "maxBadRows": "300", "maxBadRowFraction": "0.01"})
    good = Counter(b"%d" % number for number in range(30_000) if number % 100 != 7)
    assert values(here.kafka, name) == good
    # It ends in its first Arrow batch of 10,000 rows.
    message = failed(frame, here.kafka, name, {**given, "maxBadRows": "99"})
    assert "TooManyBadRows: 100 of 9908 rows cannot be written to Kafka (PartitionOutOfRange: 100)" in message
    assert "maxBadRows allows 99" in message
    assert "(0, 7), (0, 107), (0, 207)" in message
    assert values(here.kafka, name) == good
    message = failed(frame, here.kafka, name, {**given, "maxBadRowFraction": "0.0099"})
    assert "TooManyBadRows: 300 of 30000 rows" in message
    if guarantee == "exactly-once":
        assert values(here.kafka, name) == good
        assert "no row of this attempt is visible" in message


@pytest.mark.long
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_limits_of_all_tasks_together(here: Here, guarantee: str) -> None:
    """Each of two tasks has one bad row of a hundred, and may."""
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    given = options(guarantee, badRows="deadLetter", deadLetterTopic=letters, maxBadRows="1")
    if guarantee == "exactly-once":
        given["transactionalIdPrefix"] = name
    frame = here.spark.range(0, 200, 1, 2).selectExpr(
        "cast(id AS STRING) AS value", "if(id % 100 = 7, 99, cast(null AS INT)) AS partition"
    )
    message = failed(frame, here.kafka, name, given)
    assert "TooManyBadRows: 2 of 200 rows cannot be written to Kafka (PartitionOutOfRange: 2)" in message
    assert "(0, 7), (1, 7)" in message
    if guarantee == "exactly-once":
        assert read(here.kafka, name) == read(here.kafka, letters) == []
        assert open_transactions(here.kafka, name) == []
        assert "no row of this attempt is visible" in message
    else:
        # What it says is true.
        assert "all other rows of the write are in Kafka" in message
        assert (len(read(here.kafka, name)), len(read(here.kafka, letters))) == (198, 2)


@pytest.mark.long
def test_a_version_with_dead_letters_is_known_again_and_other_bad_rows_are_not(here: Here) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    given = options("exactly-once", badRows="deadLetter", deadLetterTopic=letters, txnAppId=name, txnVersion="0")

    def rows(bad: Any) -> DataFrame:
        good = [(b"k", b"v", name, 0, AT, None)]
        return here.spark.createDataFrame([*good, bad], SCHEMA).coalesce(1)

    bad_rows = [
        (b"k", b"v", name, 0, BEFORE_1970, None),
        (b"k", b"v", name, 0, BEFORE_1970 - datetime.timedelta(microseconds=1), None),
        (b"k", b"v", name, 0, AT, [(None, b"1")]),
        (b"k", b"v", name, 0, AT, [(None, b"2")]),
        (b"k", b"v", None, 0, AT, None),
        (b"k", b"v", name, 7, AT, None),
    ]
    for version, bad in enumerate(bad_rows):
        given["txnVersion"] = str(version)
        written(rows(bad), here.kafka, None, given)
        assert (len(read(here.kafka, name)), len(read(here.kafka, letters))) == (version + 1, version + 1)
        written(rows(bad), here.kafka, None, given)
        assert (len(read(here.kafka, name)), len(read(here.kafka, letters))) == (version + 1, version + 1)
        assert "NonDeterministicReplay" in failed(rows(bad_rows[version - 1]), here.kafka, None, given)


@pytest.mark.long
def test_what_the_cluster_is_to_blame_for_is_never_a_bad_row(here: Here) -> None:
    name = here.topic(1, KEPT)
    good = here.spark.range(3).coalesce(1).selectExpr("cast(id AS STRING) AS value")
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    drop = {"badRows": "drop"}
    nowhere = {**drop, "kafka.bootstrap.servers": closed, "kafka.max.block.ms": "2000"}
    unreachable = failed(good, here.kafka, name, nowhere)
    assert "BrokersUnreachable" in unreachable and closed in unreachable and "Connection refused" in unreachable
    missing = failed(good, here.kafka, "nobody-made-this", drop)
    assert "TopicNotFound" in missing and "'nobody-made-this' does not exist" in missing
    assert "createTopics=true" in missing
    # Before there is a bad row.
    to_nowhere = {"badRows": "deadLetter", "deadLetterTopic": "nor-this"}
    assert "'nor-this' does not exist" in failed(good, here.kafka, name, to_nowhere)
    assert read(here.kafka, name) == []


def test_no_row_may_go_to_the_dead_letter_topic(here: Here) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    given = {"badRows": "deadLetter", "deadLetterTopic": letters}
    frame = here.spark.createDataFrame([("a", name), ("b", letters)], "value STRING, topic STRING").coalesce(1)
    assert "DeadLetterTopicNamed" in failed(frame, here.kafka, None, given)
    assert "another topic than the topic of the rows" in failed(frame, here.kafka, letters, given)
    assert read(here.kafka, letters) == []


@pytest.mark.long
def test_a_dead_letter_that_is_too_large_for_its_topic_says_what_is_not_there(here: Here) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT | {"max.message.bytes": 4_000})
    rows: list[Any] = [(b"k", DENSE, "", None, None, OWN_HEADERS), (DENSE, b"v", "", None, None, [("d", DENSE)])]
    frame = here.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    written(frame, here.kafka, name, {"badRows": "deadLetter", "deadLetterTopic": letters})
    # To the topic of the option: they are good.
    assert (len(read(here.kafka, name)), read(here.kafka, letters)) == (2, [])
    written(frame, here.kafka, None, {"badRows": "deadLetter", "deadLetterTopic": letters})
    first, second = sorted(read(here.kafka, letters), key=lambda record: ours(record)["pykafka.row"])
    assert (first.key, first.value, list(first.headers)[:2]) == (b"k", None, OWN_HEADERS)
    assert ours(first)["pykafka.left.out"] == "value"
    assert (second.key, second.value) == (None, None)
    assert ours(second)["pykafka.left.out"] == "value, key, headers"
    assert ours(second)["pykafka.value.size"] == "1"
    assert [name for name, _ in second.headers if not name.startswith("pykafka.")] == []


@pytest.mark.long
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_says_which_query_and_micro_batch_its_dead_letters_are_of(here: Here, guarantee: str) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    (here.folder / "in").mkdir()
    given = options(guarantee, badRows="deadLetter", deadLetterTopic=letters)
    if guarantee == "exactly-once":
        given["transactionalIdPrefix"] = name
    for micro_batch in range(2):
        (here.folder / "in" / f"{micro_batch}.json").write_text(
            '{"value": "good"}\n{"value": "bad", "partition": 99}\n'
        )
        stream = here.spark.readStream.schema("value STRING, partition INT").json(str(here.folder / "in"))
        query = here.start(stream, name, given)
        finish(query)
    assert values(here.kafka, name) == Counter({b"good": 2})
    told = [ours(record) for record in read(here.kafka, letters)]
    assert sorted(each["pykafka.batch"] for each in told) == ["0", "1"]
    assert {each["pykafka.query"] for each in told} == {str(query.id)}
    assert {(each["pykafka.slot"], each["pykafka.row"]) for each in told} == {("0", "1")}
