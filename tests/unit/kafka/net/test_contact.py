"""What a client knows of its servers while none answers (`NetworkClient.contact`)."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.net.transport import Connected, Disconnected, Event, Received, TlsFailure
from kafka_sink.kafka.outage import Contact
from network_world import World, brokers, knowing


def contact(world: World) -> Contact:
    return world.client.contact(world.now_ms)


def begin(world: World) -> int:
    """Begin the next attempt to connect."""
    world.transport.now_ms += 2_000
    assert world.client.least_loaded_node(world.now_ms) is None
    return world.key


def refuse(world: World) -> None:
    world.poll(Disconnected(begin(world), "Connection refused"))


REFUSED = Disconnected(0, "Connection refused")
HUNG_UP = Disconnected(0, "the peer closed the connection")
OF_TLS = Disconnected(0, "it fails", TlsFailure("the handshake fails", "look", final=False))
WEB_SERVER = Received(0, b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    ("events", "passes_ms", "refused", "unanswered"),
    [
        pytest.param([REFUSED], 0, True, True, id="refused"),
        pytest.param([Connected(0), WEB_SERVER], 0, True, True, id="another kind of server"),
        pytest.param([Connected(0), HUNG_UP], 0, False, True, id="a peer that hangs up"),
        pytest.param([Connected(0)], 0, False, True, id="silence"),
        pytest.param([Connected(0)], 60_000, False, True, id="silence for the whole request timeout"),
        pytest.param([OF_TLS], 0, False, False, id="a handshake that fails"),
        pytest.param([], 60_000, False, False, id="no connection in time"),
        pytest.param([], 0, False, False, id="not yet"),
    ],
)
def test_how_the_last_attempt_ended(events: list[Event], passes_ms: int, refused: bool, unanswered: bool) -> None:
    world = World()
    assert contact(world) == Contact()
    begin(world)
    world.poll(*events)
    world.poll(timeout_ms=passes_ms)
    found = contact(world)
    assert (found.is_refused, found.is_unanswered, found.is_reached) == (refused, unanswered, False)
    assert found.began_ms == found.away_since_ms == 2_000


def test_a_name_that_nobody_knows() -> None:
    world = World({"boot": []})
    world.client.least_loaded_node(world.now_ms)
    assert contact(world).is_refused


def test_a_new_attempt_after_a_refusal_is_refused_until_it_takes_long() -> None:
    world = World()
    refuse(world)
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
        refuse(world)
        assert contact(world).is_refused


def test_a_bootstrap_server_that_answers_is_no_broker_of_the_cluster_yet() -> None:
    world = World()
    world.open()
    found = contact(world)
    assert (found.is_reached, found.away_since_ms, found.began_ms) == (False, None, 0)
    assert not found.is_unanswered


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
    world.client.update_brokers(brokers(1))
    world.poll(Disconnected(key, "cut"))
    assert contact(world).away_since_ms is None
    since_ms = world.now_ms + 2_000
    refuse(world)
    found = contact(world)
    assert (found.away_since_ms, found.began_ms, found.is_refused, found.is_unanswered) == (since_ms, 0, False, False)
