"""The reader against bytes that kio wrote and kio reads: what kio understands is understood alike, what kio crashes on
is a ProtocolError or understood."""

import datetime
import io
import tracemalloc
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.metadata.v10.response import MetadataResponse as MetadataResponse10
from kio.schema.metadata.v13.response import MetadataResponse as MetadataResponse13
from kio.schema.produce.v9.response import ProduceResponse as ProduceResponse9
from kio.schema.produce.v13.response import ProduceResponse as ProduceResponse13
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i64Timedelta

from fuzz.answers import filled
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.message_reader import read_message

MESSAGES = [
    ProduceResponse9,
    ProduceResponse13,
    MetadataResponse10,
    MetadataResponse13,
    InitProducerIdResponse,
    ApiVersionsResponse,
    SaslHandshakeResponse,
    SaslAuthenticateResponse,
]


# One message of each type with every field filled.
SAMPLES = {message_type: filled(message_type, {"producer_id": 4711}) for message_type in MESSAGES}

# kio's own strategy draws times that kio cannot turn into milliseconds.
st.register_type_strategy(
    i64Timedelta, st.integers(0, 2**40).map(lambda milliseconds: datetime.timedelta(milliseconds=milliseconds))
)


def written(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def plain(value: Any) -> Any:
    """kio's value as the integers, dicts and tuples that are on the wire."""
    match value:
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case tuple():
            return tuple(plain(element) for element in value)
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case ErrorCode():
            return int(value)
    return value


def agree(ours: Any, kios: Any, message_type: type) -> None:
    """Tagged fields that are not on the wire are absent from ours; an absent time is None with kio, -1 with us."""
    defaults = {field.name: field.default for field in fields(message_type)}
    for name, expected in kios.items():
        if name not in ours:
            assert expected == plain(defaults[name])
        elif isinstance(expected, dict):
            nested = next(field.type for field in fields(message_type) if field.name == name)
            agree(ours[name], expected, nested)
        elif isinstance(expected, tuple) and expected and isinstance(expected[0], dict):
            nested = next(field.type.__args__[0] for field in fields(message_type) if field.name == name)
            assert len(ours[name]) == len(expected)
            for mine, theirs in zip(ours[name], expected, strict=True):
                agree(mine, theirs, nested)
        else:
            assert ours[name] == (-1 if name == "log_append_time" and expected is None else expected)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
@pytest.mark.parametrize("message_type", MESSAGES, ids=lambda t: f"{t.__name__}-v{t.__version__}")
def test_reads_what_kio_writes_as_kio_reads_it(message_type: type, data: st.DataObject) -> None:
    raw = written(data.draw(st.from_type(message_type)))
    theirs, size = entity_reader(message_type)(raw, 0)
    ours, position = read_message(message_type, raw)
    assert position == size == len(raw)
    agree(ours, plain(theirs), message_type)


def test_what_newer_brokers_send_and_kio_refuses_is_read() -> None:
    """An error code that is not known is a number, tagged fields are passed over, any time is a number."""
    raw = written(SAMPLES[InitProducerIdResponse])
    assert raw.endswith(b"\0")
    tagged = raw[:4] + (157).to_bytes(2, "big") + raw[6:-1] + b"\x02" + b"\x05\x03abc" + b"\xac\x02\x00"
    message, position = read_message(InitProducerIdResponse, b"xyz" + tagged + b"more", 3)
    assert (message["producer_id"], message["error_code"], position) == (4711, 157, 3 + len(tagged))
    time_ms = (1_700_000_000_000).to_bytes(8, "big")
    raw = written(SAMPLES[ProduceResponse9]).replace(time_ms, (2**63 - 1).to_bytes(8, "big"))
    (topic,) = read_message(ProduceResponse9, raw)[0]["responses"]
    assert topic["partition_responses"][0]["log_append_time"] == 2**63 - 1


class TestMalformed:
    @pytest.mark.parametrize("message_type", MESSAGES, ids=lambda t: f"{t.__name__}-v{t.__version__}")
    @pytest.mark.parametrize("flip", ["each bit", "each byte a huge varint", "each byte a huge varint inserted"])
    def test_damage_anywhere(self, message_type: type, flip: str) -> None:
        raw = written(SAMPLES[message_type])
        for length in range(len(raw)):
            with pytest.raises(ProtocolError):
                read_message(message_type, raw[:length])
        huge = b"\xff\xff\xff\xff\x7f"
        if flip == "each bit":
            damaged = [raw[:i] + bytes([raw[i] ^ 1 << bit]) + raw[i + 1 :] for i in range(len(raw)) for bit in range(8)]
        else:
            skip = 1 if flip == "each byte a huge varint" else 0
            damaged = [raw[:i] + huge + raw[i + skip :] for i in range(len(raw))]
        tracemalloc.start()
        for bad in damaged:
            read_or_refuse(message_type, bad)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # A length that is believed is of gigabytes; other threads may allocate a little meanwhile.
        assert peak < 10_000_000

    @pytest.mark.parametrize(("message_type", "raw", "words"), [
        (MetadataResponse13, b"\xff\xff\xff\xff\x7f", "length of 34359738366 where 0 bytes are left"),
        (MetadataResponse13, b"\xff\xff\xff\xff\xff\x01", "varint"),
        (MetadataResponse13, b"\0", "brokers is null"),
        (MetadataResponse13, b"\x02" + b"\0\0\0\1" + b"\0", "host is null"),
        (MetadataResponse13, b"\x02" + b"\0\0\0\1" + b"\x03\xc3\x28", "UTF-8"),
        (MetadataResponse13, b"\x02" + b"\0\0\0\1" + b"\x7fab", "length of 126 where 2 bytes are left"),
        # An unknown tagged field that does not end.
        (ApiVersionsResponse, b"\0\0\0" + b"\x01" + b"\x63\x7f", "length of 127 where 0 bytes are left"),
        # No keys, throttle time, one tagged field: tag 1 (an int64) in 9 bytes.
        (ApiVersionsResponse, b"\0\0\0" + b"\x01" + b"\x01\x09" + bytes(9), "not as long"),
    ])  # fmt: skip
    def test_says_what_is_wrong(self, message_type: type, raw: bytes, words: str) -> None:
        begins = b"\0\0\0\0" if message_type is MetadataResponse13 else b"\0\0\1\0"
        with pytest.raises(ProtocolError, match=words):
            read_message(message_type, begins + raw)


def read_or_refuse(message_type: type, raw: bytes) -> None:
    try:
        _, position = read_message(message_type, raw)
    except ProtocolError:
        return
    assert position <= len(raw)
