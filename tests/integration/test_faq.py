"""What docs/faq.md says that Spark or the sink does, where no other test has shown it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import kafka_sink
from code_blocks import ROOT, run_bash, run_python
from here import Here
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import WriteModeUnsupported, WriteWouldFail
from spark_writes import finish, pykafka

FAQ = " ".join((ROOT / "docs" / "faq.md").read_text(encoding="utf-8").split())
ROWS = 10


def test_what_an_error_is_can_be_asked_in_a_shell(tmp_path: Path) -> None:
    asked = run_bash("docs/faq.md", "FAQ", 0, {}, tmp_path)
    assert asked.returncode == 0, asked.stdout
    assert "StateExpired" in asked.stdout


def test_spark_refuses_a_write_without_a_mode(here: Here) -> None:
    writer = pykafka(here.numbers(1).write, here.kafka, here.topic(1))
    with pytest.raises(AnalysisException) as refused:
        writer.save()
    assert kafka_sink.error_of(refused.value) is None
    for piece in ("UNSUPPORTED_DATA_SOURCE_SAVE_MODE", 'cannot be written in the "ErrorIfExists" mode'):
        assert piece in FAQ and piece in str(refused.value)
    with pytest.raises(AnalysisException) as overwritten:
        writer.mode("overwrite").save()
    assert isinstance(kafka_sink.error_of(overwritten.value), WriteModeUnsupported)


def test_an_export_to_a_missing_topic_fails_before_it_writes(spark: SparkSession, kafka: LocalKafka) -> None:
    with pytest.raises(WriteWouldFail, match="createTopics=true"):
        kafka_sink.export(spark.sql("SELECT 'a' AS value"), "faq-missing", bootstrap_servers=kafka.bootstrap_servers)


def test_sparks_progress_has_the_rows_that_it_handed_over(here: Here) -> None:
    query = here.start(here.arriving(here.numbers(ROWS)), here.topic(1))
    finish(query)
    written = [progress.sink.numOutputRows for progress in query.recentProgress if progress.numInputRows]
    assert "`sink.numOutputRows` is the number of rows" in FAQ
    assert written == [ROWS]


def test_rows_are_inserted_by_sql_into_a_view_of_a_topic(here: Here) -> None:
    """A view that reads has the columns of a read, which Spark compares first."""
    name, spark = here.topic(1), here.spark
    replaced = {"localhost:9092": here.servers, "topic 'orders'": f"topic '{name}'"}
    run_python("docs/faq.md", "INSERT INTO: INSERT_COLUMN_ARITY_MISMATCH", 0, replaced, {"spark": spark})
    assert here.values(name) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']
    options = f"'kafka.bootstrap.servers' '{here.servers}', subscribe '{name}'"
    spark.sql(f"CREATE TEMPORARY VIEW shows USING pykafka OPTIONS ({options})")
    with pytest.raises(AnalysisException, match="INSERT_COLUMN_ARITY_MISMATCH"):
        spark.sql("INSERT INTO shows SELECT 'k', 'v'")
    with pytest.raises(AnalysisException, match=r"Use topic: 'subscribe' is an option of reads\."):
        spark.sql("INSERT INTO shows SELECT * FROM shows")
    with pytest.raises(AnalysisException, match=r"Use subscribe: 'topic' is an option of writes\."):
        spark.sql("SELECT * FROM orders").collect()
    spark.sql("DROP VIEW shows")
    spark.sql("DROP VIEW orders")
