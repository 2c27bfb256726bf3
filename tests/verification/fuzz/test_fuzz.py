"""The decoders with a few thousand damaged inputs and with all that were faults once; and that a fault is seen."""

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable

import pytest

from fuzz.__main__ import Fuzzed, campaign
from fuzz.answers import EXCHANGES, largest_arrays, response_type
from fuzz.decoders import BY_NAME, DECODERS, Decoder
from fuzz.judge import MOST_SECONDS, Fault, Kept, Lines, damaged, judge, kept_inputs, peak_bytes
from fuzz.record_sets import harmed_record_sets
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.protocol.api import Api
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.kafka.protocol.message_reader import read_message
from kafka_sink.records.batch_table import Undecodable

INPUTS = 150
APIS = all_apis()
BIG_ARRAYS = {api.name: list(largest_arrays(api, api.min_version, 4_000)) for api in APIS}
BY_ITS_NAME = pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)


@BY_ITS_NAME
def test_a_decoder_understands_its_seeds(decoder: Decoder) -> None:
    """Else all that is made of them would be refused at the first byte."""
    for seed in decoder.seeds:
        decoder.decode(seed)


@BY_ITS_NAME
def test_damage_is_understood_or_refused(decoder: Decoder) -> None:
    rng = random.Random(zlib.crc32(decoder.name.encode()))
    outcomes = Counter(judge(decoder, damaged(decoder.seeds, rng)) for _ in range(INPUTS))
    assert outcomes.total() == INPUTS
    if decoder.errors and decoder.name != "challenges of PLAIN":
        assert set(outcomes) != {"understood"}


@pytest.mark.parametrize("kept", list(kept_inputs()), ids=lambda kept: f"{kept.decoder}: {kept.why}")
def test_what_was_a_fault_once(kept: Kept) -> None:
    judge(BY_NAME[kept.decoder], kept.data)
    peak_bytes(BY_NAME[kept.decoder], kept.data)


@pytest.mark.parametrize("api", [api for api in APIS if BIG_ARRAYS[api.name]], ids=lambda api: api.name)
def test_arrays_of_the_smallest_elements(api: Api) -> None:
    """65 bytes for one of the wire's at most, so that no frame takes more than a GiB (`connection.MAX_FRAME_BYTES`)."""
    for path, frame in BIG_ARRAYS[api.name]:
        message_type = response_type(api, api.min_version)
        _, position = read_message(message_type.__header_schema__, frame)
        assert read_message(message_type, frame, position)[1] == len(frame), path
        assert peak_bytes(BY_NAME[api.name], b"\0" + frame) < 70 * len(frame), path


def test_every_version_of_every_api_is_there() -> None:
    """The oldest ones, too, whose fields have other lengths (KIP-482), and which some requests are too new for."""
    asked = {(exchange.api.key, version) for exchange in EXCHANGES for version in exchange.versions()}
    assert asked == {(api.key, version) for api in APIS for version in range(api.min_version, api.max_version + 1)}
    assert {api.name for api in APIS} <= set(BY_NAME)


def decoder_that(decode: Callable[[bytes], object]) -> Decoder:
    return Decoder("any", decode, (KafkaSinkError,), [b""])


def test_another_exception_comes_out() -> None:
    with pytest.raises(KeyError):
        judge(decoder_that(lambda data: dict[str, int]()["topics"]), b"x")


@pytest.mark.parametrize("words", ["x" * 3_000, "a\nline", "\x1b[2J"])
def test_words_that_a_peer_should_not_choose(words: str) -> None:
    class Careless(KafkaSinkError):
        """One that shows what it was given as it is."""

        def __str__(self) -> str:
            return words

    def decode(data: bytes) -> None:
        raise Careless

    with pytest.raises(Fault, match="error message"):
        judge(decoder_that(decode), b"x")


def test_an_input_that_takes_too_long() -> None:
    def decode(data: bytes) -> None:
        until_s = time.process_time() + MOST_SECONDS
        while time.process_time() <= until_s:
            pass

    with pytest.raises(Fault, match="s for 1 bytes"):
        judge(decoder_that(decode), b"x")


def test_an_input_that_takes_too_much_memory() -> None:
    assert peak_bytes(decoder_that(lambda data: bytes(1_000)), b"x") >= 1_000
    with pytest.raises(Fault, match="bytes of memory for 1 bytes"):
        peak_bytes(decoder_that(lambda data: bytes(1_000_000)), b"x")


def test_a_fault_fails_the_campaign() -> None:
    some = Fuzzed(DECODERS[0], inputs=7, outcomes=Counter(understood=3, ProtocolError=4))
    good = campaign([some], 60.0, Lines(), "make fuzz")
    assert (good.passed, good.figures["inputs"], good.figures["understood"]) == (True, 7, 3)
    assert not campaign([some, Fuzzed(DECODERS[1], fault="KeyError")], 60.0, Lines(), "make fuzz").passed


@pytest.mark.parametrize("choice", [0, 2, 16, 18])
@pytest.mark.parametrize("harmed", list(harmed_record_sets()))
def test_no_kernel_passes_over_a_wrong_bit(harmed: bytes, choice: int) -> None:
    """`choice`: with and without an end within the set, and with and without CRCs."""
    with pytest.raises(Undecodable):
        BY_NAME["record set"].decode(bytes([choice]) + harmed)
