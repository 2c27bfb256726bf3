"""Connections to bootstrap servers once the brokers are known, who tells of another cluster, and what a
client knows of its servers while none answers."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from kafka_sink.errors import ClusterChanged
from kafka_sink.kafka.net.transport import Connected, Disconnected, Event, Received, Sent, TlsFailure
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest
from kafka_sink.kafka.waits import Contact
from network_world import (
    INIT,
    SecureWorld,
    World,
    authenticate_answer,
    brokers,
    correlation_id,
    handshake_answer,
    knowing,
    metadata_answer,
    versions_answer,
)

AT_BOOT = Broker(7, "boot", 9092)


def refuse(world: World) -> None:
    """The connection that is being made."""
    world.poll(Disconnected(world.key, "Connection refused"))


def dialled(world: World) -> list[str]:
    """The hosts of all attempts to connect. Each host has an address of its own."""
    hosts = {addresses[0]: host for host, addresses in world.names.items()}
    return [hosts[address.sockaddr[0]] for _, address in world.transport.connects]


def named(*hosts: str) -> dict[str, list[str]]:
    return {host: [f"10.0.0.{number}"] for number, host in enumerate(hosts, 1)}


class TestAdopted:
    @pytest.mark.parametrize("learned", [True, False])
    def test_its_connection_is_the_brokers(self, world: World, learned: bool) -> None:
        key, client = world.open(), world.client
        if learned:
            client.learn(AT_BOOT)
            # A coordinator alone is asked as the bootstrap server was.
            assert client.least_loaded_node(world.now_ms) == 7
        else:
            client.update_brokers([AT_BOOT, *brokers(8)])
        assert client.ready(7, world.now_ms)
        assert (client.api_version(7, INIT), client.finalized_features(7)) == (5, {})
        # The negative id goes on to lead to the broker: a request that was meant for it may still wait.
        assert client.ready(-1, world.now_ms)
        assert client.name(-1) == client.name(7) == "broker 7 boot:9092 (10.0.0.1:9092)"
        for node_id in (7, -1):
            (response,) = world.poll(Sent(key), Received(key, world.send("token", node_id)))
            assert (response.node_id, response.error) == (node_id, None)
        assert world.transport.open == {key}
        assert (client.connects, client.handshakes, client.interruptions) == (1, 1, 0)

    @pytest.mark.parametrize("ends", [False, True])
    def test_requests_in_flight_are_answered_under_the_id_they_were_sent_to(self, ends: bool) -> None:
        world = World(max_in_flight=2)
        key = world.open()
        first, second = world.send("first"), world.send("second")
        world.poll(Sent(key), Sent(key), Received(key, first[:5]))
        world.client.update_brokers([AT_BOOT])
        assert world.client.in_flight_count(7) == 2
        assert not world.client.ready(7, world.now_ms)
        responses = world.poll(Disconnected(key, "reset") if ends else Received(key, first[5:] + second))
        error = "broker 7 boot:9092 (10.0.0.1:9092): reset" if ends else None
        assert [(each.node_id, each.token, each.error) for each in responses] == [
            (-1, "first", error), (-1, "second", error),
        ]  # fmt: skip
        assert world.client.is_down(7) is ends

    @pytest.mark.parametrize("backs_off", [False, True])
    def test_while_it_is_being_connected_to_or_backs_off(self, world: World, backs_off: bool) -> None:
        key = world.connect()
        if backs_off:
            world.poll(Disconnected(key, "reset"))
        rest_ms = world.client.delay_ms(-1, world.now_ms)
        world.client.update_brokers([AT_BOOT])
        assert world.client.delay_ms(7, world.now_ms) == rest_ms
        assert not world.client.ready(7, world.now_ms)
        if not backs_off:
            world.dial(None)
            assert world.client.ready(7, world.now_ms)
        assert len(world.transport.connects) == 1

    @pytest.mark.parametrize("is_adopted_first", [True, False])
    def test_its_session_is_the_brokers(self, is_adopted_first: bool) -> None:
        """KIP-368."""
        world = SecureWorld()
        world.secure(lifetime_ms=60_000)
        if is_adopted_first:
            world.client.update_brokers([AT_BOOT])
        world.poll(timeout_ms=100_000)
        assert 51_000 <= world.now_ms <= 57_000
        world.client.update_brokers([AT_BOOT])
        world.answer(handshake_answer)
        assert not world.client.ready(7, world.now_ms)
        world.answer(authenticate_answer, 0, 60_000)
        assert world.client.ready(7, world.now_ms)
        assert len(world.transport.connects) == 1

    def test_one_that_is_named_twice_is_connected_to_once(self) -> None:
        world = World(bootstrap_servers=(("boot", 9092), ("boot", 9092)))
        assert world.client.least_loaded_node(world.now_ms) is None
        refuse(world)
        assert world.client.least_loaded_node(world.now_ms) is None
        assert len(world.transport.connects) == 1


class TestNoLongerABroker:
    def test_a_broker_that_vanished_may_still_answer(self) -> None:
        world = World(names=named("boot", "b8"))
        key = world.open()
        world.client.update_brokers([AT_BOOT])
        answer = world.send("token", 7)
        world.client.update_brokers(brokers(8))
        (response,) = world.poll(Sent(key), Received(key, answer))
        assert (response.node_id, response.error) == (7, None)
        world.poll(Disconnected(key, "cut"))
        assert world.client.is_down(7)
        world.client.ready(8, world.now_ms)
        refuse(world)
        assert world.client.least_loaded_node(world.now_ms) is None
        assert dialled(world) == ["boot", "b8", "boot"]

    def test_a_broker_with_another_id_at_the_same_address_is_connected_to_anew(self, world: World) -> None:
        """The connection of the broker before it may lead to a process that has ended."""
        old = world.open()
        world.client.update_brokers([AT_BOOT])
        world.client.update_brokers([Broker(8, "boot", 9092)])
        new = world.open(8)
        assert world.transport.open == {old, new}
        world.poll(Disconnected(old, "cut"))
        assert world.client.is_down(7)
        assert world.client.ready(-1, world.now_ms)


class Balanced(World):
    """A load balancer before brokers 1 and 2, which are known, and the connection to it."""

    def __init__(self, **changed: Any) -> None:
        super().__init__(named("boot", "b1", "b2"), **changed)
        self.bootstrap = self.open()
        self.client.update_brokers(brokers(1, 2))


class TestLeft:
    def test_when_a_brokers_connection_is_open(self) -> None:
        world = Balanced()
        broker = world.connect(1)
        world.poll(Sent(broker), Received(broker, versions_answer(0, world.RANGES)))
        assert world.transport.open == {world.bootstrap, broker}
        world.identify(broker)
        assert world.transport.open == {broker}
        # That is no failure and no interruption, and it is not connected to again.
        assert (world.client.interruptions, world.client.last_error) == (0, "")
        assert world.client.delay_ms(-1, world.now_ms) == 0
        assert not world.client.ready(-1, world.now_ms)
        assert world.client.is_down(-1)
        assert dialled(world) == ["boot", "b1"]
        # Not before it has answered.
        world = Balanced()
        answer = world.send("token")
        broker = world.open(1)
        assert world.transport.open == {world.bootstrap, broker}
        (response,) = world.poll(Sent(world.bootstrap), Received(world.bootstrap, answer))
        assert (response.node_id, response.error) == (-1, None)
        assert world.transport.open == {broker}

    def test_not_for_a_coordinator_that_no_list_names(self) -> None:
        """Or the next request to any broker would open it again."""
        world = World(named("boot", "b7"))
        bootstrap = world.open()
        world.client.learn(Broker(7, "b7", 9092))
        broker = world.open(7)
        assert (world.transport.open, world.client.least_loaded_node(world.now_ms)) == ({bootstrap, broker}, -1)
        world.client.update_brokers(brokers(7))
        world.poll()
        assert world.transport.open == {broker}
        # An attempt to connect is given up.
        world = World(named("boot", "b1"))
        world.client.update_brokers(brokers(1))
        world.client.ready(-1, world.now_ms)
        assert (world.transport.open, world.client.last_error) == ({world.open(1)}, "")

    def test_is_connected_to_again_when_no_broker_can_be_reached(self) -> None:
        """KIP-899."""
        world = Balanced()
        world.poll(Disconnected(world.open(1), "cut"))
        assert world.client.interruptions == 1
        for _ in range(2):
            assert world.client.least_loaded_node(world.now_ms) is None
            refuse(world)
        assert dialled(world) == ["boot", "b1", "b2", "boot"]
        world.poll(timeout_ms=100)
        world.dial(-1)
        assert world.client.least_loaded_node(world.now_ms) == -1

    def test_brokers_that_do_not_answer_are_not_tried_for_ever_instead(self) -> None:
        """Not even with a refusal, as if their hosts were gone: each attempt takes the whole time to connect."""
        world = World(named("boot", "b1", "b2"))
        world.client.update_brokers(brokers(1, 2))
        while len(world.transport.connects) < 9:
            assert world.client.least_loaded_node(world.now_ms) is None
            world.poll(timeout_ms=60_000)
        tried = dialled(world)
        assert ({*tried[:2]}, tried[2]) == ({"b1", "b2"}, "boot")
        assert all(tried.count(host) >= 2 for host in ("boot", "b1", "b2"))


BROKERS_ONLY = MetadataRequest((), allow_auto_topic_creation=False)


class TestRebootstrap:
    """KIP-1102."""

    def ask(self, world: World, node_id: int) -> int:
        """Ask a broker for metadata. Return the number of the request."""
        world.client.send(node_id, BROKERS_ONLY, world.now_ms, "token")
        return correlation_id(world.transport.outbox[world.key][-1])

    @pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
    def test_if_the_cluster_tells_it_to(self, strategy: str) -> None:
        world = World(named("boot", "b1", "b2"), metadata_recovery_strategy=strategy)
        world.client.update_brokers(brokers(1, 2))
        key = world.open(1)
        answer = metadata_answer(self.ask(world, 1), error_code=129)
        world.send("other", 1)
        responses = world.poll(Sent(key), Sent(key), Received(key, answer))
        told = responses[0]
        assert told.response is None and "tells the client to begin with the bootstrap servers" in str(told.error)
        if strategy == "none":
            assert (len(responses), world.transport.open) == (1, {key})
            return
        # Every request in flight fails, as with any connection that is lost.
        assert [each.token for each in responses] == ["token", "other"]
        assert world.transport.open == set()
        assert [world.client.ready(node_id, world.now_ms) for node_id in (1, 2)] == [False, False]
        assert world.client.least_loaded_node(world.now_ms) is None
        assert dialled(world)[-1] == "boot"
        world.dial(None)
        assert world.client.least_loaded_node(world.now_ms) == -1
        world.client.update_brokers(brokers(3))
        assert world.client.least_loaded_node(world.now_ms) is None
        assert dialled(world)[-1] == "boot"

    def test_a_bootstrap_server_that_was_a_broker_is_one_again(self) -> None:
        world = World(named("boot"))
        key = world.open()
        world.client.update_brokers([AT_BOOT])
        answer = metadata_answer(self.ask(world, 7), error_code=129)
        world.poll(Sent(key), Received(key, answer))
        assert world.client.least_loaded_node(world.now_ms) is None
        world.dial(None)
        assert world.client.least_loaded_node(world.now_ms) == -1

    @pytest.mark.parametrize("is_answered", [False, True])
    def test_if_brokers_that_can_be_reached_answer_no_request_for_metadata(self, is_answered: bool) -> None:
        world = World(
            named("boot", "b1", "b2", "b3"), request_timeout_ms=1_000, metadata_recovery_rebootstrap_trigger_ms=2_500
        )
        world.client.update_brokers(brokers(1, 2, 3))
        for attempt in range(4):
            key = world.open(1)
            number = self.ask(world, 1)
            if is_answered and attempt == 1:
                world.poll(Sent(key), Received(key, metadata_answer(number)))
                world.lose(key, 1_000)
                continue
            world.poll(Sent(key))
            (failed,) = world.poll(timeout_ms=1_000)
            assert "no answer within 1000 ms" in str(failed.error)
            if world.client.delay_ms(1, world.now_ms) is None:
                break
            world.poll(timeout_ms=200)
        is_forgotten = world.client.delay_ms(1, world.now_ms) is None
        assert (is_forgotten, attempt) == ((False, 3) if is_answered else (True, 2))

    def test_not_while_no_broker_can_be_reached(self) -> None:
        """Their bootstrap servers may be gone for good, and the brokers come back."""
        world = World(named("boot", "b1"), request_timeout_ms=1_000, metadata_recovery_rebootstrap_trigger_ms=0)
        world.client.update_brokers(brokers(1))
        key = world.open(1)
        self.ask(world, 1)
        world.poll(Disconnected(key, "cut"))
        assert world.client.delay_ms(1, world.now_ms) is not None

    def test_with_none_a_bootstrap_server_is_not_asked_again(self) -> None:
        world = World(named("boot", "b1"), metadata_recovery_strategy="none")
        world.client.update_brokers(brokers(1))
        for _ in range(5):
            assert world.client.least_loaded_node(world.now_ms) is None
            refuse(world)
            world.poll(timeout_ms=2_000)
        assert set(dialled(world)) == {"b1"}


class TestAnotherCluster:
    """`World.dial` without a cluster id is a connection to a broker of cluster-1, which is the client's."""

    def world(self, *more: str) -> World:
        """Connected once, and not any more. The bootstrap servers are no brokers."""
        servers = ("boot", *more)
        world = World(
            named("b1", "b2", *servers),
            cluster_id="cluster-1",
            bootstrap_servers=tuple((host, 9092) for host in servers),
        )
        world.client.update_brokers(brokers(1, 2))
        world.lose(world.dial(1))
        return world

    def ask(self, world: World) -> str:
        """The host that is connected to next, for a request to any node."""
        attempts = len(world.transport.connects)
        while len(world.transport.connects) == attempts:
            assert world.client.least_loaded_node(world.now_ms) is None
            world.poll(timeout_ms=0 if len(world.transport.connects) > attempts else 1_000)
        return dialled(world)[-1]

    @pytest.mark.parametrize("leads_elsewhere", [True, False])
    def test_at_a_brokers_address_makes_the_bootstrap_server_the_next_to_be_asked(self, leads_elsewhere: bool) -> None:
        """Before broker 2, which is not known to be down."""
        world = self.world()
        world.dial(1, b"cluster-2")
        assert world.client.failure is None
        assert "belongs to cluster 'cluster-2', not to cluster 'cluster-1'" in world.client.last_error
        assert world.transport.open == set()
        assert world.client.delay_ms(1, world.now_ms)
        assert self.ask(world) == "boot"
        if leads_elsewhere:
            world.dial(None, b"cluster-2")
            failure = world.client.failure
            assert isinstance(failure, ClusterChanged) and "boot:9092" in failure.broker
            return
        world.dial(None)
        assert world.client.failure is None
        # Nor is it before there is another list.
        assert world.client.least_loaded_node(world.now_ms) == -1
        world.client.update_brokers(brokers(2))
        assert world.client.least_loaded_node(world.now_ms) is None
        assert dialled(world)[-1] == "b2"

    def test_at_a_broker_that_is_a_bootstrap_server_ends_the_client_at_once(self, world: World) -> None:
        key = world.open()
        world.client.update_brokers([AT_BOOT])
        world.lose(key)
        world.dial(7, b"cluster-2")
        failure = world.client.failure
        assert isinstance(failure, ClusterChanged) and failure.broker == "broker 7 boot:9092 (10.0.0.1:9092)"

    @pytest.mark.parametrize("second", ["refuses", "leads elsewhere", "has no address", "is right"])
    def test_at_one_bootstrap_server_is_believed_unless_the_other_leads_to_ours(self, second: str) -> None:
        world = self.world("second")
        world.dial(1, b"cluster-2")
        first = self.ask(world)
        (other,) = {"boot", "second"} - {first}
        if second == "has no address":
            world.names[other] = []
        world.dial(None, b"cluster-2")
        assert world.client.failure is None
        if second == "has no address":
            world.client.least_loaded_node(world.now_ms)
        else:
            assert self.ask(world) == other
        match second:
            case "refuses":
                refuse(world)
            case "leads elsewhere":
                world.dial(None, b"cluster-3")
            case "is right":
                world.dial(None)
                assert world.client.failure is None
                return
        failure = world.client.failure
        assert isinstance(failure, ClusterChanged)
        assert failure.found == "cluster-2" and f"{first}:9092" in failure.broker

    def test_at_one_address_of_a_server_is_not_believed_before_the_others_were_tried(self) -> None:
        world = World(names={"boot": ["10.0.0.1", "10.0.0.2"]}, cluster_id="cluster-1")
        world.dial(-1, b"cluster-2")
        assert world.client.failure is None
        world.poll(timeout_ms=100)
        world.dial(-1)
        assert world.client.failure is None
        assert world.client.can_send(-1, world.now_ms)
        # A connection that ended is no attempt: the second server had led to the right cluster a moment ago.
        world = World(named("boot", "second"), bootstrap_servers=(("boot", 9092), ("second", 9092)))
        world.poll(Disconnected(world.open(-2), "cut"))
        world.dial(-1, b"cluster-2")
        assert world.client.failure is None

    def test_of_which_a_bootstrap_server_told_before_the_last_connection_is_forgotten(self) -> None:
        world = self.world("second")
        world.dial(-1, b"cluster-2")
        world.lose(world.dial(1))
        world.client.ready(-2, world.now_ms)
        refuse(world)
        assert world.client.failure is None
        # Nor is it anything new while a broker is connected.
        world = self.world()
        bootstrap = world.connect()
        world.poll(Sent(bootstrap), Received(bootstrap, versions_answer(0, world.RANGES)))
        world.dial(1)
        world.identify(bootstrap, b"cluster-2")
        assert world.client.failure is None
        assert world.client.ready(1, world.now_ms)


class Cluster:
    """What each host is, for a client that looks for any node until it has one or has failed."""

    def __init__(self, rng: random.Random, servers: tuple[str, ...]) -> None:
        self.rng = rng
        self.world = World(
            named("b1", "b2", "b3", *servers),
            cluster_id="cluster-1",
            bootstrap_servers=tuple((host, 9092) for host in servers),
            socket_connection_setup_timeout_ms=1_000,
        )
        self.world.client.update_brokers([Broker(n, f"b{n}", 9092) for n in (1, 2, 3)])

    def look(self, hosts: dict[str, str], limit_ms: int) -> None:
        """Until a node takes a request or the client has failed. Others ask for single brokers meanwhile."""
        world = self.world
        until_ms = world.now_ms + limit_ms
        while world.client.failure is None and world.now_ms < until_ms:
            if world.client.least_loaded_node(world.now_ms) is not None:
                return
            if self.rng.random() < 0.3:
                world.client.ready(self.rng.randint(1, 3), world.now_ms)
            connecting = [key for key in sorted(world.transport.open) if not world.transport.outbox[key]]
            if not connecting:
                world.poll(timeout_ms=100)
                continue
            self.answer(self.rng.choice(connecting), hosts)

    def answer(self, key: int, hosts: dict[str, str]) -> None:
        world = self.world
        match hosts[dialled(world)[key]]:
            case "silent":
                world.poll(timeout_ms=100)
            case "refuses":
                world.poll(Disconnected(key, "Connection refused"))
            case cluster_id:
                world.poll(Connected(key))
                world.poll(Sent(key), Received(key, versions_answer(0, world.RANGES)))
                world.identify(key, cluster_id.encode())

    def end_all(self) -> None:
        world = self.world
        world.poll(*(Disconnected(key, "cut") for key in sorted(world.transport.open)))


OTHERS = st.sampled_from(["cluster-2", "cluster-3", "refuses", "silent"])
ANY = st.one_of(st.just("cluster-1"), OTHERS)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32), kind=st.sampled_from(["brokers", "others", "mixed"]))
def test_a_replaced_cluster_is_noticed_and_no_other_one_ends_a_client(
    data: st.DataObject, seed: int, kind: str
) -> None:
    """Whatever is behind each address, and in any order of events. `kind`: of the bootstrap servers."""
    servers = {"brokers": ("b1", "b2"), "others": ("boot", "second"), "mixed": ("boot", "b1")}[kind]
    cluster = Cluster(random.Random(seed), servers)
    hosts = sorted(cluster.world.names)
    for _ in range(data.draw(st.integers(0, 2))):
        cluster.look({host: data.draw(ANY) for host in hosts}, 3_000)
        cluster.end_all()
        if cluster.world.client.failure is not None:
            return
    behind = {host: data.draw(ANY) for host in hosts}
    replaced = all(behind[host] != "cluster-1" for host in hosts)
    is_told = any(behind[host].startswith("cluster") for host in servers)
    # Each host may take a whole time to connect, three times as long as the first after failures in a row.
    cluster.look(behind, 60_000)
    failure = cluster.world.client.failure
    if replaced and is_told:
        assert isinstance(failure, ClusterChanged)
    elif any(behind[host] == "cluster-1" for host in servers):
        assert failure is None
        assert cluster.world.client.least_loaded_node(cluster.world.now_ms) is not None
    elif not is_told:
        assert failure is None


def contact(world: World) -> Contact:
    return world.client.contact(world.now_ms)


def begin(world: World) -> int:
    """Begin the next attempt to connect."""
    world.transport.now_ms += 2_000
    assert world.client.least_loaded_node(world.now_ms) is None
    return world.key


def refuse_next(world: World) -> None:
    world.poll(Disconnected(begin(world), "Connection refused"))


REFUSED = Disconnected(0, "Connection refused")
HUNG_UP = Disconnected(0, "the peer closed the connection")
OF_TLS = Disconnected(0, "it fails", TlsFailure("the handshake fails", "look", final=False))
WEB_SERVER = Received(0, b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(("events", "passes_ms", "refused", "unanswered", "silent"), [
    pytest.param([REFUSED], 0, True, True, False, id="refused"),
    pytest.param([Connected(0), WEB_SERVER], 0, True, True, False, id="another kind of server"),
    pytest.param([Connected(0), HUNG_UP], 0, False, True, False, id="a peer that hangs up"),
    pytest.param([Connected(0)], 0, False, True, True, id="silence"),
    pytest.param([Connected(0)], 60_000, False, True, True, id="silence for the whole request timeout"),
    pytest.param([OF_TLS], 0, False, False, False, id="a handshake that fails"),
    pytest.param([], 60_000, False, False, False, id="no connection in time"),
    pytest.param([], 0, False, False, False, id="not yet"),
])  # fmt: skip
def test_how_the_last_attempt_ended(
    events: list[Event], passes_ms: int, refused: bool, unanswered: bool, silent: bool
) -> None:
    world = World()
    assert contact(world) == Contact()
    begin(world)
    world.poll(*events)
    world.poll(timeout_ms=passes_ms)
    found = contact(world)
    assert (found.is_refused, found.is_unanswered, found.is_silent) == (refused, unanswered, silent)
    assert not found.is_reached
    assert found.began_ms == found.away_since_ms == 2_000


def test_a_new_attempt_after_a_refusal_is_refused_until_it_takes_long() -> None:
    world = World({"boot": []})
    world.client.least_loaded_node(world.now_ms)
    assert contact(world).is_refused, "a name that nobody knows"
    world = World()
    refuse_next(world)
    begin(world)
    assert contact(world).is_refused
    world.transport.now_ms += 1_001
    assert not contact(world).is_unanswered


@pytest.mark.parametrize("first", [REFUSED, Connected(0)])
def test_every_server_must_have_been_tried(first: Event) -> None:
    world = World(bootstrap_servers=(("boot", 9092), ("root", 9092)))
    begin(world)
    world.poll(first)
    assert (contact(world).is_refused, contact(world).is_unanswered) == (False, False)
    if first is REFUSED:
        refuse_next(world)
        assert contact(world).is_refused


def test_a_broker_that_answered_once_stays_reached() -> None:
    """Else a broker that restarts at once, before anybody looks, would count as a wrong address."""
    world = knowing(1)
    key = world.open(1)
    assert contact(world).is_reached
    world.poll(Disconnected(key, "cut"))
    assert contact(world).is_reached


def test_a_broker_that_answered_and_is_away() -> None:
    world = World()
    key = world.open()
    # A bootstrap server that answers is no broker of the cluster yet.
    found = contact(world)
    assert (found.is_reached, found.away_since_ms, found.began_ms, found.is_unanswered) == (False, None, 0, False)
    world.client.update_brokers(brokers(1))
    world.poll(Disconnected(key, "cut"))
    assert contact(world).away_since_ms is None
    since_ms = world.now_ms + 2_000
    refuse_next(world)
    found = contact(world)
    assert (found.away_since_ms, found.began_ms, found.is_refused, found.is_unanswered) == (since_ms, 0, False, False)
