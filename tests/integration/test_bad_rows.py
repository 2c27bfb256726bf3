"""Bad rows with real Spark and a real broker: those that cannot be written or were made of records that cannot be
decoded, what is done about them, and what is not taken for one. Read back by confluent-kafka, as committed."""

import contextlib
import datetime
import json
from collections import Counter
from typing import Any

import pytest
from kafka import KafkaConsumer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from comparison import Record
from effort import variants
from exactly_once_runs import is_unrecorded
from kafka_sink.errors import NonDeterministicReplay, TooManyBadRows
from kafka_sink.registry import deserialized, serialized
from small_registry import small_registry
from spark_writes import Here, error_of, finish

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


def options(guarantee: str, letters: str = "", **more: str) -> dict[str, str]:
    """`letters`: the topic of dead letters, if bad rows are to go there."""
    keep = {"badRows": "deadLetter", "deadLetterTopic": letters} if letters else {}
    return {"deliveryGuarantee": guarantee, **keep, **more}


def written(here: Here, frame: DataFrame, topic: str | None, given: dict[str, str]) -> None:
    to = here.to(topic) if topic else {"kafka.bootstrap.servers": here.servers}
    frame.write.mode("append").format("pykafka").options(**{**to, **given}).save()


def failed(here: Here, frame: DataFrame, topic: str | None, given: dict[str, str]) -> str:
    with pytest.raises(PySparkException) as failure:
        written(here, frame, topic, given)
    return str(failure.value)


def read(here: Here, topic: str) -> list[Record]:
    return [record for _, _, record in here.records(topic)]


def values(here: Here, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in read(here, topic))


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


@pytest.mark.parametrize("guarantee", variants(*GUARANTEES[::-1]))
@pytest.mark.parametrize("bad_rows", variants("deadLetter", "drop"))
def test_every_reason_among_good_rows(here: Here, guarantee: str, bad_rows: str) -> None:
    name, small, letters = here.topic(2, KEPT), here.topic(1, KEPT | {"max.message.bytes": 10_000}), here.topic(1, KEPT)
    given = options(guarantee, letters) if bad_rows == "deadLetter" else options(guarantee, badRows="drop")
    written(here, every_reason(here.spark, name, small), None, given)

    assert values(here, name) == Counter([b"good 0", b"good 5"])
    assert values(here, small) == Counter([SPARSE, b"good 11"])
    (first,) = (record for record in read(here, name) if record.value == b"good 0")
    assert (first.key, list(first.headers), first.timestamp_ms) == (b"k0", OWN_HEADERS, int(AT.timestamp() * 1000))
    found = {ours(record)["pykafka.row"]: record for record in read(here, letters)}
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
@pytest.mark.parametrize("guarantee", GUARANTEES)
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
    written(here, frame, None, options(guarantee, letters))
    assert values(here, name) == Counter([b"0", b"5"])
    told = {ours(record)["pykafka.row"]: ours(record) for record in read(here, letters)}
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
    written(here, frame, None, options(guarantee, badRows="drop"))
    assert values(here, name) == Counter({b"0": 2, b"5": 2})
    fail = options(guarantee)
    assert r"'\\xfd\\xed' is not a name" in failed(here, frame.where("id = 2"), None, fail)
    assert r"\n' is not a name" in failed(here, frame.where("id = 3"), None, fail)
    assert "HeaderKeyNotUtf8" in failed(here, frame.where("id = 1"), None, fail)


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
    given = options(guarantee, letters) if bad_rows == "deadLetter" else options(guarantee, badRows="drop")
    frame = here.spark.createDataFrame(rows, SCHEMA).coalesce(1)
    written(here, frame, None, given)
    assert values(here, timed) == Counter([b"now", b"soon"])
    assert values(here, compacted) == Counter([b"key", b"empty key"])
    assert values(here, stamped) == Counter([b"any time"])
    found = {ours(record)["pykafka.reason"] + "/" + (record.value or b"").decode() for record in read(here, letters)}
    expected = {"TimestampNotAllowed/late", "TimestampNotAllowed/early", "KeyNull/no key"}
    assert found == (expected if bad_rows == "deadLetter" else set())


def test_a_refusal_by_the_leader_names_the_row_and_what_to_do(here: Here) -> None:
    timed = here.topic(1, KEPT | {"message.timestamp.before.max.ms": 3_600_000})
    compacted = here.topic(1, KEPT | {"cleanup.policy": "compact"})
    frame = here.spark.range(0, 5, 1, 1).selectExpr(
        "if(id < 3, 'k', NULL) AS key", "'a payload' AS value",
        "if(id > 1, timestamp_millis(1372914367891), current_timestamp()) AS timestamp",
    )  # fmt: skip
    message = failed(here, frame, timed, {})
    assert f"ProduceRejected: the leader of {timed}-0 refused a batch of 5 records" in message
    assert "It names 3 of them; the first is record 2 of the batch (from 0)" in message
    assert "whose timestamp is 1372914367891 ms from 1970: Timestamp 1372914367891" in message
    assert "message.timestamp.before.max.ms" in message and "badRows=drop" in message
    assert "a payload" not in message
    message = failed(here, frame.drop("timestamp"), compacted, {})
    assert "It names 2 of them; the first is record 3 of the batch (from 0)" in message
    assert "needs a key in every row" in message and "DESCRIBE_CONFIGS" in message


@pytest.mark.parametrize("guarantee", variants(*GUARANTEES))
def test_limits_of_one_task(here: Here, guarantee: str) -> None:
    name = here.topic(1, KEPT)
    frame = here.spark.range(0, 30_000, 1, 1).selectExpr(
        "cast(id AS STRING) AS value", "if(id % 100 = 7, -1, cast(null AS INT)) AS partition"
    )
    given = options(guarantee, badRows="drop")
    written(here, frame, name, {**given, "maxBadRows": "300", "maxBadRowFraction": "0.01"})
    good = Counter(b"%d" % number for number in range(30_000) if number % 100 != 7)
    assert values(here, name) == good
    # It ends in its first Arrow batch of 10,000 rows.
    message = failed(here, frame, name, {**given, "maxBadRows": "99"})
    assert "TooManyBadRows: 100 of 9908 rows cannot be written to Kafka (PartitionOutOfRange: 100)" in message
    assert "maxBadRows allows 99" in message
    assert "(0, 7), (0, 107), (0, 207)" in message
    assert values(here, name) == good
    message = failed(here, frame, name, {**given, "maxBadRowFraction": "0.0099"})
    assert "TooManyBadRows: 300 of 30000 rows" in message
    if guarantee == "exactly-once":
        assert values(here, name) == good
        assert "no row of this attempt is visible" in message


def test_no_row_may_go_to_the_dead_letter_topic(here: Here) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    given = {"badRows": "deadLetter", "deadLetterTopic": letters}
    frame = here.spark.createDataFrame([("a", name), ("b", letters)], "value STRING, topic STRING").coalesce(1)
    assert "DeadLetterTopicNamed" in failed(here, frame, None, given)
    assert "another topic than the topic of the rows" in failed(here, frame, letters, given)
    assert read(here, letters) == []


@pytest.mark.long
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_says_which_query_and_micro_batch_its_dead_letters_are_of(here: Here, guarantee: str) -> None:
    name, letters = here.topic(1, KEPT), here.topic(1, KEPT)
    (here.folder / "in").mkdir()
    given = options(guarantee, letters)
    if guarantee == "exactly-once":
        given["transactionalIdPrefix"] = name
    for micro_batch in range(2):
        (here.folder / "in" / f"{micro_batch}.json").write_text(
            '{"value": "good"}\n{"value": "bad", "partition": 99}\n'
        )
        stream = here.spark.readStream.schema("value STRING, partition INT").json(str(here.folder / "in"))
        query = here.start(stream, name, given)
        finish(query)
    assert values(here, name) == Counter({b"good": 2})
    told = [ours(record) for record in read(here, letters)]
    assert sorted(each["pykafka.batch"] for each in told) == ["0", "1"]
    assert {each["pykafka.query"] for each in told} == {str(query.id)}
    assert {(each["pykafka.slot"], each["pykafka.row"]) for each in told} == {("0", "1")}


# --- records that cannot be decoded -----------------------------------------------------------------------------------

ORDER = json.dumps({"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]})
COPY = json.dumps({"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}]})  # fmt: skip
GOOD, COPIED = b"\0\0\0\0\1\x0e", b"\0\0\0\0\2\x0e\0"
# Of another system; of an id that nobody knows; with bytes behind its end.
UNDECODABLE = (b"no record", b"\0\0\0\0\x63\x0e", GOOD + b"\0")


def undecodable(here: Here) -> str:
    """A topic with records that cannot be decoded among good ones, of which one is a tombstone."""
    name = here.topic(1, KEPT)
    bad = [(b"key", value, [("h", b"1"), ("h", None)]) for value in UNDECODABLE]
    rows: list[Any] = [(b"a", GOOD, None), *bad[:2], (None, None, []), bad[2], (None, GOOD, None)]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    here.save(here.spark.createDataFrame(rows, schema).coalesce(1), name)
    return name


def records_of(here: Here, reader: Any, source: str, first: str) -> DataFrame:
    of_read = {"kafka.bootstrap.servers": here.servers, "subscribe": source, "startingOffsets": first}
    records: DataFrame = reader.format("pykafka").options(**of_read, includeHeaders="true").load()
    return records


def decoded(here: Here, reader: Any, source: str, url: str, first: str = "earliest") -> DataFrame:
    """Rows whose schema takes no null, and dead letters, whose rows have a column that is not null."""
    records = records_of(here, reader, source, first)
    of = {"topic": source, "form": "avro", "registry": {"url": url}, "bad_rows": "deadLetter"}
    rows = records.select("key", deserialized(records, "value", **of).alias("order"))
    rows = rows.selectExpr("key", "order.value.id", "order.dead_letter")
    rows = rows.withColumn("note", F.when(F.col("dead_letter").isNotNull(), "bad"))
    value = serialized(rows, rows.columns[1:], topic="copy", form="avro", registry={"url": url}, schema=COPY)
    return rows.select("key", value.alias("value"), "dead_letter")


@pytest.mark.parametrize("guarantee", variants(*GUARANTEES[::-1]))
def test_a_stream_writes_records_that_cannot_be_decoded_as_dead_letters_with_their_bytes(
    here: Here, guarantee: str
) -> None:
    source, copy, letters = undecodable(here), here.topic(1), here.topic(1)
    given = options(guarantee, letters)
    with small_registry() as registry:
        registry.add(f"{source}-value", ORDER)
        frame = decoded(here, here.spark.readStream, source, registry.url)
        finish(here.start(frame, copy, given))
        if guarantee == "exactly-once":
            # Spark ends before it has the micro-batch, and the query finds it written.
            (here.folder / "checkpoint" / "commits" / "0").unlink()
            (here.folder / "checkpoint" / "commits" / ".0.crc").unlink()
            finish(here.start(frame, copy, given))
    assert [(record.key, record.value) for record in read(here, copy)] == [(b"a", COPIED), (None, None), (None, COPIED)]
    found = read(here, letters)
    assert [(letter.key, letter.value, list(letter.headers)[:2]) for letter in found] == [
        (b"key", value, [("h", b"1"), ("h", None)]) for value in UNDECODABLE
    ]
    of_letters = list(map(ours, found))
    assert [told["pykafka.source.offset"] for told in of_letters] == ["1", "2", "4"]
    assert {
        (told["pykafka.reason"], told["pykafka.source.topic"], told["pykafka.source.partition"])
        for told in of_letters
    } == {("RecordUndecodable", source, "0")}  # fmt: skip
    assert [told["pykafka.detail"] for told in of_letters] == [
        "it does not begin with a byte 0 or 1, as the serializers of a schema registry write it",
        "the schema registry has no schema with id 99", "1 bytes are left behind its end",
    ]  # fmt: skip


def test_undecodable_records_of_a_batch_are_in_its_transaction_and_need_a_place(here: Here) -> None:
    source, copy, letters = undecodable(here), here.topic(1), here.topic(1)
    with small_registry() as registry:
        registry.add(f"{source}-value", ORDER)
        frame = decoded(here, here.spark.read, source, registry.url)
        assert "DeadLettersRefused" in failed(here, frame, copy, options("exactly-once"))
        assert "TooManyBadRows" in failed(here, frame, copy, options("exactly-once", letters, maxBadRows="2"))
        assert read(here, copy) == read(here, letters) == []
        written(here, frame, copy, options("exactly-once", letters, maxBadRows="3"))
        assert [len(read(here, name)) for name in (copy, letters)] == [3, 3]
        result = kafka_sink.export(
            frame.selectExpr("key AS id", "dead_letter"), copy, value="json", bad_rows="deadLetter",
            dead_letter_topic=letters, bootstrap_servers=here.servers,
        )  # fmt: skip
    assert (result.rows, result.dead_lettered) == (6, 3)
    assert [json.loads(record.value or b"") for record in read(here, copy)[3:]] == [{"id": "YQ=="}, {}, {}]
    assert [letter.value for letter in read(here, letters)[3:]] == list(UNDECODABLE)


def test_a_row_of_which_key_and_value_are_decoded_has_one_dead_letter(here: Here) -> None:
    source, copy, letters = here.topic(1, KEPT), here.topic(1), here.topic(1)
    pairs = [(GOOD, GOOD), (b"bad key", GOOD), (GOOD, b"bad value"), (b"bad key", b"bad value"), (None, GOOD)]
    rows: list[Any] = [(*pair, [("h", b"1")]) for pair in pairs]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    here.save(here.spark.createDataFrame(rows, schema).coalesce(1), source)
    with small_registry() as registry:
        for part in ("key", "value"):
            registry.add(f"{source}-{part}", ORDER)
        records = records_of(here, here.spark.read, source, "earliest")
        of = {"topic": source, "form": "avro", "registry": {"url": registry.url}, "bad_rows": "deadLetter"}
        both = records.select(
            deserialized(records, "key", **of, is_key=True).alias("k"), deserialized(records, "value", **of).alias("v")
        )
        frame = both.select(
            F.col("k.value.id").alias("by"), "v.value.id",
            F.coalesce("k.dead_letter", "v.dead_letter").alias("dead_letter"),
        )  # fmt: skip
        to = {"form": "avro", "topic": "copy", "registry": {"url": registry.url}}
        key, value = (serialized(frame, [name], **to, is_key=name == "by") for name in ("by", "id"))
        out = frame.select(key.alias("key"), value.alias("value"), "dead_letter")
        written(here, out, copy, options("exactly-once", letters))
    of_copy = [(record.key and record.key[5:], record.value and record.value[5:]) for record in read(here, copy)]
    assert of_copy == [(b"\2\x0e", b"\2\x0e"), (None, b"\2\x0e")]
    assert [(letter.key, letter.value) for letter in read(here, letters)] == pairs[1:4]


# --- a registry that learns an id between a micro-batch and its replay ------------------------------------------------

# The third schema of the registry, which it has later.
LATE, TO_COME = ORDER.replace('"name": "r"', '"name": "r", "doc": "late"'), b"\0\0\0\0\3\x12"


def to_learn(here: Here, source: str, url: str, bad_rows: str, first: str = "earliest") -> DataFrame:
    """`bytes`: good records go on as they are; with the others rows are encoded anew."""
    reader = here.spark.readStream
    if bad_rows == "deadLetter":
        return decoded(here, reader, source, url, first)
    records = records_of(here, reader, source, first)
    of = {"topic": source, "form": "avro", "registry": {"url": url}}
    if bad_rows == "bytes":
        order = deserialized(records, "value", **of, bad_rows="deadLetter").alias("order")
        return records.select("key", "value", "headers", order).selectExpr("key", "value", "order.dead_letter")
    order = deserialized(records, "value", **of, bad_rows="null").alias("order")
    rows = records.select("key", order).selectExpr("key", "order.value.id", "CAST(NULL AS STRING) AS note")
    value = serialized(rows, ["id", "note"], topic="copy", form="avro", registry={"url": url}, schema=COPY)
    return rows.select("key", value.alias("value"))


@pytest.mark.parametrize("bad_rows", variants("deadLetter", "null", "bytes"))
def test_a_replay_that_can_decode_more_stops_or_keeps_what_is_visible(here: Here, bad_rows: str) -> None:
    source, copy, letters = here.topic(1, KEPT), here.topic(1), here.topic(1)
    rows: list[Any] = [(b"a", GOOD), (b"b", TO_COME)]
    here.save(here.spark.createDataFrame(rows, "key BINARY, value BINARY").coalesce(1), source)
    given = options("exactly-once", letters)
    with small_registry() as registry:
        registry.add(f"{source}-value", ORDER)

        def run(url: str, given: dict[str, str]) -> None:
            finish(here.start(to_learn(here, source, url, bad_rows), copy, given))

        def found() -> tuple[list[tuple[bytes | None, bytes | None]], list[bytes | None]]:
            return [(row.key, row.value) for row in read(here, copy)], [row.value for row in read(here, letters)]

        good = GOOD if bad_rows == "bytes" else COPIED
        first = ([(b"a", good), (b"b", None)], []) if bad_rows == "null" else ([(b"a", good)], [TO_COME])
        registry.add("copy-value", COPY)
        run(registry.url, given)
        assert found() == first
        is_unrecorded(here.folder)
        assert registry.add("late", LATE) == 3
        # Workers of another url have not asked for the id, as those of a new application.
        fresh = registry.url.replace("127.0.0.1", "localhost")
        if bad_rows == "bytes":
            run(fresh, given)
        else:
            for _ in range(2):
                error = error_of(lambda: run(fresh, given))
                assert isinstance(error, NonDeterministicReplay)
                assert "a schema registry" in str(error)
        assert found() == first
        # What the message proposes: behind the micro-batch, with a new checkpoint.
        again: list[Any] = [(b"c", TO_COME)]
        here.save(here.spark.createDataFrame(again, "key BINARY, value BINARY").coalesce(1), source)
        if bad_rows != "bytes":
            (here.folder / "checkpoint").rename(here.folder / "old")
        frame = to_learn(here, source, fresh, bad_rows, json.dumps({source: {"0": 2}}))
        finish(here.start(frame, copy, given))
        value = TO_COME if bad_rows == "bytes" else b"\0\0\0\0\2\x12\0"
        assert found() == (first[0] + [(b"c", value)], first[1])


@pytest.mark.long
def test_a_replay_of_what_is_not_visible_writes_what_it_can_decode_now(here: Here) -> None:
    source, copy, letters = here.topic(1, KEPT), here.topic(1), here.topic(1)
    rows: list[Any] = [(b"a", GOOD), (b"b", TO_COME), (b"c", UNDECODABLE[0])]
    here.save(here.spark.createDataFrame(rows, "key BINARY, value BINARY").coalesce(1), source)
    given = options("exactly-once", letters, maxBadRows="1")
    with small_registry() as registry:
        registry.add(f"{source}-value", ORDER)
        registry.add("copy-value", COPY)
        stream = here.spark.readStream
        query = here.start(decoded(here, stream, source, registry.url), copy, given)
        assert isinstance(error_of(lambda: finish(query)), TooManyBadRows)
        assert read(here, copy) == read(here, letters) == []
        registry.add("late", LATE)
        fresh = registry.url.replace("127.0.0.1", "localhost")
        finish(here.start(decoded(here, stream, source, fresh), copy, given))
    assert [record.value for record in read(here, copy)] == [COPIED, b"\0\0\0\0\2\x12\0"]
    assert [letter.value for letter in read(here, letters)] == [UNDECODABLE[0]]
