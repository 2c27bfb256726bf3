"""What a read needs of its brokers; see `needs.py`."""

from __future__ import annotations

from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.apis.list_offsets import ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.needs import Guarantee, Need

READING = Guarantee(
    "reading",
    (
        Need(MetadataRequest((), allow_auto_topic_creation=False), "1.0", "finds the leaders"),
        Need(ListOffsetsRequest((), IsolationLevel.READ_COMMITTED, 0), "2.1", "finds where partitions begin and end"),
        Need(FetchRequest("", None, 0, 0, 0, IsolationLevel.READ_COMMITTED, 0, 0, 0), "2.3", "reads records"),
    ),
)
