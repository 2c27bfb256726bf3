"""Which requests a client sends: counted in the brokers' own log of requests.

Brokers log every request that they have completed when `kafka.request.logger` is at DEBUG (RequestChannel.scala), and
its level can be changed while they run (KIP-412). Each line is JSON with the API's name and the client's id, by which
the client that is looked at is told from brokers and from the benchmark. It costs the brokers CPU, so nothing is timed
meanwhile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from kafka_sink.broker import LocalKafka

LOGGER = "kafka.request.logger"
# A connection begins with this request, before which a broker takes no other of these clients.
FIRST_OF_A_CONNECTION = "API_VERSIONS"
_HEADER = re.compile(r'"clientId":"([^"]*)","requestApiKeyName":"(\w+)"')


def count_requests(log: str, client_id: str) -> Counter[str]:
    """API -> requests of clients with this id, in a broker's log."""
    return Counter(api for found_id, api in _HEADER.findall(log) if found_id == client_id)


class RequestLog:
    """Of a cluster whose brokers log requests meanwhile. Counts from one look to the next."""

    def __init__(self, kafka: LocalKafka, client_id: str) -> None:
        self._logs = {kafka.dir / f"node-{node}" / "broker.log": 0 for node in kafka.node_ids}
        self._client_id = client_id
        self.since_last()

    def since_last(self) -> Counter[str]:
        """API -> requests that brokers have completed since the last call. The brokers write a line after they have
        answered, so a last one may come late: it counts the next time."""
        found: Counter[str] = Counter()
        for log, read in self._logs.items():
            with log.open("rb") as lines:
                lines.seek(read)
                text = lines.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._logs[log] = read + len(whole)
            found += count_requests(whole.decode(errors="replace"), self._client_id)
        return found


@contextmanager
def logged_requests(kafka: LocalKafka, client_id: str) -> Iterator[RequestLog]:
    """Brokers log requests in this block; those of clients with this id are counted."""
    _set_level(kafka, "DEBUG")
    try:
        yield RequestLog(kafka, client_id)
    finally:
        _set_level(kafka, "WARN")


def _set_level(kafka: LocalKafka, level: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.alter_configs(
            [
                ConfigResource(ConfigResourceType.BROKER_LOGGER, str(node), configs={LOGGER: level})
                for node in kafka.node_ids
            ],
            raise_on_unknown=False,
        )
