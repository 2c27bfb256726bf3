"""The jobs' command lines, what they hand to source and sink, and what they print."""

import argparse
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import export_to_kafka
import job_support
import read_back
import stream_support
import transform_kafka
from job_support import sink_options
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.monitoring.micro_batch import BadRows, Read, Run, Totals, Written
from kafka_sink.options.config import sink_config

CONF = Path(__file__).resolve().parents[3] / "conf"
READ_BACK = ("--bootstrap-servers", "localhost:9092", "--topic", "t")
RECEIPTS = {
    TopicPartition("t", 10): PartitionOffsets("t", 10, 5, None, None, 1, 99),
    TopicPartition("t", 2): PartitionOffsets("t", 2, 12_345, 0, 12_400, 3, 1_250_000),
}
OF_A_TRANSFORMATION = ["--subscribe", "in", "--topic", "out", "--checkpoint", "c", "--available-now"]


class Frame:
    """A DataFrame that remembers what was selected from it."""

    def selectExpr(self, *expressions: str) -> tuple[str, ...]:
        return expressions


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    job_support.add_columns(parser)
    job_support.add_sink(parser)
    return parser.parse_args(arguments)


def selected(*arguments: str, partitions: int | None = None) -> Any:
    """The expressions; `partitions` None: nobody may ask."""

    def count() -> int:
        assert partitions is not None
        return partitions

    return job_support.kafka_columns(Frame(), parse(*arguments), count)  # type: ignore[arg-type]


def preset_of(folder: Path, text: str) -> str:
    file = folder / "some.conf"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("preset", sorted(CONF.glob("*.conf")), ids=lambda path: path.name)
def test_the_sink_takes_every_preset_of_this_repository(preset: Path) -> None:
    args = parse("--topic", "t", "--bootstrap-servers", "localhost:9092", "--preset", str(preset))
    assert args.preset
    if "kafka.sasl.mechanism" in args.preset:
        args.preset["kafka.sasl.password"] = "in no file of this repository"
    config = sink_config(job_support.sink_options(args))
    assert config != sink_config({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})


def test_the_command_line_wins_over_the_preset(tmp_path: Path) -> None:
    preset = preset_of(tmp_path, "kafka.bootstrap.servers = a:1\ntopic = of-the-preset\nkafka.linger.ms = 5")
    options = job_support.sink_options(parse("--topic", "t", "--bootstrap-servers", "b:2", "--preset", preset))
    assert options == {"kafka.bootstrap.servers": "b:2", "topic": "t", "kafka.linger.ms": "5"}
    assert job_support.sink_options(parse("--topic", "t", "--preset", preset))["kafka.bootstrap.servers"] == "a:1"
    preset = preset_of(tmp_path, "kafka.linger.ms = 5\ncreateTopics = false")
    args = parse("--topic", "t", "--preset", preset, "--option", "kafka.linger.ms=7", "--create-topics")
    assert job_support.sink_options(args) == {"kafka.linger.ms": "7", "createtopics": "true", "topic": "t"}
    asked = parse("--topic", "t", "--create-topics", "partitions=12,replicas=3", "--preset", preset)
    assert job_support.sink_options(asked)["createtopics"] == "partitions=12,replicas=3"


@pytest.mark.parametrize("topic", ["concat('orders-', region)", "(region)", "`region`", "'a b'"])
def test_what_cannot_be_a_topics_name_is_an_expression_for_each_rows_topic(tmp_path: Path, topic: str) -> None:
    """It wins over the topic of the preset."""
    assert selected("--topic", topic)[-1] == f"{topic} AS topic"
    assert "topic" not in job_support.sink_options(parse("--topic", topic))
    for name in ("topic", "Topic"):
        preset = preset_of(tmp_path, f"{name} = of-the-preset\nkafka.linger.ms = 5")
        assert job_support.sink_options(parse("--topic", topic, "--preset", preset)) == {"kafka.linger.ms": "5"}


def test_columns_are_those_that_were_asked_for() -> None:
    columns = ("--key", "k + 1", "--value", "v", "--headers", "h", "--timestamp", "at", "--partition", "p")
    assert selected("--topic", "t", *columns) == (
        "k + 1 AS key", "v AS value", "h AS headers", "at AS timestamp", "CAST(p AS INT) AS partition",
    )  # fmt: skip


def test_the_number_of_partitions_is_asked_for_once_and_only_if_it_is_wanted() -> None:
    counts = iter([12])
    args = parse("--topic", "t", "--partition", "pmod(a, {partitions}) % {partitions}", "--key", "'{partitions}'")
    assert job_support.kafka_columns(Frame(), args, lambda: next(counts)) == (  # type: ignore[arg-type]
        "'12' AS key", "to_json(struct(*)) AS value", "CAST(pmod(a, 12) % 12 AS INT) AS partition",
    )  # fmt: skip


@pytest.mark.parametrize(("job", "arguments", "message"), [
    (export_to_kafka, [], "one of --table, --query, --source and --format is needed"),
    (export_to_kafka, ["--table", "t", "--query", "q"], "not allowed with argument"),
    (export_to_kafka, ["--table", "t", "--format", "csv"], "go with --source, not with --table"),
    (export_to_kafka, ["--query", "q", "--schema", "a INT"], "go with --source, not with --table"),
    (export_to_kafka, ["--query", "q", "--source-option", "a=b"], "go with --source, not with --table"),
    (read_back, [*READ_BACK, "--from", "end"], "is not committed, beginning or PARTITION:OFFSET"),
    (read_back, [*READ_BACK, "--from", "1:2:3"], "is not committed, beginning or PARTITION:OFFSET"),
    (read_back, [*READ_BACK, "--from", "committed"], "need --group"),
    (read_back, [*READ_BACK, "--members", "2"], "need --group"), (read_back, [*READ_BACK, "--follow"], "need --group"),
    (read_back, [*READ_BACK, "--group", "g", "--members", "0"], "at least one member"),
    (read_back, [*READ_BACK, "--group", "g", "--assignment", "sticky"], "cooperative-sticky"),
])  # fmt: skip
def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str], job: Any, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as end:
        job.parse([*arguments, *([] if job is read_back else ["--topic", "t"])])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_the_summary_has_a_line_a_partition_in_order_and_a_total() -> None:
    assert export_to_kafka.summary(RECEIPTS) == [
        "topic  partition  records     offsets   bytes",
        "t              2   12,345  0 - 12,400  1.2 MB",
        "t             10        5     unknown    99 B",
        "total          2   12,350              1.3 MB",
    ]
    assert export_to_kafka.summary({})[-1].split() == ["total", "0", "0", "0", "B"]


def source(*arguments: str) -> dict[str, str]:
    args = transform_kafka.parse([*OF_A_TRANSFORMATION, *arguments])
    return transform_kafka.source_options(args, sink_options(args))


def test_what_the_source_gets_unless_told_otherwise() -> None:
    args = transform_kafka.parse(OF_A_TRANSFORMATION)
    assert (args.key, args.value, args.where, args.headers, args.timestamp) == ("key", "value", None, None, None)
    told = ["--bootstrap-servers", "b:9092", "--option", "kafka.security.protocol=SSL", "--option", "kafka.acks=all"]
    told += ["--option", "kafka.client.rack=r", "--option", "kafka.request.timeout.ms=5000"]
    assert source(*told) == {
        "kafka.bootstrap.servers": "b:9092", "kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "5000",
        "subscribe": "in",
    }  # fmt: skip


def test_arguments_win_over_the_sources_options_and_those_over_the_sinks() -> None:
    told = ["--bootstrap-servers", "new:9092", "--source-option", "kafka.Bootstrap.Servers=old:9092"]
    assert source(*told)["kafka.bootstrap.servers"] == "old:9092"
    told = ["--starting-offsets", "earliest", "--source-option", "startingOffsets=latest", "--headers", "headers"]
    assert source(*told) == {"subscribe": "in", "startingoffsets": "earliest", "includeheaders": "true"}


def test_what_writes_exactly_once_reads_what_is_committed() -> None:
    own_level = ["--source-option", "kafka.isolation.level=read_uncommitted"]
    for told, level in (
        ([], None), (["--option", "deliveryGuarantee=at-least-once"], None),
        (["--option", "deliveryGuarantee=Exactly-Once"], "read_committed"),
        (["--option", "deliveryGuarantee=exactly-once", *own_level], "read_uncommitted"),
    ):  # fmt: skip
        assert source(*told).get("kafka.isolation.level") == level


def test_it_ends_when_all_is_read_and_every_member_has_its_share() -> None:
    shared = read_back.Group("t", [0, 1, 2], {0: 5, 1: 6}, lambda placed: None, members=2, follow=False)
    shared.rebalanced(0, "gets", [0, 1, 2], {0, 1, 2})
    for partition in (0, 1, 2):
        shared.read_to_end(partition)
    assert not shared.ended  # the other member has not joined
    shared.rebalanced(1, "gets", [], set())
    assert not shared.ended  # it has, and is to get some: a cooperative rebalance comes in two steps
    shared.rebalanced(0, "gives back", [2], {0, 1})
    assert not shared.ended
    shared.rebalanced(1, "gets", [2], {2})
    assert shared.ended


class Query:
    """A streaming query as `follow` sees it: some progress at each look; at the last look no more will begin, and
    what was running then shows when its end has been waited for."""

    def __init__(self, looks: list[list[Any]], running: list[Any]) -> None:
        self.looks = looks
        self.running = running
        self.recentProgress: list[Any] = []

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        if timeout is None:
            self.recentProgress += self.running
            return None
        self.recentProgress = self.looks.pop(0)
        return not self.looks

    @property
    def isActive(self) -> bool:
        return bool(self.looks)


def progress(batch_id: int, rows: int, duration_ms: int = 500) -> Any:
    durations = {"triggerExecution": duration_ms, "addBatch": duration_ms}
    of_query = {"id": "q", "runId": "r", "name": None, "sources": []}
    return SimpleNamespace(batchId=batch_id, numInputRows=rows, durationMs=durations, **of_query)


def all_but_one(*rows: int) -> Any:
    """Leaders have all rows of a micro-batch but a bad one."""

    def written_in(run: Run) -> Written:
        return Written({"t": Totals(rows[run.batch_id] - 1, 1, 100_000)}, {BadRows("dropped", "KeyNull"): 1})

    return SimpleNamespace(written_in=written_in, read_in=lambda run: Read())


def test_every_micro_batch_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, last = progress(0, 2000), progress(1, 1000, 1000), progress(2, 10)
    waiting_for_files = progress(1, 0)
    looks = [[], [first, waiting_for_files], [first, waiting_for_files, second]]
    stream_support.follow(Query(looks, [last]), threading.Event(), all_but_one(2000, 1000, 10))  # type: ignore[arg-type]
    wrote = "(0.1 MB, 1 batches) by t in"
    assert capsys.readouterr().out.splitlines() == [
        f"micro-batch #0: 2,000 rows in, 1,999 acknowledged {wrote} 0.50 s, 3,998 rows/s; 1 bad rows dropped",
        f"micro-batch #1: 1,000 rows in, 999 acknowledged {wrote} 1.00 s, 999 rows/s; 1 bad rows dropped",
        f"micro-batch #2: 10 rows in, 9 acknowledged {wrote} 0.50 s, 18 rows/s; 1 bad rows dropped",
        "3,007 rows in 3 micro-batches, 2.00 s, 1,504 rows/s",
    ]


def test_a_held_query_is_not_followed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query([[]], [])
    terminate = threading.Event()
    terminate.set()
    last = progress(0, 7)
    monkeypatch.setattr(stream_support, "hold_between_micro_batches", lambda _: query.recentProgress.append(last))
    stream_support.follow(query, terminate, all_but_one(7))  # type: ignore[arg-type]
    assert "6 rows in 1 micro-batches" in capsys.readouterr().out
