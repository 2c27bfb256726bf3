"""`pykafka read` on a real broker, as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from kafka_sink.__main__ import main
from kafka_sink.broker import LocalKafka


@pytest.fixture
def filled(kafka: LocalKafka, topic: Callable[..., str]) -> str:
    name = topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(2_000):
        producer.produce(name, key=b"k%d" % number, value=b"v%d" % number, partition=number % 2)
    producer.produce(name, value=b"\xff\x00", headers=[("h", None), ("h", b"1")], partition=0)
    assert producer.flush(60) == 0
    return name


def test_records_are_lines_of_json_in_order(kafka: LocalKafka, filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", filled]) == 0
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    assert captured.err == "2,001 records\n"
    for partition in (0, 1):
        of_partition = [line for line in lines if line["partition"] == partition and line["key"] is not None]
        assert [line["value"] for line in of_partition] == [f"v{number}" for number in range(partition, 2_000, 2)]
    (odd,) = [line for line in lines if line["key"] is None]
    assert (odd["value"], odd["headers"]) == ({"hex": "ff00"}, [["h", None], ["h", "1"]])


def test_the_number_of_records_is_compared(kafka: LocalKafka, filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["read", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", filled, "--quiet"]
    assert main([*command, "--expect-records", "2001"]) == 0
    assert main([*command, "--expect-records", "2000"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1] == "DIFFERENT: 2,001 records, 2,000 expected"


def test_a_limit_ends_it(kafka: LocalKafka, filled: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", filled, "--limit", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_no_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["read", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--option", "kafka.max.block.ms=500"]
    assert main(command) == 1
    assert "error: no broker of 127.0.0.1:1 answered within 0.5 s" in capsys.readouterr().err
