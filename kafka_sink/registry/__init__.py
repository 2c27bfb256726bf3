"""Rows for readers with a schema registry: Avro, JSON Schema, Protobuf.

    DataFrame's schema, or a given one
       |  column.py       all steps: choose the schema, check that it fits, get its id, make the column of bytes
       |  subjects.py     the subject: the schema's name in the registry
       |  registering.py  the official client: register, look up, explain refusals
       v
    avro.py, json_schema.py, protobuf.py    map Spark's types, check a schema, make the encoding column
       |                                    (proto_text.py: compiles the text of a .proto file)
       |
       v
    values.py    on executors: converts an Arrow batch for fastavro and google.protobuf, and checks it by column
    framing.py   magic byte, schema id, payload, as one Arrow array

The driver asks the registry once. Executors never do, and need only the encoding library.
"""

from __future__ import annotations

from kafka_sink.registry.column import serialized

__all__ = ["serialized"]
