"""The client over a transport and a clock that the test holds: no sockets, no waiting."""

import errno
import hashlib
import socket
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import apis
from effort import examples
from kafka_sink import errors
from kafka_sink.errors.exhaustion import PATIENCE_MS
from kafka_sink.kafka.net.network_client import MIN_SESSION_MS
from kafka_sink.kafka.net.transport import Address, Connected, Disconnected, Event, Received, Sent, TlsFailure
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE
from kafka_sink.kafka.protocol.sasl import Authentication, KerberosLogin, PasswordLogin, authentication
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE
from network_world import (
    END_TXN,
    INIT,
    INIT_PRODUCER_ID,
    METADATA,
    NO_ACKS,
    PRODUCE,
    ScriptedTransport,
    SecureWorld,
    World,
    authenticate_answer,
    brokers,
    correlation_id,
    framed,
    handshake_answer,
    init_answer,
    knowing,
    metadata_answer,
    versions_answer,
)
from waiting import wait_until


class TestLack:
    """Connections that fail as the process has no more files."""

    @staticmethod
    def fail(world: World, *, for_ms: int, lacks: int | None = errno.EMFILE) -> BaseException | None:
        until_ms = world.now_ms + for_ms
        while world.client.failure is None and world.now_ms < until_ms:
            if world.client.ready(-1, world.now_ms):
                break
            if world.is_connecting:
                world.poll(Disconnected(world.key, "Too many open files", lacks=lacks))
            world.poll(timeout_ms=20)
        return world.client.failure

    def test_is_waited_for_a_few_seconds(self, world: World) -> None:
        assert isinstance(self.fail(world, for_ms=60_000), errors.WorkerExhausted)
        assert PATIENCE_MS <= world.now_ms <= PATIENCE_MS + 2_000
        assert len(world.transport.connects) > 3
        assert self.fail(World(), for_ms=60_000, lacks=None) is None, "other reasons are no lack"

    def test_that_ends_is_forgotten_and_one_of_long_ago_does_not_count(self, world: World) -> None:
        for _ in range(3):
            assert self.fail(world, for_ms=PATIENCE_MS - 1_500) is None
            while not world.is_connecting:
                world.client.ready(-1, world.now_ms)
                world.poll(timeout_ms=20)
            world.poll(Connected(world.key))
            world.poll(Disconnected(world.key, "gone"))
        world = World()
        self.fail(world, for_ms=100)
        world.transport.now_ms += 600_000
        assert self.fail(world, for_ms=2_000) is None

    def test_of_who_looks_names_up_is_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_file(world: World, host: str, port: int) -> list[Address]:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(World, "resolve", no_file)
        assert isinstance(self.fail(World(), for_ms=60_000), errors.WorkerExhausted)


class TestReady:
    def test_after_connecting_and_negotiating(self, world: World) -> None:
        client = world.client
        for _ in range(2):
            assert not client.ready(-1, 0)
            assert world.transport.connects == [(0, Address(socket.AF_INET, ("10.0.0.1", 9092)))]
        world.poll(Connected(0))
        assert not client.ready(-1, 0)
        (frame,) = world.transport.outbox[0]
        assert struct.unpack_from(">hhi", frame, 4) == (18, 3, 0)
        world.poll(Sent(0), Received(0, versions_answer(0, World.RANGES)))
        assert not client.ready(-1, 0)
        assert struct.unpack_from(">hhi", world.transport.outbox[0][-1], 4) == (METADATA, 13, 1)
        world.identify(0)
        assert client.ready(-1, 0)
        assert client.api_version(-1, INIT) == 5

    def test_down_is_who_has_no_connection_and_is_not_getting_one(self, world: World) -> None:
        client = world.client
        assert client.is_down(5) and client.is_down(-1)
        world.connect()
        assert not client.is_down(-1)
        world.lose(world.key, pause_ms=0)
        assert not client.ready(-1, world.now_ms)  # it rests for a while
        assert client.is_down(-1)
        world.poll(timeout_ms=100)
        world.open()
        assert not client.is_down(-1)


class TestConnectFails:
    def test_backoff_grows_and_is_kept(self, world: World) -> None:
        waits = []
        for _ in range(8):
            assert not world.client.ready(-1, world.now_ms)
            assert world.poll(Disconnected(world.key, "Connection refused")) == []
            attempts = len(world.transport.connects)
            wait = world.client.delay_ms(-1, world.now_ms)
            assert wait
            assert not world.client.ready(-1, world.now_ms + wait - 1)
            assert len(world.transport.connects) == attempts
            waits.append(wait)
            world.poll(timeout_ms=60_000)
            assert world.transport.waited_ms[-1] == wait  # poll itself ends when trying again makes sense
        for wait, exponential in zip(waits, [50, 100, 200, 400, 800, 1000, 1000, 1000], strict=True):
            assert 0.8 * exponential - 1 <= wait <= min(1.2 * exponential, 1000)
        assert world.client.last_error == "bootstrap server boot:9092 (10.0.0.1:9092): Connection refused"
        # It starts over once there was a connection.
        world.poll(Disconnected(world.open(), "cut"))
        assert (world.client.delay_ms(-1, world.now_ms) or 0) <= 60

    def test_every_address_is_tried(self) -> None:
        world = World(names={"boot": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})

        def fail(times: int) -> list[str]:
            for _ in range(times):
                assert not world.client.ready(-1, world.now_ms)
                world.poll(Disconnected(world.key, "Connection refused"))
                world.poll(timeout_ms=2_000)
            return [str(address.sockaddr[0])[-1] for _, address in world.transport.connects[-times:]]

        assert (fail(3), world.resolved) == (["1", "2", "3"], ["boot"])
        # The one that failed is not tried twice in a row.
        world.names["boot"] = ["10.0.0.3", "10.0.0.4"]
        assert (fail(2), world.resolved) == (["4", "3"], ["boot", "boot"])
        # A name whose connection was good is resolved anew.
        world.poll(Disconnected(world.open(), "cut"))
        world.poll(timeout_ms=2_000)
        world.names["boot"] = ["10.0.0.5"]
        assert fail(1) == ["5"]

    def test_a_name_that_cannot_be_resolved(self) -> None:
        world = World(names={"boot": []})
        for _ in range(2):
            assert not world.client.ready(-1, 0)
            assert world.resolved == ["boot"]
        said = "bootstrap server boot:9092: its name cannot be resolved: Name or service not known"
        assert world.client.last_error == said
        world.names["boot"] = ["10.0.0.9"]
        world.poll(timeout_ms=60_000)
        world.connect()

    def test_the_time_to_connect_grows_with_each_failure_and_its_jitter_is_random(self) -> None:
        """KIP-601."""
        world = World(socket_connection_setup_timeout_ms=1_000, socket_connection_setup_timeout_max_ms=6_000)
        given_ms: list[list[int]] = [[] for _ in range(5)]
        for _ in range(20):
            for failures in range(5):
                given_ms[failures].append(self.time_to_connect_ms(world))
            # A connection starts it over, whatever becomes of it.
            world.poll(timeout_ms=60_000)
            world.connect()
            world.poll(Sent(world.key), Disconnected(world.key, "the peer closed the connection"))
        for times_ms, exponential in zip(given_ms, [1_000, 2_000, 4_000, 6_000, 6_000], strict=True):
            assert min(times_ms) >= 0.8 * exponential - 1
            assert max(times_ms) <= min(1.2 * exponential, 6_000)
        assert len(set(given_ms[0])) > 10

    @staticmethod
    def time_to_connect_ms(world: World) -> int:
        while not world.transport.open:
            world.poll(timeout_ms=world.client.delay_ms(-1, world.now_ms) or 0)
            world.client.ready(-1, world.now_ms)
        started_ms = world.now_ms
        world.poll(timeout_ms=60_000)
        assert world.transport.open == set()
        assert world.client.last_error.endswith(f"no connection within {world.now_ms - started_ms} ms")
        return world.now_ms - started_ms

    def test_a_broker_that_accepts_and_says_nothing(self) -> None:
        world = World(request_timeout_ms=30_000)
        world.connect()
        world.poll(Sent(0))
        world.poll(timeout_ms=60_000)
        assert (world.now_ms, world.transport.open) == (30_000, set())
        world.says("no answer within 30000 ms", "plaintext listener")

        # A listener that closes instead of answering, as one for TLS does.
        world = World()
        world.connect()
        world.poll(Sent(0), Disconnected(0, "Connection reset by peer"))
        world.says("Connection reset by peer", "plaintext listener", "max.connections.per.ip")

    @pytest.mark.parametrize(("bytes_", "words"), [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP; check the port"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (framed(0, b"\0"), "cut off"),
    ])  # fmt: skip
    def test_a_peer_that_is_no_broker(self, world: World, bytes_: bytes, words: str) -> None:
        # The backoff grows, or a port where something else listens would be knocked at without end.
        for _ in range(6):
            world.connect()
            world.poll(Sent(world.key), Received(world.key, bytes_))
            assert world.transport.open == set()
            # What was on its way from it is nobody's.
            world.poll(Received(world.key, b"more"), Disconnected(world.key, "late"))
            world.says(words)
            wait_ms = world.client.delay_ms(-1, world.now_ms)
            world.poll(timeout_ms=60_000)
        assert wait_ms is not None and wait_ms >= 800
        assert isinstance(world.client.failure, errors.TlsFailed) is (words == "TLS")
        assert words != "TLS" or "kafka.security.protocol" in str(world.client.failure)


class TestSend:
    def test_no_more_than_max_in_flight(self) -> None:
        world = World(max_in_flight=5)
        key = world.open()
        answers = [world.send(token) for token in range(5)]
        assert not world.client.ready(-1, world.now_ms)
        with pytest.raises(RuntimeError):
            world.client.send(-1, INIT, world.now_ms)
        world.poll(*[Sent(key)] * 5, Received(key, answers[0]))
        assert world.client.ready(-1, world.now_ms)

    def test_without_a_response_it_is_back_when_sent(self, world: World) -> None:
        key = world.open()
        world.client.send(-1, NO_ACKS, 0, "token", expect_response=False)
        assert world.transport.told_at_once == [False, False, True]  # two that are answered, and this
        assert world.poll() == []
        assert world.poll(Sent(key)) == [ClientResponse(-1, NO_ACKS, "token", None, None, 0)]

    def test_a_version_that_is_not_shared(self, world: World) -> None:
        key = world.open(ranges={PRODUCE: (0, 6), METADATA: (0, 13), END_TXN: (0, 4)})
        of_version_2 = apis.EndTxnRequest("s.0", 7, 0, committed=True, transaction_version=2)
        for request, words in (
            (of_version_2, "EndTxn needs versions 5 to 5, which the broker lacks: it speaks versions 0 to 4"),
            (NO_ACKS, "Produce needs versions 7 to 13, which the broker lacks: it speaks versions 0 to 6"),
            (INIT, "InitProducerId needs versions 0 to 5, which the broker lacks: it does not offer it"),
        ):
            sent_before = len(world.transport.outbox[key])
            world.client.send(-1, request, world.now_ms, "token")
            assert world.client.has_in_flight
            (response,) = world.poll(timeout_ms=60_000)
            assert (world.transport.waited_ms[-1], len(world.transport.outbox[key])) == (0, sent_before)
            error = f"bootstrap server boot:9092 (10.0.0.1:9092): {words}"
            assert (response.token, response.response, response.error) == ("token", None, error)
        assert world.client.ready(-1, world.now_ms)

    def test_a_broker_that_lacks_what_every_write_needs_ends_the_client(self) -> None:
        world = World(guarantees=(AT_LEAST_ONCE, IDEMPOTENCE))
        key = world.connect()
        world.poll(Sent(key), Received(key, versions_answer(0, {PRODUCE: (0, 7), METADATA: (0, 7)})))
        failure = world.client.failure
        assert isinstance(failure, errors.BrokerUnsupported)
        assert failure.guarantee == "idempotence" and "InitProducerId" in failure.missing[0]
        assert "kafka.enable.idempotence=false" in str(failure)
        assert world.transport.open == set()
        # One that lacks what only some writes need is told.
        world = World()
        assert world.client.lacks(-1, EXACTLY_ONCE) == ()
        world.open()
        assert world.client.lacks(-1, EXACTLY_ONCE)[0].startswith("FindCoordinator ")
        assert world.client.lacks(-1, IDEMPOTENCE) == ()


class TestConnectionLost:
    @pytest.mark.parametrize("sent", [0, 3])
    def test_everything_under_way_comes_back_with_the_reason(self, world: World, sent: int) -> None:
        key = world.open()
        for token in range(3):
            world.send(token)
        responses = world.poll(*[Sent(key)] * sent, Disconnected(key, "Connection reset by peer"))
        error = world.client.last_error
        assert error.startswith("bootstrap server boot:9092 (10.0.0.1:9092): Connection reset by peer")
        assert [(each.token, each.response, each.error) for each in responses] == [(n, None, error) for n in range(3)]
        assert not world.client.has_in_flight
        assert world.poll(timeout_ms=100) == []
        world.open()
        world.send("left at the end")
        assert [(each.token, each.response) for each in world.client.close()] == [("left at the end", None)]

    @pytest.mark.parametrize("words", ["correlation id", "a frame of 1001 bytes", "cut off"])
    def test_the_answers_before_a_bad_one_count(self, words: str) -> None:
        world = World(max_response_bytes=1_000)
        key = world.open()
        good, bad = world.send("good"), world.send("bad")
        wrong = {"correlation id": bad[:4] + b"\x7f" + bad[5:], "a frame of 1001 bytes": struct.pack(">i", 1_001)}
        responses = world.poll(Sent(key), Sent(key), Received(key, good + wrong.get(words, framed(3, b""))))
        assert [(response.token, response.error is None) for response in responses] == [("good", True), ("bad", False)]
        assert words in world.client.last_error
        assert world.transport.open == set()

    def test_the_oldest_request_bounds_the_wait(self) -> None:
        world = World(request_timeout_ms=30_000)
        key = world.open()
        answer = world.send("in the last poll")
        world.poll(Sent(key))
        world.transport.now_ms += 40_000
        (response,) = world.poll(Received(key, answer))
        assert (response.error, world.transport.open) == (None, {key})
        world.send("old")
        world.poll(Sent(key))
        world.transport.now_ms += 20_000
        young = world.send("young")
        assert world.poll(Sent(key), timeout_ms=0) == []
        responses = [(each.token, each.response, each.latency_ms) for each in world.poll(timeout_ms=60_000)]
        assert responses == [("old", None, 30_000), ("young", None, 10_000)]
        assert (world.now_ms, world.transport.open) == (70_000, set())
        world.says("no answer within 30000 ms")
        assert world.poll(Received(key, young)) == []


class TestThrottle:
    def test_a_node_is_left_alone_as_long_as_it_says(self, world: World) -> None:
        """KIP-219. A later answer does not shorten it."""
        key = world.open()
        world.send("first")
        world.send("second")
        for frame, throttle_time_ms in zip(world.transport.outbox[key][-2:], (700, 300), strict=True):
            answer = init_answer(correlation_id(frame), throttle_time_ms=throttle_time_ms)
            (response,) = world.poll(Sent(key), Received(key, answer))
            assert response.error is None
        assert not world.client.ready(-1, world.now_ms)
        assert world.client.delay_ms(-1, world.now_ms) == 700
        assert world.client.least_loaded_node(world.now_ms) is None
        world.poll(timeout_ms=60_000)
        assert world.now_ms == 700
        assert world.client.ready(-1, world.now_ms)

    @pytest.mark.parametrize("comes", [True, False])
    def test_requests_that_it_has_not_read_yet_get_as_much_more_time(self, comes: bool) -> None:
        world = World(request_timeout_ms=30_000)
        key = world.open()
        answers = [world.send(token) for token in range(2)]
        first = init_answer(correlation_id(world.transport.outbox[key][-2]), throttle_time_ms=45_000)
        world.transport.now_ms += 5_000
        world.poll(*[Sent(key)] * 2, Received(key, first))
        world.poll(timeout_ms=60_000)
        assert world.now_ms == 50_000  # when it ends
        assert world.client.in_flight_count(-1) == 1
        world.transport.now_ms = 79_999
        (response,) = world.poll(*[Received(key, answers[1])] * comes, timeout_ms=60_000)
        assert (response.token, response.error is None) == (1, comes)
        if comes:
            world.send("after")
            world.poll(Sent(key))
            world.poll(timeout_ms=60_000)
        assert world.now_ms == (79_999 + 30_000 if comes else 80_000)
        world.says("no answer within 30000 ms")

    def test_nodes_that_throttle_at_once_do_so_together_but_each_on_its_own(self) -> None:
        world = knowing(3, 4)
        world.open(3)
        world.throttle(700, 3)
        world.transport.now_ms = 400
        world.open(4)
        world.throttle(500, 4)
        assert world.client.throttles(1_000) == {3: (700, 700), 4: (500, 900)}
        assert world.client.throttled_ms(1_000) == 900

    def test_only_while_it_is_connected(self) -> None:
        world = World(request_timeout_ms=30_000, reconnect_backoff_ms=50, reconnect_backoff_max_ms=50)
        key = world.open()
        world.throttle(10_000)
        world.transport.now_ms = 1_000
        world.poll(Disconnected(key, "cut"))
        assert (world.client.throttled_ms(4_000), world.client.throttles(4_000)[-1][0]) == (1_000, 1_000)
        # And again when it is back: what it said still holds, whatever connection it was said on.
        world.transport.now_ms = 4_000
        world.dial()
        assert not world.client.can_send(-1, 9_999)
        assert world.client.can_send(-1, 10_000)
        assert (world.client.throttled_ms(20_000), world.client.throttles(20_000)) == (7_000, {-1: (7_000, 10_000)})

        # A new connection is read at once.
        world.transport.now_ms = 20_000
        world.throttle(1_000_000)
        world.lose(world.key)
        world.connect()
        world.poll(Sent(world.key))
        began_ms = world.now_ms
        world.poll(timeout_ms=60_000)
        assert world.now_ms == began_ms + 30_000
        world.says("no answer within 30000 ms")


@pytest.mark.parametrize("is_answered", [True, False])
def test_idleness_closes_a_connection_some_time_after_its_last_answer_or_request(is_answered: bool) -> None:
    world = World(connections_max_idle_ms=50_000)
    world.open()
    world.transport.now_ms += 10_000
    answer = world.send("token") if is_answered else b""
    world.transport.now_ms += 10_000
    if not is_answered:
        world.client.send(-1, NO_ACKS, world.now_ms, expect_response=False)
    world.poll(Sent(0), *[Received(0, answer)] * is_answered)
    world.poll(timeout_ms=10**9)
    assert (world.now_ms, world.transport.open) == (70_000, set())
    assert (world.client.last_error, world.client.delay_ms(-1, world.now_ms)) == ("", 0)
    # One that waits for an answer is not idle.
    world = World(connections_max_idle_ms=1_000, request_timeout_ms=30_000)
    world.open()
    world.send("token")
    world.poll(Sent(0))
    world.poll(timeout_ms=5_000)
    assert (world.now_ms, world.transport.open) == (5_000, {0})


class TestLeastLoaded:
    @pytest.mark.parametrize(
        ("rounds", "pause_ms"), [(1, 1), (10, 2_000)], ids=["within a backoff", "the longest untried"]
    )
    def test_tries_every_bootstrap_server_in_turn(self, rounds: int, pause_ms: int) -> None:
        world = World(bootstrap_servers=(("one", 1), ("two", 2), ("three", 3)))
        for _ in range(3 * rounds):
            assert world.client.least_loaded_node(world.now_ms) is None
            world.poll(Disconnected(world.key, "Connection refused"))
            world.transport.now_ms += pause_ms
        assert {world.resolved.count(name) for name in ("one", "two", "three")} == {rounds}

    def test_is_the_one_with_the_fewest_in_flight(self) -> None:
        world = knowing(1, 2)
        for node_id in (1, 2):
            world.open(node_id)
        assert {world.client.least_loaded_node(0) for _ in range(50)} == {1, 2}
        world.client.send(1, INIT, 0)
        assert {world.client.least_loaded_node(0) for _ in range(20)} == {2}
        world.client.send(2, INIT, 0)
        world.client.send(2, INIT, 0)
        assert {world.client.least_loaded_node(0) for _ in range(20)} == {1}
        # Full nodes are waited for.
        world = knowing(1, max_in_flight=1)
        world.open(1)
        world.client.send(1, INIT, 0)
        assert world.client.least_loaded_node(0) is None
        assert len(world.transport.connects) == 1


class TestBrokersChange:
    @pytest.mark.parametrize("is_learned", [True, False])
    def test_a_broker_that_moved_is_connected_to_anew(self, is_learned: bool) -> None:
        world = knowing(1)
        world.open(1)
        world.client.send(1, INIT, 0, "token")
        moved = apis.Broker(1, "elsewhere", 9093)
        world.client.learn(moved) if is_learned else world.client.update_brokers([moved])
        assert world.transport.open == set()
        (response,) = world.poll(timeout_ms=60_000)
        assert (response.token, response.response) == ("token", None)
        assert "moved to elsewhere:9093" in str(response.error)
        world.open(1)
        assert world.resolved[-1] == "elsewhere"

    def test_one_that_is_learned_again_keeps_its_connection_and_what_was_known_of_it(self) -> None:
        world = World(names={"b7": ["10.0.7.1", "10.0.7.2"]})
        world.client.learn(apis.Broker(7, "b7", 9092))
        assert not world.client.ready(7, 0)
        world.poll(Disconnected(world.key, "Connection refused"))
        assert not world.client.ready(7, world.now_ms)  # it rests for a while
        assert len(world.transport.connects) == 1
        world.poll(timeout_ms=100)
        key = world.open(7)  # at its other address
        assert world.transport.connects[-1][1].sockaddr[0] == "10.0.7.2"
        world.client.learn(apis.Broker(7, "b7", 9092))
        world.client.update_brokers([])
        assert world.transport.open == {key}


def test_finalized_features_are_those_of_the_connection(world: World) -> None:
    assert world.client.finalized_features(-1) is None
    assert (world.client.finalized_features(5), world.client.ready(5, 0)) == (None, False)
    key = world.connect()
    assert world.client.finalized_features(-1) is None
    (frame,) = world.transport.outbox[key]
    # Tag 2 (FinalizedFeatures), 26 bytes: one element, its name, the highest and the lowest level.
    tags = b"\x01\x02\x1a" + b"\x02" + b"\x14transaction.version" + struct.pack(">hhb", 2, 2, 0)
    world.poll(Sent(key), Received(key, versions_answer(correlation_id(frame), {METADATA: (0, 13)}, tags=tags)))
    world.identify(key)
    assert world.client.finalized_features(-1) == {"transaction.version": 2}
    world.poll(Disconnected(key, "cut"))
    assert world.client.finalized_features(-1) is None


class AnyWeather(RuleBasedStateMachine):
    """Two brokers and a bootstrap server, where one of them may be, behind any weather. A request comes back exactly
    once; unanswered only over a closed connection."""

    def __init__(self) -> None:
        super().__init__()
        names = {"boot": ["10.0.0.9"], "b1": ["10.0.0.1"], "b2": ["10.0.0.2"], "elsewhere": ["10.0.0.3"]}
        self.world = World(names, max_in_flight=3, request_timeout_ms=5_000, connections_max_idle_ms=20_000)
        self.address_of = {-1: "10.0.0.9", 1: "10.0.0.1", 2: "10.0.0.2"}
        # By connection: how many frames it was told to have sent, and which have their answer.
        self.told_sent: Counter[int] = Counter()
        self.answered: defaultdict[int, set[int]] = defaultdict(set)
        # Connections over which a broker has said nonsense.
        self.harmed: set[int] = set()
        self.world.client.update_brokers(brokers(1, 2))
        self.under_way: dict[int, tuple[int, int, int]] = {}  # token -> node, number of its connection, and place in it
        self.next_token = 0

    @property
    def transport(self) -> ScriptedTransport:
        return self.world.transport

    def sendable(self) -> list[int]:
        return [node_id for node_id in self.address_of if self.world.client.can_send(node_id, self.world.now_ms)]

    def key_of(self, node_id: int) -> int | None:
        """The connection that was made last to where the node is now."""
        wanted = self.address_of[node_id]
        return next((key for key, to in reversed(self.transport.connects) if to.sockaddr[0] == wanted), None)

    @rule(node_id=st.sampled_from([-1, 1, 2]))
    def want(self, node_id: int) -> None:
        self.world.client.ready(node_id, self.world.now_ms)

    @rule(node_id=st.sampled_from([-1, 1, 2]))
    def open(self, node_id: int) -> None:
        """Or too few examples would get as far as sending."""
        self.take(self.world.poll(timeout_ms=self.world.client.delay_ms(node_id, self.world.now_ms) or 0))
        if not self.world.client.ready(node_id, self.world.now_ms):
            key = self.key_of(node_id)
            for _ in range(3):
                if key in self.transport.open:  # noise from before may end it
                    self.take(self.world.poll(*self.next_events(key)))

    @rule()
    def want_any(self) -> None:
        node_id = self.world.client.least_loaded_node(self.world.now_ms)
        assert node_id is None or self.world.client.can_send(node_id, self.world.now_ms)

    @precondition(lambda self: self.sendable())
    @rule(data=st.data(), acks=st.booleans())
    def send(self, data: st.DataObject, acks: bool) -> None:
        node_id = data.draw(st.sampled_from(self.sendable()))
        request = INIT if acks else NO_ACKS
        token, self.next_token = self.next_token, self.next_token + 1
        self.world.client.send(node_id, request, self.world.now_ms, token, expect_response=acks)
        key = self.key_of(node_id)
        assert key is not None
        self.under_way[token] = node_id, key, len(self.transport.outbox[key]) - 1

    @precondition(lambda self: self.transport.open)
    @rule(data=st.data(), steps=st.integers(1, 9), cut=st.sampled_from([False, False, False, True]))
    def go_on(self, data: st.DataObject, steps: int, cut: bool) -> None:
        """What a broker would do, for a while; perhaps the connection is cut in the same poll."""
        for step in range(steps):
            key = data.draw(st.sampled_from(sorted(self.transport.open)))
            events = self.next_events(key)
            if cut and step == steps - 1:
                events.append(Disconnected(key, "cut"))
            self.take(self.world.poll(*events))
            if not self.transport.open:
                break

    @precondition(lambda self: self.transport.open)
    @rule(data=st.data(), noise=st.binary(max_size=12))
    def noise(self, data: st.DataObject, noise: bytes) -> None:
        key = data.draw(st.sampled_from(sorted(self.transport.open)))
        if self.transport.outbox[key] and data.draw(st.integers(0, 4)) == 0:
            self.harmed.add(key)
            self.take(self.world.poll(Received(key, noise)))

    def next_events(self, key: int) -> list[Event]:
        frames = self.transport.outbox[key]
        if not frames:
            return [Connected(key)]
        if self.told_sent[key] < len(frames):
            self.told_sent[key] += 1
            return [Sent(key)]
        answer_to = {INIT_PRODUCER_ID: init_answer, METADATA: metadata_answer}
        for place, frame in enumerate(frames):
            (api_key,) = struct.unpack_from(">h", frame, 4)
            # Nobody answers a Produce with acks=0.
            if api_key != PRODUCE and place not in self.answered[key]:
                self.answered[key].add(place)
                answer = answer_to.get(api_key, lambda number: versions_answer(number, World.RANGES))
                return [Received(key, answer(correlation_id(frame)))]
        return []

    @rule(ms=st.sampled_from([0, 1, 1, 50, 1_000, 6_000, 30_000]))
    def wait(self, ms: int) -> None:
        self.take(self.world.poll(timeout_ms=ms))

    @rule(host=st.sampled_from(["b2", "b2", "b2", "boot", "elsewhere"]))
    def metadata(self, host: str) -> None:
        (self.address_of[2],) = self.world.names[host]
        self.world.client.update_brokers([*brokers(1), apis.Broker(2, host, 9092)])

    def take(self, responses: list[ClientResponse]) -> None:
        for response in responses:
            assert isinstance(response.token, int)
            node_id, key, place = self.under_way.pop(response.token)
            assert response.node_id == node_id
            # Also where the connection ended in the same poll.
            assert place not in self.answered[key] or key in self.harmed or response.response is not None
            assert response.error is None or key not in self.transport.open
            assert (response.response is None) == (response.error is not None or response.request is NO_ACKS)

    @invariant()
    def limits(self) -> None:
        for node_id in self.address_of:
            assert self.world.client.in_flight_count(node_id) <= 3
        last_to = {address.sockaddr[0]: key for key, address in self.transport.connects}
        assert self.transport.open <= set(last_to.values()), "a connection that another one has replaced"
        assert all(self.key_of(node_id) in self.transport.open for node_id in self.sendable())
        assert len(self.transport.open) <= 3
        assert not self.under_way or self.world.client.has_in_flight

    def teardown(self) -> None:
        self.take(self.world.client.close())
        assert self.under_way == {}
        assert self.transport.open == set()


TestAnyWeather = AnyWeather.TestCase
TestAnyWeather.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)


class TestCluster:
    """`World.open` is a connection to a broker of cluster-1."""

    def test_is_that_of_the_first_broker_that_names_one(self) -> None:
        world = knowing(1, 2, 3)
        # One that names none is believed, before and after.
        for node_id, cluster_id, known in ((1, None, None), (2, b"cluster-1", "cluster-1"), (3, None, "cluster-1")):
            world.dial(node_id, cluster_id)
            assert world.client.can_send(node_id, world.now_ms)
            assert world.client.cluster_id == known

    def test_that_was_replaced_ends_the_client(self, world: World) -> None:
        world.open()
        world.send("token")
        world.lose(world.key)
        key = world.dial(-1, b"cluster-2\n")
        failure = world.client.failure
        assert isinstance(failure, errors.ClusterChanged)
        assert (failure.expected, failure.found) == ("cluster-1", "cluster-2\\n")
        assert "boot:9092" in str(failure) and "\n" not in str(failure)
        apis = [struct.unpack_from(">h", frame, 4)[0] for frame in world.transport.outbox[key]]
        assert (world.transport.open, apis) == (set(), [18, METADATA])

    def test_interruptions_are_moments_without_a_connection(self) -> None:
        world = knowing(1, 2)
        first, second = world.open(1), world.open(2)
        world.poll(Disconnected(first, "cut"))
        world.poll(Sent(second), Received(second, world.send("is it there?", 2)))
        world.poll(timeout_ms=100)
        assert (world.client.handshakes, world.client.interruptions) == (2, 0)
        first = world.open(1)
        assert (world.client.handshakes, world.client.interruptions) == (3, 0)
        world.poll(Disconnected(second, "cut"), Disconnected(first, "cut"))
        assert world.client.interruptions == 1
        world.poll(timeout_ms=1_000)
        world.connect(1)
        world.poll(Disconnected(world.key, "refused"))
        assert (world.client.handshakes, world.client.interruptions) == (3, 1)

    @pytest.mark.parametrize("asked", ["never", "before the loss"])
    def test_a_connection_that_only_looks_open_hides_no_interruption(self, asked: str) -> None:
        """What was asked before another one ended says nothing of the time since."""
        world = knowing(1, 2)
        first, second = world.open(1), world.open(2)
        answer = world.send("is it there?", 2) if asked == "before the loss" else None
        world.poll(Disconnected(first, "cut"))
        if answer is not None:
            world.poll(Sent(second), Received(second, answer))
        world.poll(timeout_ms=100)
        world.open(1)
        assert world.client.interruptions == 1
        # Connections that were begun together vouch for each other: brokers that cannot be reached are no reason to ask
        # for another producer id.
        world = knowing(1, 2, 3)
        world.connect(3)
        world.poll(Disconnected(world.key, "refused"))
        world.open(1)
        world.open(2)
        assert world.client.interruptions == 0


FINAL = TlsFailure(step="the certificate has expired", advice="renew it", final=True)
HUNG_UP = TlsFailure(step="the peer closed the connection", advice="use another port", final=False)


class TestTlsFailures:
    def test_one_that_stays_is_kept_for_the_owner(self, world: World) -> None:
        world.client.ready(-1, 0)
        assert world.client.failure is None
        world.poll(Disconnected(0, "the certificate has expired; renew it", FINAL))
        failure = world.client.failure
        assert isinstance(failure, errors.TlsFailed) and "boot:9092" in failure.broker
        assert (failure.step, failure.advice) == ("the certificate has expired", "renew it")
        assert world.client.delay_ms(-1, world.now_ms)

    def test_a_peer_that_hangs_up_may_take_connections_later(self, world: World) -> None:
        """KIP-612: for as long as a quota of connections is used up."""
        for _ in range(100):
            world.poll(timeout_ms=world.client.delay_ms(-1, world.now_ms) or 0)
            assert not world.client.ready(-1, world.now_ms)
            world.poll(Disconnected(world.key, "the peer closed the connection", HUNG_UP))
        assert world.client.failure is None and world.now_ms > 60_000
        world.says("the peer closed the connection")
        world.poll(timeout_ms=world.client.delay_ms(-1, world.now_ms) or 0)
        world.open()
        assert world.client.can_send(-1, world.now_ms)


class TestAuthentication:
    def test_that_is_refused_is_kept_for_the_owner(self) -> None:
        world = SecureWorld()
        world.agree()
        assert world.answer(authenticate_answer, 58) == []
        failure = world.client.failure
        assert isinstance(failure, errors.AuthenticationFailed)
        assert (failure.mechanism, failure.user, world.transport.open) == ("PLAIN", "alice", set())
        assert "hunter2" not in str(failure) + world.client.last_error

        def refuse(host: str) -> Authentication:
            raise errors.BrokersUnreachable(bootstrap_servers="", waited_ms=0, last_error="no token")

        # Credentials that cannot be had.
        world = World(authenticate=refuse)
        assert not world.client.ready(-1, 0)
        assert world.transport.connects == []
        assert world.client.failure is not None and world.client.delay_ms(-1, 0)

    def test_a_listener_that_hangs_up_on_whom_it_does_not_know(self, world: World) -> None:
        """Brokers take ApiVersions of anybody, and hang up upon the next request."""
        world.connect()
        world.poll(Sent(0), Received(0, versions_answer(0, world.RANGES)), Sent(0))
        world.poll(Disconnected(0, "the peer closed the connection"))
        world.says("kafka.security.protocol=SASL_SSL")
        # One that hangs up later is no matter of authentication.
        answered, authenticated = World(), SecureWorld()
        answered.open()
        answered.poll(Sent(0), Received(0, answered.send("token")))
        authenticated.secure()
        for world in (answered, authenticated):
            world.poll(Disconnected(0, "the peer closed the connection"))
            assert world.client.last_error.endswith("the peer closed the connection")


class Hashing:
    """The password's hash, which takes until it is told."""

    def __init__(self) -> None:
        self.begun = 0
        self.goes_on = threading.Event()

    def __call__(self, *of: object) -> bytes:
        self.begun += 1
        assert self.goes_on.wait(30)
        return bytes(32)


class TestManyIterations:
    """What a broker asks SCRAM for is computed beside other connections."""

    @pytest.fixture
    def hashing(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashing]:
        hashing = Hashing()
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", hashing)
        yield hashing
        hashing.goes_on.set()

    def asked(self, world: SecureWorld | None = None) -> SecureWorld:
        """As far as the broker's first message."""
        login = PasswordLogin("alice", "hunter2")
        world = world or SecureWorld(
            request_timeout_ms=5_000, authenticate=lambda host: authentication("SCRAM-SHA-256", login, lambda: "nonce")
        )
        world.agree()
        world.answer(authenticate_answer, 0, 0, b"", b"r=noncemore,s=c2FsdA==,i=1000000")
        return world

    def test_hold_no_other_connection(self, hashing: Hashing) -> None:
        world = self.asked()
        sent = len(world.transport.outbox[world.key])
        for _ in range(3):
            assert world.poll() == []
        assert len(world.transport.outbox[world.key]) == sent
        hashing.goes_on.set()
        wait_until(lambda: world.transport.woken, 30, "the poll to be ended")
        world.poll()
        assert b"c=biws,r=noncemore,p=" in world.said()
        assert (hashing.begun, world.client.last_error) == (1, "")

    def test_that_take_longer_than_a_request_may_are_told(self, hashing: Hashing) -> None:
        world = self.asked()
        world.poll(timeout_ms=60_000)
        assert (world.now_ms, world.transport.open) == (5_000, set())
        world.says("16384")

    def test_are_computed_once_at_a_time_however_often_a_broker_asks(self, hashing: Hashing) -> None:
        world = None
        for _ in range(5):
            world = self.asked(world)
            world.poll(Disconnected(world.key, "the peer closed the connection"))
            world.transport.now_ms += 60_000
        wait_until(lambda: hashing.begun, 30, "the first hash")
        assert hashing.begun == 1
        # That of a connection that is gone is no answer on the next one.
        self.asked(world)
        sent = len(world.transport.outbox[world.key])
        hashing.goes_on.set()
        wait_until(lambda: world.poll() or len(world.transport.outbox[world.key]) > sent, 30, "the second hash")
        assert hashing.begun == 2  # the first one and this
        assert b"c=biws,r=noncemore,p=" in world.said()


class Kdc:
    """A security context that waits until it is told, and then fails or has a token."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.goes_on = threading.Event()
        self.failure: errors.SaslRefused | None = None

    def begin(self, host: str) -> Authentication:
        self.hosts.append(host)
        return authentication("GSSAPI", KerberosLogin("alice@REALM", self, "look at the broker"), lambda: "nonce")

    def step(self, token: bytes) -> tuple[bytes, bool]:
        assert self.goes_on.wait(30)
        if self.failure is not None:
            raise self.failure
        return b"ap-req", True

    def wrap(self, message: bytes) -> bytes:
        return message

    unwrap = wrap


@pytest.mark.parametrize("ends", ["in silence", "finally", "for now", "by the broker"])
def test_a_kdc_is_asked_beside_others_and_ends_the_client_if_no_retry_helps(ends: str) -> None:
    kdc = Kdc()
    world = SecureWorld(request_timeout_ms=5_000, authenticate=kdc.begin)
    if ends in ("finally", "for now"):
        told = {"mechanism": "GSSAPI", "user": "alice/host@REALM", "reason": "why", "remedy": "what to do"}
        kdc.failure = errors.SaslRefused(**told, is_final=ends == "finally")  # type: ignore[arg-type]
    if ends != "in silence":
        kdc.goes_on.set()
    world.agree()
    if ends == "in silence":
        world.poll(timeout_ms=60_000)
        assert (world.now_ms, world.transport.open) == (5_000, set())
        world.says("the KDC did not answer in time")
        kdc.goes_on.set()
    elif ends == "by the broker":
        wait_until(lambda: world.poll() or world.said().endswith(b"ap-req\0"), 30, "the first token")
        world.answer(authenticate_answer, 58)
    else:
        wait_until(lambda: world.poll() or not world.transport.open, 30, "the end of the connection")
        world.says("alice/host@REALM", "why")
    advice = {"finally": "what to do", "by the broker": "look at the broker"}.get(ends)
    assert (world.client.failure is not None) == (advice is not None)
    assert advice is None or f"To fix it: {advice}." in str(world.client.failure)
    assert world.client.delay_ms(-1, world.now_ms)


class TestSessions:
    """KIP-368."""

    def test_are_begun_anew_in_time_and_lose_nothing(self) -> None:
        world = SecureWorld(request_timeout_ms=120_000)
        world.secure(lifetime_ms=60_000)
        early = world.send("early")
        world.poll(Sent(0))
        world.poll(timeout_ms=100_000)
        assert 51_000 <= world.now_ms <= 57_000
        assert world.client.has_in_flight
        # Begun, behind the request that is under way; nothing follows it.
        assert struct.unpack_from(">hh", world.said(), 4) == (17, 1)
        assert not world.client.ready(-1, world.now_ms)
        assert world.client.least_loaded_node(world.now_ms) is None
        (response,) = world.poll(Sent(0), Received(0, early + handshake_answer(correlation_id(world.said()))))
        assert response.token == "early" and response.response is not None
        assert not world.client.ready(-1, world.now_ms)
        assert world.answer(authenticate_answer, 0, 60_000) == []
        assert world.client.ready(-1, world.now_ms)
        again_ms = world.now_ms
        world.poll(timeout_ms=100_000)
        assert 51_000 <= world.now_ms - again_ms <= 57_000
        assert len(world.transport.connects) == 1
        # One that is very short is not begun anew within a second.
        world = SecureWorld()
        world.secure(lifetime_ms=10)
        world.poll(timeout_ms=100_000)
        assert world.now_ms == MIN_SESSION_MS

    def test_that_ended_unnoticed_are_begun_anew_before_anything_is_sent(self) -> None:
        """Nobody polled: a client that is used once in a while."""
        world = SecureWorld()
        world.secure(lifetime_ms=60_000)
        world.transport.now_ms += 70_000
        assert not world.client.ready(-1, world.now_ms)
        world.poll()
        assert struct.unpack_from(">hh", world.said(), 4) == (17, 1)
        world.answer(handshake_answer)
        world.answer(authenticate_answer, 0, 60_000)
        assert world.client.ready(-1, world.now_ms)
