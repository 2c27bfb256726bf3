"""Slots without rows, on real brokers: they have no transaction, go on later, and a replay doubles nothing."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from broker_admin import open_transactions, read
from exactly_once_runs import write_micro_batch
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.commit.requests import described
from kafka_sink.commit.runner import run
from kafka_sink.kafka.admin.client import AdminClient as SinkClient
from kafka_sink.options.config import given_options, sink_config

pytestmark = pytest.mark.long
WAITED_S = 30


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, "3.9.2"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    with LocalKafka(kafka_version=request.param) as kafka:
        yield kafka


def epochs(kafka: LocalKafka, sink: str, slots: Sequence[int]) -> list[tuple[int, int]]:
    """The ids that the coordinators have: each transaction of a slot raises the epoch."""
    with closing(SinkClient(sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers}).producer)) as client:
        found = run(client, described([f"{sink}.{slot}" for slot in slots]))
    return [(each.producer_id, each.producer_epoch) for each in found]


def options(kafka: LocalKafka, sink: str) -> dict[str, Any]:
    kafka.create_topic(sink, 2)
    to_topic = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": sink, "transactionalIdPrefix": sink}
    return given_options({**to_topic, "deliveryGuarantee": "exactly-once"})


def test_slots_without_rows_have_no_transaction_and_a_replay_doubles_nothing(cluster: LocalKafka) -> None:
    given = options(cluster, "rests")
    write_micro_batch(given, [["1"], ["2"], []], 0)
    before = epochs(cluster, "rests", (1, 2))
    for micro_batch_id, rows in ((1, [["3"], [], []]), (1, [["3"], [], []]), (2, [[], [], []])):
        write_micro_batch(given, rows, micro_batch_id)
        assert epochs(cluster, "rests", (1, 2)) == before
    write_micro_batch(given, [["4"], ["5"], []], 3)
    write_micro_batch(given, [["4"], ["5"], []], 3)
    assert epochs(cluster, "rests", (2,)) == before[1:] != before[:1] != epochs(cluster, "rests", (1,))
    assert read(cluster, "rests") == read(cluster, "rests", "read_uncommitted") == Counter(range(1, 6))
    assert open_transactions(cluster, "rests") == []


def test_the_group_of_a_slot_that_rests_may_be_deleted(cluster: LocalKafka) -> None:
    given = options(cluster, "lost")
    write_micro_batch(given, [["1"], ["2"]], 0)
    write_micro_batch(given, [["3"], []], 1)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for deleted in client.delete_consumer_groups(["lost.1"], request_timeout=WAITED_S).values():
        deleted.result()
    write_micro_batch(given, [["4"], []], 2)
    write_micro_batch(given, [[], ["5"]], 3)
    assert read(cluster, "lost") == Counter(range(1, 6))
