from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.net.relay_wire import INLINE, Kind, Message, Reader, encode

MESSAGES = st.builds(
    Message,
    st.sampled_from(Kind),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.lists(st.tuples(st.integers(INLINE, 2**40), st.integers(0, 2**32 - 1)), max_size=4).map(tuple),
    st.binary(max_size=40).map(memoryview),
)


@given(st.lists(MESSAGES, max_size=6), st.data())
def test_messages_survive_a_stream_that_is_cut_anywhere(messages: list[Message], data: st.DataObject) -> None:
    encoded = [encode(each.kind, each.key, [each.body], flag=each.flag, segments=each.segments) for each in messages]
    stream = b"".join(b"".join(buffers) for buffers in encoded)
    reader, read = Reader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        read += reader.feed(stream[:size])
        stream = stream[size:]
    assert read == messages


def test_a_body_of_several_buffers_is_one() -> None:
    (message,) = Reader().feed(b"".join(encode(Kind.SEND, 1, [b"ab", memoryview(b"cd")])))
    assert bytes(message.body) == b"abcd"


def test_a_message_is_read_once_and_keeps_nothing_of_the_stream() -> None:
    reader = Reader()
    data = bytearray(b"".join(encode(Kind.RECEIVED, 1, [b"body"])))
    (message,) = reader.feed(memoryview(data))
    data[:] = bytes(len(data))
    assert bytes(message.body) == b"body"
    assert list(reader.feed(b"")) == []


@given(st.binary(min_size=12, max_size=200))
def test_bytes_that_are_no_message_are_refused_or_waited_for(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        list(Reader().feed(data))


def test_a_message_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes"):
        list(Reader().feed(b"\x03\x00\x00\x00" + bytes(4) + b"\xff\xff\xff\xff"))
