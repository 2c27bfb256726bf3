"""GSSAPI as RFC 4752 has it, with a scripted context in the place of Kerberos."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kafka_sink.errors import SaslRefused
from kafka_sink.kafka.protocol.gssapi import MAX_STEPS, MAX_TOKEN_BYTES, Gssapi, KerberosLogin

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


def exchange(context: Scripted) -> Callable[[bytes | None], bytes | None]:
    begun = Gssapi(KerberosLogin("alice@REALM", context))

    def answer(challenge: bytes | None) -> bytes | None:
        response = begun.respond(challenge)
        return None if response is None else response()

    return answer


def test_both_sides_are_established_and_no_layer_is_chosen() -> None:
    context = Scripted([b"ap-req", b""])
    answer = exchange(context)
    assert answer(None) == b"ap-req"
    # Established with nothing left to send: an empty response asks for the offer.
    assert answer(b"ap-rep") == b""
    assert answer(b"<\x07\x00\xff\xff>") == b"<\x01\x00\x00\x00>"
    assert answer(b"") is None
    assert context.taken == [b"", b"ap-rep"]


def test_a_context_may_need_another_round_or_none() -> None:
    for tokens in ([b"one"], [b"one", b"two", b"three"]):
        answer = exchange(Scripted(list(tokens)))
        challenges = [None, *(b"more" for _ in tokens[1:])]
        assert [answer(each) for each in challenges] == tokens
        assert answer(b"<" + OFFER + b">") == b"<" + OFFER + b">"
        assert answer(b"") is None
    # No step is taken before the computation runs.
    context = Scripted([b"ap-req"])
    assert Gssapi(KerberosLogin("alice", context)).respond(None) is not None and context.taken == []


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (b"<\x06\x00\xff\xff>", "requires integrity or confidentiality"),
        (b"<\x00\x00\x00\x00>", "requires integrity or confidentiality"),
        (b"<>", "has 0 bytes"),
        (b"<\x01\x00\x00\x00more>", "has 8 bytes"),
        (b"", "it sends no offer"),
        (OFFER, "not its integrity"),
    ],
)
def test_an_offer_that_cannot_be_taken_ends_the_exchange(offer: bytes, words: str) -> None:
    answer = exchange(Scripted([b"ap-req"]))
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
        answer = exchange(context)
        with pytest.raises(SaslRefused, match=words):
            for challenge in (None, *challenges):
                answer(challenge)
