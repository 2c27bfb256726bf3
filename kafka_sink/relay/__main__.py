"""The process of the relay: `python -m kafka_sink.relay LISTENER_FD PARENT_PID`. `relay_search` starts it.

It ends when the parent of its workers ends, when it has had no worker for `IDLE_MS`, or after an error that no retry
fixes, such as a refused password: the workers are told, and the next one starts a new relay.
"""

from __future__ import annotations

import socket
import sys

from kafka_sink.relay.server import Server


def main() -> None:
    listener_fd, parent_pid = map(int, sys.argv[1:])
    Server(socket.socket(fileno=listener_fd), parent_pid).run()


if __name__ == "__main__":
    main()
