"""The direction of imports, read from the sources.

An import that points upward, a sibling that knows its sibling, a pure module that takes a socket: each is a
failure with the module, the line and the rule. Imports inside functions and under TYPE_CHECKING count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "kafka_sink"

# From the top to the bottom of the house. A component imports from itself and from lower layers; in a layer,
# siblings never import each other, neighbours may.
LAYERS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"__main__"}), "siblings"),
    (frozenset({"exporting"}), "siblings"),
    (frozenset({"check", "explain", "monitoring"}), "siblings"),
    (
        frozenset(
            {"duplicates", "errors_page", "functions", "read", "registry", "spark", "transactions", "verify"}
            | {"versions"}
        ),
        "siblings",
    ),
    (
        frozenset(
            {"admin", "checkpoint", "client", "clock", "commit", "connections", "created_topic", "doctor", "kept"}
            | {"oauth", "security", "stream_name", "verification", "write"}
        ),
        "neighbours",
    ),
    (frozenset({"net", "producer"}), "siblings"),
    (frozenset({"protocol", "records"}), "siblings"),
    (
        frozenset(
            {"backoff", "config", "errors", "exhaustion", "jaas", "metrics", "options", "options_page"}
            | {"command_line", "deadline", "failures", "new_topic", "quoting", "receipt_file", "redaction", "table"}
            | {"topic_name"}
        ),
        "neighbours",
    ),
)

# The broker for development and tests stands beside the house: none of the rows' path may need it.
BROKER_MAY_IMPORT = frozenset({"broker", "command_line", "errors", "exhaustion", "protocol", "quoting"})

# Components, or modules of one, that get time, sockets and threads handed in.
PURE = frozenset({
    "producer", "protocol", "records", "metrics", "quoting", "exhaustion", "table",
    "commit.earlier_name", "commit.effects", "commit.exchanges", "commit.hanging", "commit.lineage", "commit.markers",
    "commit.sink",
    "commit.survey", "commit.survey_json", "commit.two_phase",
    "doctor.judging", "doctor.reaching", "doctor.report", "doctor.steps",
})  # fmt: skip
IMPURE_IMPORTS = frozenset({"socket", "ssl", "selectors", "threading", "time"})

# A message codec that changes with every minor version is met in one place.
ONLY_IN = {"kio": frozenset({"protocol.requests"})}


@dataclass(frozen=True, slots=True)
class Import:
    """`module` imports `target`, both dotted names, those of ours without `kafka_sink.` in front."""

    module: str
    line: int
    target: str
    ours: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def imports_of(package: Path) -> Iterator[Import]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        in_package = parts[:-1]
        module = ".".join(in_package if parts[-1] == "__init__" else parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for target in targets_of(node, in_package):
                ours = is_within(target, "kafka_sink")
                yield Import(module, node.lineno, target.removeprefix("kafka_sink."), ours)


def targets_of(node: ast.Import | ast.ImportFrom, in_package: tuple[str, ...]) -> Iterator[str]:
    """What a statement imports, as full dotted names; `from a import b` is a.b, as b may be a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    else:
        here = ("kafka_sink", *in_package)
        base = list(here[: len(here) - node.level + 1]) if node.level else []
        base += [node.module] if node.module else []
        yield from (".".join([*base, alias.name]) for alias in node.names)


def violations(package: Path) -> list[str]:
    found = []
    for imported in imports_of(package):
        rule = broken_rule(imported)
        if rule:
            found.append(f"{imported}: {rule}")
    return found


def broken_rule(imported: Import) -> str | None:
    importer, target = imported.module.split(".")[0], imported.target.split(".")[0]
    if not imported.ours:
        if target in IMPURE_IMPORTS and any(is_within(imported.module, pure) for pure in PURE):
            return f"{imported.module} is pure: time, sockets and threads are handed in"
        if target in ONLY_IN and imported.module not in ONLY_IN[target]:
            return f"only {', '.join(ONLY_IN[target])} imports {target}"
        return None
    if importer == "":  # kafka_sink/__init__.py shows the public names of any layer
        return "the broker is for development and tests" if target == "broker" else None
    if importer == "broker":
        return None if target in BROKER_MAY_IMPORT else "the broker imports errors and protocol only"
    if target == "broker" and not (importer == "errors_page" and is_within(imported.target, "broker.errors")):
        return "nobody imports the broker"
    if target in (importer, "broker"):
        return None
    above, below = layer_of(importer), layer_of(target)
    if above is None or below is None:
        return f"{importer if above is None else target} is in no layer: give it its place in LAYERS"
    if above == below:
        return "siblings do not import each other" if LAYERS[above][1] == "siblings" else None
    return None if above < below else "imports point downward"


def layer_of(component: str) -> int | None:
    return next((depth for depth, (members, _) in enumerate(LAYERS) if component in members), None)


def is_within(module: str, component: str) -> bool:
    return module == component or module.startswith(component + ".")


def test_imports_point_downward() -> None:
    assert violations(SOURCES) == []


def test_sources_were_read() -> None:
    read = {imported.module.split(".")[0] for imported in imports_of(SOURCES)}
    below = {"protocol", "records", "config", "errors", "jaas", "metrics"}
    assert read >= {"spark", "client", "net", "producer", "broker", *below}


@pytest.mark.parametrize(
    ("path", "statement", "rule"),
    [
        ("records/a.py", "from kafka_sink.producer import sender", "downward"),
        ("records/a.py", "from ..producer.sender import Sender", "downward"),
        ("records/a.py", "def f():\n    import kafka_sink.spark.source", "downward"),
        ("errors/base.py", "from kafka_sink.records import columns", "downward"),
        ("metrics.py", "from time import monotonic", "handed in"),
        ("net/a.py", "from kafka_sink.producer.metadata import MetadataSnapshot", "siblings"),
        ("protocol/a.py", "from ..records import record_batch", "siblings"),
        ("protocol/a.py", "from .. import records", "siblings"),
        ("producer/a.py", "import threading", "handed in"),
        ("producer/a.py", "from time import monotonic", "handed in"),
        ("protocol/deep/er.py", "import selectors", "handed in"),
        ("commit/two_phase.py", "import socket", "handed in"),
        ("records/__init__.py", "import ssl", "handed in"),
        ("producer/a.py", "import kio.schema", "only protocol.requests"),
        ("client.py", "from kafka_sink.broker import LocalKafka", "broker"),
        ("client.py", "from kafka_sink.broker.errors import BrokerDied", "broker"),
        ("errors_page.py", "from kafka_sink.broker import LocalKafka", "broker"),
        ("__init__.py", "from kafka_sink.broker import LocalKafka", "broker"),
        ("broker/a.py", "from kafka_sink.net import selector", "errors and protocol only"),
        ("broker/a.py", "from kafka_sink.config import Options", "errors and protocol only"),
        ("spark/a.py", "import kafka_sink.helpers", "no layer"),
        ("spark/a.py", "from kafka_sink import functions", "siblings"),
        ("records/a.py", "from kafka_sink import functions", "downward"),
        ("helpers.py", "from kafka_sink import errors", "no layer"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, path: str, statement: str, rule: str) -> None:
    write(tmp_path / path, statement)
    (found,) = violations(tmp_path)
    assert rule in found


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("__init__.py", "from kafka_sink.spark.source import KafkaDataSource"),
        ("spark/a.py", "from kafka_sink.client import Client"),
        ("spark/a.py", "from .. import config, errors"),
        ("spark/a.py", "from . import writer"),
        ("functions.py", "from kafka_sink.records.murmur import murmur2"),
        ("admin/client.py", "import time\nfrom kafka_sink import client"),
        ("config.py", "from kafka_sink.errors import ConfigError"),
        ("errors_page.py", "from kafka_sink.broker.errors import LocalKafkaError"),
        ("protocol/requests.py", "import kio.schema"),
        ("broker/a.py", "import socket, time\nfrom kafka_sink.errors import LocalKafkaError"),
        ("records/a.py", "import timeit_of_another_name"),
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, path: str, statement: str) -> None:
    write(tmp_path / path, statement)
    assert violations(tmp_path) == []


def write(path: Path, source: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")


# What a worker has no use for until something is wrong, and would wait for before its first row.
NOT_FOR_EVERY_WORKER = (
    "pandas", "html", "pyarrow.fs", "pyarrow.parquet", "kafka_sink.doctor.engine", "kafka_sink.registry", "fastavro",
    "google.protobuf", "confluent_kafka",
)  # fmt: skip


def test_a_worker_does_not_import_what_it_may_never_need() -> None:
    """Arrow imports pandas, which takes longer than all of this package, at the first `pa.array` of a list."""
    script = "import sys, kafka_sink.spark.writer, kafka_sink.spark.source; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert "kafka_sink.client" in imported
    assert imported.isdisjoint(NOT_FOR_EVERY_WORKER), imported.intersection(NOT_FOR_EVERY_WORKER)


def test_what_encodes_for_a_schema_registry_does_not_import_its_client() -> None:
    """A worker that encodes needs fastavro or google.protobuf, once it has rows; the client is the driver's alone."""
    script = "import sys, kafka_sink.registry; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert "kafka_sink.registry.avro" in imported
    assert imported.isdisjoint({"pandas", "fastavro", "google.protobuf", "jsonschema", "confluent_kafka"})
