"""The pure parts of `make bench-scale`: sockets, processes, requests, the model, and what is shown."""

from __future__ import annotations

import os
import socket
from collections import Counter

import pytest

from process_tree import ProcessStat
from request_log import count_requests
from scale_model import MB, Layout, Model
from scale_report import (
    Measured,
    Requests,
    Round,
    ratio,
)
from scale_sinks import BASELINE, SINKS, Sink
from spark_application import LOCAL_EXECUTOR, PLANNING, Executor, PythonMemory, Sample, application_of, python_memory
from tcp_sockets import all_sockets, connections, open_sockets

_, AT_LEAST_ONCE, EXACTLY = SINKS


def test_a_connection_of_this_process_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            accepted = [listener.accept()[0] for _ in range(2)]
            found = connections(all_sockets(), {port: 1}, open_sockets([os.getpid()]))
            for each in accepted:
                each.close()
    assert found == {(os.getpid(), 1): 2}


JAVA, PYTHON = "/usr/bin/java", "/opt/python"
DAEMON = (PYTHON, "-m", "counting_daemon", "pyspark.worker")


def tree(parents: dict[int, int]) -> list[ProcessStat]:
    return [ProcessStat(pid, parent, 1) for pid, parent in parents.items()]


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


def test_a_master_says_how_many_executors_and_cores() -> None:
    assert Layout.of("local[16]") == Layout("local[16]", executors=1, cores=16)
    cluster = Layout.of("local-cluster[4,8,512]")
    assert (cluster.executors, cluster.cores, cluster.executor_mib, cluster.slots) == (4, 8, 512, 32)
    for master in ("local", "local[*]", "local[2]x", "local-cluster[4,8]", "yarn"):
        with pytest.raises(ValueError, match="neither"):
            Layout.of(master)


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
