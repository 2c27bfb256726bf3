"""A broker that has the real key of its principal, accepts a client's ticket, and lies in one of its three messages.

with peer(lying_broker(lie, asked)) as port: ...           KRB5_KTNAME names the keytab
"""

import ctypes
import socket
import struct
from collections.abc import Callable

from fuzz.answers import answer
from kafka_sink.kafka.gss_library import LIBRARY, _Buffer, _Handle, _in, library
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.sasl_authenticate import API as AUTHENTICATE
from kafka_sink.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kafka_sink.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from scripted_kafka import ByteScript
from scripted_peers import Behaviour

REPLY, OFFER, END = range(3)
# Stage, the honest message, and who can wrap: what is sent.
Lie = Callable[[int, bytes, "Acceptor"], bytes]


class Acceptor:
    """The broker's side of a context (RFC 2743), by the same library."""

    def __init__(self) -> None:
        self._gss = library()
        self._context = _Handle(self._gss, "gss_delete_sec_context")
        self._gss._functions["gss_accept_sec_context"] = ctypes.CDLL(LIBRARY).gss_accept_sec_context

    def accept(self, token: bytes) -> bytes:
        out = _Buffer()
        self._gss.call(
            "gss_accept_sec_context", self._context.reference, None, ctypes.byref(_in(token)), None, None, None,
            ctypes.byref(out), None, None, None,
        )  # fmt: skip
        return self._gss.taken(out)

    def wrap(self, message: bytes, *, encrypted: bool = False) -> bytes:
        out = _Buffer()
        self._gss.call(
            "gss_wrap", self._context.value, int(encrypted), 0, ctypes.byref(_in(message)), None, ctypes.byref(out)
        )
        return self._gss.taken(out)

    def unwrap(self, message: bytes) -> bytes:
        out = _Buffer()
        self._gss.call("gss_unwrap", self._context.value, ctypes.byref(_in(message)), ctypes.byref(out), None, None)
        return self._gss.taken(out)


def lying_broker(lie: Lie, offer: bytes, asked: list[int | bytes]) -> Behaviour:
    """`asked` gets the key of each request, and the client's choice of a layer."""

    def behave(sock: socket.socket) -> None:
        script = ByteScript([
            (SaslHandshakeRequest("GSSAPI"), {"mechanisms": ["GSSAPI"]}),
            (MetadataRequest((), allow_auto_topic_creation=False), {"brokers": [], "topics": []}),
        ])  # fmt: skip
        acceptor, stage = Acceptor(), REPLY
        with sock.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                api_key, version, correlation_id, id_length = struct.unpack(">hhih", frame[:10])
                asked.append(api_key)
                if api_key != AUTHENTICATE.key:
                    told = script.answer(frame)
                    assert told is not None
                else:
                    token = _auth_bytes(frame[10 + max(0, id_length) :], version)
                    if stage == REPLY:
                        honest = acceptor.accept(token)
                    elif stage == OFFER:
                        honest = acceptor.wrap(offer)
                    else:
                        asked.append(acceptor.unwrap(token))
                        honest = b""
                    said = {"error_code": 0, "auth_bytes": lie(stage, honest, acceptor)}
                    told = answer(SaslAuthenticateRequest(b""), version, said, correlation_id)
                    stage += 1
                sock.sendall(struct.pack(">i", len(told)) + told)

    return behave


def _auth_bytes(body: bytes, version: int) -> bytes:
    """From version 2 on, a byte of tags and the length as a varint, with one more than it is."""
    if version < 2:
        return body[4 : 4 + struct.unpack(">i", body[:4])[0]]
    length, shift, at = 0, 0, 1
    while True:
        length |= (body[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not body[at - 1] & 0x80:
            return body[at : at + length - 1]
