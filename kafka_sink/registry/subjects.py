"""Subjects: the names of schemas in the registry, by the official client's strategies.

- topic (TopicNameStrategy): one schema for each topic
- record (RecordNameStrategy): one schema for each record type, in all topics
- topic-record (TopicRecordNameStrategy): one schema for each record type and topic
"""

from __future__ import annotations

import re

from kafka_sink.registry.extra import extra

STRATEGIES = {
    "topic": "topic_subject_name_strategy",
    "record": "record_subject_name_strategy",
    "topic-record": "topic_record_subject_name_strategy",
}


def subject_name(strategy: str, topic: str, record_name: str, is_key: bool) -> str:
    """>>> subject_name("topic", "orders", "orders_value", is_key=False)
    'orders-value'
    """
    serialization = extra("confluent_kafka.serialization")
    field = serialization.MessageField.KEY if is_key else serialization.MessageField.VALUE
    name_of = getattr(extra("confluent_kafka.schema_registry"), STRATEGIES[strategy])
    subject: str = name_of(serialization.SerializationContext(topic, field), record_name)
    return subject


def record_name(topic: str, is_key: bool) -> str:
    """Return the name of a derived record. Avro and Protobuf allow letters, digits and underscores.

    >>> record_name("shop.orders-eu", is_key=False)
    'shop_orders_eu_value'
    """
    letters = re.sub(r"[^A-Za-z0-9_]", "_", topic)
    return f"{'_' if letters[:1].isdigit() else ''}{letters}_{'key' if is_key else 'value'}"
