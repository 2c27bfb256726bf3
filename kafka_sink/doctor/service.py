"""What answers: the service that the addresses and the cluster id point to, and the release of Kafka that the requests
fit, and whether it takes what each guarantee needs.

A service is recognised by its names, never by its behaviour, and a release only from below: a broker that takes a
request is at least as new as the request. So both are "seems", for a person who reads a report.

Pure. Source of the table of releases: the versions that brokers of these releases told, and the KIPs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kafka_sink.doctor.report import Finding, failed, ok, skipped
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE, Guarantee, lacking
from kafka_sink.kafka.protocol.read_needs import READING
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE

# API key -> (lowest, highest) version.
Ranges = Mapping[int, tuple[int, int]]

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
# The first release of Apache Kafka that takes this version of this request, newest first.
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
    """Tell what the cluster seems to be. `hosts`: of bootstrap servers and brokers. `ranges`: of any broker."""
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
    """Judge each broker, by its name."""
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
