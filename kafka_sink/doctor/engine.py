"""What the examinations of a write and of a read share: the hosts, and the requests.

    bootstrap servers ─> list of brokers ─> each broker at its advertised address ─> what the write or the read needs

`examine_hosts` runs the first three steps. Executors run it too, and so does a write that cannot reach its brokers. The
doctor connects to all hosts in parallel, then sends the other requests over these connections. This module sends the
requests. `connection_failures.py` and `findings.py` make the findings of the answers.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_sink.doctor import findings
from kafka_sink.doctor.connection_failures import Attempt, address_text, advertised, dispensable, host_verdicts
from kafka_sink.doctor.dialogue import Dialogue, NoAnswer, NotTaken, dial
from kafka_sink.doctor.report import DRIVER, HOST_STEPS, Finding, Report, Verdict, because_of, failed, ok, skipped
from kafka_sink.kafka.config import ClientConfig, IsolationLevel
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.apis.groups import (
    CoordinatorKind,
    DescribeGroupRequest,
    DescribeGroupResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest, MetadataResponse, TopicMetadata
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.apis.transactions import EndTxnResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE, READING, Guarantee, lacking
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE

R = TypeVar("R")
A = TypeVar("A", DescribeGroupResponse, EndTxnResponse)
# API key -> (lowest, highest) version.
Ranges = Mapping[int, tuple[int, int]]
# Hosts that the doctor connects to in parallel.
AT_ONCE = 16
# No new connection starts after this time, because a peer's answer may name any number of brokers.
HOSTS_TIMEOUT_S = 20.0
# Brokers create a coordinator's internal topic at the first request, and a new topic needs time to get leaders.
PATIENCE_S = 4.0
PAUSE_S = 0.2
# Brokers count the bytes of these for the quotas of writes and reads. They write and read nothing.
_FOR_QUOTAS: tuple[Request, ...] = (
    ProduceRequest(-1, 0, ()),
    FetchRequest("", None, 0, 0, -1, IsolationLevel.READ_UNCOMMITTED, max_bytes=1, min_bytes=0, max_wait_ms=0),
)
# A throttle is shown from this on.
SHOWN_THROTTLE_MS = 1_000


def examine_hosts(config: ClientConfig) -> Report:
    """Take the steps of the bootstrap servers, and of every broker that they name, from this host."""
    with reached(config) as hosts:
        return Report(tuple(hosts.verdicts))


@dataclass(slots=True)
class Hosts:
    """The open connections: one to a bootstrap server, and one to each broker by node id."""

    verdicts: list[Verdict] = field(default_factory=list)
    bootstrap: Dialogue | None = None
    brokers: dict[int, Dialogue] = field(default_factory=dict)

    @property
    def any(self) -> Dialogue | None:
        return next(iter(self.brokers.values()), self.bootstrap)


@contextmanager
def reached(config: ClientConfig) -> Iterator[Hosts]:
    hosts = Hosts()
    dialogues: dict[tuple[str, int], Dialogue | None] = {}
    try:
        attempts = []
        for attempt, dialogue in _dialled(config.bootstrap_servers, config):
            attempts.append(attempt)
            dialogues[attempt.host, attempt.port] = dialogue
        hosts.bootstrap = next((each for each in dialogues.values() if each is not None), None)
        for attempt in attempts:
            verdicts = host_verdicts(attempt, address_text(attempt.host, attempt.port), config.security)
            hosts.verdicts += verdicts if hosts.bootstrap is None else map(dispensable, verdicts)
        brokers: Sequence[Broker] = ()
        if hosts.bootstrap is not None and hosts.bootstrap.cluster is not None:
            brokers = hosts.bootstrap.cluster.brokers
        # A broker that is a bootstrap server too already has its verdicts.
        others = {(each.host, each.port): each.node_id for each in brokers if (each.host, each.port) not in dialogues}
        for attempt, dialogue in _dialled(tuple(others), config):
            address = attempt.host, attempt.port
            dialogues[address] = dialogue
            if attempt.failure is not None:
                attempt.failure = advertised(attempt.failure)
            where = f"broker {others.pop(address)}, {address_text(*address)}"
            hosts.verdicts += host_verdicts(attempt, where, config.security)
        if others:
            left_out = skipped(f"not checked: {HOSTS_TIMEOUT_S:g} s were not enough for all brokers of the cluster")
            hosts.verdicts.append(Verdict(HOST_STEPS[0], f"{len(others)} more brokers", left_out))
        for each in brokers:
            if (dialogue := dialogues.get((each.host, each.port))) is not None:
                hosts.brokers[each.node_id] = dialogue
        yield hosts
    finally:
        for dialogue in dialogues.values():
            if dialogue is not None:
                dialogue.close()


def _dialled(addresses: Sequence[tuple[str, int]], config: ClientConfig) -> list[tuple[Attempt, Dialogue | None]]:
    """Return the attempts that could start in time."""
    until_s = time.monotonic() + HOSTS_TIMEOUT_S

    def in_time(address: tuple[str, int]) -> tuple[Attempt, Dialogue | None] | None:
        return dial(*address, config) if time.monotonic() < until_s else None

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kafka_sink-doctor") as pool:
        return [done for done in pool.map(in_time, dict.fromkeys(addresses)) if done is not None]


# --- the cluster ------------------------------------------------------------------------------------------------------


class NotReached(Exception):
    """The step's broker has no connection. The broker's own verdicts give the reason."""


class NotMade(Exception):
    """The topic does not exist. Brokers may create it when the write sends rows."""


class Examination:
    """Takes steps at a cluster, over connections that are open."""

    def __init__(self, client: ClientConfig, hosts: Hosts) -> None:
        self.verdicts: list[Verdict] = []
        self._client = client
        self._hosts = hosts

    def take(self, step: str, where: str, judge: Callable[[], Finding]) -> None:
        blocking = because_of(step, self.verdicts)
        if blocking is not None:
            finding = skipped(f"because of {blocking.step}")
        else:
            try:
                finding = judge()
            except NotReached as error:
                finding = skipped(f"because of {error}, which was not reached")
            except NotMade:
                finding = skipped("because of topic, which does not exist yet")
            except NotTaken as error:
                finding = skipped(f"because {error}")
            except NoAnswer as error:
                finding = failed(str(error), "check that the brokers run and are not overloaded, then check again")
        self.verdicts.append(Verdict(step, where, finding))

    def look_at_cluster(self) -> Finding:
        if self._hosts.bootstrap is None:
            return skipped("because no bootstrap server was reached")
        assert self._hosts.bootstrap.cluster is not None
        return findings.cluster(self._hosts.bootstrap.cluster)

    def look_at_service(self) -> Finding:
        bootstrap = self._hosts.bootstrap
        assert bootstrap is not None and bootstrap.cluster is not None, "the step of the cluster needs it"
        hosts = {host for host, _ in self._client.bootstrap_servers}
        hosts |= {broker.host for broker in bootstrap.cluster.brokers}
        return service(hosts, bootstrap.cluster.cluster_id, bootstrap.ranges)

    def look_at_throttles(self) -> None:
        """Add a verdict for each broker that throttled the requests of the steps before."""
        dialogues = {f"broker {node_id}": each for node_id, each in self._hosts.brokers.items()}
        if self._hosts.bootstrap is not None and self._hosts.bootstrap not in dialogues.values():
            dialogues["the bootstrap server"] = self._hosts.bootstrap
        for where, dialogue in dialogues.items():
            for request in _FOR_QUOTAS:
                with contextlib.suppress(NoAnswer):
                    dialogue.ask(request)
            if dialogue.throttle_time_ms >= SHOWN_THROTTLE_MS:
                finding = findings.throttled(dialogue.throttle_time_ms, self._client)
                self.verdicts.append(Verdict("throttle", where, finding))

    def ranges(self) -> Mapping[str, Ranges]:
        """What each broker that was reached takes, or a bootstrap server where none was."""
        reached = {f"broker {node_id}": dialogue.ranges for node_id, dialogue in self._hosts.brokers.items()}
        assert self._hosts.bootstrap is not None, "the step of the cluster needs it"
        return reached or {"the bootstrap server": self._hosts.bootstrap.ranges}

    def ask(self, request: Request, of: type[R], dialogue: Dialogue | None = None) -> R:
        """Return the answer of this broker, or of any. Raises NoAnswer."""
        dialogue = self._hosts.any if dialogue is None else dialogue
        assert dialogue is not None, "every step here needs the cluster"
        response = dialogue.ask(request)
        assert isinstance(response, of)
        return response

    def metadata_of(self, name: str) -> TopicMetadata:
        request = MetadataRequest((name,), allow_auto_topic_creation=False, describe=True)
        return self.ask(request, MetadataResponse).topics[0]

    def operations_on(self, group_id: str) -> tuple[int, int]:
        """Return the error code of its coordinator, and the operations that are allowed on a group, which need not
        exist. Raises NoAnswer, NotReached."""
        request = DescribeGroupRequest(group_id)
        code, response = self.of_coordinator(CoordinatorKind.GROUP, group_id, request, DescribeGroupResponse)
        return code, 0 if response is None else response.authorized_operations

    def of_coordinator(self, kind: CoordinatorKind, key: str, request: Request, of: type[A]) -> tuple[int, A | None]:
        """Return the error code and the answer of the coordinator of `key`. The answer is None if no coordinator is
        found. Raises NoAnswer, NotReached."""
        code, response = int(ErrorCode.COORDINATOR_NOT_AVAILABLE), None
        for _ in tries():
            (coordinator,) = self.ask(FindCoordinatorRequest(kind, (key,)), FindCoordinatorResponse).coordinators
            code = coordinator.error_code
            if code == ErrorCode.NONE:
                dialogue = self._hosts.brokers.get(coordinator.node_id)
                if dialogue is None:
                    raise NotReached(f"broker {coordinator.node_id}")
                response = self.ask(request, of, dialogue)
                code = response.error_code
            if not is_too_early(code):
                break
        return code, response


def is_too_early(code: int) -> bool:
    """Return True if the coordinator, or the leader of its new internal topic, is not ready yet."""
    return meaning(code).coordinator_not_ready or code == ErrorCode.LEADER_NOT_AVAILABLE


def tries() -> Iterator[None]:
    """Yield at once, then again after each pause of `PAUSE_S`, for `PATIENCE_S`."""
    until_s = time.monotonic() + PATIENCE_S
    yield
    while time.monotonic() < until_s:
        time.sleep(PAUSE_S)
        yield


def first_failure(report: Report) -> Verdict | None:
    """Return the first failure that this host found, which the user has to fix first."""
    return next((verdict for verdict in report.failures if verdict.seen_from == DRIVER), None)


# --- what answers -----------------------------------------------------------------------------------------------------

# Ends of host names.
_HOSTS: tuple[tuple[str, str], ...] = (
    (r"\.confluent\.cloud", "Confluent Cloud"),
    (r"\.kafka-serverless\.[a-z0-9-]+\.amazonaws\.com(\.cn)?", "Amazon MSK Serverless"),
    (r"\.kafka\.[a-z0-9-]+\.amazonaws\.com(\.cn)?", "Amazon MSK"),
    (r"\.servicebus\.(windows\.net|chinacloudapi\.cn|usgovcloudapi\.net)", "Azure Event Hubs"),
    (r"\.aivencloud\.com", "Aiven"),
    (r"\.warpstream\.com", "WarpStream"),
    (r"\.cloud\.redpanda\.com", "Redpanda Cloud"),
)
# Redpanda marks its cluster ids, "so that callers can identify which Kafka implementation they're talking to"
# (src/v/kafka/server/handlers/metadata.cc).
_CLUSTER_IDS: tuple[tuple[str, str], ...] = (("redpanda.", "Redpanda"),)

_PRODUCE, _API_VERSIONS, _END_TXN, _DESCRIBE_PRODUCERS, _LIST_TRANSACTIONS = 0, 18, 26, 61, 66
# The first release of Apache Kafka that takes this version of this request, newest first. Source: the versions that
# brokers of these releases report, and the KIPs.
_RELEASES: tuple[tuple[str, int, int], ...] = (
    ("4.4", _API_VERSIONS, 5),
    ("4.1", _LIST_TRANSACTIONS, 2),  # KIP-1152
    ("4.0", _END_TXN, 5),  # KIP-890
    ("3.8", _LIST_TRANSACTIONS, 1),  # KIP-994
    ("3.0", _LIST_TRANSACTIONS, 0),  # KIP-664
    ("2.8", _DESCRIBE_PRODUCERS, 0),  # KIP-664
    ("2.4", _API_VERSIONS, 3),  # KIP-511
    ("2.1", _PRODUCE, 7),  # KIP-110
)


def service(hosts: Collection[str], cluster_id: str | None, ranges: Ranges) -> Finding:
    """Tell what the cluster seems to be: a service by its names, and a release from below, because a broker that takes
    a request is at least as new as the request. `hosts`: of bootstrap servers and brokers. `ranges`: of any broker."""
    named = [name for pattern, name in _HOSTS if any(re.search(f"{pattern}$", host.lower()) for host in hosts)]
    named += [name for prefix, name in _CLUSTER_IDS if (cluster_id or "").startswith(prefix)]
    release = next((of for of, key, version in _RELEASES if ranges.get(key, (0, -1))[1] >= version), "")
    speaks = (
        f"takes requests as Apache Kafka {release} or later does" if release else "takes fewer requests than Kafka 2.1"
    )
    return ok(f"{named[0]}, by its names; it {speaks}" if named else speaks)


def at_least_once(brokers: Mapping[str, Ranges], *, is_idempotent: bool) -> Finding:
    """Judge each broker, by its name. `is_idempotent`: the write numbers its batches."""
    needed = (AT_LEAST_ONCE, IDEMPOTENCE) if is_idempotent else (AT_LEAST_ONCE,)
    if missing := _missing(brokers, needed):
        remedy = "write to brokers of Kafka 2.1 or later"
        if not _missing(brokers, (AT_LEAST_ONCE,)):
            remedy = "set kafka.enable.idempotence=false; a retry may then double rows"
        return failed(missing, remedy)
    return ok("every broker takes all that it needs")


def exactly_once(brokers: Mapping[str, Ranges], *, is_wanted: bool) -> Finding:
    """Judge each broker, by its name. `is_wanted`: the write is exactly-once."""
    missing = _missing(brokers, (EXACTLY_ONCE,))
    if missing and not is_wanted:
        return skipped(f"not asked for; {missing}")
    if missing:
        return failed(missing, "write with deliveryGuarantee=at-least-once, or to brokers of Kafka 3.0 or later")
    return ok("every broker takes all that it needs")


def reading(brokers: Mapping[str, Ranges]) -> Finding:
    if missing := _missing(brokers, (READING,)):
        return failed(missing, "read from brokers of Kafka 2.3 or later")
    return ok("every broker takes all that it needs")


def _missing(brokers: Mapping[str, Ranges], needed: Collection[Guarantee]) -> str:
    """Return what brokers lack, in words: brokers that lack the same share a sentence. Empty if nothing is missing."""
    lackers: dict[tuple[str, ...], list[str]] = {}
    for broker, ranges in brokers.items():
        if missing := tuple(each for guarantee in needed for each in lacking(ranges, guarantee)):
            lackers.setdefault(missing, []).append(broker)
    return ". ".join(
        f"{', '.join(who)} lack{'s' if len(who) == 1 else ''} {'; '.join(what)}" for what, who in lackers.items()
    )
