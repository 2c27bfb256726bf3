from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.protocol.apis.end_txn import EndTxnRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.frames import Frame, FrameAnswer, is_frame
from kafka_sink.kafka.protocol.requests import decode_response, encode_request, select_version

IDS = st.integers(0, 2**31 - 1)


def frame_of(correlation_id: int) -> Frame:
    request = MetadataRequest(("orders",), allow_auto_topic_creation=False)
    return Frame(tuple(encode_request(request, version=12, correlation_id=correlation_id, client_id="w")))


@given(IDS, IDS)
def test_only_the_correlation_id_changes(theirs: int, ours: int) -> None:
    sent = encode_request(frame_of(theirs), version=12, correlation_id=ours, client_id="another")
    assert b"".join(sent) == b"".join(frame_of(ours).buffers)


@given(IDS, st.binary(max_size=50))
def test_an_answer_goes_back_under_the_id_that_its_client_gave(theirs: int, body: bytes) -> None:
    received = decode_response(frame_of(theirs), 12, b"\x00\x00\x00\x07" + body)
    assert received == FrameAnswer(b"\x00\x00\x00\x07" + body)
    answered = b"".join(frame_of(theirs).answer(b"\x00\x00\x00\x07" + body))
    assert answered == (4 + len(body)).to_bytes(4, "big") + theirs.to_bytes(4, "big") + body


def test_a_frame_goes_in_the_version_that_its_client_chose() -> None:
    request = EndTxnRequest("t", 1, 2, committed=True, transaction_version=1)
    frame = Frame(tuple(encode_request(request, version=3, correlation_id=0, client_id="w")))
    assert select_version(frame, {}) == 3


def test_rows_are_not_copied() -> None:
    rows = memoryview(bytearray(b"rows"))
    head = (10 + len(rows)).to_bytes(4, "big") + bytes(10)
    assert Frame((head, rows)).numbered(1)[1] is rows


@pytest.mark.parametrize(
    "buffers",
    [[], [b""], [bytes(11)], [b"\x00\x00\x00\x09" + bytes(8)], [(8).to_bytes(4, "big") + bytes(8), b"more"]],
    ids=["nothing", "no byte", "no correlation id", "size too large", "size too small"],
)
def test_bytes_that_are_no_request_are_found(buffers: list[bytes]) -> None:
    assert not is_frame(buffers)


def test_a_request_is_a_frame() -> None:
    assert is_frame(frame_of(1).buffers)
