"""Rows for readers that ask a schema registry: Avro, JSON Schema, Protobuf.

    DataFrame's schema, or a given one
       |  column.py       the whole of it: which schema, whether it fits, its id, the column of bytes
       |  subjects.py     under which name the registry keeps it
       |  registering.py  the official client: register, look up, what its refusals mean
       v
    avro.py, json_schema.py, protobuf.py    Spark's types as the form's; a schema that fits them; the encoding column
       |                                    (proto_text.py: a .proto file's text, compiled)
       |
       v
    values.py    on executors: an Arrow batch as what fastavro and google.protobuf take, checked a column at a time
    framing.py   magic byte, schema id, payload, as one Arrow array

The driver asks the registry, once; executors never do, and need only the library that encodes.
"""

from __future__ import annotations

from kafka_sink.registry.column import serialized

__all__ = ["serialized"]
