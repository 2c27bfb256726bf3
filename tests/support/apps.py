"""Spark applications of tests, each in a process and a session of its own: `python apps.py FUNCTION ARGUMENT...`
prints, as JSON, what the function returns. `<key=value>` are settings of Spark, or options of a write."""

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer as TheirProducer
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
import processes
from broker_admin import send
from kafka_reads import JVM, add_jvm_source, frame, options_of
from kafka_sink.kafka.client import Producer
from kafka_sink.options.config import complete, given_options
from kafka_sink.registry import deserialized
from kafka_sink.spark import kept_clients
from kafka_sink.spark.tally import ReadTally
from kafka_sink.spark.writer import KafkaBatchWriter
from open_connections import connections_to
from small_registry import small_registry
from spark_writes import ARROW_BATCH_ROWS, DEADLINE_S, end_offset, finish, numbers, pykafka, save
from waiting import wait_until

EXACTLY_ONCE = {"deliveryGuarantee": "exactly-once"}


def session(master: str, *conf: str) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for setting in conf:
        builder = builder.config(*setting.split("=", 1))
    return builder.getOrCreate()


def connections(servers: str, topic: str, folder: str) -> dict[str, int]:
    """How many connections the worker of tasks has after each kind of write."""
    spark = session("local[1]")  # one task at a time

    def count() -> int:
        """Plans and commits run in other workers."""
        ours = processes.below(os.getpid(), processes.of_session(os.getsid(0)))
        tasks = {each.process_id for each in ours if each.command.split()[-1:] == ["pyspark.worker"]}
        return sum(process_id in tasks for process_id in connections_to(servers).values())

    values = spark.range(0, 100, 1, 1).selectExpr("cast(id AS STRING) AS value", "cast(null AS INT) AS partition")
    one_bad = spark.range(0, 2, 1, 1).selectExpr("'v' AS value", "if(id = 1, 99, cast(null AS INT)) AS partition")
    one_bad.write.parquet(f"{folder}/incoming")
    stream = spark.readStream.schema(values.schema).parquet(f"{folder}/incoming").coalesce(1).writeStream
    drop, counts = {"badRows": "drop"}, {}
    for name, rows, options in (
        ("at-least-once", values, {}),
        ("at-least-once, a bad row", one_bad, drop),
        ("exactly-once", values, EXACTLY_ONCE),
    ):
        pykafka(rows.write.mode("append"), servers, topic).options(**options).save()
        counts[name] = count()
    writer = pykafka(stream, servers, topic).options(**EXACTLY_ONCE, **drop, checkpointLocation=f"{folder}/checkpoint")
    finish(writer.trigger(availableNow=True).start())
    return {**counts, "exactly-once, a micro-batch with a bad row": count()}


# --- a task with a second attempt -------------------------------------------------------------------------------------


def fail_once(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt, in its fourth batch or at the end."""
    from pyspark import TaskContext

    context = TaskContext.get()
    fails = context is not None and context.attemptNumber() == 0
    for number, arrow_batch in enumerate(arrow_batches):
        if number == 3 and fails:
            raise ValueError("the source broke")
        yield arrow_batch
    if fails:
        raise ValueError("a step after the read broke")


def write_with_second_attempt(servers: str, topic: str, *given: str) -> None:
    """With options row 7 is a bad one, which names partition 99."""
    options, spark = dict(option.split("=", 1) for option in given), session("local[2, 2]")
    bad = "if(id = 7, 99, cast(null AS INT))" if options else "cast(null AS INT)"
    rows = spark.range(0, 6 * ARROW_BATCH_ROWS, 1, 1).selectExpr("cast(id AS STRING) AS value", f"{bad} AS partition")
    pykafka(rows.mapInArrow(fail_once, rows.schema).write.mode("append"), servers, topic).options(**options).save()


def read_with_second_attempt(servers: str, topic: str) -> dict[str, object]:
    """The rows that arrived, and those that a tally has counted."""
    spark = session("local[2, 2]")
    tally = ReadTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    rows = frame(spark, "pykafka", servers, subscribe=topic).select("value")
    arrived = rows.mapInArrow(fail_once, "value BINARY").count()
    return {"arrived": arrived, "counted": [read.row_count for read in tally.value.values()]}


# --- workers that are not as usual ------------------------------------------------------------------------------------


def not_activated(servers: str, topic: str, folder: str, way: str) -> dict[str, object]:
    """Spark's `python3` is that of `folder`. What Spark says before, and how many rows are there after two writes."""
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(name, None)
    spark, before = session("local[1]"), ""
    rows = numbers(spark, 3)
    try:
        save(rows, servers, topic)
    except PySparkException as error:
        before = error.getCondition() or ""
    if way == "register":
        kafka_sink.register(spark)
    else:
        kafka_sink.export(rows, topic, bootstrap_servers=servers)
    save(rows, servers, topic)
    return {"before": before, "there": frame(spark, "pykafka", servers, subscribe=topic).count()}


def result(work: Callable[[], object]) -> object:
    """Or the name of our error."""
    try:
        return work()
    except PySparkException as failure:
        return type(kafka_sink.error_of(failure)).__name__


def odd_workers(servers: str, source: str, target: str, folder: str, command: str, *conf: str) -> dict[str, object]:
    """Read `source` of 100 records and write to `target`; the shell command runs before each worker's Python."""
    python = Path(folder, "python")
    python.write_text(f'#!/bin/bash\n{command}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(python)
    spark = session("local[2]", *conf)
    kafka_sink.register(spark)
    bounds = {"startingTimestamp": f"{(time.time() - 1_800) * 1_000:.0f}", "reuseOffsets": "true"}

    def read(**options: str) -> int:
        return len(frame(spark, "pykafka", servers, subscribe=source, **options).select("value").collect())

    def write(guarantee: str) -> None:
        writer = pykafka(numbers(spark, 100, 2).write.mode("append"), servers, target)
        writer.option("deliveryGuarantee", guarantee).save()

    def stream() -> None:
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
        rows = spark.readStream.format("pykafka").options(**options_of(servers, options)).load().select("value")
        writer = pykafka(rows.writeStream, servers, target).options(**EXACTLY_ONCE)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()

    return {
        "read": result(read),
        "first": result(lambda: read(**bounds)),
        "at-least-once": result(lambda: write("at-least-once")),
        "exactly-once": result(lambda: write("exactly-once")),
        "stream": result(stream),
    }


def limited_write(servers: str, topic: str, what: str) -> dict[str, object]:
    """A write in a process that has no files, sockets, threads or memory left, and no producer yet."""
    given = given_options({"kafka.bootstrap.servers": servers, "topic": topic, "kafka.max.block.ms": "30000"})
    writer, own = KafkaBatchWriter(given), complete(given).producer
    few, many = pa.record_batch({"value": ["x"] * 10}), pa.record_batch({"value": [os.urandom(1_000)] * 100_000})
    # Whatever a first write imports.
    socket.getaddrinfo("localhost", 9092)
    KafkaBatchWriter({**given, "client_id": "other"}).write(iter([few]))
    kept_clients.KEPT.close()
    use_up(what)
    began, error = time.monotonic(), None
    try:
        writer.write(iter([many]))
    except BaseException as raised:
        error = raised
    told = {
        "error": type(error).__name__, "text": str(error), "seconds": time.monotonic() - began,
        "kept": kept_clients.KEPT.take(Producer, own) is not None,
        "threads": [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()],
    }  # fmt: skip
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (hard, hard))
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{descriptor}").startswith(("socket:", "anon_inode:[eventpoll]"))
    return {**told, "sockets": found}


def use_up(what: str) -> None:
    if what in ("files", "sockets"):
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 4, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = []
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        # A selector and the two ends of its pipe, and no connection.
        for descriptor in held[-3 if what == "sockets" else len(held) :]:
            os.close(descriptor)
    elif what == "threads":
        # root has no RLIMIT_NPROC.
        def start(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        setattr(threading.Thread, "start", start)  # noqa: B010
    elif what == "memory":
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), resource.RLIM_INFINITY))


# --- secrets ----------------------------------------------------------------------------------------------------------


def secrets(canary: str, event_log: str, checkpoint: str) -> None:
    """Writes that fail, batches and a stream, with a canary in every secret option."""
    events = "spark.eventLog.enabled=true", "spark.eventLog.compress=false", f"spark.eventLog.dir=file://{event_log}"
    spark = session("local[1]", *events, f"spark.pykafka.kafka.ssl.key.password={canary}")
    kafka_sink.register(spark)
    common = {"max_block_ms": "500", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = {**common, "sasl_jaas_config": f'{module} required username="alice" password="{canary}";'}
    client_secret = {"sasl_oauthbearer_client_credentials_client_secret": canary}
    password = {**common, **client_secret, "sasl_username": "alice", "sasl_password": canary}
    key = {**password, "ssl_keystore_certificate_chain": "chain", "ssl_keystore_key": canary}
    for options in (jaas, password, key):
        try:
            save(numbers(spark, 3), "localhost:1", "t", **options)
        except PySparkException as error:
            print(f"failed: {error}")
    rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    query = pykafka(rate.writeStream, "localhost:1", "t", **jaas).option("checkpointLocation", checkpoint).start()
    try:
        query.awaitTermination()
    except PySparkException as error:
        print(f"failed: {error}")
    print(query.lastProgress, query.status)
    query.explain(extended=True)


# --- a read that is used again, in executors that have run no task of its first action --------------------------------


def read_again(source: str, servers: str, facts: str, *topics: str) -> dict[str, object]:
    """What later actions showed: a number of rows, or the name of our error. Each has a topic that is empty at first,
    and gets two records before the later action."""
    folder = tempfile.mkdtemp()  # in which Spark makes the folders of executors
    conf = f"spark.local.dir={folder}", "spark.sql.shuffle.partitions=1", "spark.task.maxFailures=1"
    spark, writer = session("local-cluster[2,1,1024]", *conf), TheirProducer({"bootstrap.servers": servers})
    if source == JVM:
        add_jvm_source(spark)
    send(writer, facts, [b"first"])

    def load(topic: str) -> DataFrame:
        return frame(spark, source, servers, subscribe=topic)

    def arrive(topic: str) -> None:
        """Two records, and executors that know of no plan."""
        for notes in list(Path(folder).rglob("pykafka-plans-*")):
            shutil.rmtree(notes)
        send(writer, topic, [b"0", b"1"])

    def count_again(topic: str) -> int:
        read = load(topic)
        assert read.isEmpty()
        arrive(topic)
        return read.count()

    def join_a_stream(topic: str) -> int:
        """Each micro-batch sees the static side."""
        static = load(topic).selectExpr("offset", "value AS name")
        options = options_of(servers, {"subscribe": facts, "startingOffsets": "earliest"})
        joined = spark.readStream.format(source).options(**options).load().select("partition").join(static)
        seen: list[int] = []
        stream = joined.writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        query = stream.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).start()
        try:
            query.processAllAvailable()
            arrive(topic)
            send(writer, facts, [b"later"])
            query.processAllAvailable()
        finally:
            query.stop()
        return seen[-1]

    def cache_and_explain_first(topic: str) -> int:
        """Neither plans a read."""
        read = load(topic).cache()
        read.explain()
        arrive(topic)
        return read.count()

    def let_spark_plan_each_query(topic: str) -> int:
        """Spark hands filters to the source, and plans with them."""
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        read = load(topic).where("offset >= 0")
        try:
            assert read.isEmpty()
            arrive(topic)
            return read.count()
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    actions = count_again, join_a_stream, cache_and_explain_first, let_spark_plan_each_query
    return {act.__name__: result(lambda act=act, topic=topic: act(topic)) for act, topic in zip(actions, topics)}  # type: ignore[misc]  # noqa: B905


# --- a stage that runs again ------------------------------------------------------------------------------------------

ROWS, MAPS, SLOTS = 2_000, 2, 4
MOST_RUNS = 3
SECOND_ATTEMPT_S = 20
MOST_OF_AN_ERROR = 1_000


def delete_shuffle_files(folder: Path) -> None:
    for file in (folder / "local").rglob("shuffle_*"):
        file.unlink(missing_ok=True)


def signal_executor(number: int) -> None:
    """Send a signal to the nearest JVM above this process."""
    found = os.getpid()
    while Path(f"/proc/{found}/comm").read_text() != "java\n":
        found = int(Path(f"/proc/{found}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(found, number)


FAULTS: dict[str, Callable[[Path], None]] = {
    "shuffle files deleted": delete_shuffle_files,
    "executor killed": lambda folder: signal_executor(signal.SIGKILL),
    # As Spark does to an executor whose host goes (spark.decommission.enabled).
    "executor decommissioned": lambda folder: signal_executor(signal.SIGPWR),
    "worker killed": lambda folder: os.kill(os.getpid(), signal.SIGKILL),
}


def reduced(frame: DataFrame, fault: str, folder: Path, *, barrier: bool) -> DataFrame:
    """Return the same rows, in which the fault happens."""

    def number_of_attempt(slot: int) -> int:
        number = 0
        while True:
            try:
                os.close(os.open(folder / f"attempt-{slot}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                number += 1
            else:
                return number

    def in_reduce_stage(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        slot = context.partitionId()
        attempt = number_of_attempt(slot)
        rows = list(arrow_batches)
        if (slot, attempt) == (1, 0):
            FAULTS[fault](folder)
        if (slot, attempt) == (0, 0):
            end_s = time.monotonic() + SECOND_ATTEMPT_S
            while not (folder / "attempt-0-1").exists() and time.monotonic() < end_s:
                time.sleep(0.02)  # between two looks
        yield from rows

    return frame.mapInArrow(in_reduce_stage, frame.schema, barrier=barrier)


def write_batch(spark: SparkSession, servers: str, topic: str, fault: str, folder: Path, *, barrier: bool) -> None:
    rows = numbers(spark, ROWS, MAPS).repartition(SLOTS, "value")
    writer = reduced(rows, fault, folder, barrier=barrier).write.mode("append")
    pykafka(writer, servers, topic).options(**EXACTLY_ONCE, txnAppId=topic, txnVersion="0").save()


def write_stream(spark: SparkSession, servers: str, topic: str, fault: str, folder: Path) -> None:
    incoming = folder / "incoming"
    if not incoming.exists():
        numbers(spark, ROWS, MAPS).write.parquet(str(incoming))
    rows = spark.readStream.schema("value STRING").parquet(str(incoming)).repartition(SLOTS, "value")
    writer = reduced(rows, fault, folder, barrier=False).writeStream.trigger(availableNow=True)
    writer = pykafka(writer, servers, topic).options(**EXACTLY_ONCE, checkpointLocation=str(folder / "checkpoint"))
    writer.start().awaitTermination()


def stage_again(servers: str, topic: str, fault: str, place: str, how: str, *conf: str) -> dict[str, object]:
    """ROWS rows are shuffled, and the tasks of the reduce stage write them exactly-once, in SLOTS slots. The fault is
    one of `FAULTS`. It happens once, in the first attempt of slot 1, after its rows have arrived. The first attempt of
    slot 0 goes on when Spark has begun a second one, if it does. If the write fails, the same version is written again,
    or the stream started again. `how`: batch, stream or barrier. The errors, and how many attempts each slot had."""
    folder, errors = Path(place), []
    # Executors of local-cluster have the driver's environment only where it is given to them.
    environment = f"spark.executorEnv.PYTHONPATH={os.environ.get('PYTHONPATH', '')}"
    spark = session("local", f"spark.local.dir={folder / 'local'}", environment, *conf)
    kafka_sink.register(spark)
    for _ in range(MOST_RUNS):
        try:
            if how == "stream":
                write_stream(spark, servers, topic, fault, folder)
            else:
                write_batch(spark, servers, topic, fault, folder, barrier=how == "barrier")
        except (PySparkException, Py4JJavaError) as failure:  # Spark's own error of a job is one of Py4J's
            error = kafka_sink.error_of(failure)
            errors.append(type(error).__name__ if error else str(failure)[:MOST_OF_AN_ERROR])
        else:
            break
    attempts = [len(list(folder.glob(f"attempt-{slot}-*"))) for slot in range(SLOTS)]
    return {"errors": errors, "attempts": attempts}


# --- a schema registry that is down -----------------------------------------------------------------------------------


def registry_outage(servers: str, orders: str, copy: str, folder: str) -> dict[str, Any]:
    """A stream of records with ids of schemas that it has not seen, while the registry is down: what it asked for, how
    many micro-batches it had, its error, and what it wrote."""
    spark, of = session("local[1, 4]"), TheirProducer({"bootstrap.servers": servers})
    records = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers)
    rows = records.option("subscribe", orders).option("startingOffsets", "earliest").load()
    schema = '{"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"%s}]}'
    found: dict[str, Any] = {}
    with small_registry() as registry:
        for default in ("", ', "default": 1', ', "default": 2'):
            registry.add(f"{orders}-value", schema % default)
        # The client asks once, so that each request is an attempt of a task.
        conf = {"url": registry.url, "max.retries": "0"}
        order = deserialized(rows, "value", topic=orders, form="avro", registry=conf, version=1)
        value = rows.select(order.alias("o")).selectExpr("CAST(o.id AS STRING) AS value")

        def started() -> StreamingQuery:
            writer = pykafka(value.writeStream, servers, copy)
            query: StreamingQuery = (
                writer.option("checkpointLocation", folder).trigger(processingTime="0 seconds").start()
            )
            return query

        def asked(schema_id: int) -> int:
            return sum(path == f"/schemas/ids/{schema_id}" for _, path in registry.asked)

        def written(number: int, schema_id: int) -> None:
            send(of, orders, [b"\0" + schema_id.to_bytes(4, "big") + bytes([2 * number])])

        def copied(number: int, schema_id: int) -> None:
            written(number, schema_id)
            wait_until(
                lambda: not query.isActive or end_offset(servers, copy) > number, DEADLINE_S, f"{number} is copied"
            )

        query = started()
        for number in range(10):
            copied(number, 1)
        found["asked"] = [asked(1)]
        registry.is_open = False
        copied(10, 1)
        found["asked"].append(asked(1))
        registry.is_open, registry.shut_for = True, 2
        copied(11, 2)
        found["asked"].append(asked(2))
        registry.is_open = False
        written(12, 3)
        try:
            query.awaitTermination(DEADLINE_S)
        except PySparkException as error:
            cause = kafka_sink.error_of(error)
            found["error"] = [type(cause).__name__, str(cause)]
        found["asked"].append(asked(3))
        found["micro-batches"] = query.recentProgress[-1]["batchId"]
        registry.is_open = True
        query = started()
        copied(12, 3)
        query.stop()
        found["asked"].append(asked(3))
    return found


def main(name: str, *arguments: str) -> None:
    told: Any = globals()[name](*arguments)
    if spark := SparkSession.getActiveSession():
        spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
