"""Carries out the steps of the two-phase commit with a client, and sends the answers back to the steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.commit.requests import (
    BrokerSetting,
    Effect,
    Pause,
    Result,
    Steps,
    ToCoordinator,
    ToEveryBroker,
    ToLeaders,
)
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.api import PartitionResult, PartitionsResponse
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersRequest, DescribeProducersResponse
from kafka_sink.kafka.protocol.apis.transactions import WriteTxnMarkersRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode


def run(client: AdminClient, steps: Steps[Result]) -> Result:
    """Run `steps` and return their result. Raises the errors of the steps, and ClusterError if an answer is missing."""
    try:
        effects = next(steps)
        while True:
            effects = steps.send(answer_all(client, effects))
    except StopIteration as ended:
        result: Result = ended.value
        return result
    finally:
        steps.close()


def answer_all(client: AdminClient, effects: Sequence[Effect]) -> list[Any]:
    """Return the answers in the order of `effects`. All requests to coordinators go out together, before the others."""
    to_coordinators = [effect for effect in effects if isinstance(effect, ToCoordinator)]
    begun = client.begin_all([(each.kind, each.key, each.request) for each in to_coordinators])
    others = iter([_answer(client, effect) for effect in effects if not isinstance(effect, ToCoordinator)])
    answers = iter(client.await_all(begun))
    return [next(answers if isinstance(effect, ToCoordinator) else others) for effect in effects]


def _answer(client: AdminClient, effect: BrokerSetting | Pause | ToEveryBroker | ToLeaders) -> Any:
    match effect:
        case Pause(milliseconds=milliseconds):
            # Brokers do not report when they have finished, so sleep.
            time.sleep(milliseconds / 1000)
            return None
        case BrokerSetting(name=name):
            return client.broker_setting(name)
        case ToEveryBroker(request=request):
            return list(client.ask_brokers(request).values())
        case ToLeaders(request=DescribeProducersRequest(partitions=partitions)):
            found = client.ask_leaders(partitions, DescribeProducersRequest)
            return DescribeProducersResponse(0, tuple(found.values()))
        case ToLeaders(request=WriteTxnMarkersRequest() as marker) if not client.can_repair():
            refused = (PartitionResult(*partition, ErrorCode.UNSUPPORTED_VERSION) for partition in marker.partitions)
            return PartitionsResponse(0, tuple(refused))
        case ToLeaders(request=WriteTxnMarkersRequest() as marker):
            written = client.ask_leaders(marker.partitions, lambda led: replace(marker, partitions=led))
            return PartitionsResponse(0, tuple(written.values()))
    raise AssertionError(effect)
