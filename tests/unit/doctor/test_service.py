"""What seems to answer, and what it lacks for each guarantee: from what brokers tell."""

from __future__ import annotations

import pytest

from kafka_sink.doctor import service
from kafka_sink.doctor.report import Status
from kafka_sink.kafka.protocol.all_apis import APIS

EVERYTHING = {api.key: (0, api.max_version) for api in APIS}
# As brokers of 2.1.1 and 2.8.2 told them, as far as it matters here.
KAFKA_2_1 = {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1), 10: (0, 2), 9: (0, 5)}
KAFKA_2_8 = KAFKA_2_1 | {0: (0, 9), 3: (0, 11), 18: (0, 3), 22: (0, 4), 10: (0, 3), 9: (0, 7), 61: (0, 0)}


@pytest.mark.parametrize(
    ("ranges", "release"),
    [
        (KAFKA_2_1, "2.1"),
        (KAFKA_2_1 | {18: (0, 3)}, "2.4"),
        (KAFKA_2_8, "2.8"),
        (KAFKA_2_8 | {66: (0, 0)}, "3.0"),
        (KAFKA_2_8 | {66: (0, 1)}, "3.8"),
        (KAFKA_2_8 | {66: (0, 1), 26: (0, 5)}, "4.0"),
        (EVERYTHING, "4.1"),
        (EVERYTHING | {18: (0, 5)}, "4.4"),
    ],
)
def test_a_release_is_told_by_the_newest_request(ranges: service.Ranges, release: str) -> None:
    found = service.service({"kafka-1"}, "5L6g3nShT", ranges)
    assert (found.status, found.found) == (Status.OK, f"takes requests as Apache Kafka {release} or later does")


@pytest.mark.parametrize(
    ("host", "cluster_id", "name"),
    [
        ("pkc-12345.eu-west-1.aws.confluent.cloud", "lkc-1", "Confluent Cloud"),
        ("b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com", None, "Amazon MSK"),
        ("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com", None, "Amazon MSK Serverless"),
        ("NAMESPACE.servicebus.windows.net", None, "Azure Event Hubs"),
        ("kafka-1.example.com", "redpanda.0f6b-1", "Redpanda"),
    ],
)
def test_a_service_is_told_by_its_names(host: str, cluster_id: str | None, name: str) -> None:
    found = service.service({"10.0.0.1", host}, cluster_id, KAFKA_2_8).found
    assert found == f"{name}, by its names; it takes requests as Apache Kafka 2.8 or later does"


@pytest.mark.parametrize("host", ["confluent.cloud.example.com", "my-confluent.cloud.evil", "xconfluent.cloud"])
def test_a_name_that_only_has_a_services_name_in_it_is_none(host: str) -> None:
    assert service.service({host}, "not-redpanda.x", EVERYTHING).found.startswith("takes requests")
    assert "fewer requests than Kafka 2.1" in service.service({host}, None, {0: (0, 6)}).found


def test_an_idempotent_write_needs_producer_ids() -> None:
    brokers = {"broker 1": {0: (0, 7), 3: (0, 5)}}
    found = service.at_least_once(brokers, is_idempotent=True)
    assert found.status is Status.FAILED
    assert "broker 1 lacks InitProducerId 0 to 5" in found.found
    assert "kafka.enable.idempotence=false" in found.remedy
    assert service.at_least_once(brokers, is_idempotent=False).status is Status.OK


@pytest.mark.parametrize("is_wanted", [True, False])
def test_exactly_once_names_what_is_missing_and_where(is_wanted: bool) -> None:
    """In a cluster that is being upgraded some brokers have more than others. A write that is at-least-once is told
    what exactly-once would need."""
    brokers = {"broker 1": EVERYTHING, "broker 2": KAFKA_2_8, "broker 3": KAFKA_2_8}
    found = service.exactly_once(brokers, is_wanted=is_wanted)
    assert found.status is (Status.FAILED if is_wanted else Status.SKIPPED)
    assert found.found.startswith(f"{'' if is_wanted else 'not asked for; '}broker 2, broker 3 lack ")
    assert (
        "ListTransactions 0 to 2 (Kafka 3.0; finds what an earlier run left open (KIP-664)): it has none" in found.found
    )
    assert ("deliveryGuarantee=at-least-once" in found.remedy) is is_wanted
