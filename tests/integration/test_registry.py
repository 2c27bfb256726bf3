"""Rows that Spark encodes for a schema registry and the sink writes, read by another client and the official
deserializers from the same in-memory registry."""

import base64
import datetime as dt
import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from chispa import assert_df_equality
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from avro_kinds import nested, or_null, record_of, with_names
from avro_schemas import pairs
from http_endpoints import INCOMPATIBLE, registry_stand_in
from kafka_sink.errors import ColumnNotInSchema, DuplicateColumn, MissingColumn, SchemaIncompatible
from kafka_sink.registry import avro, avro_reading, deserialized, protoc, serialized
from kafka_sink.registry.references import Written
from registry_rows import COLUMNS, arrow_rows, message_class, read_from_protobuf, with_empty_for_null
from small_registry import small_registry
from spark_writes import Here, with_conf

FORMS = ("avro", "json", "protobuf")


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": fields})


def reader(form: str, client: SchemaRegistryClient, subject: str, columns: T.StructType) -> Callable[[Any], Any]:
    """The official deserializer, and its Protobuf messages as rows."""
    context = SerializationContext(subject.rpartition("-")[0], MessageField.VALUE)
    text = client.get_latest_version(subject).schema.schema_str or ""
    if form == "avro":
        read: Any = AvroDeserializer(client)
    elif form == "json":
        read = JSONDeserializer(text, schema_registry_client=client)
    else:
        official = ProtobufDeserializer(message_class(text), {"use.deprecated.format": False}, client)
        return lambda data: read_from_protobuf(official(data, context), columns)
    return lambda data: read(data, context)


def as_json(value: Any, data_type: T.DataType) -> Any:
    """What json.loads makes of a value: no null fields, numbers for decimals, texts for times and bytes."""
    match data_type:
        case _ if value is None:
            return None
        case T.StructType():
            present = [field for field in data_type.fields if value[field.name] is not None]
            return {field.name: as_json(value[field.name], field.dataType) for field in present}
        case T.ArrayType():
            return [as_json(one, data_type.elementType) for one in value]
        case T.MapType():
            return {key: as_json(one, data_type.valueType) for key, one in value.items()}
        case T.DecimalType():
            return float(value)
        case T.FloatType():
            return float(str(np.float32(value)))
        case T.BinaryType():
            return base64.b64encode(value).decode()
        case T.DateType():
            return value.isoformat()
        case T.TimestampType():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case T.TimestampNTZType():
            return value.isoformat(timespec="microseconds")
    return value


def expected(form: str, row: dict[str, Any]) -> Any:
    return {"avro": row, "json": as_json(row, COLUMNS), "protobuf": with_empty_for_null(row)}[form]


INNER = {"x": -7, "until": dt.date(9999, 12, 31)}
FULL = {
    "id": 2**63 - 1,
    "tiny": -128,
    "small": 32767,
    "whole": -(2**31),
    "flag": False,
    "near": 0.10000000149011612,
    "ratio": -1e300,
    "name": "\u0000 \u00e6 \U0001f600",
    "data": bytes(range(256)),
    "amount": Decimal("-123456789.012"),
    "wide": Decimal("-99999999999999999999.999999999999999999"),
    "day": dt.date(1, 1, 1),
    "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
    "local": dt.datetime(2024, 3, 31, 2, 30, 0, 1),  # a time that Oslo does not have
    "tags": ["", "b"],
    "counts": {"k": 0, "": -1},
    "place": {"lat": 0.0, "since": dt.datetime(9999, 12, 31, tzinfo=dt.UTC), "inner": INNER},
    "lines": [{"sku": None, "price": Decimal("0.01")}, {"sku": "s", "price": Decimal("-999.99")}],
    "places": {"here": INNER, "there": {"x": None, "until": None}},
}
ROWS = [FULL, dict.fromkeys(FULL) | {"id": 1}, FULL | {"id": 0, "place": dict.fromkeys(FULL["place"])}]


def test_the_official_deserializers_read_what_spark_encoded(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    values = [serialized(frame, COLUMNS.names, topic=form, form=form, registry=client).alias(form) for form in FORMS]
    found = frame.select("id", *values).collect()
    for form in FORMS:
        read = reader(form, client, f"{form}-value", COLUMNS)
        assert [read(bytes(row[form])) for row in found] == [expected(form, row) for row in ROWS]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_columns(spark: SparkSession, form: str) -> None:
    names = [f"c{number}" for number in range(1_000)]
    rows = spark.range(0, 2, 1, 1)
    frame = rows.select(*(F.when(F.col("id") == 0, F.lit(number)).alias(name) for number, name in enumerate(names)))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    value = serialized(frame, names, topic=form, form=form, registry=client).alias("value")
    written, tombstone = (row.value for row in frame.select(value).collect())
    read = reader(form, client, f"{form}-value", frame.schema)(bytes(written))
    assert (read["c0"], read["c7"], read["c999"], len(read)) == (0, 7, 999, 1_000)
    assert tombstone is None


def test_another_client_reads_them_from_kafka(here: Here) -> None:
    """Keys as well as values, and no value where all its columns are null."""
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    rows = here.spark.range(0, 5, 1, 1)
    frame = rows.selectExpr("id", "if(id = 3, null, 'n' || id) AS name", "if(id = 3, null, id / 4) AS part")
    topics = {form: here.topic() for form in FORMS}
    writes = [
        frame.select(
            F.lit(name).alias("topic"),
            serialized(frame, ["id"], topic=name, form=form, registry=client, is_key=True).alias("key"),
            serialized(frame, ["name", "part"], topic=name, form=form, registry=client).alias("value"),
        )
        for form, name in topics.items()
    ]
    here.save(writes[0].union(writes[1]).union(writes[2]), None)
    for form, name in topics.items():
        key, value = (
            reader(form, client, f"{name}-{part}", frame.select(columns).schema)
            for part, columns in (("key", ["id"]), ("value", ["name", "part"]))
        )
        read = [record for _, _, record in here.records(name)]
        records = [(key(record.key), value(record.value)) for record in read]
        assert sorted(records, key=lambda record: record[0]["id"]) == [
            ({"id": n}, None if n == 3 else {"name": f"n{n}", "part": n / 4}) for n in range(5)
        ]
        assert client.get_latest_version(f"{name}-key").version == 1


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
def test_what_spark_encoded_is_decoded_again(spark: SparkSession, form: str) -> None:
    frame = spark.createDataFrame([*ROWS, dict.fromkeys(FULL)], COLUMNS.simpleString().replace(" not null", ""))
    with small_registry() as registry, with_conf(spark, "spark.sql.execution.arrow.useLargeVarTypes", "true"):
        conf = {"url": registry.url}
        value = serialized(frame, COLUMNS.names, topic="t", form=form, registry=conf)
        records = frame.coalesce(1).select(value.alias("value"))
        decoded = deserialized(records, "value", topic="t", form=form, registry=conf)
        found = [row.r and row.r.asDict(recursive=True) for row in records.select(decoded.alias("r")).collect()]
    assert found[3] is None
    for row, read_again in zip(ROWS, found, strict=False):
        again = dict(read_again)
        again["at"] = again["at"] and again["at"].astimezone(dt.UTC)
        if form == "json":
            names = ["id", "name", "data", "day", "at", "tags", "counts", "places"]
            assert {name: again[name] for name in names} == {name: row[name] for name in names}
        else:
            wanted = expected(form, row)
            assert {name: again[name] for name in row if name != "place"} == {
                name: wanted[name] for name in row if name != "place"
            }


@pytest.mark.long
def test_types_that_only_decoded_columns_have(spark: SparkSession) -> None:
    """Avro's null and duration, Protobuf's Duration and unsigned numbers."""
    duration = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
    avro = record({"name": "nothing", "type": "null"}, {"name": "d", "type": duration}, {"name": "e", "type": "null"})
    proto = protoc.compiled("""syntax = "proto3"; import "google/protobuf/duration.proto";
        message M { google.protobuf.Duration d = 1; uint64 u = 2; }""")
    with small_registry() as registry:
        conf = {"url": registry.url}
        registry.add("a-value", avro)
        registry.add("p-value", base64.b64encode(proto).decode(), "PROTOBUF")
        frame = spark.sql(
            "SELECT X'0000000001010000000200000003000000' AS a, X'0000000002000a02080510ffffffffffffffffff01' AS p"
        )
        columns = [deserialized(frame, name, topic=name, form=form, registry=conf).alias(name)
                   for name, form in (("a", "avro"), ("p", "protobuf"))]  # fmt: skip
        (row,) = frame.select(*columns).collect()
    assert row.a.asDict(recursive=True) == {
        "nothing": None, "d": {"months": 1, "days": 2, "milliseconds": 3}, "e": None}  # fmt: skip
    assert (row.p.d, row.p.u) == (dt.timedelta(seconds=5), Decimal(2**64 - 1))


def test_what_is_wrong_is_said_before_a_row_and_of_a_row_by_its_column(spark: SparkSession) -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    frame = spark.range(0, 2, 1, 1).selectExpr(
        "if(id = 1, double('NaN'), 1.5D) AS d", "if(id = 1, null, 'secret') AS s", "array(1.5D, d) AS a",
        "map('k', named_struct('f', float(d))) AS m", "named_struct('n', named_struct('s', s)) AS t",
    )  # fmt: skip
    for columns, error in ((["nowhere"], MissingColumn), (["s", "s"], DuplicateColumn)):
        with pytest.raises(error):
            serialized(frame, columns, topic="t", form="avro", registry=client)
    with pytest.raises(ColumnNotInSchema):
        text = '{"properties": {"d": {"type": "string"}}}'
        serialized(frame, ["d"], topic="t", form="json", registry=client, schema=text)
    required = record({"name": "s", "type": "string"}, {"name": "d", "type": "double"})
    within = '{"properties": {"t": {"properties": {"n": {"required": ["s"]}}}}}'
    fail_by_row = {
        "'s' is null": serialized(frame, ["s", "d"], topic="t", form="avro", registry=client, schema=required),
        "'d' is NaN": serialized(frame, ["s", "d"], topic="d", form="json", registry=client),
        r"'a\[\]' is NaN": serialized(frame, ["s", "a"], topic="a", form="json", registry=client),
        "'m{}.f' is NaN": serialized(frame, ["s", "m"], topic="m", form="json", registry=client),
        "'t.n.s' is null": serialized(frame, ["t"], topic="t", form="json", registry=client, schema=within),
    }
    for said, column in fail_by_row.items():
        message = f"ValueNotInSchema: a row does not fit its schema: column {said}"
        with pytest.raises(PySparkException, match=message) as failure:
            frame.select(column).collect()
        assert "secret" not in str(failure.value)


def test_a_registry_that_refuses_is_heard_before_a_row(spark: SparkSession) -> None:
    refusal = {
        ("GET", "/subjects/orders-value/versions/latest"): (404, {"error_code": 40401, "message": "no such subject"}),
        ("POST", "/subjects/orders-value/versions"): (409, {"error_code": 409, "message": INCOMPATIBLE}),
    }
    for form in FORMS:
        with registry_stand_in(refusal) as stand_in, pytest.raises(SchemaIncompatible, match="version 7 of subject"):
            serialized(spark.range(1), ["id"], topic="orders", form=form, registry={"url": stand_in.url})


def test_the_latest_schema_is_used_as_it_is_where_that_is_asked_for(spark: SparkSession) -> None:
    text = record({"name": "n", "type": "long", "default": 5}, {"name": "id", "type": "long"})
    latest = {"id": 77, "version": 2, "subject": "orders-value", "schema": text, "schemaType": "AVRO"}
    with registry_stand_in({("GET", "/subjects/orders-value/versions/latest"): (200, latest)}) as stand_in:
        conf = {"url": stand_in.url, "use.latest.version": "true"}
        column = serialized(spark.range(1), ["id"], topic="orders", form="avro", registry=conf)
        asked = len(stand_in.asked)
        (row,) = spark.range(1).select(column.alias("v")).collect()
        assert bytes(row.v) == b"\0\0\0\0M" + b"\x0a\x00"
        assert len(stand_in.asked) == asked == 1


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_java_writes_the_same_bytes_of_avro(spark: SparkSession, data: st.DataObject) -> None:
    """Avro's own library, which Confluent's serializer calls, reads each value and writes it again."""
    kind = record_of([or_null(one) for one in data.draw(st.lists(nested(2, entries=1), min_size=1, max_size=3))])
    schema = json.dumps(with_names(kind.avro, []))
    assert isinstance(kind.spark, T.StructType)
    rows = data.draw(st.lists(kind.values, min_size=1, max_size=3))
    written = avro.fitted(schema, kind.spark).encode(arrow_rows(rows, kind.spark), b"").to_pylist()
    assert [by_java(spark, schema, one) for one in written] == written


@pytest.mark.long
def test_java_writes_the_same_bytes_of_decimals(spark: SparkSession) -> None:
    schema = record({"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}})
    columns = T.StructType([T.StructField("d", T.DecimalType(38, 2))])
    unscaled = [sign * 2 ** (8 * size - 1) + one for size in range(1, 16) for sign in (-1, 1) for one in (-1, 0, 1)]
    rows: Any = [{"d": Decimal((n < 0, tuple(map(int, str(abs(n)))), -2))} for n in unscaled]
    written = avro.fitted(schema, columns).encode(arrow_rows(rows, columns), b"").to_pylist()
    assert [by_java(spark, schema, one) for one in written] == written


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_java_resolves_records_of_evolved_schemas_to_the_same_values(spark: SparkSession, data: st.DataObject) -> None:
    """Avro's own library reads each record by both schemas, and writes it again by the reader's."""
    pair = data.draw(pairs())
    written, read = json.dumps(pair.writer), json.dumps(pair.reader)
    records = []
    for value in data.draw(st.lists(pair.values, min_size=1, max_size=3)):
        out = io.BytesIO()
        schemaless_writer(out, parse_schema(json.loads(written)), value)
        records.append(out.getvalue())
    resolving = avro_reading.Reader(Written(read))
    of_writer, of_reader = resolving.writer(Written(written)), resolving.writer(Written(read))
    by_us = of_writer.make([of_writer.parse(one, 0) for one in records]).to_pylist()
    again = [by_java(spark, read, one, written) for one in records]
    assert in_any_order(by_us) == in_any_order(of_reader.make([of_reader.parse(one, 0) for one in again]).to_pylist())


# What Spark has other types or values for: bytes of a duration, a UUID in a fixed.
@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_evolved_records_are_the_rows_that_sparks_from_avro_makes(both: SparkSession, data: st.DataObject) -> None:
    pair = data.draw(pairs().filter(lambda pair: pair.reader["fields"]))
    written, read = json.dumps(pair.writer), json.dumps(pair.reader)
    records = []
    for value in data.draw(st.lists(pair.values, min_size=1, max_size=4)):
        out = io.BytesIO()
        schemaless_writer(out, parse_schema(json.loads(written)), value)
        records.append((bytearray(b"\0\0\0\0\1" + out.getvalue()),))
    with small_registry() as registry:
        registry.add("r-value", written)
        frame = both.createDataFrame(records, "value BINARY").coalesce(1)
        ours = deserialized(frame, "value", topic="r", form="avro", registry={"url": registry.url}, schema=read)
        options = {"avroSchema": read, "datetimeRebaseMode": "CORRECTED"}
        theirs = from_avro(F.expr("substring(value, 6)"), written, options)
        assert_df_equality(frame.select(ours.alias("r")), frame.select(theirs.alias("r")), ignore_nullable=True)


def in_any_order(value: Any) -> Any:
    """Java's maps have an order of their own."""
    match value:
        case dict():
            return {name: in_any_order(one) for name, one in value.items()}
        case list() if value and all(isinstance(one, tuple) for one in value):
            return {name: in_any_order(one) for name, one in value}
        case list():
            return [in_any_order(one) for one in value]
    return value


def by_java(spark: SparkSession, schema: str, data: bytes, writer: str | None = None) -> bytes:
    """Read by Java with the schema of the writer, by default the same, and written again."""
    jvm: Any = spark.sparkContext._jvm
    apache, java = jvm.org.apache.avro, jvm.java.io
    parsed, values = apache.Schema.Parser().parse(schema), apache.generic.GenericData()
    actual = apache.Schema.Parser().parse(writer or schema)
    for conversion in (apache.Conversions.DecimalConversion(), apache.Conversions.UUIDConversion()):
        values.addLogicalTypeConversion(conversion)
    decoder = apache.io.DecoderFactory.get().binaryDecoder(java.ByteArrayInputStream(bytearray(data)), None)
    value = apache.generic.GenericDatumReader(actual, parsed, values).read(None, decoder)
    out = java.ByteArrayOutputStream()
    encoder = apache.io.EncoderFactory.get().binaryEncoder(out, None)
    apache.generic.GenericDatumWriter(parsed, values).write(value, encoder)
    encoder.flush()
    return bytes(out.toByteArray())


TEXTS = "", "\u00e6 \U0001f600 \u2028 \x7f", "/ \" \\ <>&' \b\f\n\r\t", "\x00 \x01 \x1f"
DOUBLES = 0.0, -0.0, 0.001, 1.5, 1e6, 0.1 + 0.2, 1e-5, 1e7, 1e16, 1e300, 5e-324


@pytest.mark.long
def test_json_text_is_that_of_the_official_serializers(spark: SparkSession) -> None:
    """That of Java, by Jackson, for every value. Python's has another text for control characters, whose digits it
    writes in lower case, and for numbers with exponents."""
    columns = T.StructType([
        T.StructField("s", T.StringType()), T.StructField("n", T.LongType()), T.StructField("b", T.BooleanType()),
        T.StructField("d", T.DoubleType()), T.StructField("m", T.MapType(T.StringType(), T.LongType())),
        T.StructField("a", T.ArrayType(T.StructType([T.StructField("t", T.StringType())]))),
    ])  # fmt: skip
    rows = [
        {"s": text, "n": number, "b": True, "d": double, "m": {text: number}, "a": [{"t": text}]}
        for text in TEXTS for number in (0, -(2**63), 2**63 - 1) for double in DOUBLES
    ]  # fmt: skip
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    frame = spark.createDataFrame(rows, columns).coalesce(1)
    key = serialized(frame, columns.names, topic="j", form="json", registry=client, is_key=True)
    written = [bytes(row.k) for row in frame.select(key.alias("k")).collect()]
    context = SerializationContext("j", MessageField.KEY)
    official = JSONSerializer(client.get_latest_version("j-key").schema.schema_str, client)
    jackson = spark.sparkContext._jvm.com.fasterxml.jackson.databind.ObjectMapper()
    for row, one in zip(rows, written, strict=True):
        text, double = (jackson.writeValueAsString(row[name]) for name in ("s", "d"))
        java = f'{{"s":{text},"n":{row["n"]},"b":true,"d":{double},"m":{{{text}:{row["n"]}}},"a":[{{"t":{text}}}]}}'
        assert one[5:].decode() == java
        if "\x1f" not in row["s"] and "E" not in double:
            assert one == official(row, context)


@pytest.mark.long
def test_a_json_schema_of_a_number_or_a_text_is_an_only_column(spark: SparkSession) -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    for form, value in (("string", 'a "b" \u00e6'), ("integer", -7), ("boolean", False), ("number", 1.5)):
        schema = json.dumps({"title": form, "type": form})
        frame = spark.createDataFrame([(value,), (None,)], ["c"]).coalesce(1)
        column = serialized(frame, ["c"], topic=form, form="json", registry=client, schema=schema)
        written, null = (row.v for row in frame.select(column.alias("v")).collect())
        official = JSONSerializer(schema, client)(value, SerializationContext(form, MessageField.VALUE))
        assert bytes(written) == official and null is None


@pytest.mark.long
def test_an_avro_whole_that_is_no_record_and_a_schema_with_references(spark: SparkSession) -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    frame = spark.createDataFrame([("a", Decimal("1.00"))], "c string, d decimal(18, 2)").coalesce(1)
    city = {"type": "record", "name": "City", "fields": [{"name": "zip", "type": "string"}]}
    client.register_schema("city", Schema(json.dumps(city), "AVRO"))
    order = record({"name": "c", "type": "string"}, {"name": "to", "type": ["City", "null"]})
    schema = Schema(order, "AVRO", [SchemaReference("City", "city", 1)])
    with_city = frame.withColumn("to", F.struct(F.col("c").alias("zip")))
    rows = with_city.select(
        serialized(frame, ["c"], topic="t", form="avro", registry=client, schema='"string"', is_key=True).alias("k"),
        serialized(with_city, ["c", "to"], topic="t", form="avro", registry=client, schema=schema).alias("v"),
    )
    (row,) = rows.collect()
    key, value = SerializationContext("t", MessageField.KEY), SerializationContext("t", MessageField.VALUE)
    assert bytes(row.k) == AvroSerializer(client, '"string"')("a", key)
    assert bytes(row.v) == AvroSerializer(client, schema)({"c": "a", "to": {"zip": "a"}}, value)
