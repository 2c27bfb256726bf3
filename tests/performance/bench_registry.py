"""`python tests/performance/bench_registry.py`: records of a schema registry to Arrow columns on one core.

What runs is what an executor runs for each Arrow batch, without Spark: `decoding.Decoder`, and for Avro and Protobuf
`encode` of `serialized`. JSON is written by Spark's own to_json. A record has ten fields: four nullable bigints, four
nullable strings of 10 characters, a double and a boolean. The same records are read by the official deserializer, which
gives dicts or messages, and written by the official serializer. Time is this process's CPU time; the best of the rounds
counts. With PYKAFKA_KERNEL=off in the environment the lines of Avro are those of fastavro.
"""

import base64
import functools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory
from pyspark.sql import types as T

from kafka_sink.registry import avro, avro_reading, json_reading, protobuf, protobuf_reading, protoc
from kafka_sink.registry.arrays import arrow_type
from kafka_sink.registry.decoding import Batch, Decoder, Reading
from kafka_sink.registry.references import Written

sys.path.append(str(Path(__file__).parents[1] / "support"))
from small_registry import small_registry

ROWS, ROUNDS = 10_000, 3
VALUE = SerializationContext("orders", MessageField.VALUE)
NAMES = {**{f"l{i}": "long" for i in range(4)}, **{f"s{i}": "string" for i in range(4)}, "d": "double", "b": "boolean"}
AVRO = json.dumps({"type": "record", "name": "r", "fields": [
    {"name": name, "type": ["null", kind] if name[0] in "ls" else kind} for name, kind in NAMES.items()]})  # fmt: skip
NEW = json.dumps(json.loads(AVRO) | {"fields": [
    *json.loads(AVRO)["fields"][1:], {"name": "new", "type": "string", "default": "x"}]})  # fmt: skip
SPARK = {"long": T.LongType(), "string": T.StringType(), "double": T.DoubleType(), "boolean": T.BooleanType()}
IN_JSON = {"long": "integer", "double": "number"}
JSON = json.dumps({"title": "r", "type": "object", "properties": {
    name: {"type": ["null", IN_JSON.get(kind, kind)]} for name, kind in NAMES.items()}})  # fmt: skip

PROTO = base64.b64encode(protoc.compiled('syntax = "proto3"; message M {' + "".join(
    f"optional {'int64' if kind == 'long' else kind.replace('boolean', 'bool')} {name} = {i};"
    for i, (name, kind) in enumerate(NAMES.items(), 1)) + "}")).decode()  # fmt: skip


def row(number: int) -> dict[str, Any]:
    numbers: dict[str, Any] = {f"l{i}": number * 10**i for i in range(4)}
    return {**numbers, **{f"s{i}": f"name-{number:05}" for i in range(4)}, "d": number / 3, "b": True}


def rows_a_second(call: Callable[[], object]) -> int:
    def once() -> float:
        begun = time.process_time()
        call()
        return time.process_time() - begun

    return int(ROWS / min(once() for _ in range(ROUNDS)))


def decoder(reader: Any, text: str, url: str) -> Decoder:
    return Decoder(Reading("", functools.partial(reader, Written(text)), {"url": url}, "orders-value", False))


def main() -> None:
    with small_registry() as registry:
        client = SchemaRegistryClient({"url": registry.url})
        rows = [row(number) for number in range(ROWS)]
        to_avro = AvroSerializer(client, AVRO)
        in_avro = [to_avro(one, VALUE) for one in rows]
        to_json = JSONSerializer(JSON, client, conf={"validate": False})
        in_json = [to_json(one, VALUE) for one in rows]
        cls = message_factory.GetMessageClass(protobuf.descriptor_of((base64.b64decode(PROTO),), "M"))
        to_proto = ProtobufSerializer(cls, client, {"use.deprecated.format": False})
        in_proto = [to_proto(cls(**one), VALUE) for one in rows]
        of_proto = ProtobufDeserializer(cls, {"use.deprecated.format": False}, client)
        of_json = JSONDeserializer(None, schema_registry_client=client, conf={"validate": False})
        cases: dict[str, Callable[[], object]] = {}
        for name, reader, text, data in (
            ("Avro, the writer's schema", avro_reading.Reader, AVRO, in_avro),
            ("Avro, an evolved schema", avro_reading.Reader, NEW, in_avro),
            ("JSON", json_reading.Reader, JSON, in_json),
            ("Protobuf", protobuf_reading.Reader, PROTO, in_proto),
        ):  # fmt: skip
            nulls = pa.nulls(ROWS)
            batch = Batch(pa.array(data, pa.binary()), pa.nulls(ROWS, pa.binary()), (nulls, nulls, nulls))
            cases[name] = functools.partial(decoder(reader, text, registry.url).decoded, batch)
        types = T.StructType([T.StructField(name, SPARK[kind], name[0] in "ls") for name, kind in NAMES.items()])
        columns = pa.array(rows, arrow_type(types))
        cases["Avro, written"] = functools.partial(avro.fitted(AVRO, types).encode, columns, bytes(5))
        cases["Protobuf, written"] = functools.partial(protobuf.fitted(PROTO, types).encode, columns, bytes(6))
        cases["official, Avro, written"] = lambda: [to_avro(one, VALUE) for one in rows]
        cases["official, Protobuf, written"] = lambda: [to_proto(cls(**one), VALUE) for one in rows]
        official = AvroDeserializer(client), AvroDeserializer(client, NEW)
        cases["official, Avro, the writer's schema"] = lambda: [official[0](one, VALUE) for one in in_avro]
        cases["official, Avro, an evolved schema"] = lambda: [official[1](one, VALUE) for one in in_avro]
        cases["official, JSON, not validated"] = lambda: [of_json(one, VALUE) for one in in_json]
        cases["official, Protobuf, messages"] = lambda: [of_proto(one, VALUE) for one in in_proto]
        print(f"rows/s a core: ten fields, {len(in_avro[0] or b'')} bytes in Avro, {len(in_json[0] or b'')} in JSON")
        for name, call in cases.items():
            print(f"{name:40} {rows_a_second(call):>10,}")


if __name__ == "__main__":
    main()
