"""Which transactions of sinks are open, asked of the brokers while queries run, hang, or are dead.

    with TransactionWatch({"kafka.bootstrap.servers": "localhost:9092"}, prometheus):
        query.awaitTermination()

Spark tells of a micro-batch when it is over. One that is stuck, or whose driver has died, is seen by its transaction
alone, behind which read_committed readers see nothing. So this asks the cluster, on a thread of its own: each broker
for open transactions, and their coordinators for how long. `options` are those of the write, its connection and
security first of all; sinks are those whose name begins with `transactionalIdPrefix`, or with `pykafka`, as names
that nobody chose do. The ACL TRANSACTIONAL_ID DESCRIBE is enough; what a principal may not describe it does not see.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from kafka_sink.commit.open_transactions import open_now, sink_named
from kafka_sink.commit.runner import run
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kept import lease_admin_client
from kafka_sink.monitoring.bounded import counted_as
from kafka_sink.options.config import sink_config

log = logging.getLogger(__name__)

# With which names begin that are derived: a stream's and a batch write's.
DERIVED_PREFIX = "pykafka"
# A transaction times out after a minute at the earliest (kafka.transaction.timeout.ms is 15 minutes by default).
EVERY_S = 15.0
# What one question may take.
ASK_MS = 10_000


@dataclass(frozen=True, slots=True)
class OpenOfSink:
    """`oldest_age_s`: by the clock of this process and its coordinator's."""

    count: int
    oldest_age_s: float

    def plus(self, other: OpenOfSink) -> OpenOfSink:
        return OpenOfSink(self.count + other.count, max(self.oldest_age_s, other.oldest_age_s))


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """Of sinks whose name begins with `prefix`. `by_sink`: those that have some open; where there are more than
    `bounded.MOST_NAMED`, the others are one. `seen_s`: when the brokers said so, seconds since 1970."""

    prefix: str
    by_sink: Mapping[str, OpenOfSink]
    seen_s: float


class TransactionWatcher(Protocol):
    """Who is told. An OSError of it is logged and changes nothing."""

    def open_transactions(self, found: OpenTransactions) -> None: ...


class TransactionWatch:
    """Asks at once, and then every `every_s` seconds, until `stop`. A cluster that cannot be asked is logged once; then
    nobody is told anything until it answers."""

    def __init__(self, options: Mapping[str, str], *watchers: TransactionWatcher, every_s: float = EVERY_S) -> None:
        """Raises ConfigError."""
        config = sink_config(options)
        self._producer = config.producer
        self._prefix = config.transactional_id_prefix or DERIVED_PREFIX
        self._watchers = watchers
        self._every_s = every_s
        self._stopped = threading.Event()
        self._answers = True
        self._thread = threading.Thread(target=self._run, name="pykafka-transaction-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when nobody is told anything any more."""
        self._stopped.set()
        self._thread.join()

    def __enter__(self) -> TransactionWatch:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def look(self) -> OpenTransactions:
        """Asks now. Raises ClusterError, TransactionRefused."""
        with lease_admin_client(self._producer) as client, client.within(ASK_MS):
            found = run(client, open_now(self._prefix))
        now_ms, by_sink = wall_clock_ms(), dict[str, OpenOfSink]()
        for name, transaction in found.items():
            if (sink := sink_named(name)) is not None:
                named = counted_as(sink, by_sink)
                one = OpenOfSink(1, max(0, now_ms - transaction.start_time_ms) / 1000)
                by_sink[named] = by_sink[named].plus(one) if named in by_sink else one
        return OpenTransactions(self._prefix, by_sink, now_ms / 1000)

    def _run(self) -> None:
        while True:
            self._turn()
            if self._stopped.wait(self._every_s):
                return

    def _turn(self) -> None:
        try:
            found = self.look()
        except KafkaSinkError as error:
            if self._answers:
                log.warning("open transactions of %r are not known until the cluster answers: %s", self._prefix, error)
            self._answers = False
            return
        self._answers = True
        for watcher in self._watchers:
            try:
                watcher.open_transactions(found)
            except OSError as error:
                log.warning("%s was not told of open transactions: %s", type(watcher).__name__, error)
