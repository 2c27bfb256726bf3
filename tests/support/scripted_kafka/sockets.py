"""Brokers behind a listening socket: see `scripted_peers.peer`."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

from fuzz.answers import Said
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.requests import Request
from scripted_kafka.byte_script import ByteScript


def scripted(
    answers: Sequence[tuple[Request, Said]], then: Callable[[socket.socket], None] = socket.socket.close
) -> Callable[[socket.socket], None]:
    """A broker that restarts its script for each connection. `then`: called when the script has no answer."""

    def behave(sock: socket.socket) -> None:
        script = ByteScript(answers)
        with sock.makefile("rb") as stream:
            while size := stream.read(4):
                frame = script.answer(stream.read(struct.unpack(">i", size)[0]))
                if frame is None:
                    then(sock)
                    return
                sock.sendall(struct.pack(">i", len(frame)) + frame)

    return behave


def advertises(
    host: str, port: int, then: Callable[[socket.socket], None] = socket.socket.close
) -> Callable[[socket.socket], None]:
    """A broker that answers Metadata with one broker, at the given address, and with no topics."""
    brokers = [{"node_id": 7, "host": host, "port": port}]
    return scripted([(MetadataRequest((), allow_auto_topic_creation=False), {"brokers": brokers, "topics": []})], then)
