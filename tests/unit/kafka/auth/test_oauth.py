"""Tokens from an endpoint that a test is, and what is kept of them."""

import base64
import json
import pickle
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from http_endpoints import Idp, body, jwt, token_endpoint
from kafka_sink.errors import TokenUnavailable
from kafka_sink.kafka.auth import oauth
from kafka_sink.kafka.clock import within
from scripted_peers import drips, peer
from waiting import wait_until

CANARY = "canary-c0de"
NOW_S = 1_000_000.0


@pytest.fixture
def idp() -> Iterator[Idp]:
    with token_endpoint() as made:
        yield made


def endpoint(idp: Idp) -> oauth.TokenEndpoint:
    return oauth.TokenEndpoint(
        url=idp.url, client_id="app", client_secret=CANARY, scope="kafka", header_urlencode=False, contexts=None
    )


def fetched(idp: Idp, *answer: tuple[int, bytes]) -> tuple[str, float]:
    if answer:
        idp.answers = list(answer)
    return endpoint(idp).fetch(lambda: NOW_S)


def test_the_client_credentials_grant(idp: Idp) -> None:
    assert fetched(idp, (200, body(access_token="abc.def", expires_in=60, token_type="Bearer"))) == ("abc.def", 60.0)
    ((path, headers, form),) = idp.told
    assert (path, login_in(headers)) == ("/token?tenant=1", f"app:{CANARY}")
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    replace(endpoint(idp), scope=None).fetch(lambda: NOW_S)
    assert "scope" not in idp.told[-1][2]


def login_in(headers: Mapping[str, str]) -> str:
    return base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()


@pytest.mark.parametrize(
    ("header_urlencode", "login"), [(False, "app 1:+/%=\u00e9"), (True, "app+1:%2B%2F%25%3D%C3%A9")]
)
def test_credentials_are_encoded_only_where_that_is_asked_for(idp: Idp, header_urlencode: bool, login: str) -> None:
    """KIP-1025: some endpoints decode, as RFC 6749 has it, and others do not."""
    idp.answers = [(200, body(access_token="abc", expires_in=60))]
    awkward = replace(endpoint(idp), client_id="app 1", client_secret="+/%=\u00e9", header_urlencode=header_urlencode)
    awkward.fetch(lambda: NOW_S)
    assert login_in(idp.told[0][1]) == login


@pytest.mark.parametrize("lifetime", ["1" + "0" * 400, "1e999", "-1e999", "NaN", "true", '"60"', "null"])
def test_a_lifetime_that_is_none(idp: Idp, lifetime: str) -> None:
    """Found by fuzzing: no float holds an integer of 400 digits."""
    told = f'{{"access_token":"opaque","expires_in":{lifetime}}}'.encode()
    assert fetched(idp, (200, told)) == ("opaque", oauth.UNKNOWN_LIFETIME_S)
    for token, found_s in ((jwt(exp=json.loads(lifetime)), oauth.UNKNOWN_LIFETIME_S), (jwt(exp=NOW_S + 120), 120)):
        assert fetched(idp, (200, body(access_token=token))) == (token, found_s)


@pytest.mark.parametrize(("status", "answer", "words", "tries"), [
    (401, body(error="invalid_client", error_description=CANARY), r"401 \(invalid_client\)", 1),
    (400, body(error=CANARY), "answered 400", 1),
    (400, CANARY.encode(), "answered 400", 1),
    (302, b"", "answered 302", 1),
    (503, CANARY.encode(), "answered 503", 2),
    (200, body(token=CANARY), "no access_token", 1),
    (200, body(access_token=f"{CANARY}\r\nX: y"), "no access_token", 1),
    (200, body(access_token=f"{CANARY}\x01auth=Bearer other"), "no access_token", 1),
    (200, body(access_token=["a"]), "no access_token", 1),
    (200, b"[1]", "no access_token", 1),
    (200, b"[" * 100_000, "no access_token", 1),
    (200, b'{"access_token": "' + b"a" * oauth.MAX_ANSWER_BYTES, "no access_token", 1),
])  # fmt: skip
def test_an_endpoint_that_gives_none(idp: Idp, status: int, answer: bytes, words: str, tries: int) -> None:
    with pytest.raises(TokenUnavailable, match=words) as failure:
        fetched(idp, (status, answer))
    assert CANARY not in f"{failure.value}{vars(failure.value)}{failure.value.__context__!r}"
    assert CANARY not in repr(endpoint(idp))
    assert len(idp.told) == tries


def test_an_endpoint_that_recovers_and_one_that_is_not_there(idp: Idp) -> None:
    assert fetched(idp, (503, b""), (200, body(access_token="abc", expires_in=60))) == ("abc", 60.0)
    with pytest.raises(TokenUnavailable, match="no answer"):
        fetched(Idp(url="http://127.0.0.1:1/token"))


@pytest.mark.parametrize(("first", "byte"), [
    (b"", b"x"),
    (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n", b""),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\nConnection: close\r\n\r\n", b" "),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
], ids=["a status", "headers", "nothing", "a body", "chunks", "continue"])  # fmt: skip
def test_an_endpoint_that_never_comes_to_an_end(first: bytes, byte: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte in less time than a `recv` waits for."""
    monkeypatch.setattr(oauth, "ATTEMPT_TIMEOUT_S", 0.4)
    ended: list[int] = []

    def behave(sock: socket.socket) -> None:
        try:
            drips(first, byte)(sock)
        except OSError:
            ended.append(1)

    begun = time.monotonic()
    with peer(behave) as port:
        with pytest.raises(TokenUnavailable, match=r"none that was whole within 0\.4 s"):
            fetched(Idp(url=f"http://127.0.0.1:{port}/token"))
        assert time.monotonic() - begun < 25
        if byte:
            # Nobody reads on: no connection is left behind.
            wait_until(lambda: len(ended) == oauth.ATTEMPTS, 30, "both connections to be closed")


def test_a_name_server_that_does_not_answer_sends_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when it does, later."""
    monkeypatch.setattr(oauth, "ATTEMPT_TIMEOUT_S", 0.2)
    over = threading.Event()
    look_up = socket.getaddrinfo

    def blocked(*args: Any, **named: Any) -> Any:
        over.wait(30)
        return look_up(*args, **named)

    said: list[bytes] = []
    with peer(lambda sock: said.append(sock.recv(4096))) as port:
        monkeypatch.setattr(socket, "getaddrinfo", blocked)
        with pytest.raises(TokenUnavailable, match=r"within 0\.2 s"):
            fetched(Idp(url=f"http://127.0.0.1:{port}/token"))
        over.set()
        wait_until(lambda: len(said) == oauth.ATTEMPTS, 30, "both connections to be closed")
    assert said == [b""] * oauth.ATTEMPTS


def test_a_call_that_ends_by_a_timeout_of_its_own_keeps_its_words() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        within(30, Mock(side_effect=TimeoutError("its own")))


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c", jwt(), jwt(exp="soon", sub=1), "a.!.c", "...", f"a.{'Z' * 99}.c"]
)
def test_a_token_that_says_nothing_of_itself(token: str) -> None:
    assert (oauth.lifetime_of(token, NOW_S), oauth.subject_of(token)) == (oauth.UNKNOWN_LIFETIME_S, "")
    assert oauth.subject_of(jwt(sub="app")) == "app"


def test_tokens_are_kept_until_they_grow_old_and_serve_until_they_expire() -> None:
    now_s, fetched, fails = [0.0], [0], [False]

    def fetch() -> tuple[str, float]:
        if fails[0]:
            raise TokenUnavailable(source="s", reason="r")
        fetched[0] += 1
        return f"token{fetched[0]}", 100.0

    tokens = oauth.Tokens(fetch, clock_s=lambda: now_s[0])
    old_s = 100 * oauth.REFRESH_FACTOR
    for now_s[0], token in ((0, "token1"), (old_s - 1, "token1"), (old_s, "token2")):
        assert [tokens.current(), tokens.current()] == [token, token]
    # Where no other can be had.
    fails[0], now_s[0] = True, old_s + 99.0
    assert tokens.current() == "token2"
    now_s[0] += 1
    with pytest.raises(TokenUnavailable):
        tokens.current()
    fails[0] = False
    assert tokens.current() == "token3"


@pytest.mark.parametrize(("skew_s", "fetches"), [(3_600, 3), (7_200, 3), (0, 1), (-3_600, 1)])
def test_a_token_is_there_whatever_our_clock_says(skew_s: int, fetches: int) -> None:
    """With a clock that is ahead the token seems to have expired: it is used, and fetched for each connection."""
    token, fetched = jwt(exp=NOW_S + 3_600), []

    def fetch() -> tuple[str, float]:
        fetched.append(token)
        return token, oauth.lifetime_of(token, NOW_S + skew_s)

    tokens = oauth.Tokens(fetch, clock_s=lambda: 5.0)
    assert [tokens.current() for _ in range(3)] == [token] * 3
    assert len(fetched) == fetches


@pytest.mark.parametrize(("given", "words"), [
    (RuntimeError(CANARY), "raised RuntimeError"),
    *((each, "did not return") for each in (CANARY, (CANARY, "60"), (CANARY, 0), (f"{CANARY}\n", 60))),
])  # fmt: skip
def test_a_callable_that_gives_none(given: Any, words: str) -> None:
    def call() -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    with pytest.raises(TokenUnavailable, match=words) as failure:
        oauth.fetched_by(call)()
    assert CANARY not in repr(pickle.dumps(failure.value))
    assert failure.value.__context__ is None
    assert oauth.fetched_by(lambda: ("abc", 60))() == ("abc", 60.0)
