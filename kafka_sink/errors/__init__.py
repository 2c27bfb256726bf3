"""All errors of this package, below KafkaSinkError.

    ConfigError            an option is wrong; nothing was sent
    SchemaError            a column is wrong; nothing was sent
    BadRow                 one row cannot be a Kafka record
    RegistryError          the schema registry did not answer or refused; nothing was sent
    ClusterError           the cluster did not answer or refused, before rows were sent
    DeliveryError          rows were accepted by the sink and not acknowledged by the broker
    ProtocolError          a peer sent bytes that are not the Kafka protocol (handled inside: the connection is closed,
                           its requests are retried)
    ExactlyOnceError       the two-phase commit stopped; a partly visible batch is named
    ReadError              the records that a read asks for, and its progress

Others are of none of these areas. `help(kafka_sink.errors)` shows the whole tree, docs/errors.md each message.
`LocalKafkaError` and its subclasses are part of the local broker, in `kafka_sink.broker.errors`.

An error has facts as fields: topic, partition, broker, sizes, but never a payload or a secret. All facts are escaped
and cut. Callers that know more about the write add fields with `in_transaction` and `of_principal`. `base.py` makes the
message from the fields, in three parts: what happened, what it means for the data, and what to do.

A module of this folder has the errors of one area, and exports them by its `__all__`. `exhaustion.py` names what a
worker lacks, `installed.py` which pyspark there is, `failures.py` carries errors through Spark's text, and `quoting.py`
and `redaction.py` make texts safe.
"""

# ruff: noqa: F403

from kafka_sink.errors import base, cluster, delivery, options, reading, registry, rows, spark, transactions
from kafka_sink.errors.base import *
from kafka_sink.errors.cluster import *
from kafka_sink.errors.delivery import *
from kafka_sink.errors.options import *
from kafka_sink.errors.reading import *
from kafka_sink.errors.registry import *
from kafka_sink.errors.rows import *
from kafka_sink.errors.spark import *
from kafka_sink.errors.transactions import *

# Type checkers read this form. Without it `import *` would replace the `spark` of a notebook by a module.
__all__ = []
__all__ += base.__all__
__all__ += cluster.__all__
__all__ += delivery.__all__
__all__ += options.__all__
__all__ += reading.__all__
__all__ += registry.__all__
__all__ += rows.__all__
__all__ += spark.__all__
__all__ += transactions.__all__
