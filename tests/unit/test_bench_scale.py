"""The pure parts of `make bench-scale`: sockets, processes, requests, the model, and what is shown."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import replace

import pytest

from kafka_sink.options.config import EXACTLY_ONCE, sink_config
from open_connections import connections_of
from process_tree import ProcessStat
from request_log import count_requests
from scale_model import MB, SHARED_BYTES, WORKER_BYTES, Layout, Model
from scale_report import (
    Measured,
    Requests,
    Round,
    beside,
    ratio,
    speed_table,
)
from scale_sinks import BASELINE, CLIENT_ID, SINKS, Clients, Owner, Sink, options_of
from spark_application import LOCAL_EXECUTOR, PLANNING, Executor, PythonMemory, Sample, application_of, python_memory
from spark_peers import SameSettings

MIB = 1024 * 1024
_, AT_LEAST_ONCE, EXACTLY = SINKS


def test_a_connection_of_this_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            accepted = [listener.accept()[0] for _ in range(2)]
            found = connections_of([os.getpid()], {port})
            for each in accepted:
                each.close()
    assert found == {(os.getpid(), port): 2}


JAVA, PYTHON = "/usr/bin/java", "/opt/python"
DAEMON = (PYTHON, "-m", "counting_daemon", "pyspark.worker")
PLANNER = (PYTHON, "-m", "pyspark.daemon", "pyspark.sql.worker.write_into_data_source")


def tree(parents: dict[int, int]) -> list[ProcessStat]:
    return [ProcessStat(pid, parent, 1) for pid, parent in parents.items()]


def test_with_executors_of_their_own_the_driver_runs_no_task() -> None:
    backend = (JAVA, "org.apache.spark.executor.CoarseGrainedExecutorBackend", "--driver-url", "x", "--executor-id")
    processes = tree({1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 6: 5, 7: 4, 8: 2})
    commands = {
        1: (PYTHON, "app.py"), 2: (JAVA, "org.apache.spark.deploy.SparkSubmit"), 3: (*backend, "0"),
        4: (*backend, "1", "--cores", "4"), 5: DAEMON, 6: DAEMON, 7: DAEMON, 8: PLANNER,
    }  # fmt: skip
    found = application_of(processes, commands, {})
    assert found.executors == {"0": Executor(3, 5, (6,)), "1": Executor(4, 7, ())}
    assert found.planning == (8,)


def test_what_a_worker_has_started_is_the_executors_also_when_the_worker_has_ended() -> None:
    helper = (PYTHON, "-m", "helper")
    processes = tree({1: 0, 2: 1, 3: 2, 4: 3, 5: 3, 6: 4})
    # Of a worker that has ended, 7 is init's child now, and 8 was started by it, too, and has ended.
    commands = {1: (PYTHON, "app.py"), 2: (JAVA, "x"), 3: DAEMON, 4: DAEMON, 6: helper, 7: helper, 9: helper}
    groups = {1: 1, 2: 1, 3: 3, 4: 3, 5: 3, 6: 3, 7: 3, 8: 3, 9: 9}
    found = application_of(processes, commands, groups)
    assert found.executors == {LOCAL_EXECUTOR: Executor(2, 3, (4,), helpers=(6, 7))}
    assert found.executors[LOCAL_EXECUTOR].python == (3, 4, 6, 7)
    assert found.planning == ()


def test_what_processes_share_counts_once() -> None:
    def size(rss: int, clean: int, dirty: int) -> dict[str, int]:
        return {"Rss": rss, "Private_Clean": clean, "Private_Dirty": dirty}

    sizes = {3: size(50, 1, 9), 4: size(150, 10, 90), 5: size(190, 10, 110)}
    found = python_memory(Executor(2, 3, (4, 5, 6)), sizes)  # the last has ended
    assert found == PythonMemory(private=10 + 100 + 120, shared=70, of_a_worker=110)
    assert found.total == 300
    assert python_memory(Executor(2), {}) == PythonMemory(0, 0, 0)


def sample(nodes: list[int], of_executors: dict[int, int], of_planning: dict[int, int]) -> Sample:
    memory = PythonMemory(private=300 * MB, shared=60 * MB, of_a_worker=75 * MB)
    return Sample({"0": 4}, {"0": of_executors, PLANNING: of_planning}, {"0": memory}, {"0": 400 * MB}, nodes)


def test_requests_are_counted_by_api_for_one_client() -> None:
    def line(client_id: str, api: str) -> str:
        header = f'{{"requestApiKey":0,"correlationId":7,"clientId":"{client_id}","requestApiKeyName":"{api}"}}'
        return f'[2026-01-01] DEBUG Completed request:{{"isForwarded":false,"requestHeader":{header},"request":{{}}}}\n'

    log = line("bench-scale", "PRODUCE") * 2 + line("broker-1", "FETCH") + line("bench-scale", "END_TXN") + "WARN x\n"
    assert count_requests(log, "bench-scale") == Counter(PRODUCE=2, END_TXN=1)
    assert count_requests(log, "bench") == Counter()


def test_sinks_differ_in_name_and_write_with_the_same_settings() -> None:
    same = SameSettings(linger_ms=100, batch_bytes=MIB, buffer_bytes=64 * MIB)
    assert len({sink.name for sink in SINKS}) == len(SINKS)
    theirs, ours, exactly = (options_of(sink, same, "h:1") for sink in SINKS)
    assert theirs == ours == {name: value for name, value in exactly.items() if name != "deliveryGuarantee"}
    assert ours["kafka.client.id"] == CLIENT_ID
    config = sink_config(exactly)
    assert (config.delivery_guarantee, config.producer.client_id) == (EXACTLY_ONCE, CLIENT_ID)
    assert (config.producer.linger_ms, config.producer.buffer_memory) == (100, 64 * MIB)


def test_a_master_says_how_many_executors_and_cores() -> None:
    assert Layout.of("local[16]") == Layout("local[16]", executors=1, cores=16)
    cluster = Layout.of("local-cluster[4,8,512]")
    assert (cluster.executors, cluster.cores, cluster.executor_mib, cluster.slots) == (4, 8, 512, 32)
    for master in ("local", "local[*]", "local[2]x", "local-cluster[4,8]", "yarn"):
        with pytest.raises(ValueError, match="neither"):
            Layout.of(master)


@pytest.mark.parametrize(
    ("sink", "sockets", "planning", "ids"), [(BASELINE, 4, 0, 4), (AT_LEAST_ONCE, 32, 0, 32), (EXACTLY, 32, 2, 32)]
)
def test_sockets_follow_who_has_the_clients_and_ids_who_has_the_producers(
    sink: Sink, sockets: int, planning: int, ids: int
) -> None:
    """Without what stays of bootstrap: one socket a client at every broker, however many there are."""
    sink = replace(sink, clients=replace(sink.clients, bootstrap=0))
    for brokers in (1, 3):
        model = Model(sink, Layout("m", executors=4, cores=8), brokers, partitions=6)
        found = (model.sockets_a_broker, model.planning_sockets_a_broker, model.producer_ids)
        assert found == (sockets, planning, ids)


def test_the_model_of_a_layout() -> None:
    layout = Layout("m", executors=2, cores=3)
    ours, exactly, theirs = (Model(sink, layout, 3, 6) for sink in (AT_LEAST_ONCE, EXACTLY, BASELINE))
    assert (ours.python_bytes, theirs.python_bytes) == (SHARED_BYTES + 3 * WORKER_BYTES, 0)
    assert (ours.workers, theirs.workers) == (6, 0)
    assert (ours.markers, exactly.markers) == (0, 36)
    assert (ours.other_requests, exactly.other_requests) == (0, 5 * 6 + 9 * 3 + 4)
    # A task sends a request to each leader.
    produced = [Model(EXACTLY, layout, *cluster).produce_requests for cluster in ((3, 6), (3, 2), (1, 6))]
    assert produced == [18, 12, 6]
    # A bootstrap connection that stays is at one of the brokers.
    models = [Model(Sink("s", "s", Clients(Owner.WORKER, planning=2, bootstrap=1)), layout, n, 6) for n in (1, 3)]
    assert [model.sockets_a_broker for model in models] == [12, 8]
    assert models[0].planning_sockets_a_broker == 4


def measured(sink: Sink, *rounds: tuple[list[int], list[int], float]) -> Measured:
    """Of rounds with times of small and of large micro-batches and CPU seconds."""
    look = sample([1, 2, 3], {1: 6, 2: 4, 3: 5}, {1: 2, 3: 1})
    model = Model(sink, Layout("local[4]", 1, 4), 3, 6)
    made = [
        Round(small, large, [1_000_000] * len(large), cpu, look, look, producer_ids=4, markers=24.0)
        for small, large, cpu in rounds
    ]
    requests = Requests(opened=20, a_micro_batch={"PRODUCE": 11.5, "END_TXN": 5.0, "INIT": 1.0, "METADATA": 1.5})
    return Measured(model, made, requests)


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    """The machine was ten times as slow in the second round, for both."""
    ours = measured(AT_LEAST_ONCE, ([100], [100], 1.0), ([1_000], [1_000], 1.0), ([100], [100], 1.0))
    theirs = measured(BASELINE, ([400], [100], 1.0), ([500], [2_000], 1.0), ([50], [200], 1.0))
    assert ratio(ours, theirs, lambda found: found.latency_ms) == "2.00"
    assert ratio(ours, theirs, lambda found: found.rows_per_s) == "2.00"
    assert ratio(theirs, theirs, lambda found: found.rows_per_s) == ""
    assert ratio(ours, None, lambda found: found.rows_per_s) == ""


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_speeds_are_shown_beside_the_jvm_sinks() -> None:
    theirs = measured(BASELINE, ([100], [1_000], 3.0))
    ours = measured(AT_LEAST_ONCE, ([150], [500], 1.5))
    head, _, first, second = cells(speed_table([theirs, ours]))
    assert first[head.index("M rows/s")] == "1.00" and "" in first
    assert second[2:] == ["at-least-once", "2.00", "2.00 - 2.00", "2.00", "1.50", "0.50", "150", "1.50"]

    assert (beside(5.0, 16 / 3), beside(1_234.4, 0, digits=0)) == ("5 / 5.3", "1,234 / 0")
