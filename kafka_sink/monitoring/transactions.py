"""Watches the open transactions of sinks. It asks the brokers, so it sees hung and dead queries too.

    with TransactionWatch({"kafka.bootstrap.servers": "localhost:9092"}, prometheus):
        query.awaitTermination()

Spark reports a micro-batch when it has ended. If a micro-batch is stuck, or its driver has died, only its open
transaction shows it. Readers with read_committed see no rows behind that transaction. So a thread asks each broker for
open transactions, and their coordinators for the age.

`options` are the options of the write, mainly connection and security. The watch covers sinks whose name begins with
`transactionalIdPrefix`, or by default with `pykafka`, the start of derived names. It needs the ACL TRANSACTIONAL_ID
DESCRIBE. Transactions that the principal may not describe are not seen.
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
from kafka_sink.errors.quoting import quoted
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.monitoring.micro_batch import counted_as
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_admin_client

__all__ = ["OpenOfSink", "OpenTransactions", "TransactionWatch"]

log = logging.getLogger(__name__)

# The start of derived names of streams and batch writes.
DERIVED_PREFIX = "pykafka"
# Short compared with kafka.transaction.timeout.ms: 15 minutes by default, 10 s at least.
EVERY_S = 15.0
# Time limit of one look at the cluster.
ASK_MS = 10_000


@dataclass(frozen=True, slots=True)
class OpenOfSink:
    """The open transactions of one sink. `oldest_age_s` compares this process's clock with the coordinator's."""

    count: int
    oldest_age_s: float

    def plus(self, other: OpenOfSink) -> OpenOfSink:
        return OpenOfSink(self.count + other.count, max(self.oldest_age_s, other.oldest_age_s))


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The open transactions of sinks whose name begins with `prefix`.

    `by_sink` has the sinks with open transactions. Beyond `MOST_NAMED` sinks, the others are counted together.
    `seen_s` is the time of the brokers' answer in seconds since 1970.
    """

    prefix: str
    by_sink: Mapping[str, OpenOfSink]
    seen_s: float


class TransactionWatcher(Protocol):
    """A watcher of open transactions. `TransactionWatch` logs its OSError and continues."""

    def open_transactions(self, found: OpenTransactions) -> None: ...


class TransactionWatch:
    """Asks the cluster at once, and then every `every_s` seconds, until `stop`.

    If the cluster does not answer, one warning is logged. Watchers are notified again when it answers.

    Examples:
        >>> TransactionWatch({"kafka.bootstrap.servers": servers}).look().by_sink
        {}
    """

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
        """Stop the thread, and wait for its end. Then no watcher is called any more."""
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
        """Ask the cluster now. Raises ClusterError, TransactionRefused."""
        with lease_admin_client(self._producer) as client, client.within(ASK_MS):
            found = run(client, open_now(self._prefix))
        now_ms, by_sink = wall_clock_ms(), dict[str, OpenOfSink]()
        for name, transaction in found.items():
            if (sink := sink_named(name)) is not None:
                # It comes from brokers, and dashboards, files and terminals show it.
                named = counted_as(quoted(sink), by_sink)
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
                log.warning("open transactions of %r are unknown until the cluster answers: %s", self._prefix, error)
            self._answers = False
            return
        self._answers = True
        for watcher in self._watchers:
            try:
                watcher.open_transactions(found)
            except OSError as error:
                log.warning("%s was not notified of open transactions: %s", type(watcher).__name__, error)
