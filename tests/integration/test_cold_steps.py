"""What each process of a query imports over Spark's own modules: a number of modules, and none that the step can do
without. Modules are what a cold start takes; their time would depend on the machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from applications import told_by
from kafka_sink.broker import LocalKafka

CLIENTS = ("kafka_sink.kafka.client", "kafka_sink.kafka.reader", "kafka_sink.kafka.admin.client")
TRANSACTIONS = (
    "kafka_sink.commit.planning",
    "kafka_sink.commit.attempt",
    "kafka_sink.commit.deciding",
    "kafka_sink.spark.exactly_once",
    "kafka_sink.kafka.protocol.transaction_needs",
)
OTHER_SECURITY = tuple(f"kafka_sink.kafka.auth.{name}" for name in ("kerberos", "msk_iam", "oauth"))
TLS = ("kafka_sink.kafka.net.tls", "kafka_sink.kafka.net.stores")
ROWS = ("kafka_sink.records.kernel", "kafka_sink.records.decoder", "pyarrow.compute", "zstandard")
NEVER = (
    "pandas", "importlib.metadata", "argparse", "crc32c", "html", "pyarrow.fs", "pyarrow.parquet", "fastavro",
    "google.protobuf", "confluent_kafka", "cryptography", "kafka_sink.registry", "kafka_sink.doctor",
    *OTHER_SECURITY,
)  # fmt: skip
FROM_PLAINTEXT = (*NEVER, *TLS)
NO_REQUEST = (*FROM_PLAINTEXT, *CLIENTS, *ROWS, "kio")

# The most modules of ours and of kio, and what is none of them.
STEPS = {
    "look-up": (30, 0, ("numpy", "kafka_sink.options", "kafka_sink.records", *NO_REQUEST)),
    "create for a write": (30, 0, ("numpy", "kafka_sink.options", "kafka_sink.records", *NO_REQUEST)),
    "create for a read": (50, 0, ("kafka_sink.records", *NO_REQUEST)),
    "plan of a write": (60, 0, (*TRANSACTIONS, *NO_REQUEST)),
    "plan of a stream's write": (60, 0, (*TRANSACTIONS, *NO_REQUEST)),
    "plan, exactly-once": (140, 70, (*ROWS, *FROM_PLAINTEXT, *CLIENTS[:2], "kafka_sink.spark.exactly_once.slot")),
    "plan of a read": (130, 45, (*TRANSACTIONS, *ROWS, *FROM_PLAINTEXT, *CLIENTS[:2])),
    "plan of a stream's read": (140, 45, (*TRANSACTIONS, *ROWS, *FROM_PLAINTEXT, *CLIENTS[:2])),
    "first row of a write": (160, 50, (*TRANSACTIONS, *FROM_PLAINTEXT, *CLIENTS[1:])),
    "commit of a write": (60, 0, (*TRANSACTIONS, *NO_REQUEST)),
    "first row, exactly-once": (190, 70, (*FROM_PLAINTEXT, CLIENTS[1])),
    "first row of a read": (160, 45, (*TRANSACTIONS, *FROM_PLAINTEXT, CLIENTS[0])),
    "SASL": (75, 0, FROM_PLAINTEXT),
    "TLS": (80, 0, NEVER),
    "SASL over TLS": (80, 0, NEVER),
}


def test_a_step_imports_what_it_uses(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    imported = told_by("cold_steps_app.py", kafka.bootstrap_servers, topic(partitions=1), tmp_path)
    assert set(imported) == set(STEPS)
    too_many, unused = [], []
    for step, (ours, of_kio, without) in STEPS.items():
        for package, most in (("kafka_sink", ours), ("kio", of_kio)):
            found = [module for module in imported[step] if is_of(module, package)]
            too_many += [(step, package, len(found))] if len(found) > most else []
        unused += [(step, module) for module in imported[step] if any(is_of(module, name) for name in without)]
    assert (too_many, unused) == ([], [])


@pytest.mark.long
@pytest.mark.parametrize("daemon", ["kafka_sink.spark.daemon", "pyspark.daemon"])
def test_workers_of_both_fork_servers_do_the_same(kafka: LocalKafka, topic: Callable[..., str], daemon: str) -> None:
    found = told_by("forked_workers_app.py", daemon, kafka.bootstrap_servers, topic(partitions=2), f"x-{daemon}")
    workers = found.pop("workers")
    assert found == {"read": 200, "distinct": 100, "of a function": [0, 2, 4, 6, 8], "of a UDF": [1, 2, 3]}
    assert {worker["parent"] for worker in workers} == {daemon}
    assert len({worker["random"] for worker in workers}) == 2
    # A worker of Spark's server imports them, and this one has run nothing of ours.
    assert {worker["has our modules"] for worker in workers} == {daemon == "kafka_sink.spark.daemon"}


def is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
