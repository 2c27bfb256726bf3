"""A fixture of pytest for the tests of your own pipeline: a local Kafka that ends with the run.

# conftest.py
pytest_plugins = ["kafka_sink.broker.fixtures"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_sink.broker import LocalKafka

__all__ = ["kafka_broker"]


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[LocalKafka]:
    """A Kafka of one node for the whole run. Its tests share it, so each takes topics of its own.

    `kafka_broker.bootstrap_servers` is its address. `kafka_broker.create_topic("orders", 2)` creates a topic. Raises
    what `LocalKafka` raises, such as JavaNotFound.

    Examples:
        >>> def test_a_topic_is_made(kafka_broker):
        ...     kafka_broker.create_topic("orders", 2)
    """
    with LocalKafka() as cluster:
        yield cluster
