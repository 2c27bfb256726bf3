"""The seam of `NetworkClient` over a ScriptedKafka: answers come with the next poll, or are given by the test."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ClusterChanged, KafkaSinkError
from kafka_sink.kafka.outage import Contact
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.needs import Guarantee
from scripted_kafka.kafka import ScriptedKafka

# More polls than any test needs.
MOST_POLLS = 10_000


@dataclass(eq=False)
class Sent:
    """An in-flight request. It is also the answer, once `response` or `error` is set."""

    node_id: int
    request: Any
    token: Any
    response: Any = None
    error: str | None = None
    expects_response: bool = True
    sent_ms: int = 0


class ScriptedNetwork:
    """A poll without events moves the time of `kafka` by its whole timeout. A test that does not poll takes
    requests from `sent` and answers them itself.

    `known`: the nodes with known addresses. `expected_cluster_id`: the network fails if the cluster has another id.
    `connects`, `handshakes`, `interruptions`, `failure`, `last_error`: as `NetworkClient` has them, set by the test.
    `contacts`: what `contact` returns.
    """

    def __init__(
        self,
        kafka: ScriptedKafka,
        known: Iterable[int] | None = None,
        *,
        max_in_flight: int = 100,
        expected_cluster_id: str | None = None,
        last_error: str = "broker 9: Connection refused",
    ) -> None:
        self.kafka = kafka
        self.known = kafka.brokers.copy() if known is None else set(known)
        self.learned: dict[int, Broker] = {}
        # Known, and neither ready nor down.
        self.connecting: set[int] = set()
        self.max_in_flight = max_in_flight
        self.last_error = last_error
        self.failure: KafkaSinkError | None = None
        self.connects = 0
        self.handshakes = 0
        self.interruptions = 0
        self.contacts = Contact(is_reached=True)
        self.closed = False
        self.waits: list[int] = []
        self.sent: list[Sent] = []
        self.expect(expected_cluster_id)

    def expect(self, cluster_id: str | None) -> None:
        """Make the network fail if a broker is of another cluster. None: every cluster is accepted."""
        found = self.kafka.cluster_id
        if cluster_id not in (None, found):
            self.failure = ClusterChanged(broker="broker 1", expected=str(cluster_id), found=str(found))

    # --- as a NetworkClient -------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        return self.kafka.cluster_id

    def ready(self, node_id: int, now_ms: int) -> bool:
        if node_id not in self.known - self.kafka.down - self.connecting or self._is_throttled(node_id, now_ms):
            return False
        return self.failure is None and sum(each.node_id == node_id for each in self.sent) < self.max_in_flight

    def is_down(self, node_id: int) -> bool:
        return node_id in self.kafka.down or node_id not in self.known

    def least_loaded_node(self, now_ms: int) -> int | None:
        return next((node for node in sorted(self.known & self.kafka.brokers) if self.ready(node, now_ms)), None)

    def update_brokers(self, brokers: Sequence[Broker]) -> None:
        if brokers:
            self.known = {broker.node_id for broker in brokers}

    def learn(self, broker: Broker) -> None:
        self.known.add(broker.node_id)
        self.learned[broker.node_id] = broker

    def throttles(self, now_ms: int) -> dict[int, tuple[int, int]]:
        throttled = self.kafka.throttled.items()
        return {node: (max(0, min(now_ms, until) - since), until) for node, (since, until) in throttled}

    def throttled_ms(self, now_ms: int) -> int:
        return max((passed_ms for passed_ms, _ in self.throttles(now_ms).values()), default=0)

    def finalized_features(self, node_id: int) -> Mapping[str, int] | None:
        return self.kafka.features

    def api_version(self, node_id: int, request: Any) -> int | None:
        return self.kafka.spoken(request)

    def lacks(self, node_id: int, guarantee: Guarantee) -> tuple[str, ...]:
        return self.kafka.lacking

    def name(self, node_id: int) -> str:
        return f"broker {node_id}"

    def contact(self, now_ms: int) -> Contact:
        return self.contacts

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        self.kafka.received.append((node_id, request))
        self.sent.append(Sent(node_id, request, token, expects_response=expect_response, sent_ms=self.kafka.now_ms))

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        assert timeout_ms >= 0
        self.waits.append(timeout_ms)
        assert len(self.waits) < MOST_POLLS, "the client turns without waiting"
        answers = self._answers()
        self.kafka.pass_time(0 if answers else timeout_ms)
        return answers

    def wakeup(self) -> None:
        pass

    def close(self) -> list[ClientResponse]:
        self.closed = True
        unanswered, self.sent = self.sent, []
        return [ClientResponse(each.node_id, each.request, each.token, None, "closed", 0) for each in unanswered]

    # --- for the test -------------------------------------------------------------------------------------------------

    def take(self, kind: type) -> Sent:
        """Return the oldest unanswered request of a kind."""
        found = next(each for each in self.sent if isinstance(each.request, kind))
        self.sent.remove(found)
        return found

    def produce(self) -> list[Sent]:
        return [each for each in self.sent if isinstance(each.request, ProduceRequest)]

    def _answers(self) -> list[ClientResponse]:
        ready = [each for each in self.sent if self.kafka.answers_now(each.node_id, each.request)]
        self.sent = [each for each in self.sent if each not in ready]
        return [self._answer(each) for each in ready]

    def _answer(self, sent: Sent) -> ClientResponse:
        response = self.kafka.answer(sent.node_id, sent.request)
        error = None if response is not None else f"broker {sent.node_id}: cut"
        latency_ms = self.kafka.now_ms - sent.sent_ms
        return ClientResponse(sent.node_id, sent.request, sent.token, response, error, latency_ms)

    def _is_throttled(self, node_id: int, now_ms: int) -> bool:
        since, until = self.kafka.throttled.get(node_id, (0, 0))
        return since <= now_ms < until
