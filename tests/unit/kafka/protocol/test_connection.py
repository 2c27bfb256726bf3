import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import apis
from effort import examples
from kafka_sink.errors import ApisMissing, KafkaSinkError, ProtocolError, SaslRefused
from kafka_sink.kafka.protocol import connection as connection_module
from kafka_sink.kafka.protocol.connection import (
    MAX_HANDSHAKE_FRAME_BYTES,
    TRANSITIONS,
    Answer,
    Connection,
    Input,
    State,
)
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE
from kafka_sink.kafka.protocol.sasl import TokenLogin
from kafka_sink.kafka.protocol.sasl import authentication as begin
from network_world import (
    INIT,
    NO_ACKS,
    alice,
    authenticate_answer,
    framed,
    handshake_answer,
    init_answer,
    metadata_answer,
    versions_answer,
)

RANGES, SASL, METADATA = {0: (3, 13), 22: (0, 5)}, {17: (0, 1), 36: (0, 2)}, {3: (0, 13)}
VERSIONS = versions_answer(0, RANGES)


def idle(**options: Any) -> Connection:
    return Connection(**{"client_id": "me", "software": apis.ApiVersionsRequest("test", "1"), **options})


def started() -> Connection:
    connection = idle(max_frame_bytes=1000)
    connection.start()
    return connection


def hear(connection: Connection, data: bytes, token: object = None) -> bytes:
    """The connection's own request that follows from what it hears. It is sent."""
    connection.receive(data)
    assert connection.next_answer() is None
    request = b"".join(connection.own_request(token))
    if request:
        connection.sent()
    return request


def refuses(
    connection: Connection, data: bytes, words: str, error: type[KafkaSinkError] = ProtocolError
) -> KafkaSinkError:
    """What it says about what it hears, which ends it."""
    connection.receive(data)
    with pytest.raises(error, match=words or None) as failure:
        connection.next_answer()
    assert connection.state is State.CLOSED
    assert error is SaslRefused or not isinstance(failure.value, SaslRefused)
    return failure.value


def reached(*heard: bytes, **options: Any) -> Connection:
    """One that negotiates, and then has heard these."""
    connection = idle(**options)
    connection.start()
    connection.sent()
    for data in heard:
        hear(connection, data)
    return connection


def secured(*heard: bytes, **options: Any) -> Connection:
    return negotiating(*heard, authentication=alice("host"), **options)


def closed() -> Connection:
    connection = opened()
    connection.close()
    return connection


negotiating = partial(reached, max_frame_bytes=1000)
opened = partial(negotiating, VERSIONS)
# Its SaslHandshake, with correlation id 1, is sent; its SaslAuthenticate, with 2.
authenticating = partial(secured, versions_answer(0, RANGES | SASL))
agreed = partial(authenticating, handshake_answer(1))
authenticated = partial(agreed, authenticate_answer(2))
# Its Metadata, with correlation id 1, is sent.
identifying = partial(negotiating, versions_answer(0, RANGES | METADATA), identify=True)
IN_STATE = {
    State.IDLE: idle,
    State.NEGOTIATING: started,
    State.AUTHENTICATING: authenticating,
    State.IDENTIFYING: identifying,
    State.OPEN: opened,
    State.CLOSED: closed,
}


def send(connection: Connection, *tokens: object) -> None:
    for token in tokens:
        connection.send(INIT, token)
        connection.sent()


def answers(connection: Connection) -> list[Answer]:
    return list(iter(connection.next_answer, None))


def tokens(of: list[Answer]) -> list[object]:
    return [answer.token for answer in of]


# What its owner may do with a connection.
CALLS: dict[Input, Callable[[Connection], object]] = {
    Input.START: Connection.start,
    Input.SEND: lambda connection: connection.send(INIT),
    Input.SENT: Connection.sent,
    Input.RECEIVE: lambda connection: connection.receive(b"\0"),
    Input.REAUTHENTICATE: lambda connection: connection.reauthenticate(alice("host")),
}


@pytest.mark.parametrize("called", CALLS)
@pytest.mark.parametrize("state", State)
def test_what_its_owner_may_not_do_changes_nothing(state: State, called: Input) -> None:
    connection = IN_STATE[state]()
    assert connection.state is state
    if called not in TRANSITIONS[state]:
        with pytest.raises(RuntimeError, match=state.name):
            CALLS[called](connection)
        assert connection.state is state


@pytest.mark.parametrize("state", [each for each in State if each is not State.CLOSED])
def test_bytes_that_are_no_answer_close_it_in_any_state(state: State) -> None:
    refuses(IN_STATE[state](), b"HTTP", "")


class TestIdentification:
    @pytest.mark.parametrize("cluster_id", [b"c", None])
    def test_is_the_last_step_before_it_is_open(self, cluster_id: bytes | None) -> None:
        connection = identifying()
        assert hear(connection, metadata_answer(1, cluster_id, throttle_time_ms=7)) == b""
        assert (connection.state, connection.throttle_time_ms) == (State.OPEN, 7)
        assert connection.cluster_id == (cluster_id and cluster_id.decode())

    def test_happens_once(self) -> None:
        connection = authenticating(identify=True)
        connection.ranges = {**connection.ranges, **METADATA}
        assert hear(connection, handshake_answer(1))
        assert hear(connection, authenticate_answer(2))
        assert connection.state is State.IDENTIFYING
        assert hear(connection, metadata_answer(3)) == b""
        assert connection.reauthenticate(alice("host"))
        connection.sent()
        assert hear(connection, handshake_answer(4))
        assert hear(connection, authenticate_answer(5)) == b""
        assert connection.state is State.OPEN

        refuses(negotiating(identify=True), VERSIONS, "no version of Metadata")

    def test_is_left_out_where_the_broker_compares_ids(self) -> None:
        """KIP-1242. Only a version that has them can be refused for them."""
        named = apis.ApiVersionsRequest("test", "1", "c", 7)
        connection = negotiating(VERSIONS, identify=True, software=named)
        assert (connection.state, connection.cluster_id, connection.is_misrouted) == (State.OPEN, "c", False)
        refused = negotiating(identify=True, software=named)
        assert hear(refused, versions_answer(0, {}, 129))[4:8] == b"\0\x12\0\4"
        assert hear(refused, versions_answer(1, RANGES | METADATA))
        assert hear(refused, metadata_answer(2, b"other")) == b""
        assert (refused.state, refused.cluster_id, refused.is_misrouted) == (State.OPEN, "other", True)
        refuses(negotiating(identify=True), versions_answer(0, {}, 129), "REBOOTSTRAP_REQUIRED")


class TestAuthentication:
    def test_says_who_it_is_only_when_the_mechanism_is_agreed_on(self) -> None:
        connection = secured()
        assert hear(connection, versions_answer(0, RANGES | SASL)).endswith(b"\0\5PLAIN")
        assert connection.own_request() == []
        assert b"\0alice\0hunter2" in hear(connection, handshake_answer(1))
        assert hear(connection, authenticate_answer(2, lifetime_ms=60_000)) == b""
        state = connection.state, connection.session_lifetime_ms, connection.in_flight_count
        assert state == (State.OPEN, 60_000, 0)

    def test_msk_iam_has_another_name_for_brokers(self) -> None:
        of_msk = begin("AWS_MSK_IAM", TokenLogin("me", "token"), lambda: "nonce")
        connection = negotiating(authentication=of_msk)
        assert hear(connection, versions_answer(0, RANGES | SASL)).endswith(b"\0\x0bOAUTHBEARER")
        assert b"auth=Bearer token" in hear(connection, handshake_answer(1))
        hear(connection, authenticate_answer(2, lifetime_ms=60_000))
        assert b"".join(connection.reauthenticate(of_msk)).endswith(b"\0\x0bOAUTHBEARER")

    @pytest.mark.parametrize(("answer", "words"), [
        (handshake_answer(1, 33, (b"SCRAM-SHA-512", b"GSSAPI")), "it offers: SCRAM-SHA-512, GSSAPI"),
        (handshake_answer(1, 33, ()), "it offers: none"),
        (handshake_answer(1, 34, ()), "expects no authentication"),
    ])  # fmt: skip
    def test_a_mechanism_that_is_not_taken(self, answer: bytes, words: str) -> None:
        refused: Any = refuses(authenticating(), answer, words, SaslRefused)
        assert (refused.mechanism, refused.user) == ("PLAIN", "alice")

    def test_a_password_that_is_wrong_is_not_shown(self) -> None:
        refused: Any = refuses(agreed(), authenticate_answer(2, 58, message=b"wrong: hunter2\n!"), "", SaslRefused)
        assert refused.reason == r"the broker refused (wrong: ...\n!)"
        refuses(secured(), VERSIONS, "no SASL", SaslRefused)

    @pytest.mark.parametrize("code", [-1, 7])
    def test_trouble_of_the_broker_says_nothing_of_the_password(self, code: int) -> None:
        refuses(authenticating(), handshake_answer(1, code), "")
        refuses(agreed(), authenticate_answer(2, code), "")

    def test_before_it_is_known_who_talks_frames_are_small(self) -> None:
        refuses(reached(), struct.pack(">i", MAX_HANDSHAKE_FRAME_BYTES + 1), "a frame of")
        asking = opened()
        send(asking, "token")
        for connection, longest in ((reached(), MAX_HANDSHAKE_FRAME_BYTES), (asking, 1000)):
            assert hear(connection, struct.pack(">i", longest)) == b""

    def test_anew_while_requests_are_under_way(self) -> None:
        """KIP-368. In-flight requests are answered first, no new request is sent, and callers see no event."""
        connection = authenticated()
        send(connection, "early")
        assert connection.reauthenticate(alice("host"), "own")
        connection.sent()
        with pytest.raises(RuntimeError, match="AUTHENTICATING"):
            connection.send(INIT)
        connection.receive(init_answer(3, 5) + handshake_answer(4))
        assert answers(connection) == [Answer("early", INIT, apis.InitProducerIdResponse(0, 0, 5, 0))]
        assert connection.own_request("own")
        connection.sent()
        assert hear(connection, authenticate_answer(5, lifetime_ms=5)) == b""
        assert connection.state is State.OPEN
        send(connection, "late")
        connection.receive(init_answer(6, 7))
        assert tokens(answers(connection)) == ["late"]

    def test_anew_too_soon_is_no_matter_of_the_password(self) -> None:
        connection = authenticated()
        connection.reauthenticate(alice("host"))
        connection.sent()
        refuses(connection, handshake_answer(3, 34), "ILLEGAL_SASL_STATE")
        # What was under way comes back without its own.
        connection = authenticated()
        send(connection, "early")
        connection.reauthenticate(alice("host"))
        assert connection.close() == [Answer("early", INIT, None)]


class TestFraming:
    @settings(max_examples=examples(50), deadline=None)
    @given(st.data())
    def test_bytes_cut_anywhere(self, data: st.DataObject) -> None:
        connection = opened()
        send(connection, *range(4))
        stream = b"".join(init_answer(1 + token, 100 + token) for token in range(4))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
        got = []
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            connection.receive(stream[start:end])
            got += answers(connection)
        assert got == [Answer(t, INIT, apis.InitProducerIdResponse(0, 0, 100 + t, 0)) for t in range(4)]

    @pytest.mark.parametrize(("start", "words"), [
        (b"HTTP/1.1 400 Bad Request", "HTTP; check the port"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"\x16\x03\x01\x00\x80", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6", "a frame of 1397966893 bytes"),
        *((struct.pack(">i", size), f"a frame of {size} bytes") for size in (-1, -(2**31), 2**31 - 1, 1001, 0, 3)),
    ])  # fmt: skip
    @pytest.mark.parametrize("state", [negotiating, opened])
    def test_a_size_that_cannot_be(self, state: Callable[[], Connection], start: bytes, words: str) -> None:
        refuses(state(), start, words)


class TestAnswers:
    @pytest.mark.parametrize("correlation_id", [0, 2, 3, -1])
    def test_with_another_correlation_id(self, correlation_id: int) -> None:
        connection = opened()
        send(connection, "first", "second")
        refuses(connection, init_answer(correlation_id, 11), f"correlation id {correlation_id} where 1 is due")
        assert tokens(connection.close()) == ["first", "second"]

    @pytest.mark.parametrize("state", [idle, opened])
    def test_nobody_asked_for(self, state: Callable[[], Connection]) -> None:
        refuses(state(), init_answer(0, 1), "answer no request")

    def test_before_the_request_is_wholly_sent(self) -> None:
        """Or its buffers would be given back while the rest of them is still to go out."""
        connection = opened()
        connection.send(INIT, "token")
        refuses(connection, init_answer(1, 1), "not sent yet")

    def test_a_request_without_a_response_is_done_when_sent(self) -> None:
        connection = opened()
        connection.send(NO_ACKS, "no acks", expect_response=False)
        connection.send(INIT, "init")
        assert connection.in_flight_count == 2
        assert connection.sent() == Answer("no acks", NO_ACKS, None)
        assert connection.sent() is None
        connection.receive(init_answer(2, 1))
        assert tokens(answers(connection)) == ["init"]
        assert connection.in_flight_count == 0


class TestNegotiation:
    def test_versions_are_the_highest_in_common(self) -> None:
        connection = opened()
        assert connection.ranges == RANGES
        assert (connection.version_for(INIT), connection.version_for(apis.MetadataRequest((), False))) == (5, None)
        with pytest.raises(ValueError, match="Metadata"):
            connection.send(apis.MetadataRequest((), False))

    @pytest.mark.parametrize(("told", "version"), [
        ((), 0),  # before Kafka 2.4
        (((18, 0, 2),), 2),
        (((18, 0, 9),), 2),  # it refused 3, so 3 is not asked for again
        (((0, 0, 7),), 0),
    ])  # fmt: skip
    def test_an_older_broker_is_asked_in_a_version_that_it_takes(
        self, told: tuple[tuple[int, int, int], ...], version: int
    ) -> None:
        connection = negotiating()
        apis = b"".join(struct.pack(">hhh", *api) for api in told)
        asked = hear(connection, framed(0, struct.pack(">hi", 35, len(told)) + apis))
        assert struct.unpack_from(">hhi", asked, 4) == (18, version, 1)
        hear(connection, framed(1, struct.pack(">hihhh", 0, 1, 0, 0, 7) + (b"\0" * 4 if version else b"")))
        assert connection.state is State.OPEN
        assert connection.ranges == {0: (0, 7)}

    def test_a_broker_that_lacks_what_a_guarantee_needs(self) -> None:
        connection = negotiating(guarantees=(AT_LEAST_ONCE, IDEMPOTENCE))
        told = versions_answer(0, {0: (0, 5), 3: (0, 8), 22: (0, 0)})
        missing: Any = refuses(connection, told, "", ApisMissing)
        assert missing.guarantee == "at-least-once"
        assert missing.missing == ("Produce 7 to 12 (Kafka 2.1; writes rows): it takes versions 0 to 5",)

        # A controller's listener is no broker that lacks something: another bootstrap server may be a broker.
        connection = negotiating(guarantees=(AT_LEAST_ONCE,))
        assert not isinstance(refuses(connection, versions_answer(0, {3: (0, 8)}), "controller"), ApisMissing)

    def test_a_peer_that_refuses_every_version_or_echoes(self) -> None:
        refuses(negotiating(), versions_answer(0, RANGES, 42), "INVALID_REQUEST")
        connection = negotiating()
        assert hear(connection, framed(0, struct.pack(">hi", 35, 0)))
        refuses(connection, framed(1, struct.pack(">hi", 35, 0)), "refused ApiVersions: UNSUPPORTED_VERSION")
        connection = idle()
        echo = b"".join(connection.start())
        connection.sent()
        refuses(connection, echo, "correlation id")


def test_the_end_hands_back_what_is_under_way_once() -> None:
    connection = opened()
    assert connection.oldest_token is None
    send(connection, "sent")
    connection.send(NO_ACKS, "no acks", expect_response=False)
    connection.send(INIT, "unsent")
    assert connection.oldest_token == "sent"
    under_way = (("sent", INIT), ("no acks", NO_ACKS), ("unsent", INIT))
    assert connection.close() == [Answer(token, request, None) for token, request in under_way]
    assert (connection.close(), connection.in_flight_count) == ([], 0)


def test_correlation_ids_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection_module.CORRELATION_IDS == 2**31
    monkeypatch.setattr(connection_module, "CORRELATION_IDS", 2)
    # ApiVersions had 0.
    connection = opened()
    send(connection, "last", "first")
    connection.receive(init_answer(1, 1) + init_answer(0, 2))
    assert tokens(answers(connection)) == ["last", "first"]
