"""What a client knows of its servers while none answers (`NetworkClient.contact`)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink.kafka.net.transport import Connected, Disconnected, Received, TlsFailure
from kafka_sink.kafka.outage import Contact
from network_world import World, brokers, knowing

TWO = (("boot", 9092), ("root", 9092))


def contact(world: World) -> Contact:
    return world.client.contact(world.now_ms)


def begin(world: World) -> int:
    """Begin the next attempt to connect."""
    world.transport.now_ms += 2_000
    assert world.client.least_loaded_node(world.now_ms) is None
    return world.key


def refuse(world: World) -> None:
    world.poll(Disconnected(begin(world), "Connection refused"))


def hang_up(world: World) -> None:
    key = begin(world)
    world.poll(Connected(key), Disconnected(key, "the peer closed the connection"))


def answer_as_a_web_server(world: World) -> None:
    key = begin(world)
    world.poll(Connected(key), Received(key, b"HTTP/1.1 400 Bad Request\r\n\r\n"))


def be_silent(world: World) -> None:
    world.poll(Connected(begin(world)))


def take_the_whole_request_timeout(world: World) -> None:
    be_silent(world)
    world.poll(timeout_ms=60_000)


def fail_in_tls(world: World) -> None:
    tls = TlsFailure("the handshake fails", "look", final=False)
    world.poll(Disconnected(begin(world), "it fails", tls))


def take_no_connection_in_time(world: World) -> None:
    begin(world)
    world.poll(timeout_ms=60_000)


@pytest.mark.parametrize(
    ("what", "refused", "unanswered"),
    [
        (refuse, True, True),
        (answer_as_a_web_server, True, True),
        (hang_up, False, True),
        (be_silent, False, True),
        (take_the_whole_request_timeout, False, True),
        (fail_in_tls, False, False),
        (take_no_connection_in_time, False, False),
        (begin, False, False),
    ],
)
def test_how_the_last_attempt_ended(what: Callable[[World], object], refused: bool, unanswered: bool) -> None:
    world = World()
    what(world)
    found = contact(world)
    assert (found.is_refused, found.is_unanswered, found.is_reached) == (refused, unanswered, False)
    assert found.began_ms == found.away_since_ms == 2_000


def test_a_name_that_nobody_knows() -> None:
    world = World({"boot": []})
    world.client.least_loaded_node(world.now_ms)
    assert contact(world).is_refused


def test_before_anything_is_asked() -> None:
    assert contact(World()) == Contact()


def test_a_new_attempt_after_a_refusal_is_refused_until_it_takes_long() -> None:
    world = World()
    refuse(world)
    begin(world)
    assert contact(world).is_refused
    world.transport.now_ms += 1_001
    assert not contact(world).is_unanswered


@pytest.mark.parametrize("first", [refuse, be_silent])
def test_every_server_must_have_been_tried(first: Callable[[World], object]) -> None:
    world = World(bootstrap_servers=TWO)
    first(world)
    found = contact(world)
    assert (found.is_refused, found.is_unanswered) == (False, False)
    if first is refuse:
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
