"""kafka_sink.broker.cluster: what is said when a cluster cannot start. (That it does: tests/integration.)"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from kafka_sink.broker import LocalKafka, cluster, errors
from kafka_sink.broker.state import identify

pytestmark = pytest.mark.programs


def dies(saying: str) -> str:
    return f"print({saying!r}); sys.exit(1)"


@pytest.mark.parametrize("arguments", [{"nodes": 0}, {"nodes": 2}, {"kafka_version": "2.8.0"}])
def test_arguments_that_make_no_cluster(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(*arguments.values()))):
        LocalKafka(**arguments)


def test_not_open() -> None:
    kafka = LocalKafka()
    for use in (lambda: kafka.dir, lambda: kafka.kill(1), lambda: kafka.create_topic("t", 1)):
        with pytest.raises(errors.LocalKafkaError):
            use()
    kafka.close()


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "open files"),
        (RuntimeError("can't start new thread"), "threads"),
        (MemoryError(), "memory"),
    ],
)
def test_a_process_that_has_no_more_of_something(
    java: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, what: str
) -> None:
    def start(*command: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr(cluster, "LeashedProcess", start)
    kafka = LocalKafka()
    with pytest.raises(errors.HostExhausted, match=f"no more {what}: .* Raise that limit"), kafka:
        pass
    with pytest.raises(errors.LocalKafkaError, match="is not open"):
        print(kafka.dir)


@pytest.mark.parametrize(
    ("main_class", "script", "error", "words"),
    [
        (None, "", errors.JavaNotFound, None),
        ("kafka.Kafka", dies("ERROR java.io.IOException: No space left on device"), errors.DiskFull, "node-1"),
        (
            "kafka.tools.StorageTool", dies("Configured metadata.version is wrong"), errors.BrokerStartFailed,
            r"could not be formatted.*\n.*metadata\.version is wrong",
        ),
        (
            "kafka.Kafka", "import signal; print('still loading', flush=True); signal.pause()",
            errors.BrokerStartFailed, r"no answer within 2 s.*\nstill loading",
        ),
    ],
    ids=["no Java", "disk full", "storage", "no answer"],
)  # fmt: skip
def test_why_a_cluster_does_not_start(
    java: Any,
    monkeypatch: pytest.MonkeyPatch,
    main_class: str | None,
    script: str,
    error: type[Exception],
    words: str | None,
) -> None:
    monkeypatch.setattr(cluster, "START_TIMEOUT_SECONDS", 2 if "pause" in script else 60)
    if main_class is None:
        monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", "")
    else:
        java.will(main_class, script)
    with pytest.raises(error, match=words), LocalKafka():
        pass


def test_a_broker_that_dies(java: Any, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies("first\n" + "noise\n" * 100 + "java.lang.Error: last words"))
    with (
        pytest.raises(errors.BrokerStartFailed, match=r"(?s)node 1 .* ended with status 1\. .*last words") as raised,
        LocalKafka(),
    ):
        pass
    assert raised.value.log_tail.endswith("noise\njava.lang.Error: last words")
    assert "first" not in raised.value.log_tail
    assert not raised.value.port_taken
    assert java.calls == ["kafka.tools.StorageTool", "kafka.Kafka"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_port_that_was_taken_in_between_is_replaced(java: Any, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies("java.net.BindException: Address already in use"))
    with (
        pytest.raises(errors.BrokerStartFailed, match="Another process took its port"),
        LocalKafka(dir=tmp_path / "data"),
    ):
        pass
    assert java.calls.count("kafka.Kafka") == cluster.PORT_ATTEMPTS
    taken = (tmp_path / "data" / "node-1" / "server.properties").read_text()

    java.will("kafka.Kafka", dies("something else"))  # what the log says of earlier starts does not count
    with pytest.raises(errors.BrokerStartFailed, match="something else") as raised, LocalKafka(dir=tmp_path / "data"):
        pass
    assert not raised.value.port_taken and "BindException" not in raised.value.log_tail
    assert java.calls.count("kafka.Kafka") == cluster.PORT_ATTEMPTS + 1
    assert (tmp_path / "data" / "node-1" / "server.properties").read_text() != taken


def test_the_other_nodes_begin_anew_as_well(java: Any, tmp_path: Path) -> None:
    java.will(
        "kafka.Kafka",
        """
import os, signal
(home / f"pid-{os.getpid()}").touch()
if "node.id=2" in Path(arguments[-1]).read_text():
    while len(list(home.glob("pid-*"))) % 3:
        pass
    print("java.net.BindException")
    sys.exit(1)
signal.pause()
""",
    )
    with pytest.raises(errors.BrokerStartFailed, match=r"(?s)node 2.*BindException"), LocalKafka(nodes=3):
        pass
    pids = [int(file.name.removeprefix("pid-")) for file in java.home.glob("pid-*")]
    assert len(pids) == 3 * cluster.PORT_ATTEMPTS
    assert [pid for pid in pids if identify(pid)] == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_it_is_told(java: Any, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies(""))
    config = {"message.max.bytes": 5, "auto.create.topics.enable": True}
    with pytest.raises(errors.BrokerStartFailed), LocalKafka(3, "3.9.2", tmp_path / "data", config):
        pass
    for node in (1, 2, 3):
        properties = (tmp_path / "data" / f"node-{node}" / "server.properties").read_text()
        assert f"node.id={node}\n" in properties
        assert "message.max.bytes=5\n" in properties
        assert "auto.create.topics.enable=true\n" in properties
    assert "log4j.rootLogger" in (tmp_path / "data" / "log4j.properties").read_text()
    assert java.calls.count("kafka.tools.StorageTool") == 3


def test_a_folder_that_another_cluster_runs_in(java: Any, tmp_path: Path) -> None:
    with open(tmp_path / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with (
            pytest.raises(errors.DirectoryUnusable, match="a local cluster is running in it"),
            LocalKafka(dir=tmp_path),
        ):
            pass
    assert java.calls == []


def test_a_folder_of_another_version_or_size(java: Any, tmp_path: Path) -> None:
    java.will("kafka.Kafka", dies(""))
    with pytest.raises(errors.BrokerStartFailed), LocalKafka(dir=tmp_path / "data"):
        pass
    identity = (tmp_path / "data" / "cluster.json").read_text()
    for other in (LocalKafka(3, dir=tmp_path / "data"), LocalKafka(1, "3.9.2", tmp_path / "data")):
        with pytest.raises(errors.DirectoryUnusable, match=r"holds the data of Kafka 4\.3\.1 with 1 node"), other:
            pass
    with pytest.raises(errors.BrokerStartFailed), LocalKafka(dir=tmp_path / "data"):
        pass
    assert (tmp_path / "data" / "cluster.json").read_text() == identity


def test_a_folder_with_a_broken_identity(java: Any, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(errors.DirectoryUnusable, match=r"cluster\.json: cluster_id"), LocalKafka(dir=tmp_path):
        pass


def test_a_tool_that_fails(java: Any, tmp_path: Path) -> None:
    kafka = opened_without_brokers(java, tmp_path)
    try:
        java.will("org.apache.kafka.tools.X", "print(input()); print(*arguments[-2:], file=sys.stderr); sys.exit(7)")
        with pytest.raises(errors.ToolFailed, match=r"tools\.X ended with status 7\..*\nhello\n--a b") as raised:
            kafka.run_tool("org.apache.kafka.tools.X", "--a", "b", input="hello\n")
        assert raised.value.output_tail == "hello\n--a b"
        java.will("org.apache.kafka.tools.X", "print('begun', flush=True); import signal; signal.pause()")
        with pytest.raises(errors.ToolFailed, match=r"did not end within 2 s.*\nbegun"):
            kafka.run_tool("org.apache.kafka.tools.X", timeout=2)
    finally:
        kafka.close()


def opened_without_brokers(java: Any, tmp_path: Path) -> LocalKafka:
    kafka = LocalKafka(dir=tmp_path / "data")
    java.will("kafka.Kafka", dies(""))
    with patch.object(kafka, "close"), pytest.raises(errors.BrokerStartFailed):
        kafka.__enter__()
    return kafka


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_folder_that_others_write_into_is_refused(java: Any, mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(errors.DirectoryUnusable, match="other users can write into it"):
        LocalKafka(dir=tmp_path).__enter__()
    tmp_path.chmod(0o755)
    java.will("kafka.Kafka", dies(""))
    with pytest.raises(errors.BrokerStartFailed):
        LocalKafka(dir=tmp_path).__enter__()
