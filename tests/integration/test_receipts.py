"""Receipts of real writes, and what `pykafka verify` says of them while the topic is made to differ from them."""

import io
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import broker_admin
import kafka_sink.cli.verify
from broker_admin import delete_records, delete_topic, read
from effort import variants
from exactly_once_runs import ALL_ONCE, FILES, MICRO_BATCHES, ROWS_A_FILE, go_on, incoming, is_unrecorded, kill_at
from kafka_sink.broker import LocalKafka
from spark_writes import Here, finish, pykafka, start, with_conf

DEADLINE_S = 60
EQUAL, DIFFERENT, WRONG_USAGE, NOT_COMPARED = 0, 1, 2, 3
EVERY_ROW = FILES * ROWS_A_FILE
# Rows that say that they are old would be deleted at once.
KEPT = {"retention.ms": -1}


@dataclass(frozen=True)
class Verified:
    status: int
    said: str
    errors: str


def verify(receipts: Path, kafka: LocalKafka, *arguments: str) -> Verified:
    """The command, without a process of its own, which takes a second to start."""
    said, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(said), redirect_stderr(errors):
        status = kafka_sink.cli.verify.main(command_line(receipts, kafka, *arguments))
    return Verified(status, said.getvalue(), errors.getvalue())


def command_line(receipts: Path, kafka: LocalKafka, *arguments: str) -> list[str]:
    return ["--receipts", str(receipts), "--bootstrap-servers", kafka.bootstrap_servers, *arguments]


def rows(spark: SparkSession, count: int) -> DataFrame:
    """With keys, values, headers and times that are null, empty, and not."""
    return spark.range(count).selectExpr(
        "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE concat('key', id) END AS key",
        "CASE id % 5 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE repeat(concat('värde', id), 9) END AS value",
        "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN map_entries(map('h', CAST(NULL AS BINARY), 'ü', CAST('' AS BINARY))) "
        "ELSE map_entries(map('h', CAST(CAST(id AS STRING) AS BINARY))) END AS headers",
        "timestamp_millis(1372914367891 + (id * 7919) % 100000) AS timestamp",
    )


def write(frame: DataFrame, kafka: LocalKafka, topic: str, receipts: Path | str, **given: str) -> None:
    writer = pykafka(frame.write.mode("append"), kafka, topic)
    writer.options(receiptsPath=str(receipts), **given).save()


def files(receipts: Path) -> list[Path]:
    return sorted(receipts.rglob("*.parquet"))


def change(file: Path, column: str, row: int, change: Callable[[int], int]) -> None:
    table = pq.ParquetFile(file).read()
    values = table[column].to_pylist()
    values[row] = change(values[row])
    position = table.schema.get_field_index(column)
    pq.write_table(table.set_column(position, column, pa.array(values, table.schema.field(position).type)), file)


def stream(spark: SparkSession, kafka: LocalKafka, topic: str, tmp_path: Path, **options: str) -> str:
    """Writes the files of `incoming` in MICRO_BATCHES; the query's id."""
    source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "2").json(str(tmp_path / "incoming"))
    query = start(source, kafka, topic, tmp_path, {"receiptsPath": str(tmp_path / "receipts"), **options})
    finish(query)
    return str(query.id)


@pytest.mark.parametrize("guarantee", variants("exactly-once", "at-least-once"))
@pytest.mark.parametrize("codec", variants("zstd", "none"))
def test_a_batch_write_is_told_run_by_run_and_verified(here: Here, guarantee: str, codec: str) -> None:
    name, folder = here.topic(3, KEPT), here.folder / "receipts"
    batches = {"kafka.compression.type": codec, "kafka.batch.size": "16384"}
    write(rows(here.spark, 3_000), here.kafka, name, folder, deliveryGuarantee=guarantee, **batches)
    receipts = kafka_sink.receipts(here.spark, str(folder)).cache()
    (totals,) = receipts.selectExpr("sum(record_count)", "max(rows)", "min(rows)", "count(DISTINCT query_id)").collect()
    assert tuple(totals) == (3_000, 3_000, 3_000, 1)
    assert receipts.count() > 3  # there is more than one batch a partition
    # Which offsets: every one that a reader sees, once.
    told = receipts.selectExpr("partition", "explode(sequence(base_offset, base_offset + record_count - 1)) AS offset")
    seen = [(partition, offset) for partition, offset, _ in here.records(name)]
    expected = here.spark.createDataFrame(seen, "partition INT, offset BIGINT")
    assert_df_equality(told, expected, ignore_row_order=True, ignore_nullable=True)
    kinds = receipts.select("kind", "guarantee", "batch_id", "retries", "topic").distinct().collect()
    assert [tuple(row) for row in kinds] == [("batch", guarantee, 0, 0, name)]
    verified = verify(folder, here.kafka)
    assert (verified.status, verified.errors) == (EQUAL, "")
    assert "3,000 EQUAL" in verified.said


@pytest.mark.parametrize("guarantee", variants("exactly-once", "at-least-once"))
def test_rows_that_were_dropped_or_dead_lettered_are_accounted_for(here: Here, guarantee: str) -> None:
    frame = here.spark.range(0, 100, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(IF(id % 10 = 3, -1, NULL) AS INT) AS partition"
    )
    for bad_rows, more, told in (
        ("drop", {}, "100 rows in 2 runs, 10 bad rows skipped: 90 EQUAL."),
        ("deadLetter", {"deadLetterTopic": here.topic(1, KEPT)}, "100 rows in 4 runs: 100 EQUAL."),
    ):
        folder = here.folder / bad_rows
        write(frame, here.kafka, here.topic(1, KEPT), folder, deliveryGuarantee=guarantee, badRows=bad_rows, **more)
        verified = verify(folder, here.kafka)
        assert (verified.status, verified.errors) == (EQUAL, ""), verified.said
        assert told in verified.said


def test_plain_spark_reads_them_too(here: Here) -> None:
    folder = here.folder / "receipts"
    for count in (30, 50):
        write(rows(here.spark, count), here.kafka, here.topic(1, KEPT), folder)
    ours = kafka_sink.receipts(here.spark, str(folder))
    assert_df_equality(
        ours, here.spark.read.parquet(str(folder)).select(ours.columns), ignore_row_order=True, ignore_nullable=True
    )
    assert sorted({row.rows for row in ours.collect()}) == [30, 50]
    # The command as users run it.
    command = [sys.executable, "-m", "kafka_sink", "verify", *command_line(folder, here.kafka)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (EQUAL, "")
    assert done.stdout.splitlines()[-1] == "EQUAL: all records are there and unchanged."


@pytest.mark.parametrize("guarantee", [pytest.param("at-least-once", marks=pytest.mark.long), "exactly-once"])
def test_a_stream_leaves_a_receipt_a_micro_batch_and_what_differs_is_named(here: Here, guarantee: str) -> None:
    name, folder = here.topic(2), here.folder / "receipts"
    incoming(here.folder / "incoming")
    query_id = stream(here.spark, here.kafka, name, here.folder, deliveryGuarantee=guarantee)
    found = kafka_sink.receipts(here.spark, str(folder))
    by_batch = found.groupBy("query_id", "batch_id").agg({"record_count": "sum"}).orderBy("batch_id").collect()
    assert [tuple(row) for row in by_batch] == [(query_id, n, 2 * ROWS_A_FILE) for n in range(MICRO_BATCHES)]
    equal = verify(folder, here.kafka)
    assert equal.status == EQUAL, equal
    assert f"{EVERY_ROW} EQUAL" in equal.said

    # A micro-batch without a receipt.
    first, second, last = files(folder)
    aside = second.rename(here.folder / "aside")
    gap = verify(folder, here.kafka)
    assert gap.status == DIFFERENT
    assert f"NO RECEIPT  for micro-batch 1 of query {query_id}" in gap.said
    aside.rename(second)

    # A checksum, a base offset and a count that are others.
    whole = second.read_bytes()
    for column, verdict in (("checksum", "ALTERED"), ("base_timestamp", "ALTERED"), ("base_offset", "")):
        change(second, column, 0, lambda value: value + 1)
        changed = verify(folder, here.kafka)
        assert changed.status == DIFFERENT, column
        assert verdict in changed.said and f"Batch 1 of query {query_id}, {second}" in changed.said
        assert str(first) not in changed.said and str(last) not in changed.said
        second.write_bytes(whole)
    change(second, "record_count", 0, lambda value: value - 1)
    assert f"NOT A RECEIPT  {second}" in verify(folder, here.kafka).said
    second.write_bytes(b"PAR1 and not")
    cut = verify(folder, here.kafka)
    assert (cut.status, f"NOT A RECEIPT  {second}" in cut.said) == (DIFFERENT, True)
    second.write_bytes(whole)

    # Records that are gone.
    table = pq.ParquetFile(second).read()
    run = table.filter(pc.greater(table["record_count"], 5)).to_pylist()[0]
    delete_records(here.kafka, name, run["base_offset"] + 5, run["partition"])
    gone = verify(folder, here.kafka)
    assert gone.status == NOT_COMPARED
    offsets = f"{run['base_offset']}-{run['base_offset'] + 4}"
    assert f"DELETED  {name}-{run['partition']} offsets {offsets} (5 of the run's" in gone.said
    assert "the log begins at offset" in gone.said


@pytest.mark.long
def test_a_topic_that_is_made_again_has_none_of_them(here: Here) -> None:
    name, folder = here.topic(1, KEPT), here.folder / "receipts"
    same = rows(here.spark, 40).coalesce(1)
    write(same, here.kafka, name, folder)
    delete_topic(here.kafka, name)
    lost = verify(folder, here.kafka)
    assert lost.status == DIFFERENT
    assert f"MISSING  {name}-0 offsets 0-39" in lost.said
    assert "there is no such topic" in lost.said
    here.kafka.create_topic(name, 1, config=KEPT)
    here.save(same, name)  # the very same rows, at the very same offsets
    another = verify(folder, here.kafka)
    assert another.status == DIFFERENT
    assert "the topic was created again" in another.said


def test_the_brokers_times_are_told_as_what_cannot_be_compared(here: Here) -> None:
    name, folder = here.topic(1, {**KEPT, "message.timestamp.type": "LogAppendTime"}), here.folder / "receipts"
    write(rows(here.spark, 40), here.kafka, name, folder)
    counted = verify(folder, here.kafka)
    assert (counted.status, "40 COUNTED" in counted.said) == (NOT_COMPARED, True), counted
    # Rows that all have the time of their batch can be compared in spite of it.
    plain = here.folder / "plain"
    write(rows(here.spark, 40).drop("timestamp").coalesce(1), here.kafka, name, plain)
    assert verify(plain, here.kafka).status == EQUAL


def test_rows_that_nobody_answers_for_have_no_offsets(here: Here) -> None:
    name, folder = here.topic(1), here.folder / "receipts"
    write(rows(here.spark, 10).coalesce(1), here.kafka, name, folder, **{"kafka.acks": "0"})
    (row,) = kafka_sink.receipts(here.spark, str(folder)).collect()
    assert (row.base_offset, row.record_count, row.topic, row.partition) == (None, 10, name, 0)
    unplaced = verify(folder, here.kafka)
    assert (unplaced.status, f"UNPLACED  10 records in {name}-0" in unplaced.said) == (NOT_COMPARED, True)


def test_a_write_without_rows_leaves_a_receipt(here: Here) -> None:
    folder = here.folder / "receipts"
    write(rows(here.spark, 0), here.kafka, here.topic(1, KEPT), folder)
    (row,) = kafka_sink.receipts(here.spark, str(folder)).collect()
    assert (row.rows, row.record_count, row.topic, row.base_offset) == (0, 0, None, None)
    assert verify(folder, here.kafka).status == EQUAL


@pytest.mark.long
def test_other_writers_records_and_aborted_ones_between_the_runs_are_passed_over(here: Here) -> None:
    name, folder = here.topic(1, KEPT), here.folder / "receipts"
    other = broker_admin.producer(here.kafka, **{"transactional.id": f"{name}-other"})
    other.init_transactions(DEADLINE_S)
    for run in range(3):
        guarantee = "exactly-once" if run == 1 else "at-least-once"
        write(rows(here.spark, 100), here.kafka, name, folder, deliveryGuarantee=guarantee)
        other.begin_transaction()
        other.produce(name, b"not ours", partition=0)
        other.flush(DEADLINE_S)
        if run == 1:
            other.abort_transaction(DEADLINE_S)
        elif run == 0:
            other.commit_transaction(DEADLINE_S)
    equal = verify(folder, here.kafka)
    assert (equal.status, "300 EQUAL" in equal.said) == (EQUAL, True), equal
    # Behind the transaction that is still open.
    behind = here.folder / "behind"
    write(rows(here.spark, 100), here.kafka, name, behind, deliveryGuarantee="exactly-once")
    hidden = verify(behind, here.kafka)
    assert (hidden.status, f"HIDDEN  {name}-0" in hidden.said) == (DIFFERENT, True), hidden
    other.abort_transaction(DEADLINE_S)
    assert verify(behind, here.kafka).status == EQUAL


def test_a_path_that_cannot_be_a_folder_fails_the_write_before_any_row(here: Here) -> None:
    (here.folder / "file").write_text("")
    name = here.topic(1)
    for path, said in ((here.folder / "file" / "in", "ReceiptsPathUnusable"), ("relative/path", "an absolute path")):
        with pytest.raises(PySparkException, match=said):
            write(rows(here.spark, 10), here.kafka, name, path)
    assert here.records(name) == []


@pytest.mark.long
def test_a_path_of_the_conf_is_brought_to_the_driver_by_the_tasks(here: Here) -> None:
    folder = here.folder / "receipts"
    incoming(here.folder / "incoming")
    with with_conf(here.spark, "spark.pykafka.receiptsPath", str(folder)):
        for guarantee in ("at-least-once", "exactly-once"):
            writer = pykafka(rows(here.spark, 50).write.mode("append"), here.kafka, here.topic(1, KEPT))
            writer.option("deliveryGuarantee", guarantee).save()
    assert verify(folder, here.kafka).status == EQUAL
    assert kafka_sink.receipts(here.spark, str(folder)).select("query_id").distinct().count() == 2


@pytest.mark.long
def test_at_least_once_goes_on_without_a_receipt_that_cannot_be_written(here: Here) -> None:
    """... as its rows are in Kafka; exactly-once, of which nothing is visible yet, does not."""
    name = here.topic(1, KEPT)
    (here.folder / "file").write_text("")
    with with_conf(here.spark, "spark.pykafka.receiptsPath", str(here.folder / "file")):
        here.save(rows(here.spark, 10), name)
        assert len(here.records(name)) == 10
        with pytest.raises(Exception, match="ReceiptNotWritten"):
            writer = pykafka(rows(here.spark, 10).write.mode("append"), here.kafka, name)
            writer.option("deliveryGuarantee", "exactly-once").save()
    assert len(here.records(name)) == 10


@pytest.mark.chaos
# When the file is there; when no row can be told any more; with one slot visible.
@pytest.mark.parametrize(
    "step",
    ["before TxnOffsetCommit {sink}.decision", "after EndTxn {sink}.driver commit", "after EndTxn {sink}.0 commit"],
)
def test_a_replay_keeps_or_replaces_the_receipt_of_its_micro_batch(here: Here, step: str) -> None:
    name, folder = here.topic(3), here.folder / "receipts"
    option = f"receiptsPath={folder}"
    kill_at(step, here.kafka, name, here.folder, option)
    (left,) = files(folder)
    assert left.name == f"batch-{0:020d}.parquet"
    before = left.read_bytes()
    if step.startswith("before"):
        # Of what is not decided nobody sees a row.
        hidden = verify(folder, here.kafka)
        assert (hidden.status, " EQUAL" in hidden.said) == (DIFFERENT, False)
    go_on(here.spark, here.kafka, name, here.folder, option)
    assert read(here.kafka, name) == ALL_ONCE
    assert len(files(folder)) == MICRO_BATCHES
    # What was decided is as it was; what was not, is written again and elsewhere.
    assert (left.read_bytes() == before) == step.startswith("after")
    verified = verify(folder, here.kafka)
    assert verified.status == EQUAL, verified
    assert f"{EVERY_ROW} EQUAL" in verified.said


@pytest.mark.long
def test_a_replay_of_at_least_once_replaces_its_own(here: Here) -> None:
    name, folder = here.topic(1), here.folder / "receipts"
    incoming(here.folder / "incoming")
    stream(here.spark, here.kafka, name, here.folder)
    last = files(folder)[-1]
    before = pq.ParquetFile(last).read()
    is_unrecorded(here.folder)
    stream(here.spark, here.kafka, name, here.folder)
    after = pq.ParquetFile(last).read()
    assert len(files(folder)) == MICRO_BATCHES
    assert min(after["base_offset"].to_pylist()) > max(before["base_offset"].to_pylist())
    assert pc.sum(after["record_count"]) == pc.sum(before["record_count"])
    assert verify(folder, here.kafka).status == EQUAL


@pytest.mark.long
def test_the_same_version_again_leaves_its_receipt(here: Here) -> None:
    name, folder = here.topic(1, KEPT), here.folder / "receipts"
    versioned = {"deliveryGuarantee": "exactly-once", "txnAppId": f"{name}.app"}
    for version in ("0", "2", "2"):
        write(rows(here.spark, 20), here.kafka, name, folder, txnVersion=version, **versioned)
    found = kafka_sink.receipts(here.spark, str(folder)).select("query_id", "batch_id", "kind", "rows").distinct()
    expected = [(f"txnAppId:{name}.app", version, "version", 20) for version in (0, 2)]
    assert sorted(map(tuple, found.collect())) == expected
    # Versions may leave numbers out.
    assert verify(folder, here.kafka).status == EQUAL


def test_the_cluster_must_be_told_and_be_there(kafka: LocalKafka, tmp_path: Path) -> None:
    empty = verify(tmp_path, kafka)
    assert (empty.status, empty.errors) == (NOT_COMPARED, "")
    assert empty.said.splitlines()[-1] == "There are no receipts."
    assert verify(tmp_path / "nowhere", kafka).status == WRONG_USAGE
    wrong = verify(tmp_path, kafka, "--option", "kafka.no.such=1")
    assert (wrong.status, "unknown option" in wrong.errors) == (WRONG_USAGE, True)
