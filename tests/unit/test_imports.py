"""The direction of imports, read from the sources.

An import that points upward, a sibling that knows its sibling, a pure module that takes a socket: each is a
failure with the module, the line and the rule. Imports inside functions and under TYPE_CHECKING count.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "kafka_sink"

# From the top to the bottom of the house. A component imports from itself and from lower layers; in a layer, siblings
# never import each other.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"exporting"}),
    frozenset({"monitoring"}),
    frozenset({"cli"}),
    frozenset({"functions", "registry", "spark"}),
    frozenset({"command_line", "commit"}),
    frozenset({"doctor"}),
    frozenset({"options"}),
    frozenset({"kafka"}),
    frozenset({"records"}),
    frozenset({"errors"}),
)

# The same inside the client. Authentication is one folder with modules in several layers: the configuration has what
# `auth.jaas` reads, and `auth.security` reads the configuration.
CLIENT_LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"write"}),
    frozenset({"client", "reader"}),
    frozenset({"admin"}),
    frozenset({"connections"}),
    frozenset({"auth.security"}),
    frozenset({"auth.kerberos", "auth.msk_iam", "auth.oauth"}),
    frozenset({"auth.kerberos_failures"}),
    frozenset({"consumer", "net", "producer"}),
    frozenset({"coordinators"}),
    frozenset({"metadata", "network"}),
    frozenset({"protocol"}),
    frozenset({"config"}),
    frozenset({"auth.jaas"}),
    frozenset({
        "clock", "lazy_import", "new_topic", "statistics", "waits",
    }),
)  # fmt: skip

# The broker for development and tests stands beside the house: none of the rows' path may need it.
BROKER_MAY_IMPORT = frozenset({"broker", "command_line", "errors", "kafka.protocol"})

# Components, or modules of one, that get time, sockets and threads handed in.
PURE = frozenset({
    "kafka.consumer", "kafka.producer", "kafka.metadata", "kafka.network", "kafka.statistics",
    "kafka.waits", "kafka.new_topic", "kafka.config", "kafka.protocol", "kafka.coordinators",
    "kafka.auth.jaas", "kafka.auth.kerberos_failures",
    "records", "errors.exhaustion", "errors.quoting", "errors.redaction",
    "commit.handover", "commit.hanging", "commit.markers", "commit.open_transactions", "commit.replay",
    "commit.attempt", "commit.deciding", "commit.ending", "commit.planning", "commit.requests",
    "cli.transactions_json", "doctor.connection_failures", "doctor.findings", "doctor.report",
})  # fmt: skip
IMPURE_IMPORTS = frozenset({"socket", "ssl", "selectors", "threading", "time"})

# A message codec that changes with every minor version is met in one place.
ONLY_IN = {"kio": frozenset({"kafka.protocol.requests"})}


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
    return [f"{imported}: {rule}" for imported in imports_of(package) if (rule := broken_rule(imported))]


def broken_rule(imported: Import) -> str | None:
    if not imported.ours:
        return broken_by_a_library(imported.module, imported.target.split(".")[0])
    importer, target = imported.module.split(".")[0], imported.target.split(".")[0]
    if importer == "broker":
        allowed = any(is_within(imported.target, each) for each in BROKER_MAY_IMPORT)
        return None if allowed else "the broker imports errors and protocol only"
    if target == "broker":
        # The catalogue shows the local broker's errors beside the others.
        shown = imported.module == "cli.explain" and is_within(imported.target, "broker.errors")
        return None if shown else "nobody imports the broker: it is for development and tests"
    if importer == "":  # kafka_sink/__init__.py shows the public names of any layer
        return None
    if importer != target:
        return broken_by_layers(LAYERS, importer, target)
    if importer == "kafka" and imported.module != "kafka":
        part, other = part_of_client(imported.module), part_of_client(imported.target)
        return None if part == other else broken_by_layers(CLIENT_LAYERS, part, other)
    return None


def part_of_client(name: str) -> str:
    """Return the part of the client that a dotted name is in, `net` or `auth.oauth`."""
    _, part, module, *_ = [*name.split("."), "", ""]
    return f"{part}.{module}" if part == "auth" else part


def broken_by_a_library(module: str, library: str) -> str | None:
    if library in IMPURE_IMPORTS and any(is_within(module, pure) for pure in PURE):
        return f"{module} is pure: time, sockets and threads are handed in"
    if library in ONLY_IN and module not in ONLY_IN[library]:
        return f"only {', '.join(ONLY_IN[library])} imports {library}"
    return None


def broken_by_layers(layers: tuple[frozenset[str], ...], importer: str, target: str) -> str | None:
    above, below = (
        next((depth for depth, layer in enumerate(layers) if each in layer), None) for each in (importer, target)
    )
    if above is None or below is None:
        return f"{importer if above is None else target} is in no layer: give it its place"
    if above == below:
        return "siblings do not import each other"
    return None if above < below else "imports point downward"


def is_within(module: str, component: str) -> bool:
    return module == component or module.startswith(component + ".")


def test_imports_point_downward() -> None:
    read = {imported.module.split(".")[0] for imported in imports_of(SOURCES)}
    assert read >= {"spark", "commit", "options", "kafka", "records", "errors", "broker"}
    assert violations(SOURCES) == []


@pytest.mark.parametrize(("path", "statement", "rule"), [
    ("records/a.py", "from kafka_sink.kafka.producer import sender", "downward"),
    ("records/a.py", "def f():\n    import kafka_sink.spark.source", "downward"),
    ("kafka/metadata.py", "from time import monotonic", "handed in"),
    ("kafka/net/a.py", "from kafka_sink.kafka.producer.accumulator import RecordAccumulator", "siblings"),
    ("kafka/net/a.py", "from kafka_sink.kafka.connections import connect", "downward"),
    ("kafka/protocol/a.py", "from ..net import selector", "downward"),
    ("kafka/auth/oauth.py", "from kafka_sink.kafka.auth.security import authenticator", "downward"),
    ("kafka/auth/oauth.py", "from kafka_sink.kafka.auth.kerberos import Kerberos", "siblings"),
    ("kafka/auth/new.py", "from kafka_sink.kafka.net import selector", "no layer"),
    ("kafka/new.py", "from kafka_sink.kafka.net import selector", "no layer"),
    ("kafka/producer/a.py", "import kio.schema", "only kafka.protocol.requests"),
    ("kafka/client.py", "from kafka_sink.broker import LocalKafka", "broker"),
    ("cli/explain.py", "from kafka_sink.broker import LocalKafka", "broker"),
    ("__init__.py", "from kafka_sink.broker import LocalKafka", "broker"),
    ("broker/a.py", "from kafka_sink.kafka.net import selector", "errors and protocol only"),
    ("spark/a.py", "import kafka_sink.helpers", "no layer"),
    ("spark/a.py", "from kafka_sink import functions", "siblings"),
    ("helpers.py", "from kafka_sink import errors", "no layer"),
])  # fmt: skip
def test_a_breach_is_found(tmp_path: Path, path: str, statement: str, rule: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(statement, encoding="utf-8")
    (found,) = violations(tmp_path)
    assert rule in found


def test_a_worker_that_encodes_imports_an_encoder_once_it_has_rows() -> None:
    """So does the registry's client. `integration/test_cold_steps.py` has the steps of a query."""
    script = "import sys, kafka_sink.registry; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.split())
    assert "kafka_sink.registry.avro" in imported
    assert imported.isdisjoint(("pandas", "fastavro", "google.protobuf", "jsonschema", "confluent_kafka"))


# Packages of the extras, as they are imported.
EXTRAS = (
    "botocore", "confluent_kafka", "crc32c", "cryptography", "fastavro", "google.protobuf", "grpc_tools",
    "hdfs_native", "opentelemetry", "prometheus_client", "tqdm",
)  # fmt: skip
NEED_AN_EXTRA = {
    "cli.read", "cli.verify", "monitoring.bar", "monitoring.opentelemetry", "monitoring.prometheus",
    "cli.verification.checking", "cli.verification.cluster", "records.receipts_in_hdfs",
}  # fmt: skip
IMPORT_ALL = """
import importlib, pkgutil, sys
import kafka_sink
sys.modules.update(dict.fromkeys(sys.argv[1:]))
for each in pkgutil.walk_packages(kafka_sink.__path__, "kafka_sink."):
    if not each.name.endswith(("__main__", ".leash", "._kernel", ".compiled")):
        try:
            importlib.import_module(each.name)
        except ImportError:
            print(each.name.removeprefix("kafka_sink."))
"""


def test_a_module_needs_no_extra_unless_it_is_for_that() -> None:
    """Otherwise an installation without extras fails where it should do without, or say what to install."""
    program = [sys.executable, "-c", IMPORT_ALL, *EXTRAS]
    assert set(subprocess.check_output(program, text=True, cwd=SOURCES.parent).split()) == NEED_AN_EXTRA
