"""What needs a Spark of its own: a worker's connections, a task's second attempt, and Spark Connect.

There is one Spark a process, so each is an application that is run as users run theirs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from applications import DEADLINE_S, told_by
from broker_admin import produce
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from spark_writes import ARROW_BATCH_ROWS, numbers_in


@pytest.mark.long
def test_a_worker_has_one_client_for_all_that_its_tasks_ask_and_write(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Rows, transactions, markers and topics' settings go over the same connections."""
    counts = told_by("connections_app.py", kafka.bootstrap_servers, topic(2), tmp_path)
    assert len(counts) == 4
    # To the bootstrap server and to the broker, which are one here.
    assert set(counts.values()) <= {1, 2}, counts
    assert len(set(counts.values())) == 1, counts


@pytest.mark.long
def test_a_second_attempt_writes_its_task_again(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(1)
    told_by("spark_retry_app.py", kafka.bootstrap_servers, name, "write")
    rows = list(range(6 * ARROW_BATCH_ROWS))
    got = numbers_in(kafka, name)
    of_first_attempt = got[: -len(rows)]
    assert of_first_attempt == list(range(len(of_first_attempt)))
    assert got[-len(rows) :] == rows


@pytest.mark.long
def test_a_first_attempt_is_in_no_figure_of_a_read(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    produce(kafka, name, 500, 500)
    told = told_by("spark_retry_app.py", kafka.bootstrap_servers, name, "read")
    assert told == {"arrived": 1_000, "counted": [500, 500]}


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_dead_letters_of_a_second_attempt_are_shown_once_by_exactly_once(
    kafka: LocalKafka, topic: Callable[..., str], guarantee: str
) -> None:
    name, letters = topic(1), topic(1)
    options = [f"deliveryGuarantee={guarantee}", "badRows=deadLetter", f"deadLetterTopic={letters}", "maxBadRows=1"]
    told_by("spark_retry_app.py", kafka.bootstrap_servers, name, "write", *options)
    good = [number for number in range(6 * ARROW_BATCH_ROWS) if number != 7]
    written, dead = numbers_in(kafka, name), numbers_in(kafka, letters)
    if guarantee == "exactly-once":
        assert (written, dead) == (good, [7])
    else:
        # Of the first attempt as far as it came, and of the second one, which is the whole task.
        assert written[-len(good) :] == good
        assert dead in ([7], [7, 7])


def test_spark_connect_writes_batches_streams_and_exports_and_tells_the_errors(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, other, exported = topic(1), topic(1), topic(3)
    told = told_by("spark_connect_app.py", kafka.bootstrap_servers, name, other, exported, tmp_path)
    assert numbers_in(kafka, name) == list(range(2_000))
    assert numbers_in(kafka, other) == [-number for number in range(1, 2_000)]
    assert "kafka_sink.errors.InvalidOption: option 'kafka.compression.type'" in told["option"]
    assert "kafka_sink.errors.InvalidOption: option 'spark.pykafka.kafka.acks' is '2'" in told["conf"]
    assert "kafka_sink.errors.InterceptorFailed" in told["interceptor"]
    assert "Raising: on_send raised RuntimeError" in told["interceptor"]
    for failed in (told["export"], told["stream"]):
        assert (failed["class"], failed["topic"]) == ("TopicNotFound", "nobody-made-this")
        assert failed["cause"] == "pyspark.errors.exceptions.connect"
    rows: list[list[int]] = [[], [], []]
    for partition, _, row in read_topic(kafka.bootstrap_servers, exported, DEADLINE_S):
        rows[partition].append(int(row.value or b""))
    assert sorted(itertools.chain(*rows)) == list(range(2_000))
    of_export = [[number for number in each if number < 1_000] for each in rows]
    assert all(each == sorted(each) and each for each in of_export)
    assert told["rows"] == 1_000
    assert told["offsets"] == {str(partition): [0, len(each) - 1] for partition, each in enumerate(of_export)}
