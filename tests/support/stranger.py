"""A process that does not belong to a relay's executor. Run as a script by root:

    stranger.py ask UID NAME      connects to the relay at NAME and introduces itself with another configuration
    stranger.py squat UID NAME    listens at NAME, until its stdin ends

as the user UID. `ask` prints a JSON object: `bytes` and `files` that it got, and the `kinds` of messages. `squat`
prints "ready", and at the end how many bytes it was sent.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import sys
import threading

from kafka_sink.kafka.config import VERSION
from kafka_sink.kafka.net.relay_wire import Kind, Reader, encode
from kafka_sink.options.config import sink_config

DEADLINE_S = 60


def ask(name: str) -> None:
    config = sink_config({"kafka.bootstrap.servers": "127.0.0.1:9", "topic": "t"}).producer
    reader, count = Reader(), 0
    kinds: list[str] = []
    files: list[int] = []
    with socket.socket(socket.AF_UNIX) as relay:
        relay.settimeout(DEADLINE_S)
        relay.connect(name)
        try:
            relay.sendall(b"".join(encode(Kind.HELLO, body=[pickle.dumps((VERSION, config))])))
            relay.sendall(b"".join(encode(Kind.OPEN, 1, [pickle.dumps(("127.0.0.1", 9))])))
            relay.shutdown(socket.SHUT_WR)
            while True:
                data, more, _, _ = socket.recv_fds(relay, 4096, 4)
                if not data:
                    break
                count, files = count + len(data), files + more
                kinds += [message.kind.name for message in reader.feed(data)]
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was sent away
    print(json.dumps({"bytes": count, "files": len(files), "kinds": kinds}))


def squat(name: str) -> None:
    received: list[int] = []

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            while data := connection.recv(4096):
                received.append(len(data))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()
        print(sum(received), flush=True)
        os._exit(0)


def main() -> None:
    what, user, name = sys.argv[1:]
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    {"ask": ask, "squat": squat}[what]("\0" + name)


if __name__ == "__main__":
    main()
