"""Reads a topic back, alone or as a consumer group, and prints its records or compares them.

    # all records, one JSON line each; then the count and a checksum
    python jobs/read_back.py --bootstrap-servers localhost:9092 --topic orders

    # no lines; exit status 1 unless the topic holds what was expected
    python jobs/read_back.py --bootstrap-servers localhost:9092 --topic orders --quiet \\
        --expect-records 336776 --expect-checksum 7a6b...

    # three members of a group that join one after another; prints the owners of partitions after each rebalance
    python jobs/read_back.py --bootstrap-servers localhost:9092 --topic orders --quiet \\
        --group billing --members 3 --assignment cooperative-sticky --follow

Records go to stdout, all other lines to stderr. Keys, values and headers that are not UTF-8 are shown as
{"hex": "00ff"}. The program ends when every partition is read to its end, or with --follow on SIGTERM or Ctrl-C. When
members give partitions back, they commit the offsets that they have read. The next run of the group continues there,
unless --from names another place.

It needs confluent-kafka (pip install "pyspark-pykafka[demo]"), a client that shares no code with this project.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from types import MappingProxyType
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from record_digest import Checksum, Record

MESSAGES_A_CALL = 10_000
POLL_SECONDS = 0.05
# At the end of a partition a broker waits this long for new records before it answers without records.
END_WAIT_MS = 10
ASSIGNMENTS = ("range", "roundrobin", "cooperative-sticky")
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")

Placed = tuple[int, int, Record]
"""Partition, offset, record."""


class ReadTimeout(Exception):
    """The topic's end was not reached in time."""


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    checksum, count = Checksum(), 0

    def see(placed: Placed) -> None:
        nonlocal count
        count += 1
        checksum.add(placed[2].digest())
        if not args.quiet:
            print(json_line(placed))

    if args.group:
        read_as_group(args, see)
    else:
        where = args.start if isinstance(args.start, dict) else {}
        for placed in read_topic(
            args.bootstrap_servers, args.topic, args.timeout, isolation_level=args.isolation, starts=where
        ):
            see(placed)
    say(f"{count:,} records, checksum {checksum}")
    differences = [
        f"{what} {expected} expected"
        for what, expected, found in (
            ("records:", args.expect_records, count),
            ("checksum:", args.expect_checksum, str(checksum)),
        )
        if expected not in (None, found)
    ]
    for difference in differences:
        say(f"DIFFERENT {difference}")
    return 1 if differences else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the checked command line. Exit with a message and status 2 if it is wrong."""
    assert __doc__ is not None
    summary, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="read_back.py", description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,...")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--isolation", choices=ISOLATION_LEVELS, default="read_committed", help="default: %(default)s")
    parser.add_argument(
        "--from",
        dest="start",
        type=start,
        metavar="WHERE",
        help="committed, beginning, or PARTITION:OFFSET,... Default, also for partitions that are not named: the "
        "group's committed offset; without a committed offset or a group: the beginning",
    )
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S", help="to reach the end (default: 60)")

    group = parser.add_argument_group("consumer group")
    group.add_argument("--group", metavar="NAME", help="group.id; without it one consumer reads all partitions")
    group.add_argument("--members", type=int, default=1, metavar="N", help="consumers at once (default: 1)")
    group.add_argument("--assignment", choices=ASSIGNMENTS, default="range", help="default: %(default)s")
    group.add_argument("--follow", action="store_true", help="continue to read at the end")

    result = parser.add_argument_group("result")
    result.add_argument("--quiet", action="store_true", help="print no records")
    result.add_argument("--expect-records", type=int, metavar="N", help="status 1 if there are more or fewer")
    result.add_argument("--expect-checksum", metavar="HEX", help="status 1 if the checksum differs")
    args = parser.parse_args(arguments)
    if not args.group and (args.members != 1 or args.follow or args.start == "committed"):
        parser.error("--members, --follow and --from committed need --group")
    if args.members < 1:
        parser.error("a group has at least one member")
    return args


def start(text: str) -> str | dict[int, int]:
    """Parse `committed`, `beginning`, or an offset for each partition."""
    if text in ("committed", "beginning"):
        return text
    try:
        return {int(partition): int(offset) for partition, offset in (pair.split(":") for pair in text.split(","))}
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not committed, beginning or PARTITION:OFFSET,...") from None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def json_line(placed: Placed) -> str:
    partition, offset, record = placed
    shown = {
        "partition": partition,
        "offset": offset,
        "timestamp": record.timestamp_ms,
        "key": text_of(record.key),
        "headers": [[name, text_of(value)] for name, value in record.headers],
        "value": text_of(record.value),
    }
    text = json.dumps(shown, ensure_ascii=False)
    # Unprintable characters are escaped, because they could move a terminal's cursor.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def text_of(part: bytes | None) -> str | dict[str, str] | None:
    if part is None:
        return None
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"hex": part.hex()}


# --- alone ------------------------------------------------------------------------------------------------------------


def read_topic(
    bootstrap_servers: str,
    topic: str,
    timeout_s: float,
    *,
    isolation_level: str = "read_committed",
    starts: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[Placed]:
    """Yield all records of `topic`, in order within each partition, from the beginning or from the offset in `starts`.

    Raises ReadTimeout if this takes longer than `timeout_s`, KafkaException for the client's own errors.
    """
    reading = {"group.id": "read_back", "fetch.wait.max.ms": END_WAIT_MS}
    consumer = Consumer(settings(bootstrap_servers, isolation_level) | reading)
    deadline = time.monotonic() + timeout_s
    try:
        partitions = partitions_of(consumer, topic, timeout_s)
        consumer.assign([TopicPartition(topic, number, starts.get(number, OFFSET_BEGINNING)) for number in partitions])
        unread = set(partitions)
        while unread:
            if time.monotonic() > deadline:
                raise ReadTimeout(f"{timeout_s} s were too few to read partitions {sorted(unread)} of {topic}")
            for message in consumer.consume(MESSAGES_A_CALL, timeout=POLL_SECONDS):
                if at_end(message):
                    unread.discard(message.partition())
                else:
                    yield placed_record(message)
    finally:
        consumer.close()


def settings(bootstrap_servers: str, isolation_level: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "isolation.level": isolation_level,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
    }


def partitions_of(consumer: Consumer, topic: str, timeout_s: float) -> list[int]:
    description = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
    if description.error is not None:
        raise KafkaException(description.error)
    return sorted(description.partitions)


def at_end(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def placed_record(message: Message) -> Placed:
    # The annotations are for sent messages too. A read message always has a partition and an offset.
    read: Any = message
    kind, timestamp_ms = read.timestamp()
    record = Record(
        key=read.key(),
        value=read.value(),
        headers=tuple(read.headers() or ()),
        timestamp_ms=timestamp_ms if kind == TIMESTAMP_CREATE_TIME else -1,
    )
    return read.partition(), read.offset(), record


# --- as a group -------------------------------------------------------------------------------------------------------


def read_as_group(args: argparse.Namespace, see: Callable[[Placed], None]) -> None:
    """Read with `args.members` consumers until all records are read, or with `args.follow` until a signal.

    A member joins when the previous member has its partitions, so that each join causes a visible rebalance.
    """
    consuming = settings(args.bootstrap_servers, args.isolation) | {
        "group.id": args.group,
        "partition.assignment.strategy": args.assignment,
        "auto.offset.reset": "earliest",
        # The client commits every five seconds and when it gives a partition back: offsets of seen records only.
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
    }
    scout = Consumer(consuming)
    try:
        partitions = partitions_of(scout, args.topic, args.timeout)
    finally:
        scout.close()
    starts = args.start if isinstance(args.start, dict) else {}
    if args.start == "beginning":
        starts = dict.fromkeys(partitions, OFFSET_BEGINNING)
    group = Group(args.topic, partitions, starts, see, members=args.members, follow=args.follow)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: group.end())
    deadline = None if args.follow else time.monotonic() + args.timeout
    with futures.ThreadPoolExecutor(args.members) as pool:
        running: list[futures.Future[None]] = []
        try:
            while not group.ended:
                if len(running) == len(group.owners) < args.members:
                    running.append(pool.submit(Member(len(running), group, consuming).run))
                if deadline is not None and time.monotonic() > deadline:
                    raise ReadTimeout(f"{args.timeout} s were too few to read partitions {sorted(group.unread)}")
                time.sleep(POLL_SECONDS)
        finally:
            group.end()
    for member in running:
        member.result()


class Group:
    """The state shared by the members, under one lock: the unread partitions, and the owners."""

    def __init__(
        self,
        topic: str,
        partitions: Sequence[int],
        starts: Mapping[int, int],
        see: Callable[[Placed], None],
        *,
        members: int,
        follow: bool,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.starts = dict(starts)  # of partitions that no member has read from yet
        self.unread = set(partitions)
        self.owners: dict[int, set[int]] = {}  # member -> its partitions; members that have joined
        self.members = members
        self._follow = follow
        self._see = see
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        self._ended.set()

    def read(self, placed: Placed) -> None:
        with self._lock:
            self.starts.pop(placed[0], None)
            self._see(placed)

    def read_to_end(self, partition: int) -> None:
        with self._lock:
            self.unread.discard(partition)
            self._end_if_done()

    def rebalanced(self, member: int, what: str, changed: Sequence[int], owned: set[int]) -> None:
        """Record and print that `member` now owns `owned`. Print all owners when every partition has one again."""
        with self._lock:
            self.owners[member] = owned
            if self.ended:
                return  # all members leave, so the changes are not interesting
            say(f"member {member} {what} {numbers(changed)}")
            if self._all_owned():
                say("owners: " + ", ".join(f"member {m}: {numbers(self.owners[m])}" for m in sorted(self.owners)))
            self._end_if_done()

    def _all_owned(self) -> bool:
        return sorted(number for owned in self.owners.values() for number in owned) == list(self.partitions)

    def _end_if_done(self) -> None:
        # While partitions move, a member may have none and get some later.
        with_partitions = sum(1 for owned in self.owners.values() if owned)
        settled = self._all_owned() and with_partitions == min(self.members, len(self.partitions))
        if settled and len(self.owners) == self.members and not (self.unread or self._follow):
            self.end()


class Member:
    """One consumer of the group, in its own thread."""

    def __init__(self, number: int, group: Group, consuming: Mapping[str, Any]) -> None:
        self.number = number
        self.group = group
        self.cooperative = consuming["partition.assignment.strategy"] == "cooperative-sticky"
        self.consuming = dict(consuming)
        self.owned: set[int] = set()

    def run(self) -> None:
        consumer = Consumer(self.consuming)
        try:
            consumer.subscribe([self.group.topic], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)
            # One message for each call, so that none is pending when partitions and stored offsets are given back.
            while not self.group.ended:
                message: Any = consumer.poll(POLL_SECONDS)  # Any: as in placed_record
                if message is None or self.group.ended:
                    continue
                if at_end(message):
                    self.group.read_to_end(message.partition())
                else:
                    self.group.read(placed_record(message))
                    consumer.store_offsets(message)
        finally:
            # A failed member ends the others. They would wait a whole session timeout for its partitions.
            self.group.end()
            consumer.close()

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            if one.partition in self.group.starts:
                one.offset = self.group.starts[one.partition]
        if self.cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        self._changed("gets", partitions, self.owned | {one.partition for one in partitions})

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Give partitions back. The client commits the stored offsets first."""
        self._give_up("gives back", consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Handle a loss: the group continued without this member. Another one reads again from the last commit."""
        self._give_up("has lost", consumer, partitions)

    def _give_up(self, what: str, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        self._changed(what, partitions, self.owned - {one.partition for one in partitions})

    def _changed(self, what: str, partitions: Sequence[TopicPartition], owned: set[int]) -> None:
        self.owned = owned
        self.group.rebalanced(self.number, what, [one.partition for one in partitions], owned)


def numbers(partitions: Iterable[int]) -> str:
    return " ".join(map(str, sorted(partitions))) or "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
