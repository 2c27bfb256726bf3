"""Metrics as Prometheus and OpenTelemetry's SDK read them, Grafana's dashboard, who hears of open transactions."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import apis
from kafka_sink.errors import ConfigError
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.monitoring import transactions
from kafka_sink.monitoring.micro_batch import MOST_NAMED, OTHER, BadRows, MicroBatch, Read, ReadTotals, Totals, Written
from kafka_sink.monitoring.opentelemetry import OpenTelemetry
from kafka_sink.monitoring.prometheus import Prometheus
from kafka_sink.monitoring.transactions import OpenOfSink, OpenTransactions, TransactionWatch
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients

A_MICRO_BATCH = MicroBatch(
    query="orders", batch_id=3, input_row_count=40, duration_ms=1_500, write_ms=1_000, ended_s=1_700_000_000.0,
    written=Written(
        {"t": Totals(20, 2, 500, 7), "u": Totals(10, 1, 100)},
        {BadRows("dropped", "KeyNull"): 3, BadRows("dead_lettered", "TopicNull"): 2},
        throttled_ms=250,
    ),
    read=Read({"in": ReadTotals(40, 900, 6)}), lag={"0": 5_000}, broken_logs={"0": 2},
    source_metrics={"0": {"avgOffsetsBehindLatest": "2500.5", "maxOffsetsBehindLatest": "5000"}},
)  # fmt: skip


DASHBOARD = Path(__file__).resolve().parents[3] / "conf" / "grafana.json"
OPTIONS = {"kafka.bootstrap.servers": "localhost:9092"}


def samples(text: str) -> dict[tuple[str, str, str], float]:
    def named(labels: dict[str, str]) -> str:
        return "/".join(value for name, value in sorted(labels.items()) if name != "query")

    return {
        (sample.name, sample.labels.get("query", ""), named(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_file_has_what_was_counted_so_far(tmp_path: Path) -> None:
    file = tmp_path / "pykafka.prom"
    watcher = Prometheus(textfile=file)
    watcher(A_MICRO_BATCH)
    watcher(
        replace(
            A_MICRO_BATCH, batch_id=4, written=Written({"t": Totals(5, 1, 50)}, throttled_ms=None),
            read=Read({"in": ReadTotals(5, 100)}), lag={"0": 40}, ended_s=1_700_000_060.0,
        )
    )  # fmt: skip
    watcher.idle("orders", 1_700_000_090.0)
    assert samples(file.read_text()) == {
        ("pykafka_rows_total", "orders", "t"): 25, ("pykafka_rows_total", "orders", "u"): 10,
        ("pykafka_bytes_total", "orders", "t"): 550, ("pykafka_bytes_total", "orders", "u"): 100,
        ("pykafka_record_batches_total", "orders", "t"): 3, ("pykafka_record_batches_total", "orders", "u"): 1,
        ("pykafka_retried_rows_total", "orders", "t"): 7, ("pykafka_retried_rows_total", "orders", "u"): 0,
        ("pykafka_bad_rows_total", "orders", "dropped/KeyNull"): 3,
        ("pykafka_bad_rows_total", "orders", "dead_lettered/TopicNull"): 2,
        ("pykafka_throttled_seconds_total", "orders", ""): 0.25, ("pykafka_read_rows_total", "orders", "in"): 45,
        ("pykafka_read_bytes_total", "orders", "in"): 1_000, ("pykafka_read_offsets_left_out_total", "orders", "in"): 6,
        ("pykafka_source_lag_records", "orders", "0"): 40, ("pykafka_source_broken_logs_total", "orders", "0"): 4,
        ("pykafka_source_offsets_behind_latest", "orders", "avgOffsetsBehindLatest/0"): 2_500.5,
        ("pykafka_source_offsets_behind_latest", "orders", "maxOffsetsBehindLatest/0"): 5_000,
        ("pykafka_query_seen_timestamp_seconds", "orders", ""): 1_700_000_090,
        ("pykafka_input_rows_total", "orders", ""): 80, ("pykafka_micro_batches_total", "orders", ""): 2,
        ("pykafka_micro_batch_seconds_total", "orders", ""): 3, ("pykafka_write_seconds_total", "orders", ""): 2,
        ("pykafka_last_micro_batch", "orders", ""): 4,
        ("pykafka_last_micro_batch_timestamp_seconds", "orders", ""): 1_700_000_060,
    }  # fmt: skip


def test_a_sink_has_series_while_it_has_a_transaction_open(tmp_path: Path) -> None:
    file, reader = tmp_path / "pykafka.prom", InMemoryMetricReader()
    for watcher in (Prometheus(textfile=file), OpenTelemetry(MeterProvider([reader]).get_meter("test"))):
        watcher.open_transactions(OpenTransactions("p", {"p-a": OpenOfSink(2, 7.5), "p-b": OpenOfSink(1, 0.5)}, 100.0))
        watcher.open_transactions(OpenTransactions("q", {"q-a": OpenOfSink(1, 1.0)}, 110.0))
        watcher.open_transactions(OpenTransactions("p", {"p-a": OpenOfSink(1, 22.5)}, 115.0))
    assert samples(file.read_text()) == {
        ("pykafka_open_transactions", "", "p-a"): 1, ("pykafka_open_transactions", "", "q-a"): 1,
        ("pykafka_oldest_open_transaction_age_seconds", "", "p-a"): 22.5,
        ("pykafka_oldest_open_transaction_age_seconds", "", "q-a"): 1,
        ("pykafka_transactions_seen_timestamp_seconds", "", "p"): 115,
        ("pykafka_transactions_seen_timestamp_seconds", "", "q"): 110,
    }  # fmt: skip
    assert {key: point.value for key, point in points_of(reader).items()} == {
        ("pykafka.open_transactions", "p-a"): 1, ("pykafka.open_transactions", "q-a"): 1,
        ("pykafka.open_transactions.oldest_age", "p-a"): 22.5, ("pykafka.open_transactions.oldest_age", "q-a"): 1,
        ("pykafka.transactions.seen", "p"): 115, ("pykafka.transactions.seen", "q"): 110,
    }  # fmt: skip


def test_a_stream_that_names_ever_new_topics_has_a_bounded_number_of_series() -> None:
    registry = CollectorRegistry()
    watcher = Prometheus(registry=registry)
    for number in range(2 * MOST_NAMED):
        watcher(replace(A_MICRO_BATCH, written=Written({f"t{number}": Totals(1, 1, 1)}), read=Read()))
    of_rows = next(family for family in registry.collect() if family.name == "pykafka_rows")
    rows = {each.labels["topic"]: each.value for each in of_rows.samples if each.name.endswith("_total")}
    assert len(rows) == MOST_NAMED + 1
    assert rows[OTHER] == MOST_NAMED


def test_names_forge_no_series_and_move_no_cursor(tmp_path: Path) -> None:
    file = tmp_path / "pykafka.prom"
    watcher = Prometheus(textfile=file)
    hostile = 'a"} 1\npykafka_rows_total{query="forged"} 9\n\\\r\x1b[2J\u202e\ud800' + "x" * 20_000
    totals = Written({hostile: Totals(5, 1, 50)}), Read({hostile: ReadTotals(5, 100)})
    watcher(replace(A_MICRO_BATCH, query=hostile, written=totals[0], read=totals[1]))
    watcher.idle(hostile, 1.0)
    text = file.read_text()
    assert all(line.isprintable() for line in text.split("\n")) and len(text) < 100_000
    (query,) = {query for _, query, _ in samples(text)}
    assert samples(text)["pykafka_rows_total", query, query] == 5
    assert query.startswith('a"} 1\\npykafka_rows') and r"\x1b[2J\u202e\ud800" in query


@contextmanager
def gateway() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    pushed: list[tuple[str, str]] = []

    class Gateway(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            pushed.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Gateway) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}", pushed
        server.shutdown()
        thread.join()


def test_a_gateway_is_pushed_to() -> None:
    with gateway() as (address, pushed):
        Prometheus(pushgateway=address, job="orders")(A_MICRO_BATCH)
    ((path, body),) = pushed
    assert path == "/metrics/job/orders"
    assert samples(body)["pykafka_rows_total", "orders", "t"] == 20


def test_a_gateway_that_is_away_is_an_oserror_and_the_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "pykafka.prom"
    with pytest.raises(OSError):
        Prometheus(textfile=file, pushgateway="127.0.0.1:1")(A_MICRO_BATCH)
    assert samples(file.read_text())["pykafka_micro_batches_total", "orders", ""] == 1


def test_the_dashboard_is_one_to_grafana_and_shows_metrics_that_exist() -> None:
    register_default_plugins()
    dashboard = Dashboard.from_json(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    registry = CollectorRegistry()
    watcher = Prometheus(registry=registry)
    watcher(A_MICRO_BATCH)
    watcher.open_transactions(OpenTransactions("p", {"p-a": OpenOfSink(2, 7.5)}, 100.0))
    exported = {sample.name for family in registry.collect() for sample in family.samples}
    shown = set[str]()
    for panel in dashboard.panels or ():
        assert panel.title and panel.targets
        for target in panel.targets:
            shown |= set(re.findall(r"pykafka_\w+", target.expr))
    assert shown <= exported
    places = [(panel.grid_pos.x, panel.grid_pos.y) for panel in dashboard.panels or () if panel.grid_pos]
    assert len(set(places)) == len(places) == len(dashboard.panels or ())
    assert {name for name in exported if not name.endswith("_created")} <= shown


def points_of(reader: InMemoryMetricReader) -> dict[tuple[str, str], Any]:
    found: Any = reader.get_metrics_data()
    return {
        (metric.name, "/".join(str(text) for name, text in sorted(point.attributes.items()) if name != "query")): point
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_counters_add_up_and_durations_are_a_histogram() -> None:
    reader = InMemoryMetricReader()
    watcher = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    watcher(A_MICRO_BATCH)
    watcher(A_MICRO_BATCH)
    watcher.idle("orders", 1_700_000_090.0)
    points = points_of(reader)
    assert all(point.attributes["query"] == "orders" for point in points.values())
    counted = {key: point.value for key, point in points.items() if hasattr(point, "value")}
    assert counted == {
        ("pykafka.rows", "t"): 40, ("pykafka.rows", "u"): 20, ("pykafka.bytes", "t"): 1_000,
        ("pykafka.bytes", "u"): 200, ("pykafka.record_batches", "t"): 4, ("pykafka.record_batches", "u"): 2,
        ("pykafka.retried_rows", "t"): 14, ("pykafka.retried_rows", "u"): 0, ("pykafka.bad_rows", "dropped/KeyNull"): 6,
        ("pykafka.bad_rows", "dead_lettered/TopicNull"): 4,
        ("pykafka.throttled", ""): 0.5, ("pykafka.read.rows", "in"): 80, ("pykafka.read.bytes", "in"): 1_800,
        ("pykafka.read.offsets_left_out", "in"): 12, ("pykafka.source.lag", "0"): 5_000,
        ("pykafka.source.broken_logs", "0"): 4, ("pykafka.query.seen", ""): 1_700_000_090,
        ("pykafka.input_rows", ""): 80,
        ("pykafka.source.offsets_behind_latest", "avgOffsetsBehindLatest/0"): 2_500.5,
        ("pykafka.source.offsets_behind_latest", "maxOffsetsBehindLatest/0"): 5_000,
    }  # fmt: skip
    duration = points["pykafka.micro_batch.duration", ""]
    assert (duration.count, duration.sum) == (2, 3.0)
    assert points["pykafka.write.duration", ""].sum == 2.0


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    made = ScriptedKafka(brokers=[1])
    connect_clients(ScriptedNetwork(made), monkeypatch)
    monkeypatch.setattr(transactions, "wall_clock_ms", lambda: 10_000)
    return made


def has_open(kafka: ScriptedKafka, *looks: Mapping[str, int] | int) -> None:
    """What is open at each look, by transactional id with the time of its begin; the last again and again. Of one that
    is an error code, nothing is answered but that."""
    began_ms: dict[str, int] = {}

    def listed(look: Mapping[str, int]) -> Callable[[apis.ListTransactionsRequest], apis.ListTransactionsResponse]:
        def answer(request: apis.ListTransactionsRequest) -> apis.ListTransactionsResponse:
            began_ms.update(look)
            return apis.ListTransactionsResponse(
                0, 0, tuple(apis.ListedTransaction(name, 7, "Ongoing") for name in look)
            )

        return answer

    def described(request: apis.DescribeTransactionsRequest) -> apis.DescribeTransactionsResponse:
        names = request.transactional_ids
        return apis.DescribeTransactionsResponse(
            0,
            tuple(apis.TransactionDescription(name, 0, "Ongoing", 60_000, began_ms[name], 7, 0, ()) for name in names),
        )

    answers = [look if isinstance(look, int) else listed(look) for look in looks]
    kafka.script(apis.ListTransactionsRequest, *answers[:-1])
    kafka.always(apis.ListTransactionsRequest, answers[-1])
    kafka.always(apis.DescribeTransactionsRequest, described)


def prefixes(kafka: ScriptedKafka) -> list[str]:
    return [request.transactional_id_prefix for _, request in kafka.asked(apis.ListTransactionsRequest)]


class Told:
    def __init__(self, until: int, *, raises: bool = False) -> None:
        self.found: list[OpenTransactions] = []
        self.enough, self._until, self._raises = Event(), until, raises

    def open_transactions(self, found: OpenTransactions) -> None:
        self.found.append(found)
        if len(self.found) == self._until:
            self.enough.set()
        if self._raises:
            raise ConnectionRefusedError("nobody there")


def test_transactions_are_counted_by_sink_with_the_oldest_and_most_are_named(kafka: ScriptedKafka) -> None:
    has_open(kafka, {"a.0": 9_000, "a.1": 4_000, "a.driver": 9_500, "b.0": 12_000, "another program's": 0})
    found = TransactionWatch(OPTIONS).look()
    assert found == OpenTransactions("pykafka", {"a": OpenOfSink(3, 6.0), "b": OpenOfSink(1, 0.0)}, 10.0)
    assert prefixes(kafka) == ["pykafka"]
    has_open(kafka, {f"s{number:03}.0": 1_000 * (number % 10) for number in range(MOST_NAMED + 20)})
    found = TransactionWatch(OPTIONS).look().by_sink
    assert len(found) == MOST_NAMED + 1
    assert found[OTHER] == OpenOfSink(20, 10.0)


def test_a_name_that_brokers_say_is_told_in_one_line(kafka: ScriptedKafka) -> None:
    has_open(kafka, {f"pykafka-\x1b[2J\r\nERROR{'x' * 20_000}.0": 2_000})
    (sink,) = TransactionWatch(OPTIONS).look().by_sink
    assert sink.startswith(r"pykafka-\x1b[2J\r\nERRORx") and len(sink) == 1_000


def test_sinks_are_those_of_the_writes_own_prefix(kafka: ScriptedKafka) -> None:
    has_open(kafka, {})
    assert TransactionWatch({**OPTIONS, "transactionalIdPrefix": "orders"}).look().prefix == "orders"
    assert prefixes(kafka) == ["orders"]
    with pytest.raises(ConfigError):
        TransactionWatch({"kafka.bootstrap.server": "localhost:9092"})


def test_it_asks_until_stopped_and_one_away_keeps_nobody(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    has_open(kafka, {"a.0": 9_000}, {})
    away, told = Told(2, raises=True), Told(2)
    with TransactionWatch(OPTIONS, away, told, every_s=0.001):
        assert told.enough.wait(60)
        assert [each.name for each in threading.enumerate()].count("pykafka-transaction-watch") == 1
    assert "pykafka-transaction-watch" not in [each.name for each in threading.enumerate()]
    assert [each.by_sink for each in told.found[:2]] == [{"a": OpenOfSink(1, 1.0)}, {}]
    assert "Told was not notified of open transactions: nobody there" in caplog.text


def test_while_the_cluster_does_not_answer_nothing_is_told_and_that_is_logged_once(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    away = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    has_open(kafka, away, away, {"a.0": 9_000})
    told = Told(1)
    with TransactionWatch(OPTIONS, told, every_s=0.001):
        assert told.enough.wait(60)
    assert len([record for record in caplog.records if "are unknown until" in record.getMessage()]) == 1
    assert told.found[0].by_sink == {"a": OpenOfSink(1, 1.0)}
