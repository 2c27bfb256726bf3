"""The offsets of a sink's groups go back on a real broker, as after an unclean election of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from committed_rows import read
from exactly_once_runs import ALL_ONCE, MICRO_BATCHES, finish_run, incoming, is_unrecorded
from kafka_sink.broker import LocalKafka
from kafka_sink.commit.exchanges import PARTITION
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.find_coordinator import CoordinatorKind
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.options.config import sink_config
from variants import variants

GROUPS = ("{}.0", "{}.1", "{}.decision")
COMMIT_TOPIC = "pykafka-commits"


def ask(kafka: LocalKafka, group_id: str, request: Any) -> Any:
    config = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers})
    with closing(AdminClient(config.producer)) as client:
        (answer,) = client.await_all(client.begin_all([(CoordinatorKind.GROUP, group_id, request)]))
    return answer


def offset_of(kafka: LocalKafka, group_id: str) -> tuple[int, str]:
    request = OffsetFetchRequest((group_id,), COMMIT_TOPIC, PARTITION, True, None)
    (found,) = ask(kafka, group_id, request).groups
    return found.offset, found.metadata


def put_back(kafka: LocalKafka, group_id: str, offset: int, metadata: str) -> None:
    answer = ask(kafka, group_id, OffsetCommitRequest(group_id, COMMIT_TOPIC, PARTITION, offset, metadata))
    assert answer.error_code == 0


@pytest.mark.parametrize("recorded", variants(1, 2))
def test_a_micro_batch_that_the_groups_do_not_know_any_more_is_not_written_again(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, recorded: int
) -> None:
    name = topic(3)
    incoming(tmp_path / "incoming")
    files = sorted((tmp_path / "incoming").iterdir())
    later = tmp_path / "later"
    later.mkdir()
    for file in files[2 * recorded :]:
        file.rename(later / file.name)
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    before = {each.format(name): offset_of(kafka, each.format(name)) for each in GROUPS}
    for file in files[2 * recorded : 2 * recorded + 2]:
        (later / file.name).rename(file)
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    visible = read(kafka, name)
    is_unrecorded(tmp_path)
    for each, offset in before.items():
        put_back(kafka, each, *offset)
    for _ in range(2):
        status, said = finish_run(spark, kafka, name, tmp_path)
        assert (status, "__consumer_offsets lost its last records" in said) == (1, True), said
        assert read(kafka, name) == read(kafka, name, "read_uncommitted") == visible
    assert recorded + 1 <= MICRO_BATCHES and set(visible) <= set(ALL_ONCE) and set(visible.values()) == {1}


@pytest.mark.long
@pytest.mark.parametrize("reset", ["{}.0", "{}.decision"])
def test_a_group_whose_offsets_were_reset_is_deleted_as_the_error_advises(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, reset: str
) -> None:
    name = topic(3)
    incoming(tmp_path / "incoming")
    assert finish_run(spark, kafka, name, tmp_path) == (0, "")
    is_unrecorded(tmp_path)
    group_id = reset.format(name)
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", kafka.bootstrap_servers
    kafka.run_tool(
        *tool, "--reset-offsets", "--to-earliest", "--execute", "--group", group_id, "--topic", f"{COMMIT_TOPIC}:0"
    )
    status, said = finish_run(spark, kafka, name, tmp_path)
    assert (status, f"--delete --group {group_id}" in said) == (1, True), said
    kafka.run_tool(*tool, "--delete", "--group", group_id)
    status, said = finish_run(spark, kafka, name, tmp_path)
    if reset == "{}.0":
        assert (status, said) == (0, "")
    else:
        # Nothing proves any more what was decided.
        assert (status, "nothing is known" in said) == (1, True), said
    assert read(kafka, name) == ALL_ONCE
