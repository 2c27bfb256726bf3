from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import job_support
from kafka_sink.options.config import sink_config

CONF = Path(__file__).resolve().parents[3] / "conf"


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


def written(folder: Path, text: str) -> str:
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
    preset = written(tmp_path, "kafka.bootstrap.servers = a:1\ntopic = of-the-preset\nkafka.linger.ms = 5")
    options = job_support.sink_options(parse("--topic", "t", "--bootstrap-servers", "b:2", "--preset", preset))
    assert options == {"kafka.bootstrap.servers": "b:2", "topic": "t", "kafka.linger.ms": "5"}
    assert job_support.sink_options(parse("--topic", "t", "--preset", preset))["kafka.bootstrap.servers"] == "a:1"
    preset = written(tmp_path, "kafka.linger.ms = 5\ncreateTopics = false")
    args = parse("--topic", "t", "--preset", preset, "--option", "kafka.linger.ms=7", "--create-topics")
    assert job_support.sink_options(args) == {"kafka.linger.ms": "7", "createtopics": "true", "topic": "t"}
    asked = parse("--topic", "t", "--create-topics", "partitions=12,replicas=3", "--preset", preset)
    assert job_support.sink_options(asked)["createtopics"] == "partitions=12,replicas=3"


@pytest.mark.parametrize("name", ["topic", "Topic"])
def test_an_expression_for_the_topic_wins_over_the_topic_of_the_preset(tmp_path: Path, name: str) -> None:
    preset = written(tmp_path, f"{name} = of-the-preset\nkafka.linger.ms = 5")
    assert job_support.sink_options(parse("--topic", "(region)", "--preset", preset)) == {"kafka.linger.ms": "5"}


def test_columns_are_those_that_were_asked_for() -> None:
    columns = ("--key", "k + 1", "--value", "v", "--headers", "h", "--timestamp", "at", "--partition", "p")
    assert selected("--topic", "t", *columns) == (
        "k + 1 AS key", "v AS value", "h AS headers", "at AS timestamp", "CAST(p AS INT) AS partition",
    )  # fmt: skip


@pytest.mark.parametrize("topic", ["concat('orders-', region)", "(region)", "`region`", "'a b'"])
def test_what_cannot_be_a_topics_name_is_an_expression_for_each_rows_topic(topic: str) -> None:
    assert selected("--topic", topic)[-1] == f"{topic} AS topic"
    assert "topic" not in job_support.sink_options(parse("--topic", topic))


def test_the_number_of_partitions_is_asked_for_once_and_only_if_it_is_wanted() -> None:
    counts = iter([12])
    args = parse("--topic", "t", "--partition", "pmod(a, {partitions}) % {partitions}", "--key", "'{partitions}'")
    assert job_support.kafka_columns(Frame(), args, lambda: next(counts)) == (  # type: ignore[arg-type]
        "'12' AS key", "to_json(struct(*)) AS value", "CAST(pmod(a, 12) % 12 AS INT) AS partition",
    )  # fmt: skip
