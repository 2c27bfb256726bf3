from __future__ import annotations

import errno

import pytest

from kafka_sink.doctor import engine
from kafka_sink.doctor.first_aid import command, look_at_hosts
from kafka_sink.doctor.report import Report, Verdict, failed, ok
from kafka_sink.errors import BrokersUnreachable, TopicNotFound
from kafka_sink.options.config import SinkConfig, sink_config

CANARY = "canary-5e1b"
SCRAM = {
    "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "alice", "kafka.sasl.password": CANARY,
}  # fmt: skip


def config(**more: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", **more})


def unreachable() -> BrokersUnreachable:
    return BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=5, last_error="b:9092: Connection refused")


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What an examination would find."""
    verdicts: list[Verdict] = []
    monkeypatch.setattr(engine, "examine_hosts", lambda config: Report(tuple(verdicts)))
    return verdicts


def test_the_first_failure_is_in_the_error(examined: list[Verdict]) -> None:
    examined.append(Verdict("dns", "b:9092", ok("")))
    examined.append(Verdict("tcp", "b:9092", failed("nothing listens", "check the port")))
    error = unreachable()
    look_at_hosts(error, config().producer)
    assert (error.step, error.where, error.remedy) == ("tcp", "b:9092", "check the port")
    happened, data, advice = error.parts()
    assert happened.endswith("step 'tcp' of b:9092 fails: nothing listens.")
    assert advice.startswith("To fix it: check the port. All steps, ")
    assert advice.endswith("`pykafka check --bootstrap-servers b:9092`.")
    assert "Check kafka.bootstrap.servers, and" not in str(error)
    assert data == unreachable().parts().data


def test_brokers_that_are_back_leave_the_error_as_it_was(examined: list[Verdict]) -> None:
    examined.append(Verdict("dns", "b:9092", ok("")))
    error = unreachable()
    look_at_hosts(error, config().producer)
    assert str(error) == str(unreachable())


@pytest.mark.parametrize(
    "lack", [RuntimeError("can't start new thread"), OSError(errno.EMFILE, "files"), MemoryError()]
)
def test_a_look_that_cannot_be_had_leaves_the_error_as_it_was(monkeypatch: pytest.MonkeyPatch, lack: Exception) -> None:
    def examine(config: object) -> Report:
        raise lack

    monkeypatch.setattr(engine, "examine_hosts", examine)
    error = unreachable()
    look_at_hosts(error, config().producer)
    assert str(error) == str(unreachable())


def test_other_errors_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(engine, "examine_hosts")
    look_at_hosts(TopicNotFound(topic="t", waited_ms=1), config().producer)


def test_the_command_has_no_secret() -> None:
    assert command(config().producer) == "`pykafka check --bootstrap-servers b:9092`"
    said = command(config(**SCRAM).producer)
    assert said.startswith("`pykafka check --bootstrap-servers b:9092 --preset FILE`")
    assert CANARY not in said
