"""What needs a Spark or a process of its own: there is one Spark a process, so each is an application of `apps.py` or
`connect_apps.py`, run as users run theirs."""

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from applications import DEADLINE_S, run_application, told_by
from apps import ROWS, SLOTS
from broker_admin import held_back, open_transactions, produce, read
from kafka_sink.broker import LocalKafka
from kafka_sink.errors.exhaustion import PATIENCE_MS
from read_back import read_topic
from small_registry import small_registry
from spark_writes import ARROW_BATCH_ROWS, numbers_in

CANARY = "canary-8f3e"


@pytest.mark.long
def test_a_worker_has_one_client_for_all_that_its_tasks_ask_and_write(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Rows, transactions, markers and topics' settings go over the same connections."""
    counts = told_by("apps.py", "connections", kafka.bootstrap_servers, topic(2), tmp_path)
    # To the bootstrap server and to the broker, which are one here.
    assert len(counts) == 4 and set(counts.values()) in ({1}, {2}), counts


@pytest.mark.long
def test_a_second_attempt_writes_its_task_again(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name, rows = topic(1), list(range(6 * ARROW_BATCH_ROWS))
    told_by("apps.py", "write_with_second_attempt", kafka.bootstrap_servers, name)
    got = numbers_in(kafka, name)
    assert got == [*range(len(got) - len(rows)), *rows]


@pytest.mark.long
def test_a_first_attempt_is_in_no_figure_of_a_read(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(2)
    produce(kafka, name, 500, 500)
    told = told_by("apps.py", "read_with_second_attempt", kafka.bootstrap_servers, name)
    assert told == {"arrived": 1_000, "counted": [500, 500]}


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_dead_letters_of_a_second_attempt_are_shown_once_by_exactly_once(
    kafka: LocalKafka, topic: Callable[..., str], guarantee: str
) -> None:
    name, letters = topic(1), topic(1)
    options = [f"deliveryGuarantee={guarantee}", "badRows=deadLetter", f"deadLetterTopic={letters}", "maxBadRows=1"]
    told_by("apps.py", "write_with_second_attempt", kafka.bootstrap_servers, name, *options)
    good = [number for number in range(6 * ARROW_BATCH_ROWS) if number != 7]
    written, dead = numbers_in(kafka, name), numbers_in(kafka, letters)
    if guarantee == "exactly-once":
        assert (written, dead) == (good, [7])
    else:
        # Of the first attempt as far as it came, and of the second one, which is the whole task.
        assert written[-len(good) :] == good and dead in ([7], [7, 7])


# --- Spark Connect ----------------------------------------------------------------------------------------------------


def test_spark_connect_writes_batches_streams_and_exports_and_tells_the_errors(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, exported = topic(1), topic(3)
    told = told_by("connect_apps.py", "writes", kafka.bootstrap_servers, name, exported, tmp_path)
    assert numbers_in(kafka, name) == list(range(2_000))
    assert "kafka_sink.errors.InvalidOption: option 'kafka.compression.type'" in told["option"]
    for failed in (told["export"], told["stream"]):
        assert (failed["class"], failed["topic"]) == ("TopicNotFound", "nobody-made-this")
        assert failed["cause"] == "pyspark.errors.exceptions.connect"
    rows: list[list[int]] = [[], [], []]
    for partition, _, row in read_topic(kafka.bootstrap_servers, exported, DEADLINE_S):
        rows[partition].append(int(row.value or b""))
    assert sorted(itertools.chain(*rows)) == list(range(2_000))
    of_export = [[number for number in each if number < 1_000] for each in rows]
    assert all(each == sorted(each) and each for each in of_export)
    assert told["rows"] == 1_000
    assert told["offsets"] == {str(partition): [0, len(each) - 1] for partition, each in enumerate(of_export)}


@pytest.mark.long
def test_spark_connect_takes_conf_and_interceptors(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    told = told_by("connect_apps.py", "of_conf", kafka.bootstrap_servers, name, tmp_path)
    assert numbers_in(kafka, name) == [-number for number in range(1, 2_000)]
    assert "kafka_sink.errors.InvalidOption: option 'spark.pykafka.kafka.acks' is '2'" in told["conf"]
    assert "kafka_sink.errors.InterceptorFailed" in told["interceptor"]
    assert "Raising: on_send raised RuntimeError" in told["interceptor"]


@pytest.mark.long
def test_spark_connect_writes_update_mode_in_its_own_session(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    told = told_by("connect_apps.py", "updates", kafka.bootstrap_servers, name, tmp_path)
    assert told == {"again": True, "error": "TopicNotFound"}
    assert numbers_in(kafka, name) == [-1, -4, -9]


@pytest.mark.long
def test_spark_connect_reads_and_tells_the_errors(kafka: LocalKafka) -> None:
    kafka.create_topic("read-by-connect", 3)
    produce(kafka, "read-by-connect", 1_000)
    assert told_by("connect_apps.py", "reads", kafka.bootstrap_servers, "read-by-connect") == {
        "rows": 1_000,
        "columns": ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"],
        "pruned": [[7, "7"]], "error": "TopicToReadMissing",
        "streamed": 1_000, "latest": 1_000, "stream error": "TopicToReadMissing",
    }  # fmt: skip


@pytest.mark.long
def test_spark_connect_decodes_by_a_schema_registry_and_no_plan_shows_its_password(tmp_path: Path) -> None:
    with small_registry("alice:hunter2") as registry:
        told = told_by("connect_apps.py", "decodes", registry.url, tmp_path)
    rows = [{"id": number, "pair": [number, None]} for number in range(4)]
    assert told["rows"] == told["streamed"] == rows
    assert [reason and reason[:9] for reason in told["reasons"]] == [None, "it does n", "1 bytes a", None]
    failed = told["failure"]
    assert failed["class"] == "RecordUndecodable" and "topic 'orders', partition 7, offset 101" in failed["found"]
    assert "deserialized" in told["plan"] and "hunter2" not in json.dumps(told)
    # Each worker asks once, and there is one for each of the tasks at a time.
    assert 1 <= sum(path.startswith("/schemas") for _, path in registry.asked) <= 4


@pytest.mark.long
def test_new_ids_wait_for_a_registry_that_is_down_and_known_ids_go_on(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    orders, copy = topic(1), topic(1)
    told = told_by("apps.py", "registry_outage", kafka.bootstrap_servers, orders, copy, tmp_path / "checkpoint")
    first, down, retried, failed, again = told["asked"]
    # Once for each worker: of the read, of the decoded column, of the write. A task that failed asked again.
    assert first == down <= 3 and told["micro-batches"] >= 10, told
    assert retried == 3 and failed == 4 and again == 5, told
    assert told["error"][0] == "RegistryRefused" and "with status 503" in told["error"][1], told
    assert numbers_in(kafka, copy) == list(range(13))


# --- workers that are not as usual ------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("limits", "conf", "skew_s", "read_ends", "stream_ends"),
    [
        # Sockets, pipes and files of a worker are far fewer.
        pytest.param("ulimit -n 64", [], 0, 100, None, id="64 files"),
        # As on a full disk. A batch read notes its action in a file, unless all actions may read the same offsets. A
        # stream notes its name in the checkpoint.
        pytest.param("ulimit -f 0", [], 0, "PlanNotNoted", "CheckpointUnusable", id="no new file"),
        # A worker of its own for each task, plan and commit. Spark gives up one that does not start in 10 s: on a busy
        # machine tasks have another attempt, plans and commits have none.
        pytest.param(
            "true", ["spark.python.use.daemon=false", "spark.master=local[2,4]"], 0, 100, None, id="no daemon"
        ),
        # So is the clock of plans and commits. Spark's own, as the brokers', is right.
        pytest.param("true", [], 3_600, 100, None, id="a clock an hour ahead"),
        pytest.param("true", [], -3_600, 100, None, id="a clock an hour behind"),
    ],
)
def test_reads_and_writes_of_workers_with(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path,
    limits: str, conf: list[str], skew_s: int, read_ends: object, stream_ends: object,
) -> None:  # fmt: skip
    source, target = topic(2), topic(2)
    produce(kafka, source, 50, 50)
    if skew_s:
        # Python runs it when it starts.
        (tmp_path / "sitecustomize.py").write_text(
            f"import time\ns, ns = time.time, time.time_ns\n"
            f"time.time, time.time_ns = lambda: s() + {skew_s}, lambda: ns() + {skew_s} * 10**9\n"
        )
        limits = f"export PYTHONPATH={tmp_path}:$PYTHONPATH"
    told = told_by("apps.py", "odd_workers", kafka.bootstrap_servers, source, target, tmp_path, limits, *conf)
    writes = {"at-least-once": None, "exactly-once": None, "stream": stream_ends}
    assert told == {"read": read_ends, "first": 100, **writes}
    # Each number of both writes, and the half of them that the source has twice.
    assert read(kafka, target) == Counter({n: 2 + 2 * (stream_ends is None and n < 50) for n in range(100)})
    assert held_back(kafka, target) == 0
    times_s = [record.timestamp_ms / 1_000 for _, _, record in read_topic(kafka.bootstrap_servers, target, DEADLINE_S)]
    assert all(abs(time_s - skew_s - time.time()) < 600 for time_s in times_s)


NO_FILES = "no more open files: the limit of open files of a process (ulimit -n) is reached"


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ("files", NO_FILES),
        # Another connection of the process may end: it is waited for.
        pytest.param("sockets", NO_FILES, marks=pytest.mark.long),
        ("threads", "no more threads: a thread could not be started"),
        ("memory", "no more memory: "),
    ],
)
def test_what_a_worker_has_no_more_of_is_named_and_nothing_is_left(
    kafka: LocalKafka, topic: Callable[..., str], lacks: str, said: str
) -> None:
    told = told_by("apps.py", "limited_write", kafka.bootstrap_servers, topic(2), lacks)
    assert (told["error"], told["kept"], told["threads"], told["sockets"]) == ("WorkerExhausted", False, [], 0), told
    assert said in told["text"]
    # Far less than kafka.max.block.ms.
    assert (PATIENCE_MS / 1_000 if lacks == "sockets" else 0) <= told["seconds"] < 30


@pytest.mark.long
def test_nothing_that_spark_leaves_behind_shows_a_secret(tmp_path: Path) -> None:
    """What it prints, its event log, and the checkpoint."""
    event_log = tmp_path / "events"
    event_log.mkdir()
    arguments = "apps.py", "secrets", CANARY, event_log, tmp_path / "checkpoint"
    status, said = run_application(*arguments, folder=tmp_path)
    assert status == 0, said
    # The two writes and the query got as far as the network, and the wrong key no further than its own error.
    assert said.count("kafka_sink.errors.BrokersUnreachable") >= 3
    assert "kafka_sink.errors.InvalidOption: option 'kafka.ssl.keystore.key' is not usable" in said
    assert CANARY not in said
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 10_000 for path in left if event_log in path.parents)
    assert not [path for path in left if CANARY.encode() in path.read_bytes()]


# --- a stage that runs again in the midst of an exactly-once write ----------------------------------------------------

DELETED, GONE = "shuffle files deleted", "executor decommissioned"
LOCAL = "spark.master=local[2,4]"
CLUSTER = ("spark.master=local-cluster[2,1,1024]", "spark.executor.memory=512m")
DECOMMISSION = (
    *CLUSTER, "spark.decommission.enabled=true", "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
)  # fmt: skip
# A second attempt took over what the first had prepared, or the first was fenced before that.
REPLACED = "AttemptReplaced"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("fault", "how", "conf", "error"),
    [
        pytest.param(DELETED, "batch", (LOCAL,), REPLACED, id="batch"),
        pytest.param(DELETED, "stream", (LOCAL,), REPLACED, id="stream"),
        pytest.param(DELETED, "batch", (LOCAL, "spark.sql.adaptive.enabled=false"), REPLACED, id="without AQE"),
        pytest.param(
            DELETED, "batch", (LOCAL, "spark.stage.maxConsecutiveAttempts=1"),
            "has failed the maximum allowable number of times: 1", id="no second attempt",
        ),
        pytest.param(
            "worker killed", "barrier", ("spark.master=local[4,4]",),
            "Could not recover from a failed barrier ResultStage", id="barrier",
        ),
        pytest.param("executor killed", "batch", CLUSTER, REPLACED, id="executor killed"),
        pytest.param(GONE, "batch", DECOMMISSION, REPLACED, id="executor decommissioned"),
        pytest.param(GONE, "stream", DECOMMISSION, REPLACED, id="executor decommissioned under a stream"),
    ],
)  # fmt: skip
def test_each_row_is_there_once_at_the_latest_when_the_write_was_repeated(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path,
    fault: str, how: str, conf: tuple[str, ...], error: str,
) -> None:  # fmt: skip
    name = topic(3)
    # Of some starts of JVMs, on a machine that is busy.
    where = kafka.bootstrap_servers, name, fault, tmp_path
    told = told_by("apps.py", "stage_again", *where, how, *conf, deadline_s=800)
    assert len(told["errors"]) <= 1 and all(error in each for each in told["errors"]), told
    # An executor that is decommissioned ends its tasks first.
    assert sum(told["attempts"]) >= SLOTS + (fault != GONE), told
    assert read(kafka, name) == Counter(range(ROWS))
    assert open_transactions(kafka, name) == []
