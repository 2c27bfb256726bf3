"""The relay, one process of an executor that has the connections of its workers, with real Spark and real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

import exactly_once_runs
import processes
import relay_spark_runs
import stranger
from committed_rows import open_transactions, read_values
from exactly_once_runs import incoming
from kafka_sink.broker import LocalKafka
from relay_app import DEADLINE_S, Plan
from relay_runs import RelayRun, assert_rows, hurried, names_of_relays, one_write, relays
from relay_spark_runs import SparkRun, assert_range
from secure_kafka import SecureKafka, add_scram_users
from spark_writes import connections_to, end_offset, numbers_in
from waiting import wait_until

# Spark starts slowly on a busy machine.
pytestmark = pytest.mark.timeout(900)
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process of another user")


def traces() -> set[str]:
    """What this package could leave behind in shared memory."""
    return {name for name in os.listdir("/dev/shm") if "pykafka" in name}


# --- with Spark -------------------------------------------------------------------------------------------------------


def rows_in_each_partition(kafka: LocalKafka, topic: str) -> bool:
    """Whether each of the four partitions has rows. A leader of a new topic may not be ready to say so."""
    with suppress(KafkaException):
        return all(end_offset(kafka, topic, partition) for partition in range(4))
    return False


@pytest.mark.parametrize("way", ["plaintext", pytest.param("sasl", marks=pytest.mark.long)])
def test_a_write_of_four_tasks_has_one_relay_and_two_connections(secure: SecureKafka, tmp_path: Path, way: str) -> None:
    kafka, topic, rows = secure.kafka, f"four-tasks-{way}", 400_000
    kafka.create_topic(topic, 4)
    options = (
        {"kafka.bootstrap.servers": kafka.bootstrap_servers} if way == "plaintext" else secure.sasl("SCRAM-SHA-256")
    )
    with SparkRun(tmp_path, topic, {**options, "kafka.linger.ms": "0"}, master="local[4]", tasks=4, rows=rows) as run:

        def there() -> bool:
            run.check()
            return rows_in_each_partition(kafka, topic)

        wait_until(there, relay_spark_runs.DEADLINE_S, "rows of each task")
        (relay,) = relays(run.live())
        workers = {each.process_id for each in processes.workers(run.live())}
        owners = Counter(connections_to(options["kafka.bootstrap.servers"]).values())
        assert 1 <= owners[relay.process_id] <= 2
        assert workers
        assert not workers & owners.keys()
        assert not traces()
        run.go_on()
        run.finish()
    assert_range(kafka, topic, rows)
    assert not traces()


@pytest.mark.parametrize("way", [pytest.param("plaintext", marks=pytest.mark.long), "sasl"])
def test_an_exactly_once_stream_writes_over_a_relay(
    secure: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    kafka, topic = secure.kafka, f"stream-{way}"
    kafka.create_topic(topic, 1)
    incoming(tmp_path / "incoming")
    monkeypatch.setenv("PYKAFKA_RELAY", "on")
    options = secure.sasl("SCRAM-SHA-256") if way == "sasl" else {}
    arguments = [f"{name}={value}" for name, value in options.items()]
    with exactly_once_runs.Run(kafka, topic, tmp_path, *arguments, hooked=False) as run:
        found: set[int] = set()

        def has_ended() -> bool:
            every = processes.of_session(run.process_id)
            found.update(each.process_id for each in relays(every))
            return not every

        wait_until(has_ended, exactly_once_runs.DEADLINE_S, "the application and all its processes end")
        status, said = run.end()
        assert len(found) == 1, said
        assert status == 0, said
        assert "connects to brokers itself" not in said
    assert Counter(numbers_in(kafka, topic)) == exactly_once_runs.ALL_ONCE
    assert read_values(kafka, topic, "read_uncommitted").total() == exactly_once_runs.ALL_ONCE.total()
    assert open_transactions(kafka, topic) == []


@pytest.mark.chaos
def test_an_executor_that_is_killed_takes_its_relay_with_it(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, rows = topic(4), 400_000
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.linger.ms": "0"}
    with SparkRun(tmp_path, name, options, master="local-cluster[2,2,1024]", tasks=4, rows=rows) as run:

        def there() -> bool:
            run.check()
            return rows_in_each_partition(kafka, name) and len(relays(run.live())) == 2

        wait_until(there, relay_spark_runs.DEADLINE_S, "a relay of each executor")
        every = run.live()
        killed = next(each for each in every if "CoarseGrainedExecutorBackend" in each.command)
        below = {each.process_id for each in processes.below(killed.process_id, every)}
        of_killed = [each for each in relays(every) if each.process_id in below]
        assert len(of_killed) == 1
        os.kill(killed.process_id, signal.SIGKILL)
        wait_until(lambda: not below & {each.process_id for each in run.live()}, DEADLINE_S, "its processes have ended")
        run.go_on()
        run.finish()
    assert_range(kafka, name, rows, once=False)


# --- workers alone ----------------------------------------------------------------------------------------------------


LONG = "300 partitions and 4 MiB"
WAYS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "zstd": ({"compression_type": "zstd"}, {"rows": 40_000}),
    "acks=1": ({"acks": "1"}, {"rows": 40_000}),
    "acks=0": ({"acks": "0"}, {"rows": 40_000}),
    "rows of 2 MB": (
        {"max_request_size": "8388608", "buffer_memory": "33554432"},
        {"rows": 24, "batch_rows": 4, "value_bytes": 2_000_000},
    ),
    LONG: (
        {"buffer_memory": "4194304"},
        {"rows": 30_000, "partitions": 300, "workers": 8},
    ),
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=pytest.mark.long if way == LONG else ()) for way in WAYS])
def test_every_way_to_write_keeps_every_row(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    options, shape = WAYS[way]
    shape = {"workers": 4, "partitions": 4, **shape}
    name = topic(shape["partitions"], {"max.message.bytes": "8388608"})
    slowly = {"request_timeout_ms": "30000", "delivery_timeout_ms": "120000", "max_block_ms": "60000"}
    plan = one_write(hurried(kafka, **slowly, **options), name, **shape)
    with RelayRun(tmp_path, plan) as run:
        run.relay()
        run.finish()
        assert "connects to brokers itself" not in run.stderr
    count = plan.rows * len(plan.writes)

    def written() -> int:
        return sum(end_offset(kafka, name, partition) for partition in range(plan.partitions))

    if way == "acks=0":
        # Nothing else says when the broker has written what it found in its sockets.
        wait_until(lambda: written() >= count, DEADLINE_S, f"{count} rows")
    # Without sequence numbers, a retry may reorder or repeat rows.
    assert_rows(kafka, plan, once="acks" not in way)


def test_a_wrong_password_fails_as_without_a_relay_and_the_next_write_may_have_the_right_one(
    secure: SecureKafka, tmp_path: Path
) -> None:
    secure.kafka.create_topic("passwords", 4)
    wrong, right = secure.sasl("SCRAM-SHA-256", password="wrong"), secure.sasl("SCRAM-SHA-256")
    plan = Plan("passwords", [wrong, right], [[0, 1]] * 3, rows=1_000)
    with RelayRun(tmp_path, plan) as run:
        ended = run.end()
        assert "connects to brokers itself" not in run.stderr
    for each in ended:
        expected = "AuthenticationFailed" if each.write == 0 else None
        assert each.error == expected, (each, run.stderr)
        assert "wrong" not in each.text.replace("wrong password", "")
    assert len(ended) == 6
    assert_second_writes(secure.kafka, plan)


def test_a_password_that_is_withdrawn_in_mid_write_ends_the_write_with_the_brokers_answer(
    secure: SecureKafka, tmp_path: Path
) -> None:
    """A relay that is refused drops its workers, who still hold memory of their executor's."""
    kafka = secure.kafka
    kafka.create_topic("withdrawn", 4)
    options = {**secure.sasl("SCRAM-SHA-256"), "kafka.linger.ms": "0"}
    plan = Plan("withdrawn", [options], [[0]] * 3, rows=60_000, gate_after=30_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        run.relay()
        wait_until(lambda: rows_in_each_partition(kafka, "withdrawn"), DEADLINE_S, "rows in each partition")
        try:
            add_scram_users(secure.admin, {"alice": "another"})
            kafka.kill(1)
            kafka.start(1)
            run.go_on()
            ended = run.end()
        finally:
            add_scram_users(secure.admin)
    assert [each.error for each in ended] == ["AuthenticationFailed"] * 3, (ended, run.stderr)
    assert "Traceback" not in run.stderr


def assert_second_writes(kafka: LocalKafka, plan: Plan) -> None:
    assert read_values(kafka, plan.topic).total() == len(plan.writes) * plan.rows


def test_two_configurations_of_one_executor_have_a_relay_each(secure: SecureKafka, tmp_path: Path) -> None:
    secure.kafka.create_topic("two", 4)
    ways = [secure.sasl("SCRAM-SHA-256"), secure.tls()]
    plan = Plan(
        "two", [{**way, "kafka.linger.ms": "0"} for way in ways], [[0], [1]] * 2, rows=20_000, gate_after=10_000
    )
    with RelayRun(tmp_path, plan, held=True) as run:
        wait_until(lambda: len(run.relays()) == 2, DEADLINE_S, "two relays")
        ids = {each.process_id for each in run.relays()}

        def owners(way: dict[str, str]) -> set[int]:
            return ids & set(connections_to(way["kafka.bootstrap.servers"]).values())

        wait_until(lambda: all(map(owners, ways)), DEADLINE_S, "connections of both")
        assert [len(owners(way)) for way in ways] == [1, 1]
        assert owners(ways[0]) != owners(ways[1])
        run.go_on()
        run.finish()
        assert "connects to brokers itself" not in run.stderr
    assert_rows(secure.kafka, plan)


# --- strangers --------------------------------------------------------------------------------------------------------


def command(what: str, user: int, name: str) -> list[str]:
    return [sys.executable, stranger.__file__, what, str(user), name.removeprefix("\0")]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}


@needs_root
@pytest.mark.parametrize(
    ("user", "kinds"), [(0, ["REFUSED"]), (NOBODY, [])], ids=["own-user-other-configuration", "other-user"]
)
def test_a_stranger_gets_nothing_of_a_relay_and_leaves_it_alone(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, user: int, kinds: list[str]
) -> None:
    before = names_of_relays()
    plan = one_write(hurried(kafka), topic(4), workers=2, rows=20_000, gate_after=10_000)
    with RelayRun(tmp_path, plan, held=True) as run:
        relay = run.relay()
        wait_until(lambda: rows_in_each_partition(kafka, plan.topic), DEADLINE_S, "rows")
        (name,) = (name for name in names_of_relays() - before if f"/{run.process_id}/" in name)
        asked = subprocess.run(command("ask", user, name), env=environment(), capture_output=True, check=True)
        said = json.loads(asked.stdout)
        assert (said["kinds"], said["files"]) == (kinds, 0)
        assert bool(said["bytes"]) == bool(kinds)
        assert run.relay().process_id == relay.process_id
        run.go_on()
        run.finish()
    assert_rows(kafka, plan)


@contextmanager
def squatter(name: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command("squat", NOBODY, name), env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


@needs_root
@pytest.mark.parametrize("squatted", [1, 8])
def test_another_user_who_has_the_names_of_relays_gets_no_configuration(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, squatted: int
) -> None:
    plan = one_write(hurried(kafka), topic(4), workers=2, rows=10_000)
    namespace = os.stat("/proc/self/ns/pid").st_ino
    with RelayRun(tmp_path, plan, waits=True) as run, ExitStack() as squatters:
        names = [f"pykafka/0/{namespace}/{run.process_id}/{number}" for number in range(squatted)]
        there = [squatters.enter_context(squatter(name)) for name in names]
        run.begin()
        run.finish()
        assert ("connects to brokers itself" in run.stderr) == (squatted == 8)
        for process in there:
            told, _ = process.communicate()
            assert told == "0\n"
    assert_rows(kafka, plan)


# --- without a relay --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", ["start", "share"])
def test_a_worker_without_a_relay_says_so_and_connects_itself(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, broken: str
) -> None:
    plan = one_write(hurried(kafka), topic(4), workers=2, rows=10_000, broken=broken)
    with RelayRun(tmp_path, plan) as run:
        run.finish()
        assert run.stderr.count("connects to brokers itself") == 2, run.stderr
    assert_rows(kafka, plan)


# --- throttling -------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("request_bytes", ["131072", "524288"])
def test_workers_whose_brokers_throttle_wait_as_long_as_needed(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, request_bytes: str
) -> None:
    """A throttle mutes the connection, which other workers have, too. Brokers let ten seconds' worth pass before. The
    larger requests are throttled for several request timeouts each."""
    name, bytes_per_s, seconds, workers = topic(4), 50_000, 30, 6
    kafka.run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap_servers, "--alter",
        "--entity-type", "clients", "--entity-name", name, "--add-config", f"producer_byte_rate={bytes_per_s}",
    )  # fmt: skip
    options = hurried(
        kafka, client_id=name, delivery_timeout_ms="3000", request_timeout_ms="2000", max_block_ms="30000",
        batch_size=request_bytes, max_request_size=request_bytes, linger_ms="100",
    )  # fmt: skip
    rows = (10 + seconds) * bytes_per_s // 1_000 // workers
    plan = one_write(options, name, workers=workers, rows=rows, value_bytes=1_000, batch_rows=100)
    with RelayRun(tmp_path, plan) as run:
        run.relay()
        run.finish()
    assert_rows(kafka, plan)
