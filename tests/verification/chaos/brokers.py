"""Faults of brokers, and their roles."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

import processes
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.errors import BrokerDied, DiskFull, LocalKafkaError
from spark_writes import end_offset
from waiting import wait_until

DEADLINE_S = 300


def controller(kafka: LocalKafka) -> int:
    """Return the node id of the active controller. The controller in Metadata is any broker (KIP-590)."""
    told = kafka.run_tool(
        "org.apache.kafka.tools.MetadataQuorumCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "describe", "--status"),
    )
    found = re.search(r"^LeaderId:\s+(\d+)", told, re.MULTILINE)
    assert found is not None, told
    return int(found[1])


def wait_until_in_sync(kafka: LocalKafka) -> AdminClient:
    """Every replica of every partition is in sync. Return a client."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})

    def whole() -> bool:
        try:
            topics = client.list_topics(timeout=DEADLINE_S).topics.values()
        except KafkaException:  # no broker knows enough yet
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return all(len(each.isrs) == len(each.replicas) for each in partitions)

    wait_until(whole, DEADLINE_S, "all replicas are in sync")
    return client


def wait_until_whole(kafka: LocalKafka) -> None:
    """Every replica of every partition is in sync, and each is led where it was meant to be."""
    # Otherwise a node that came back would lead nothing for five minutes.
    wait_until_in_sync(kafka).elect_leaders(ElectionType.PREFERRED).result(DEADLINE_S)


@contextlib.contextmanager
def stopped(kafka: LocalKafka, node: int, at_least_s: float) -> Iterator[None]:
    """SIGSTOP, and SIGCONT when the block and the time have passed; the time is what is done to the broker."""
    process_id, until = kafka.pid(node), time.monotonic() + at_least_s
    with processes.stopped(process_id):
        yield
        wait_until(lambda: time.monotonic() >= until, at_least_s + DEADLINE_S, "the time")


@contextlib.contextmanager
def started_again(kafka: LocalKafka, node: int) -> Iterator[None]:
    """When the block has passed, in which it was killed or has ended, whatever else came of that."""
    try:
        yield
    finally:
        with contextlib.suppress(LocalKafkaError):  # it was killed
            kafka.kill(node)
        kafka.start(node)


def restart_in_order(kafka: LocalKafka, node: int) -> None:
    """By SIGTERM: it hands its leaders over first."""
    os.kill(kafka.pid(node), signal.SIGTERM)
    wait_until(lambda: has_ended(kafka), DEADLINE_S, f"node {node} ends")
    kafka.kill(node)
    kafka.start(node)


def has_ended(kafka: LocalKafka) -> bool:
    """One that `kafka` was not asked to end."""
    try:
        kafka.check()
    except (BrokerDied, DiskFull):
        return True
    return False


def has_rows(kafka: LocalKafka, topic: str, partition: int) -> bool:
    try:
        return end_offset(kafka, topic, partition) > 0
    except KafkaException:  # not every broker knows yet that it was added
        return False


@contextlib.contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[str | None]:
    """Make the folder a file system of its own, in memory. Yield why that could not be, or None.

    It is mounted for one process only, and others reach it by /proc. That process ends when nobody can write to it any
    more, also after kill -9 of this process: so nothing stays mounted.
    """
    disk = folder.with_name("disk")
    disk.mkdir(parents=True)
    mount = f"mount -t tmpfs -o size={mebibytes}m tmpfs {shlex.quote(str(disk))} && echo mounted && exec cat"
    command = ["sh", "-c", f"exec unshare --mount sh -c {shlex.quote(mount)}"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True) as holder:
        assert holder.stdout and holder.stderr
        if holder.stdout.readline():
            folder.symlink_to(f"/proc/{holder.pid}/root{disk}")
            yield None
        else:
            folder.mkdir()
            yield holder.stderr.read().strip()


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):  # ENOSPC
        while True:
            file.write(bytes(65_536))
    try:
        yield
    finally:
        ballast.unlink()
