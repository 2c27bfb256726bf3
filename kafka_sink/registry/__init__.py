"""Rows for readers with a schema registry, and rows of its writers: Avro, JSON Schema, Protobuf.

    DataFrame's schema, or a given one
       |  column.py       all steps: choose the schema, check that it fits, get its id, make the column of bytes
       |  registering.py  the official client: subjects, register, look up, explain refusals
       |  references.py   the schemas that a schema refers to
       v
    avro.py, json_schema.py, protobuf.py    map Spark's types, check a schema, say how rows are encoded
       |
       v
    protoc.py    compiles the text of a .proto file
    values.py    on executors: converts an Arrow batch for fastavro and google.protobuf, and checks it by column
    forms.py     what the three forms share: errors, the encoding of Arrow batches, and the framing

    a subject's schema, or a given one
       |  reading.py      chooses the reader's schema, makes the decoded column
       v
    decoding.py  on executors: the framing, writers' schemas by their ids, bad records
       |
       v
    avro_reading.py, json_reading.py, protobuf_reading.py   map to Spark's types, resolve records of a writer's schema
    avro_schemas.py   Avro's types of a reader, and a writer's schema for fastavro
    arrays.py    makes Arrow arrays of decoded values

The driver asks the registry once. Executors that encode never do, and need only the encoding library. Those that decode
ask for the schemas of writers.
"""

from __future__ import annotations

from kafka_sink.errors.installed import needs_pyspark

with needs_pyspark():
    from kafka_sink.registry.column import serialized
    from kafka_sink.registry.reading import deserialized

__all__ = ["deserialized", "serialized"]
