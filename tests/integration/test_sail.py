"""The format on Sail, a server of Spark Connect without a JVM: what works there, and what is refused before a row.

`make test-all` builds the environment of these tests in build/sail. Without it they are skipped.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from code_blocks import run_program
from kafka_sink.broker import LocalKafka
from spark_writes import end_offset, numbers_in

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "sail" / "bin" / "python"
APPLICATION = ROOT / "tests" / "support" / "sail_apps.py"
DEADLINE_S = 240
CORES = {"SAIL_EXECUTION__DEFAULT_PARALLELISM": "2"}


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    if not PYTHON.exists():
        pytest.skip("pysail is not installed in build/sail: `make sail` does it, and `make test-all` too")


def on_sail(function: str, *arguments: object, cores: int = 2) -> Any:
    """What the function of sail_apps.py returns. Sail runs as many partitions at a time as it has `cores`."""
    environment = os.environ | {"SAIL_EXECUTION__DEFAULT_PARALLELISM": str(cores)}
    command = [str(PYTHON), str(APPLICATION), function, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout.splitlines()[-1])


Topic = Callable[..., str]


def rows_in(kafka: LocalKafka, topic: str, partitions: int) -> int:
    return sum(end_offset(kafka, topic, partition) for partition in range(partitions))


def test_a_batch_is_read_whole_and_in_the_types_that_sail_asks_for(kafka: LocalKafka, topic: Topic) -> None:
    found = on_sail("reads", kafka.bootstrap_servers, topic(3), "no-such-topic")
    assert found["schema"] == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    ((_, _, header, time_type),) = found["first"]
    assert (header, time_type, found["partitions"]) == ("sail", 0, 3)
    assert found["sum"] == sum(range(3_010))
    # Each action reads what is there by then, also of a view.
    assert found["counted"] == [3_000, 3_010, 3_010]
    assert found["divided"] == found["joined"] == 3_010
    assert found["bounds"] == 6
    # Sail pushes filters down without their casts, and so these are its own.
    at_5, at_5_of_256 = found["cast"]
    assert at_5 == 3 and at_5_of_256 > 3
    # A time as a text: Sail takes the zone of the schema, and not that of the session.
    assert found["zone"] == ["2020-01-01 12:00:00", "2020-01-01 07:00:00"]
    assert found["of user"] == [["2020-01-01T12:00:00", "17"]]
    assert (found["missing"]["class"], found["missing"]["topic"]) == ("TopicToReadMissing", "'no-such-topic'")
    assert found["in task"]["class"] == "BatchOverLimit" and "maxHeadersPerBatch" in found["in task"]["text"]
    assert found["option"]["class"] == "UnknownOption"


def test_a_batch_is_written_in_one_partition_and_in_four(kafka: LocalKafka, topic: Topic, tmp_path: Path) -> None:
    to, letters = topic(3), topic(1)
    found = on_sail("writes", kafka.bootstrap_servers, to, letters, tmp_path, cores=4)
    assert sorted(numbers_in(kafka, to)) == list(range(2_000))
    assert {slot for slot, _, _ in found["receipts"]} == {0, 1, 2, 3}
    assert sum(count for _, count, _ in found["receipts"]) == 1_000 == found["receipts"][0][2]
    assert found["letters"] == 10


@pytest.mark.parametrize("cores", [1, 8])
def test_an_export_writes_any_dataframe(kafka: LocalKafka, topic: Topic, tmp_path: Path, cores: int) -> None:
    to = topic(2)
    found = on_sail("exports", kafka.bootstrap_servers, to, "no-such-topic", tmp_path, cores=cores)
    assert found["rows"] == [[1_000, 1_000], [7, 7], [1_000, 1_000], [5, 5]]
    assert rows_in(kafka, to, 2) == 2_012
    assert Path(found["path"]).exists()
    assert (found["missing"]["class"], found["missing"]["topic"]) == ("TopicNotFound", "'no-such-topic'")


def test_what_sail_cannot_carry_is_refused_before_a_row(kafka: LocalKafka, topic: Topic) -> None:
    to = topic(1)
    found = on_sail("refusals", kafka.bootstrap_servers, to)
    assert {name: failed["class"] for name, failed in found.items()} == {
        "plain": "PartitionsNotFixed", "exactly-once": "RefusedOption", "rowIdentity": "RefusedOption",
        "column": "UnexpectedColumn", "stream": "RefusedOption", "co_partition": "NoneType",
        "export exactly-once": "RefusedOption", "conf": "RefusedOption",
    }  # fmt: skip
    assert "coalesce(1)" in found["plain"]["text"]
    assert "direct shuffle" in found["co_partition"]["text"]
    assert end_offset(kafka, to) == 0


def test_from_topic_to_topic_without_java(kafka: LocalKafka, topic: Topic, tmp_path: Path) -> None:
    first, second = topic(4), topic(4)
    on_sail("thousand", kafka.bootstrap_servers, first)
    here = {"localhost:9092": kafka.bootstrap_servers, '"orders"': f'"{first}"', "orders-upper": second}
    run_program("docs/sail.md", "Sail", 0, here, tmp_path, PYTHON, **CORES)
    assert (rows_in(kafka, first, 4), rows_in(kafka, second, 4)) == (1_000, 1_000)


def test_sail_differs_as_the_page_says(tmp_path: Path) -> None:
    """If one of these fails, Sail has changed: what kafka_sink/spark/sail.py does about it may go."""
    printed = run_program("docs/design/sail.md", "The count of partitions", 0, {}, tmp_path, PYTHON, **CORES)
    assert printed.count("wrote") == 2 and "Invalid partition id 1 in write result (expected < 1)" in printed
    printed = run_program("docs/design/sail.md", "Arrow's schemas, and no TaskContext", 0, {}, tmp_path, PYTHON)
    assert "<class 'pyarrow.lib.Schema'>" in printed and "\nNone\n" in printed
    printed = run_program("docs/design/sail.md", "Schemas with times", 0, {}, tmp_path, PYTHON)
    assert "AssertionError" in printed and "to_arrow_type" in printed
    printed = run_program("docs/design/sail.md", "The session's time zone", 0, {}, tmp_path, PYTHON)
    assert "Schema field type mismatch for 't'" in printed
    assert "\n1\n" in run_program("docs/design/sail.md", "Filters without their casts", 0, {}, tmp_path, PYTHON)
    printed = run_program("docs/design/sail.md", "Streams", 0, {}, tmp_path, PYTHON)
    assert [line for line in printed.splitlines() if line in ("read", "wrote 1", "True")] == ["read", "wrote 1", "True"]
