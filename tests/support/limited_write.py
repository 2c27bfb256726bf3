"""A write in a process that has no files, threads or memory left. Run as a script:

    limited_write.py <bootstrap servers> <topic> new|kept files|sockets|threads|memory

`new`: there is no producer yet. `kept`: a producer has written, and then needs another partition's leader, or more
rows. Prints one JSON object: the error's class and text, seconds, and the threads and sockets that are left.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

from kafka_sink import kept
from kafka_sink.kafka.client import Producer
from kafka_sink.options.config import complete, given_options
from kafka_sink.spark.writer import KafkaBatchWriter


def sockets() -> int:
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith(("socket:", "anon_inode:[eventpoll]"))
    return found


def use_up(what: str) -> None:
    if what in ("files", "sockets"):
        used = max(map(int, os.listdir("/proc/self/fd")))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, hard))
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        # A selector and the two ends of its pipe, and no connection.
        for descriptor in held[-3 if what == "sockets" else len(held) :]:
            os.close(descriptor)
    elif what == "threads":
        # root has no RLIMIT_NPROC.
        def start(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        setattr(threading.Thread, "start", start)  # noqa: B010
    elif what == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), resource.RLIM_INFINITY))


def main() -> None:
    servers, topic, when, what = sys.argv[1:]
    given = given_options({"kafka.bootstrap.servers": servers, "topic": topic, "kafka.max.block.ms": "30000"})
    writer, own = KafkaBatchWriter(given), complete(given).producer
    few, many = pa.record_batch({"value": ["x"] * 10}), pa.record_batch({"value": [os.urandom(1_000)] * 100_000})
    # Whatever a first write imports.
    socket.getaddrinfo("localhost", 9092)
    if when == "kept":
        writer.write(iter([few]))
        found = kept.KEPT.take(Producer, own)
        assert found is not None
        kept.KEPT.put(found)
    else:
        KafkaBatchWriter({**given, "client_id": "other"}).write(iter([few]))
        kept.KEPT.close()
    use_up(what)
    began = time.monotonic()
    try:
        writer.write(iter([many]))
        error: BaseException | None = None
    except BaseException as raised:
        error = raised
    took_s = time.monotonic() - began
    told = {
        "error": type(error).__name__, "text": str(error), "seconds": took_s, 
        "kept": kept.KEPT.take(Producer, own) is not None,
        "threads": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
    }  # fmt: skip
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (hard, hard))
    print(json.dumps(told | {"sockets": sockets()}))


if __name__ == "__main__":
    main()
