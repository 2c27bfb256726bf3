"""Finds the relay of this executor and configuration, or starts it.

The workers of an executor have one parent: Spark's Python daemon, or the JVM. A relay listens at an abstract Unix
socket that is named by user, parent and a number. The worker that binds the name first starts the relay and passes the
listening socket on. So exactly one relay is started, nobody waits for a file, and nothing is left behind: the name ends
with its last socket.

A relay welcomes only a worker with its own user and its own configuration. Another configuration, or a relay that is
stopped, makes the worker try the next number. Names do not depend on the configuration, because everybody on the host
sees them.

Source: unix(7), abstract sockets and SO_PEERCRED.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import subprocess
import sys
import time

from kafka_sink.kafka.config import VERSION, ClientConfig
from kafka_sink.kafka.net.relay_wire import Kind, Reader, encode
from kafka_sink.kafka.net.shared_memory import Ledger, RelayedMemory

# Different configurations of one executor that have a relay at the same time, and relays that do not answer.
NUMBERS = 8
# A relay may end just as a worker comes to it.
TRIES = 3
# A relay answers in a millisecond, but the first worker waits for its start: 0.3 s, or much longer if all workers of a
# host start together.
WELCOME_S = 30.0
# A relay that was silent for so long is not asked again for a minute.
_AVOID_S = 60.0
_BACKLOG = 1024
_CREDENTIALS = struct.Struct("3i")
_ENDED = "it has ended; if there was an error, it is in this executor's stderr"
_avoided_until_s: dict[str, float] = {}


def find_relay(config: ClientConfig, memory: RelayedMemory) -> socket.socket:
    """Return a non-blocking socket of a relay that has welcomed this worker. Start the relay if there is none. Wait for
    up to WELCOME_S.

    Raises OSError if no relay answers.
    """
    deadline_s = time.monotonic() + WELCOME_S
    for number in range(NUMBERS):
        name = f"\0pykafka/{os.getuid()}/{_namespace()}/{os.getppid()}/{number}"
        if time.monotonic() < _avoided_until_s.get(name, 0.0):
            continue
        try:
            relay = _found(name, config, memory, deadline_s)
        except TimeoutError:
            _avoided_until_s[name] = time.monotonic() + _AVOID_S
            raise TimeoutError(f"it has not answered within {WELCOME_S:.0f} s") from None
        if relay is not None:
            return relay
    raise OSError(f"all {NUMBERS} names of relays are in use")


def _found(name: str, config: ClientConfig, memory: RelayedMemory, deadline_s: float) -> socket.socket | None:
    """Return a socket of the relay of this name, or None if it has another configuration. Raises OSError."""
    for tries in range(1, TRIES + 1):
        relay = _connected(name)
        try:
            if _is_welcomed(relay, config, memory, deadline_s):
                relay.setblocking(False)
                return relay
        except ConnectionError:
            relay.close()
            if tries < TRIES:
                continue
            raise
        except BaseException:
            relay.close()
            raise
        relay.close()
        return None
    raise AssertionError("it returns or raises")


def _namespace() -> int:
    """Containers may share a network, and so the names of sockets, but not their processes' numbers."""
    return os.stat("/proc/self/ns/pid").st_ino


def _connected(name: str) -> socket.socket:
    """Return a socket that is connected to the relay of this name. Start the relay if nobody has the name."""
    for _ in range(TRIES):
        relay = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            relay.connect(name)
        except ConnectionRefusedError:
            relay.close()
            _start(name)
            continue
        except BaseException:
            relay.close()
            raise
        return relay
    raise ConnectionRefusedError(_ENDED)


def _start(name: str) -> None:
    """Start the relay of this name, unless another worker does. Connections wait until it listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as listener:
        try:
            listener.bind(name)
        except OSError:
            return
        listener.listen(_BACKLOG)
        command = [sys.executable, "-P", "-m", "kafka_sink.relay", str(listener.fileno()), str(os.getppid())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # In this worker's process group: Spark's daemon ends the group when it ends.
        # A child that has ended is removed when the next one starts.
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            env=environment,
            pass_fds=(listener.fileno(),),
        )
        _children[:] = [each for each in _children if each.poll() is None] + [child]


_children: list[subprocess.Popen[bytes]] = []


def _is_welcomed(relay: socket.socket, config: ClientConfig, memory: RelayedMemory, deadline_s: float) -> bool:
    """Introduce this worker. Return False if the relay has another configuration. Raises OSError."""
    if peer_uid(relay) != os.getuid():
        return False
    relay.settimeout(max(0.01, deadline_s - time.monotonic()))
    relay.sendall(b"".join(encode(Kind.HELLO, body=[VERSION.encode(), b"\0", pickle.dumps(config)])))
    size = memory.shared.size_bytes.to_bytes(8, "big")
    socket.send_fds(relay, [b"".join(encode(Kind.MEMORY, body=[size]))], [memory.shared.fd])
    reader = Reader()
    files: list[int] = []
    while True:
        data, more_files, _, _ = socket.recv_fds(relay, 64, 1)
        files += more_files
        if not data:
            raise ConnectionResetError(_ENDED)
        for message in reader.feed(data):
            if message.kind is Kind.WELCOME:
                memory.join(Ledger(files[0]), int.from_bytes(message.body, "big"))
            return message.kind is Kind.WELCOME


def peer_uid(sock: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[1])
