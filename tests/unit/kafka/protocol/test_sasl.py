"""Each mechanism against its RFC's example, and a broker that plays it wrong. GSSAPI has a scripted context."""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_sink.errors import SaslRefused
from kafka_sink.kafka.protocol import sasl
from kafka_sink.kafka.protocol.sasl import MAX_STEPS, MAX_TOKEN_BYTES, Gssapi, KerberosLogin

ALICE = sasl.PasswordLogin("alice", "hunter2")
NONCE = "fyko+d2lbbFgONRv9qkxdawL"


def begun(mechanism: str, login: sasl.PasswordLogin | sasl.TokenLogin = ALICE) -> tuple[sasl.Exchange, bytes]:
    exchange = sasl.MECHANISMS[mechanism](login, lambda: NONCE)
    first = exchange.respond(None)
    assert first is not None
    return exchange, first


class Server:
    """The broker's side of SCRAM, by the book."""

    def __init__(self, password: str, digest: str, iterations: int = 4096) -> None:
        self.digest = digest
        self.salt = b"some salt"
        self.iterations = iterations
        self.salted = hashlib.pbkdf2_hmac(digest, password.encode(), self.salt, iterations)
        self.auth_message = b""

    def first(self, client_first: bytes, nonce: bytes = b"3rfcNHYJY1ZVvWVs7j") -> bytes:
        bare = client_first.removeprefix(b"n,,")
        client_nonce = bare.partition(b",r=")[2]
        salt = base64.b64encode(self.salt).decode()
        challenge = b"r=" + client_nonce + nonce + f",s={salt},i={self.iterations}".encode()
        self.auth_message = bare + b"," + challenge
        return challenge

    def final(self, client_final: bytes) -> bytes | None:
        """None: the proof is wrong."""
        bare, _, proof = client_final.partition(b",p=")
        message = self.auth_message + b"," + bare
        client_key = hmac.digest(self.salted, b"Client Key", self.digest)
        signature = hmac.digest(hashlib.new(self.digest, client_key).digest(), message, self.digest)
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True)) != client_key:
            return None
        server_key = hmac.digest(self.salted, b"Server Key", self.digest)
        return b"v=" + base64.b64encode(hmac.digest(server_key, message, self.digest))


TOKEN = sasl.TokenLogin("app", "abc.def", (("logicalCluster", "lkc-1"),))


@pytest.mark.parametrize(("mechanism", "login", "said"), [
    ("PLAIN", ALICE, b"\0alice\0hunter2"),
    ("OAUTHBEARER", TOKEN, b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01\x01"),
])  # fmt: skip
def test_what_says_all_at_once(mechanism: str, login: sasl.PasswordLogin | sasl.TokenLogin, said: bytes) -> None:
    exchange, first = begun(mechanism, login)
    assert first == said
    assert exchange.respond(b"") is None


def test_scram_as_in_rfc_7677() -> None:
    exchange = sasl.MECHANISMS["SCRAM-SHA-256"](sasl.PasswordLogin("user", "pencil"), lambda: "rOprNGfwEbeRWgbNEkqO")
    assert exchange.respond(None) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert exchange.respond(b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096") == (
        b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


@pytest.mark.parametrize(("mechanism", "digest"), [("SCRAM-SHA-256", "sha256"), ("SCRAM-SHA-512", "sha512")])
@settings(max_examples=15)
@given(name=st.text(min_size=1, max_size=9), password=st.text(max_size=9))
def test_scram_with_any_name_and_password(mechanism: str, digest: str, name: str, password: str) -> None:
    server = Server(password, digest)
    exchange, first = begun(mechanism, sasl.PasswordLogin(name, password))
    said = first.decode().removeprefix("n,,n=").rpartition(",r=")[0]
    assert "," not in said
    assert said.replace("=2C", ",").replace("=3D", "=") == name
    proof = server.final(exchange.respond(server.first(first)) or b"")
    assert proof is not None
    assert exchange.respond(proof) is None
    with pytest.raises(SaslRefused, match="goes on"):
        exchange.respond(proof)


GOOD = f"r={NONCE}more,s=c2FsdA==,i=4096".encode()


@pytest.mark.parametrize(("challenge", "words"), [
    (b"", "not SCRAM's"),
    (b"r=other,s=c2FsdA==,i=4096", "nonce"),
    (f"r={NONCE},s=c2FsdA==,i=4096".encode(), "nonce"),
    (GOOD.replace(b"4096", b"4095"), "4095 iterations"),
    (GOOD.replace(b"4096", str(sasl.MAX_ITERATIONS + 1).encode()), "iterations"),
    (GOOD.replace(b"4096", b"9" * 10), "not SCRAM's"),
    (GOOD.replace(b"4096", b"-1"), "not SCRAM's"),
    (b"m=ext," + GOOD, "not SCRAM's"),
    (GOOD.replace(b"c2FsdA==", b"c2FsdA="), "Base64"),
    (GOOD + b",x=" + bytes(sasl.MAX_CHALLENGE_BYTES), "challenge of"),
])  # fmt: skip
def test_a_first_message_that_is_refused_before_anything_is_computed(
    challenge: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, _ = begun("SCRAM-SHA-256")
    if "Base64" not in words:
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", None)
    with pytest.raises(SaslRefused, match=words) as refused:
        exchange.respond(challenge)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("iterations", [sasl.MAX_ITERATIONS_AT_ONCE, sasl.MAX_ITERATIONS_AT_ONCE + 1, 50_000])
def test_iterations_beyond_kafkas_own_are_left_to_the_caller_and_count_as_well(iterations: int) -> None:
    server = Server("hunter2", "sha256", iterations)
    exchange, first = begun("SCRAM-SHA-256")
    answer = exchange.respond(server.first(first))
    assert callable(answer) == (iterations > sasl.MAX_ITERATIONS_AT_ONCE)
    proof = server.final(answer() if callable(answer) else answer or b"")
    assert proof is not None
    assert exchange.respond(proof) is None


@pytest.mark.parametrize(("change", "words"), [
    (lambda final: b"", "not SCRAM's"),
    (lambda final: b"e=other-error", "not SCRAM's"),
    (lambda final: b"v=" + base64.b64encode(bytes(32)), "signature is wrong"),
    (lambda final: b"v=AAAA", "signature is wrong"),
])  # fmt: skip
def test_a_broker_that_does_not_know_the_password(change: Callable[[bytes], bytes], words: str) -> None:
    server = Server("hunter2", "sha256")
    exchange, first = begun("SCRAM-SHA-256")
    answer = exchange.respond(server.first(first))
    assert answer is not None
    with pytest.raises(SaslRefused, match=words):
        exchange.respond(change(server.final(answer) or b""))


@pytest.mark.parametrize("more", [b'{"status":"invalid_token"}', b""])
def test_oauthbearer_that_is_refused_is_acknowledged_and_ends(more: bytes) -> None:
    """RFC 7628, section 3.2.3. Found by fuzzing: a broker could have its challenges acknowledged for ever."""
    exchange, _ = begun("OAUTHBEARER", TOKEN)
    assert exchange.respond(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslRefused, match="goes on after it has refused the token"):
        exchange.respond(more)


def test_nothing_shows_a_secret() -> None:
    assert "hunter2" not in repr(sasl.TokenLogin("app", "abc", (("tenant", "hunter2"),)))
    for login in (ALICE, sasl.TokenLogin("app", "hunter2")):
        begun_ = sasl.authentication("PLAIN" if login is ALICE else "OAUTHBEARER", login, lambda: NONCE)
        assert "hunter2" not in repr(begun_)
        assert begun_.shown("it is hunter2\0, " + "x" * 1000) == r"it is ...\x00, " + "x" * 276 + "... (cut)"
        assert begun_.shown(None) == ""


OFFER = b"\x01\x00\x00\x00"


@dataclass
class Scripted:
    """A context that is established after `tokens`. Wrapped: "<...>"."""

    tokens: list[bytes]
    taken: list[bytes] = field(default_factory=list)
    never: bool = False

    def step(self, token: bytes) -> tuple[bytes, bool]:
        self.taken.append(token)
        return self.tokens.pop(0), not self.tokens and not self.never

    def wrap(self, message: bytes) -> bytes:
        return b"<" + message + b">"

    def unwrap(self, message: bytes) -> bytes:
        if message[:1] + message[-1:] != b"<>":
            raise SaslRefused(mechanism="GSSAPI", user="alice", reason="not its integrity")
        return message[1:-1]


def gssapi_answers(context: Scripted) -> Callable[[bytes | None], bytes | None]:
    begun = Gssapi(KerberosLogin("alice@REALM", context))

    def answer(challenge: bytes | None) -> bytes | None:
        response = begun.respond(challenge)
        return None if response is None else response()

    return answer


def test_both_sides_are_established_and_no_layer_is_chosen() -> None:
    context = Scripted([b"ap-req", b""])
    answer = gssapi_answers(context)
    assert answer(None) == b"ap-req"
    # Established with nothing left to send: an empty response asks for the offer.
    assert (answer(b"ap-rep"), answer(b"<\x07\x00\xff\xff>")) == (b"", b"<\x01\x00\x00\x00>")
    assert answer(b"") is None
    assert context.taken == [b"", b"ap-rep"]


def test_a_context_may_need_another_round_or_none() -> None:
    for tokens in ([b"one"], [b"one", b"two", b"three"]):
        answer = gssapi_answers(Scripted(list(tokens)))
        challenges = [None, *(b"more" for _ in tokens[1:])]
        assert [answer(each) for each in challenges] == tokens
        assert answer(b"<" + OFFER + b">") == b"<" + OFFER + b">"
        assert answer(b"") is None
    # No step is taken before the computation runs.
    context = Scripted([b"ap-req"])
    assert Gssapi(KerberosLogin("alice", context)).respond(None) is not None and context.taken == []


@pytest.mark.parametrize(("offer", "words"), [
    (b"<\x06\x00\xff\xff>", "requires integrity or confidentiality"),
    (b"<\x00\x00\x00\x00>", "requires integrity or confidentiality"),
    (b"<>", "has 0 bytes"),
    (b"<\x01\x00\x00\x00more>", "has 8 bytes"),
    (b"", "it sends no offer"),
    (OFFER, "not its integrity"),
])  # fmt: skip
def test_an_offer_that_cannot_be_taken_ends_the_exchange(offer: bytes, words: str) -> None:
    answer = gssapi_answers(Scripted([b"ap-req"]))
    answer(None)
    with pytest.raises(SaslRefused, match=words) as refused:
        answer(offer)
    assert refused.value.is_final


def test_a_broker_that_goes_on_without_end_or_sense_is_refused() -> None:
    for context, challenges, words in (
        (Scripted([b"ap-req"]), [b"<" + OFFER + b">", b"more"], "goes on after its last message"),
        (Scripted([b"token"] * 100), [b"token"] * 100, f"not complete after {MAX_STEPS} tokens"),
        (Scripted([b"ap-req", b""]), [b""], "no token before"),
        (Scripted([b""], never=True), [], "no token is left"),
        (Scripted([b"ap-req", b""]), [bytes(MAX_TOKEN_BYTES + 1)], "a token of 65537 bytes"),
    ):
        answer = gssapi_answers(context)
        with pytest.raises(SaslRefused, match=words):
            for challenge in (None, *challenges):
                answer(challenge)
