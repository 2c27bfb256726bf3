"""A Kafka cluster on this machine, for development and tests only.

    start   starts a cluster and runs it until Ctrl-C; with --detach it runs in the background
    stop    ends the cluster that was started with --detach or --dir
    status  shows if the cluster runs and answers

The only line on stdout is `bootstrap.servers=<host:port,...>`, so that a script can read it. All other lines go to
stderr. Without --detach, `start` ends at SIGINT or SIGTERM, or when its parent ends: a killed script leaves no broker
running. With --detach, `stop` ends the cluster. If the cluster already runs, `start` prints its address.

examples:
    pykafka broker start
    pykafka broker start --detach
    pykafka broker start --nodes 3 --kafka-version 3.9.2 --dir /tmp/kafka
    pykafka broker status
    pykafka broker status --json | jq -r .bootstrap_servers
    pykafka broker stop

status with --json: running, dir; if it runs also bootstrap_servers, kafka_version, pid, nodes, answering

exit status: 0 done; 1 the broker failed (status: it does not answer); 2 wrong usage; 3 status: not running; 4 no
Java 17; 5 the jars could not be fetched; 6 the folder is full or unusable; 128+n ended by signal n before the broker
answered
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from kafka_sink.broker import requests
from kafka_sink.broker.cluster import ANSWER_TIMEOUT_SECONDS, NODE_COUNTS, LocalKafka
from kafka_sink.broker.errors import (
    DirectoryUnusable,
    DiskFull,
    DownloadFailed,
    IvyNotFound,
    JavaNotFound,
    JavaVersionUnsupported,
    LocalKafkaError,
    writing_to,
)
from kafka_sink.broker.resolve import DEFAULT_KAFKA_VERSION, KAFKA_VERSIONS
from kafka_sink.broker.state import (
    RUNNING_FILE,
    RunningCluster,
    default_directory,
    identify,
    is_running,
    open_private,
    read_running,
    write_atomically,
)
from kafka_sink.command_line import add_json, examples_of, filled, parser_of, run_to_the_end, tell, tell_json

OK = 0
FAILED = 1
# argparse uses 2 for a wrong command line.
NOT_RUNNING = 3  # as in `systemctl status`
EXIT_STATUS: dict[type[LocalKafkaError], int] = {
    JavaNotFound: 4,
    JavaVersionUnsupported: 4,
    DownloadFailed: 5,
    IvyNotFound: 5,
    DiskFull: 6,
    DirectoryUnusable: 6,
}
WATCH_SECONDS = 0.5
STOP_TIMEOUT_SECONDS = 60.0


class Interrupted(BaseException):
    """SIGINT or SIGTERM arrived. A BaseException, like KeyboardInterrupt, so that `except Exception` lets it pass."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    interrupt_on_signals()
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except LocalKafkaError as error:
        # Some messages end with lines of a log.
        say(*f"error: {error}".split("\n"))
        return EXIT_STATUS.get(type(error), FAILED)
    except Interrupted as interrupted:
        return 128 + interrupted.signal_number


def parser() -> argparse.ArgumentParser:
    exit_statuses = __doc__[__doc__.index("exit status:") :]
    main_parser = parser_of(__doc__, "pykafka broker")
    commands = main_parser.add_subparsers(required=True, metavar="start | stop | status")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name,
            description=text,
            help=text,
            epilog=examples_of(__doc__, f"pykafka broker {name}") + "\n\n" + filled(exit_statuses),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        added.set_defaults(command=command)
        return added

    start = add("start", run_start, "start a cluster and run it until Ctrl-C")
    start.add_argument("--nodes", type=int, choices=NODE_COUNTS, default=1, help="default: %(default)s")
    start.add_argument(
        "--kafka-version", choices=sorted(KAFKA_VERSIONS), default=DEFAULT_KAFKA_VERSION, help="default: %(default)s"
    )
    start.add_argument(
        "--dir",
        type=Path,
        metavar="D",
        help=f"keep the data in D; default: a temporary folder, {kept_dir()} if detached",
    )
    start.add_argument("--detach", action="store_true", help="return when it answers, and keep it running")

    stop = add("stop", run_stop, "end the cluster that was started with --detach or --dir")
    status = add("status", run_status, "show if the cluster runs and answers")
    add_json(status, "one document")
    for other in (stop, status):
        other.add_argument("--dir", type=Path, metavar="D", default=kept_dir(), help="default: %(default)s")
    return main_parser


def kept_dir() -> Path:
    return default_directory(os.environ)


def run_start(args: argparse.Namespace) -> int:
    if args.detach:
        return start_detached(args)
    threading.Thread(target=end_with_parent, args=[os.getppid()], daemon=True).start()
    return hold_cluster(args, args.dir, on_ready=lambda _: None)


def hold_cluster(args: argparse.Namespace, directory: Path | None, on_ready: Callable[[LocalKafka], None]) -> int:
    """Run a cluster until a signal arrives. While it answers, `running.json` describes it to other processes."""
    with LocalKafka(args.nodes, args.kafka_version, directory) as kafka:
        running_file = kafka.dir / RUNNING_FILE
        with writing_to(kafka.dir):
            write_atomically(running_file, describe(kafka).to_json())
        try:
            announce(kafka, kept=directory is not None)
            on_ready(kafka)
            while True:
                kafka.check()
                time.sleep(WATCH_SECONDS)
        except Interrupted:
            return OK
        finally:
            running_file.unlink(missing_ok=True)


def describe(kafka: LocalKafka) -> RunningCluster:
    owner = identify(os.getpid())
    assert owner is not None
    return RunningCluster(owner, kafka.kafka_version, len(kafka.node_ids), kafka.bootstrap_servers)


def announce(kafka: LocalKafka, kept: bool) -> None:
    nodes = "1 node" if len(kafka.node_ids) == 1 else f"{len(kafka.node_ids)} nodes"
    say(f"Kafka {kafka.kafka_version}, {nodes}, for development and tests only: no security, no redundancy.")
    say(f"Its data is in {kafka.dir}{'' if kept else ', which is removed when it ends'}.")
    tell(f"bootstrap.servers={kafka.bootstrap_servers}")


def start_detached(args: argparse.Namespace) -> int:
    """Fork a process that runs the cluster, and wait until the cluster answers or has failed.

    Until then the child prints to this process's terminal. Then it detaches from the terminal, and sends one byte. If
    such a cluster already runs in the folder, only its address is printed.
    """
    directory = args.dir or kept_dir()
    running = read_running(directory)
    if running is not None and (running.kafka_version, running.nodes) == (args.kafka_version, args.nodes):
        say(f"It already runs as process {running.owner.pid}; `stop` ends it.")
        tell(f"bootstrap.servers={running.bootstrap_servers}")
        return OK
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()

        def let_go(kafka: LocalKafka) -> None:
            descriptor = open_private(kafka.dir / "owner.log", os.O_WRONLY | os.O_APPEND)
            with os.fdopen(descriptor, "ab") as log, open(os.devnull, "rb") as nothing:
                os.dup2(nothing.fileno(), 0)
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.write(writer, b"r")
            os.close(writer)

        return hold_cluster(args, directory, on_ready=let_go)

    os.close(writer)
    try:
        if os.read(reader, 1):
            say(f"It runs in the background as process {child}; `stop` ends it.")
            return OK
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except Interrupted:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
        raise


def run_stop(args: argparse.Namespace) -> int:
    running = read_running(args.dir)
    if running is None:
        say(f"no local cluster runs in {args.dir}.")
        return OK
    os.kill(running.owner.pid, signal.SIGTERM)
    if not wait_for(lambda: not is_running(running.owner), STOP_TIMEOUT_SECONDS):
        # Its brokers end with it: they are on its leash.
        os.kill(running.owner.pid, signal.SIGKILL)
        say(f"process {running.owner.pid} did not end within {STOP_TIMEOUT_SECONDS:g} s and was killed.")
        return FAILED
    say(f"the local cluster in {args.dir} has ended.")
    return OK


def run_status(args: argparse.Namespace) -> int:
    running = read_running(args.dir)
    if running is None:
        if args.json:
            tell_json({"running": False, "dir": str(args.dir)})
        else:
            say(f"no local cluster runs in {args.dir}.")
        return NOT_RUNNING
    servers = running.bootstrap_servers.split(",")[: max(NODE_COUNTS)]
    answering = sum(map(answers, servers))
    if args.json:
        tell_json(
            {
                "running": True,
                "dir": str(args.dir),
                "bootstrap_servers": running.bootstrap_servers,
                "kafka_version": running.kafka_version,
                "pid": running.owner.pid,
                "nodes": running.nodes,
                "answering": answering,
            }
        )
    else:
        say(
            f"Kafka {running.kafka_version} in {args.dir}, held by process {running.owner.pid}: "
            f"{answering} of {running.nodes} node(s) answer."
        )
        tell(f"bootstrap.servers={running.bootstrap_servers}")
    return OK if answering == running.nodes else FAILED


def answers(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        requests.fetch_metadata((host, int(port)), None, ANSWER_TIMEOUT_SECONDS)
    except (OSError, ValueError):
        # ValueError: the address in the file has no valid host or port.
        return False
    return True


def wait_for(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def interrupt_on_signals() -> None:
    def interrupt(signal_number: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):  # a second signal must not interrupt the shutdown
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signal_number)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, interrupt)


def end_with_parent(parent: int) -> None:
    """Poll until the parent has ended, then end this process.

    PR_SET_PDEATHSIG would watch the parent's forking thread, and exists on Linux only (see `leash`).
    """
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def say(*lines: str) -> None:
    tell(*lines, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(run_to_the_end(main))
