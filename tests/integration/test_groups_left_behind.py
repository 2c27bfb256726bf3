"""What exactly-once batch writes leave on real brokers: without `txnAppId` no group, where they may delete them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from committed_rows import groups, read, transactions
from exactly_once_writes import own_workers, plan, run_tasks, write_batch, write_micro_batch
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.cli import transactions as command
from kafka_sink.commit.handover import Sink
from kafka_sink.options.config import given_options
from kafka_sink.spark.exactly_once import plan as planning
from kafka_sink.spark.writer import KafkaBatchWriter

ROWS = [[str(slot)] for slot in range(8)]
ONCE = Counter(range(8))


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, pytest.param("3.9.2", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3, kafka_version=request.param) as kafka:
        yield kafka


def options(kafka: LocalKafka, topic: str, **more: str) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    return given_options({**servers, "deliveryGuarantee": "exactly-once", **more})


def said_of(kafka: LocalKafka, name: str, sink: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command.main([name, "--bootstrap-servers", kafka.bootstrap_servers, "--prefix", sink]) == 0
    return capsys.readouterr().out


def test_a_batch_write_leaves_no_group_and_its_transactions_tell_what_became_of_it(
    cluster: LocalKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("export", 2)
    write_batch(options(cluster, "export", transactionalIdPrefix="export"), ROWS)
    assert groups(cluster, "export.") == []
    assert read(cluster, "export") == ONCE
    found = transactions(cluster, "export")
    assert len(found) == 1 + len(ROWS)
    (sink,) = {name.rpartition(".")[0] for name in found}
    for name in ("describe", "repair"):
        said = said_of(cluster, name, sink, capsys)
        assert "Decision: made, and no longer stored" in said
        assert "committed transactions of slots: 8 of 8\n" in said
        assert "not visible" not in said
    # Spark runs abort after a commit whose process died before it could say that it was done.
    given = options(cluster, "export", transactionalIdPrefix="export")
    with own_workers():
        planned = plan(KafkaBatchWriter(given))
        receipts = run_tasks(planned, ROWS)
        planned.commit(receipts)
        planned.abort(receipts)
    assert read(cluster, "export") == ONCE + ONCE


@pytest.mark.long
def test_what_comes_again_under_its_name_keeps_its_groups(cluster: LocalKafka) -> None:
    cluster.create_topic("kept", 2)
    write_batch(options(cluster, "kept", txnAppId="daily", txnVersion="0"), ROWS)
    write_micro_batch(options(cluster, "kept", transactionalIdPrefix="stream"), ROWS, 0)
    for sink in ("daily", "stream"):
        assert groups(cluster, f"{sink}.") == sorted([f"{sink}.decision", *(f"{sink}.{n}" for n in range(8))])


def test_a_decision_of_several_groups_is_deleted_whole(cluster: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("long", 1)
    monkeypatch.setattr(planning, "Sink", partial(Sink, metadata_max_characters=120))
    write_batch(options(cluster, "long", transactionalIdPrefix="long"), ROWS)
    assert groups(cluster, "long.") == []
    assert read(cluster, "long") == ONCE
