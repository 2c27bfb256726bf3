"""Exactly-once with real Spark and a real broker: the application is killed at each step of the commit, started again,
and read back by a consumer that sees what is committed."""

import contextlib
import io
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from broker_admin import open_transactions, read
from exactly_once_runs import ALL_ONCE, MICRO_BATCHES, go_on, incoming, kill_at, run
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import transactions
from spark_writes import ARROW_BATCH_ROWS, Here, finish, held, pykafka, wait_for_rows

CHAOS = pytest.mark.chaos


@pytest.mark.long
def test_every_row_once_and_no_more_requests_than_slots_ask_for(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(3)
    incoming(tmp_path / "incoming")
    status, said = run(kafka, name, tmp_path, "")
    assert status == 0, said
    assert read(kafka, name) == read(kafka, name, "read_uncommitted") == ALL_ONCE
    assert open_transactions(kafka, name) == []
    requests = Counter((tmp_path / "run-requests").read_text().splitlines())
    slots = 2
    # Planned once a micro-batch, and never where it is committed. Once in a sink's life, and in a slot's, more: it is
    # written down that nothing was committed yet.
    once_and_each = 1 + MICRO_BATCHES
    assert requests[f"InitProducerId {name}.driver"] == once_and_each
    assert requests["ListTransactions"] == once_and_each
    for slot in range(slots):
        assert requests[f"InitProducerId {name}.{slot}"] == once_and_each
        assert requests[f"TxnOffsetCommit {name}.{slot}"] == once_and_each
        # By the commit: the plan of the next micro-batch sees that it is done.
        assert requests[f"EndTxn {name}.{slot} commit"] == once_and_each
    assert requests[f"EndTxn {name}.driver commit"] == once_and_each
    assert not any(line.endswith("abort") for line in requests)


# Of the first micro-batch's commit, in its order.
STEPS = [
    "before TxnOffsetCommit {sink}.decision",
    "after TxnOffsetCommit {sink}.decision",
    "after EndTxn {sink}.driver commit",
    "after EndTxn {sink}.0 commit",
    "after EndTxn {sink}.1 commit",
    "after DescribeProducers",
]


@pytest.mark.parametrize("step", [step if "driver" in step else pytest.param(step, marks=CHAOS) for step in STEPS])
def test_the_application_is_killed_at_a_step_of_its_commit(here: Here, step: str) -> None:
    name = here.topic(3)
    kill_at(step, here.kafka, name, here.folder)
    assert (here.folder / "run-happened").exists()
    is_decided = not step.endswith("{sink}.decision")
    assert ("decided and not recorded yet" if is_decided else "nothing was decided") in status_of(
        here.kafka, name, here.folder
    )
    go_on(here.spark, here.kafka, name, here.folder)
    assert read(here.kafka, name) == ALL_ONCE
    assert open_transactions(here.kafka, name) == []
    assert "in step with the sink" in status_of(here.kafka, name, here.folder)


def status_of(kafka: LocalKafka, sink: str, folder: Path) -> str:
    """What the command tells who is on call."""
    said = io.StringIO()
    line = ["--bootstrap-servers", kafka.bootstrap_servers, "--prefix", sink, "--topic", sink]
    with contextlib.redirect_stdout(said):
        assert transactions.main(["status", *line, "--checkpoint", str(folder / "checkpoint")]) == 0
    return said.getvalue()


@CHAOS
@pytest.mark.parametrize(
    "step",
    [
        "after InitProducerId {sink}.1",
        "before TxnOffsetCommit {sink}.1",
        "after TxnOffsetCommit {sink}.1",
        "after InitProducerId {sink}.driver",
    ],
)
def test_a_worker_is_killed_at_a_step_and_its_work_done_again(here: Here, step: str) -> None:
    """A task's worker is replaced within its micro-batch; the one that plans takes the micro-batch with it."""
    name = here.topic(3)
    incoming(here.folder / "incoming")
    status, said = run(here.kafka, name, here.folder, step.format(sink=name), kill="process")
    assert (here.folder / "run-happened").exists(), said
    if status != 0:
        assert ".driver" in step, said
        go_on(here.spark, here.kafka, name, here.folder)
    assert read(here.kafka, name) == ALL_ONCE
    assert open_transactions(here.kafka, name) == []


def exactly_once(writer: Any, kafka: LocalKafka, topic: str, **options: str) -> Any:
    return pykafka(writer, kafka, topic).option("deliveryGuarantee", "exactly-once").options(**options)


def test_a_batch_write_is_visible_whole(here: Here) -> None:
    name = here.topic(3)
    # More tasks than rows: some slots are empty.
    exactly_once(here.numbers(5, 8).write.mode("append"), here.kafka, name).save()
    exactly_once(here.numbers(30_000, 4).write.mode("append"), here.kafka, name).save()
    assert read(here.kafka, name) == Counter(range(5)) + Counter(range(30_000))


def test_a_batch_write_that_fails_is_not_visible_at_all(here: Here) -> None:
    name = here.topic(1)
    rows = here.numbers(40_000, 2).selectExpr("IF(value = '39999', raise_error('the source broke'), value) AS value")
    with pytest.raises(PySparkException, match="the source broke"):
        exactly_once(rows.write.mode("append"), here.kafka, name, transactionalIdPrefix=name).save()
    assert read(here.kafka, name, "read_uncommitted"), "no row was there to be hidden"
    assert read(here.kafka, name) == Counter()
    # Readers are not held back until the brokers' timeout.
    assert open_transactions(here.kafka, name) == []


@pytest.mark.long
def test_a_stream_stopped_in_a_micro_batch_writes_it_again_and_leaves_nothing_open(here: Here) -> None:
    name, gate = here.topic(1), here.folder / "gate"
    rows = here.spark.readStream.schema("value STRING").json(str(incoming(here.folder / "incoming")))
    more = rows.selectExpr("value", "explode(sequence(1, 1000)) AS n").selectExpr("value")

    def begin(frame: DataFrame) -> StreamingQuery:
        once = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": name}
        return here.start(frame, name, once)

    query = begin(held(more, gate, after_rows=3 * ARROW_BATCH_ROWS))
    wait_for_rows(here.kafka, name)
    assert open_transactions(here.kafka, name) != []
    query.stop()
    gate.touch()
    assert open_transactions(here.kafka, name) == []
    finish(begin(more))
    assert open_transactions(here.kafka, name) == []
    assert read(here.kafka, name) == Counter(dict.fromkeys(ALL_ONCE, 1000))
    assert read(here.kafka, name, "read_uncommitted").total() > 1000 * len(ALL_ONCE), "nothing was aborted"
