"""Two tenants in one Python worker of Spark: the tokens of one are never those of the other."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kafka_sink.kafka import security
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.options.config import complete, given_options
from kafka_sink.spark.source import pickled, registered, source_with

OAUTH = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.security.protocol": "SASL_SSL",
         "kafka.sasl.mechanism": "OAUTHBEARER"}  # fmt: skip


def config_of(token_callable: Any) -> ProducerConfig:
    return complete({**given_options(OAUTH), "token_callable": token_callable}).producer


def test_a_registration_is_one_configuration_and_another_one_is_another() -> None:
    """Of the same function: in its tasks they are equal bytes."""

    def token() -> tuple[str, float]:
        return "header.claims.signature", 60.0

    first, second = (source_with((), token).token_callable for _ in range(2))
    assert config_of(first) == config_of(first)
    assert hash(config_of(first)) == hash(config_of(first))
    assert config_of(first) != config_of(second)
    # What is kept for an export stays the same in each micro-batch.
    kept = registered(token)
    assert registered(kept) is kept
    assert pickled(kept) == pickled(kept)


def test_a_process_keeps_tokens_of_so_many_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "_kept", {})
    monkeypatch.setattr(security, "MAX_KEPT_TOKENS", 3)
    configs = [config_of(pickled(lambda: ("t", 60.0))).security for _ in range(5)]
    kept = [security._tokens_of(each) for each in configs]
    assert list(security._kept) == configs[2:]
    assert security._tokens_of(configs[4]) is kept[4]


def test_two_tenants_in_one_worker_have_two_tokens(spark: SparkSession) -> None:
    """The function is the same for both and asks Spark whose task it runs in."""

    def of_current_user() -> tuple[str, float]:
        context = TaskContext.get()
        assert context is not None
        return f"token-of-{context.getLocalProperty('tenant')}", 3_600.0

    def connects(producer: ProducerConfig) -> Any:
        def in_task(rows: Any) -> list[tuple[int, str]]:
            from kafka_sink.kafka.security import _tokens_of

            # Else Spark does not use the worker again.
            list(rows)
            return [(os.getpid(), _tokens_of(producer.security).current())]

        return in_task

    context, workers = spark.sparkContext, []
    for tenant in ("alice", "bob", "carol"):
        context.setLocalProperty("tenant", tenant)
        producer = replace(config_of(source_with((), of_current_user).token_callable), client_id="nightly")
        task = connects(producer)
        seen = [found for _ in range(3) for found in context.parallelize([0], 1).mapPartitions(task).collect()]
        assert {token for _, token in seen} == {f"token-of-{tenant}"}
        workers.append({pid for pid, _ in seen})
    context.setLocalProperty("tenant", None)
    assert set.intersection(*workers), "or they had workers of their own"
