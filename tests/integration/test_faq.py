"""What docs/faq.md and docs/mistakes.md say, where no other test shows it; the notebooks, from the first cell to the
last, and a declarative pipeline, run by Spark's own `spark-pipelines`."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from pyspark.errors import AnalysisException

import kafka_sink
from broker_admin import read_values
from code_blocks import ROOT, run_bash, run_python
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import WriteModeUnsupported
from mistakes import MISTAKES, row
from spark_writes import Here, finish, pykafka

FAQ, OPERATIONS = (
    " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split()) for page in ("faq.md", "operations.md")
)
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


def test_sparks_progress_has_the_rows_that_it_handed_over(here: Here) -> None:
    query = here.start(here.arriving(here.numbers(ROWS)), here.topic(1))
    finish(query)
    written = [progress.sink.numOutputRows for progress in query.recentProgress if progress.numInputRows]
    assert "`numOutputRows` those that Spark gave to the sink" in OPERATIONS
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


def test_the_page_has_these_mistakes_and_no_others() -> None:
    """`make first-hour` makes them, and compares the answers with the page."""
    lines = (ROOT / "docs" / "mistakes.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith(tuple(row(each, "")[:-5] for each in MISTAKES)) for line in lines) == len(MISTAKES)


@pytest.mark.long
@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it claims, its own cells assert."""
    monkeypatch.setenv("SERVERS", kafka.bootstrap_servers)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


ONE_RETRY = 'configuration:\n  spark.sql.pipelines.maxFlowRetryAttempts: "1"\nlibraries:'


def lines(first: int, end: int) -> str:
    return "".join(f'{{"id": {number}, "amount": 0.5}}\n' for number in range(first, end))


def read_ids(kafka: LocalKafka, topic: str) -> Counter[int]:
    return Counter({int(json.loads(value)["id"]): times for value, times in read_values(kafka, topic).items()})


@pytest.mark.long
def test_a_pipeline_writes_each_row_once_until_a_full_refresh(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, incoming = topic(2), tmp_path / "incoming"
    replaced = {
        "localhost:9092": kafka.bootstrap_servers, '"topic": "orders"': f'"topic": "{name}"',
        '.json("/data/incoming")': f'.json("{incoming}", mode="FAILFAST")',
        "/data/pipelines/orders": f"{tmp_path}/storage", "libraries:": ONE_RETRY,
    }  # fmt: skip

    def run(*arguments: str) -> tuple[int, str]:
        """Return the exit code of `spark-pipelines`, and what it printed."""
        line = {"pipelines run": " ".join(["pipelines run", *arguments])}
        ended = run_bash("docs/declarative-pipelines.md", "A pipeline that writes to a topic", 1, line, tmp_path)
        return ended.returncode, ended.stdout

    made = run_bash("docs/declarative-pipelines.md", "A pipeline that writes to a topic", 0, replaced, tmp_path)
    assert made.returncode == 0, made.stdout
    incoming.mkdir()
    (incoming / "whole.json").write_text(lines(0, 1_000))
    # A task writes rows until Spark finds the damage.
    (incoming / "damaged.json").write_text(lines(1_000, 1_500) + "{\n" + lines(1_500, 1_510))
    code, said = run()
    assert code != 0 and "MALFORMED_RECORD_IN_PARSING" in said, said
    assert not read_ids(kafka, name)

    (incoming / "damaged.json").write_text(lines(1_000, 1_510))
    code, said = run()
    assert code == 0, said
    once = Counter(range(1_510))
    assert read_ids(kafka, name) == once

    # The run ended before Spark recorded its micro-batch.
    commits = tmp_path / "storage" / "_checkpoints" / "orders_topic" / "orders" / "0" / "commits"
    for file in list(commits.iterdir()):
        file.unlink()
    code, said = run("--full-refresh", "orders_topic")
    assert code == 0 and "EXCLUDED" in said, said
    code, said = run()
    assert code == 0, said
    assert read_ids(kafka, name) == once

    code, said = run("--full-refresh-all")
    assert code == 0, said
    assert read_ids(kafka, name) == once + once
