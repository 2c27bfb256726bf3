"""The examples in the docstrings of what is public, run as doctests on one Spark and one broker."""

import doctest
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQueryManager

import kafka_sink
from kafka_sink.broker import LocalKafka
from public_api import public, with_examples
from small_registry import small_registry

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[dict[str, Any]]:
    """What the page says that the examples have."""
    with LocalKafka() as kafka, small_registry() as registry:
        kafka.create_topic("clicks", 3)
        kafka_sink.export(spark.range(9), "clicks", value="json", bootstrap_servers=kafka.bootstrap_servers)
        names = {name.rpartition(".")[2]: what for name, what in public().items()}
        more = {"F": F, "kafka_sink": kafka_sink, "spark": spark, "servers": kafka.bootstrap_servers}
        folder = tmp_path_factory.mktemp("examples")
        yield {**names, **more, "folder": folder, "registry": {"url": registry.url}}


@pytest.fixture(autouse=True)
def ending(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Takes away what an example has added to the session: interceptors, listeners."""
    added: list[StreamingQueryListener] = []
    add = StreamingQueryManager.addListener

    def noted(streams: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        added.append(listener)
        add(streams, listener)

    monkeypatch.setattr(StreamingQueryManager, "addListener", noted)
    yield
    for listener in added:
        spark.streams.removeListener(listener)
    kafka_sink.register(spark)


@pytest.mark.parametrize("name", with_examples())
def test_an_example_prints_what_it_says(name: str, given: dict[str, Any]) -> None:
    lines: list[str] = []
    example = doctest.DocTestParser().get_doctest(with_examples()[name], dict(given), name, None, 0)
    assert example.examples
    assert doctest.DocTestRunner(verbose=False).run(example, out=lines.append).failed == 0, "".join(lines)
