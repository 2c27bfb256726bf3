"""AWS MSK IAM against a real broker, whose listener verifies each token with botocore: what a user does, through Spark
too, and what a user sees who is turned away."""

import itertools
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pytest

from applications import run_application
from code_blocks import run_python
from kafka_sink.doctor.report import Status, Verdict
from kafka_sink.doctor.writing import examine
from kafka_sink.errors import AuthenticationFailed, KafkaSinkError
from kafka_sink.kafka import security
from kafka_sink.kafka.aws import msk_iam
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.options.config import sink_config
from msk_stand_in import CA, MskStandIn, Verifier, msk_stand_in
from read_back import read_topic

DEADLINE_S = 60
GUARANTEES = ("at-least-once", "exactly-once")
SECRET, SESSION = "canary-7c41/+=", "canary-session/+=" * 20
USER = {"AWS_ACCESS_KEY_ID": "AKALICE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "eu-west-1"}
topic_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def msk() -> Iterator[MskStandIn]:
    secrets = {"AKALICE": (SECRET, None, "alice"), "AKROLE": (SECRET, SESSION, "role")}
    with msk_stand_in(Verifier("eu-west-1", secrets, time.time)) as made:
        yield made


@pytest.fixture
def topic(msk: MskStandIn) -> str:
    name = f"iam-{next(topic_numbers)}"
    msk.kafka.create_topic(name, 1)
    return name


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, msk: MskStandIn, tmp_path: Path) -> None:
    """Only what the test sets, and no tokens of another test."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Nobody is there: no test waits for the metadata of an instance.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(security, "_kept_signers", {})
    msk.verifier.now_s = time.time
    msk.principals.clear()
    msk.refusals.clear()
    msk.verifier.seen.clear()


def use(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in {**USER, **variables}.items():
        monkeypatch.setenv(name, value)


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%08d" % n for n in range(count)])})


def write(options: dict[str, str], topic: str, count: int = 100) -> tuple[PartitionOffsets, ...]:
    with closing(Producer(sink_config(options).producer)) as producer:
        write = producer.begin(topic=topic)
        write.append(rows(count))
        return tuple(write.finish())


def count_in(msk: MskStandIn, topic: str) -> int:
    return sum(1 for _ in read_topic(msk.kafka.bootstrap_servers, topic, DEADLINE_S))


def failure_of(options: dict[str, str]) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as failure:
        write(options, "any")
    assert "canary" not in str(failure.value) + repr(failure.value) + repr(vars(failure.value))
    assert "AKALICE" not in str(failure.value)
    return failure.value


def test_the_keys_of_the_environment(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    (receipt,) = write(msk.options(), topic)
    assert receipt.record_count == 100 == count_in(msk, topic)
    assert set(msk.principals) == {"alice"}
    assert len(set(msk.verifier.seen)) == 1, "one token for all connections of the process"


def test_a_profile_with_a_session(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[team]\naws_access_key_id=AKROLE\naws_secret_access_key={SECRET}\naws_session_token={SESSION}\n"
    )
    of_profile = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="team";'
    for chain in (msk_iam.installed, lambda: None):  # with botocore, and without
        monkeypatch.setattr(security, "_kept_signers", {})
        monkeypatch.setattr(msk_iam.MskIamSigner.__init__, "__kwdefaults__", {"chain": chain})
        write(msk.options(sasl_jaas_config=of_profile), topic)
    assert set(msk.principals) == {"role"}


@pytest.mark.long
def test_the_documented_way_through_spark(msk: MskStandIn, topic: str, tmp_path: Path) -> None:
    """The lines of the page, in an application of its own: the Python workers of its executors sign. Nothing that Spark
    leaves behind has a key or a token in it."""
    (tmp_path / "ca.pem").write_text(CA.certificate)
    event_log = tmp_path / "events"
    event_log.mkdir()
    protocol = '"kafka.security.protocol": "SASL_SSL",'
    replaced = {
        "b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com:9098": f"localhost:{msk.port}",
        protocol: f'{protocol} "kafka.ssl.truststore.location": "{tmp_path / "ca.pem"}",',
    }
    lines = run_python("docs/platforms.md", "IAM", 0, replaced, {"df": MagicMock()})
    writes = json.dumps([(topic, {**lines["msk"], "deliveryGuarantee": guarantee}) for guarantee in GUARANTEES])
    conf = {"enabled": "true", "compress": "false", "dir": f"file://{event_log}"}
    logged = " ".join(f"--conf spark.eventLog.{name}={value}" for name, value in conf.items())
    given = {**USER, "PYSPARK_SUBMIT_ARGS": f"--master local[2] {logged} pyspark-shell"}
    status, said = run_application("writes_app.py", writes, tmp_path, folder=tmp_path, **given)
    assert status == 0, said
    assert count_in(msk, topic) == 4_000
    assert set(msk.principals) == {"alice"}
    texts = [SECRET, *msk.verifier.seen]
    left = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(map(len, left)) > 10_000
    assert not [text for text in texts if text in said or any(text.encode() in each for each in left)]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "canary-wrong"}, "the signature is wrong"),
        ({"AWS_SESSION_TOKEN": "canary-wrong"}, "the session token is another one"),
        ({"AWS_REGION": "us-east-1"}, "the URL is for https://kafka.us-east-1.amazonaws.com/"),
    ],
)
def test_a_token_that_the_broker_refuses(
    msk: MskStandIn, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], why: str
) -> None:
    use(monkeypatch, **variables)
    failure = failure_of(msk.options())
    assert isinstance(failure, AuthenticationFailed)
    assert failure.mechanism == "AWS_MSK_IAM"
    assert "Access denied" in failure.reason
    assert why in failure.reason
    assert "the environment, signed for" in failure.user
    assert "kafka-cluster:Connect" in str(failure)


@pytest.mark.parametrize(("ahead_s", "why"), [(1000, "it has expired"), (-400, "it was signed in the future")])
def test_a_wrong_clock(msk: MskStandIn, monkeypatch: pytest.MonkeyPatch, ahead_s: float, why: str) -> None:
    """The error shows the time of signing, which a user compares with the right one."""
    use(monkeypatch)
    msk.verifier.now_s = lambda: time.time() + ahead_s
    failure = failure_of(msk.options())
    assert why in str(failure)
    assert time.strftime("%Y%m%dT%H", time.gmtime()) in str(failure)
    assert "the clock of this host" in str(failure)


def test_check_says_what_a_write_would(msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = msk.options() | {"topic": topic}

    def of_sasl() -> Verdict:
        # A check has tokens of its own, as each process has.
        monkeypatch.setattr(security, "_kept_signers", {})
        return next(verdict for verdict in examine(sink_config(options)).verdicts if verdict.step == "sasl")

    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    none = of_sasl()
    assert (none.status, none.where) == (Status.FAILED, f"localhost:{msk.port}")
    assert "botocore found no credentials on this host" in none.finding.found
    assert "AWS_ACCESS_KEY_ID" in none.finding.remedy
    use(monkeypatch, AWS_SECRET_ACCESS_KEY="canary-wrong")
    refused = of_sasl()
    assert "Access denied" in refused.finding.found
    assert "signed for eu-west-1" in refused.finding.found
    assert "kafka-cluster:Connect" in refused.finding.remedy
    use(monkeypatch)
    monkeypatch.delenv("AWS_REGION")
    assert "spark.executorEnv.AWS_REGION" in of_sasl().finding.remedy
    use(monkeypatch)
    assert of_sasl().finding.found == "AWS_MSK_IAM, by a token"


def test_nothing_in_logs(
    msk: MskStandIn, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    use(monkeypatch)
    write(msk.options(), topic)
    failure_of(msk.options(max_block_ms="1000") | {"kafka.bootstrap.servers": "localhost:1"})
    (token,) = set(msk.verifier.seen)
    assert not [record for record in caplog.records if token in record.getMessage() or "canary" in record.getMessage()]
