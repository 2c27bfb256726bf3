"""Rows for readers with a schema registry: Avro, JSON Schema, Protobuf.

    DataFrame's schema, or a given one
       |  column.py       all steps: choose the schema, check that it fits, get its id, make the column of bytes
       |  registering.py  the official client: subjects, register, look up, explain refusals
       v
    avro.py, json_schema.py, protobuf.py    map Spark's types, check a schema, say how rows are encoded
       |
       v
    values.py    on executors: converts an Arrow batch for fastavro and google.protobuf, and checks it by column
    forms.py     what the three forms share: errors, the encoding of Arrow batches, and the framing

The driver asks the registry once. Executors never do, and need only the encoding library.
"""

from __future__ import annotations

from kafka_sink.registry.column import serialized

__all__ = ["serialized"]
