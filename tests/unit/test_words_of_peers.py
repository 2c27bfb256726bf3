"""What peers say, through every way by which it comes to a user: it prints as it reads, and fills nothing.

Each site below has a real socket's other end say `HOSTILE` wherever an answer has room for text. A new error class is
found by `test_errors.py`, a new `print` by the last test here.
"""

import ast
import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import apis
from fuzz import answers
from fuzz.answers import ORDERS
from http_endpoints import body, token_endpoint
from kafka_sink.broker import __main__ as broker_command
from kafka_sink.broker import state
from kafka_sink.cli import check, read, transactions
from kafka_sink.cli.verification.checking import Record
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.auth.oauth import TokenEndpoint
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_producer
from scripted_peers import peer, scripted

FORGED = "ERROR all is lost"
HOSTILE = f"\x1b[2J\r\n{FORGED}\u202e\u2028" + "x" * 20_000
SOURCES = Path(__file__).parents[2] / "kafka_sink"
Answers = list[tuple[apis.Request, dict[str, Any]]]


@pytest.fixture(autouse=True)
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every string of an answer that says nothing else."""
    monkeypatch.setitem(answers._SOMETHING, "string", HOSTILE)


def options(port: int, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "1000",
        "kafka.delivery.timeout.ms": "1000", "kafka.request.timeout.ms": "900", "kafka.linger.ms": "0", **more,
    }  # fmt: skip


# Where nothing is to run out of time, however busy the machine is.
PATIENT = {f"kafka.{name}.ms": "30000" for name in ("max.block", "delivery.timeout", "request.timeout")}


def config(port: int) -> ProducerConfig:
    return sink_config(options(port, **PATIENT)).producer


def metadata(port: int, name: str | None = None, host: str = "127.0.0.1", **said: Any) -> Answers:
    topic = {"name": name, "topic_id": ORDERS, "partitions": [{"partition_index": 0, "leader_id": 7}], **said}
    brokers = [{"node_id": 7, "host": host, "port": port}]
    return [(apis.MetadataRequest((), False), {"brokers": brokers, "topics": [topic] if name else []})]


@contextmanager
def cluster(answers_at: Callable[[int], Answers]) -> Iterator[int]:
    """A broker that gives these answers, which name its own port."""
    ports: list[int] = []
    with peer(lambda sock: scripted(answers_at(ports[0]))(sock)) as port:
        ports.append(port)
        yield port


def missing(port: int) -> Answers:
    """A topic that is not there, and that the broker does not make."""
    topic = metadata(port, "t", partitions=[])
    topic[0][1]["topics"][0]["error_code"] = 3
    refused = (apis.CreateTopicsRequest("t", 1, 1), {"topics": [{"name": "t", "error_code": 44}]})
    return [*metadata(port), *topic, refused]


def line(given: dict[str, str]) -> list[str]:
    return [word for name, text in given.items() for word in ("--option", f"{name}={text}")]


def site_check_of_hosts(told: Callable[[], str]) -> str:
    with peer(scripted(metadata(1, host=HOSTILE))) as port:
        check.main(line(options(port)))
    return told()


def site_check_of_a_topic(told: Callable[[], str]) -> str:
    """Settings that are no numbers, among the rest."""
    names = ("min.insync.replicas", "max.message.bytes", "message.timestamp.before.max.ms")
    settings = [{"name": name, "value": HOSTILE} for name in names]
    told_of = (apis.TopicConfigsRequest(("t",), ()), {"results": [{"resource_name": "t", "configs": settings}]})
    with cluster(lambda port: [*metadata(port), *metadata(port, "t"), told_of]) as port:
        check.main(line(options(port, topic="t")))
    said = told()
    assert "message size      topic t" in said and "unknown" in said
    return said


def site_check_of_a_topic_that_is_not_made(told: Callable[[], str]) -> str:
    with cluster(missing) as port:
        check.main(line(options(port, topic="t", createTopics="true")))
    said = told()
    assert "POLICY_VIOLATION" in said
    return said


def site_check_without_a_password(told: Callable[[], str]) -> str:
    said: Answers = [(apis.SaslHandshakeRequest("PLAIN"), {}), (apis.SaslAuthenticateRequest(b""), {"error_code": 58})]
    sasl = {
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u",
        "kafka.sasl.password": "p", "allowPlaintextCredentials": "true",
    }  # fmt: skip
    with peer(scripted(said)) as port:
        check.main(line(options(port, **sasl)))
    shown = told()
    assert "the broker refused" in shown
    return shown


def of(error: KafkaSinkError) -> str:
    """All of it that may be shown, each fact on a line of its own."""
    facts = [fact for fact in vars(error).values() if isinstance(fact, str)]
    return "\n".join([str(error), *facts])


def site_refused_rows(told: Callable[[], str]) -> str:
    refused = {"name": "t", "topic_id": ORDERS, "partition_responses": [{"index": 0, "error_code": 44}]}
    produced = apis.ProduceRequest(-1, 1, (apis.ProducePartition("t", 0, ORDERS, b""),)), {"responses": [refused]}
    with (
        cluster(lambda port: [*metadata(port, "t"), (apis.InitProducerIdRequest(1), {}), produced]) as port,
        pytest.raises(KafkaSinkError, match="refused a batch of 1 records") as failure,
        lease_producer(config(port)) as producer,
    ):
        write = Write(producer, topic="t")
        write.append(pa.record_batch({"value": ["row"]}))
        write.finish()
    return of(failure.value)


def site_a_commit_topic_that_is_not_made(told: Callable[[], str]) -> str:
    with cluster(missing) as port:
        asking = AdminClient(config(port))
        with closing(asking), pytest.raises(KafkaSinkError) as failure:
            ensure_commit_topic(asking, "t")
    return of(failure.value)


def site_transactions_of_others(told: Callable[[], str]) -> str:
    name = f"orders{HOSTILE}"
    partition = {"partition_index": 0, "committed_offset": 5, "error_code": 0}
    group = {
        "group_id": f"{name}.decision", "error_code": 0,
        "topics": [{"name": "pykafka-commits", "partitions": [partition]}],
    }  # fmt: skip
    # A topic with such a name is no topic: the answer would be refused.
    its_topics = [{"topic": "orders", "partitions": [0]}]
    state_of = {"transactional_id": f"{name}.0", "transaction_state": "Ongoing", "topics": its_topics}

    def answers_at(port: int) -> Answers:
        def coordinator(kind: apis.CoordinatorKind, key: str) -> tuple[apis.Request, dict[str, Any]]:
            at = {"key": f"{name}.{key}", "node_id": 7, "host": "127.0.0.1", "port": port}
            return apis.FindCoordinatorRequest(kind, ("k",)), {"coordinators": [at]}

        return [
            *metadata(port),
            (apis.ListTransactionsRequest(), {"transaction_states": [{"transactional_id": f"{name}.0"}]}),
            coordinator(apis.CoordinatorKind.TRANSACTION, "0"), coordinator(apis.CoordinatorKind.GROUP, "decision"),
            (apis.DescribeTransactionsRequest(("k",)), {"transaction_states": [state_of]}),
            (apis.OffsetFetchRequest(("k",), "pykafka-commits", 0), {"groups": [group]}),
        ]  # fmt: skip

    with cluster(answers_at) as port:
        transactions.main(["list", "--prefix", "orders", *line(options(port, **PATIENT))])
    said = told()
    # The group of that name holds what nobody of ours wrote.
    assert "which this version did not write" in said
    return said


def site_the_token_endpoint(told: Callable[[], str]) -> str:
    said = ""
    for answer in ((400, body(error=HOSTILE, error_description=HOSTILE)), (200, body(access_token=HOSTILE))):
        with token_endpoint() as idp, pytest.raises(KafkaSinkError) as failure:
            idp.answers = [answer]
            TokenEndpoint(
                url=idp.url, client_id="app", client_secret="s", scope=None, header_urlencode=False, contexts=None
            ).fetch(lambda: 0.0)
        said += of(failure.value) + "\n"
    return said


def site_the_file_of_a_local_cluster(told: Callable[[], str]) -> str:
    running = state.RunningCluster(state.ProcessIdentity(1, "1"), HOSTILE, 1, f"{HOSTILE}:no port,\x00:1,b:99999")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker_command, "read_running", lambda directory: running)
        assert broker_command.main(["status"]) == 1
    return told()


def site_a_record(told: Callable[[], str]) -> str:
    return read.line_of(0, Record(0, HOSTILE.encode(), HOSTILE.encode(), ((HOSTILE, b"\x9b"),), 0, False))


SITES = [each for name, each in list(globals().items()) if name.startswith("site_")]


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.__name__.removeprefix("site_"))
def test_what_a_peer_says_is_shown_as_it_prints(
    site: Callable[[Callable[[], str]], str], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def told() -> str:
        printed = capfd.readouterr()
        return printed.out + printed.err

    said = site(told) + told() + "\n".join(record.getMessage() for record in caplog.records)
    assert said
    for shown in said.split("\n"):
        assert shown.isprintable()
        assert not shown.startswith(FORGED)
    assert len(said) < (60_000 if site is not site_a_record else 400_000)


# What they print is their own: pages of documentation, versions of packages, a record as JSON (a site above).
OWN_WORDS = {"command_line.py", "cli/read.py"}


def test_only_what_quotes_prints() -> None:
    printing = set()
    for path in SOURCES.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if any(name == "print" or name.endswith(("stdout.write", "stderr.write")) for name in called):
            printing.add(str(path.relative_to(SOURCES)))
    assert printing == OWN_WORDS
