"""Object stores: an exactly-once stream with its checkpoint and its receipts in S3, by the lines of docs/deploying.md.

`make test-all` builds the environment of the S3 server in build/s3. Without it the test is skipped.
"""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import s3
from broker_admin import read
from code_blocks import run_bash
from exactly_once_runs import ALL_ONCE, FILES, KILLED, ROWS_A_FILE, SUPPORT, Run, incoming
from fetched_jars import Module, fetched_jars, hadoop_version
from kafka_sink.broker import LocalKafka
from kafka_sink.commit.stream_name import plain_name

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DEADLINE_S = 240
BUCKET = f"s3a://{s3.BUCKET}"
CHECKPOINT, RECEIPTS = f"{BUCKET}/streams/checkpoint", f"{BUCKET}/receipts"
PATH_STYLE = "spark.hadoop.fs.s3a.path.style.access=true"
SINK = plain_name(CHECKPOINT)
STATUS = "transactions", "status", "--checkpoint", CHECKPOINT, "--bootstrap-servers"
READS_RECEIPTS = f"""
from pyspark.sql import SparkSession
import kafka_sink
receipts = kafka_sink.receipts(SparkSession.builder.master("local[1]").getOrCreate(), "{RECEIPTS}")
print(receipts.agg({{"record_count": "sum"}}).first()[0])
"""


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if not s3.PYTHON.exists():
        pytest.skip("moto is not installed in build/s3: `make s3` does it, and `make test-all` too")
    with s3.s3_server(tmp_path) as url:
        variables = {"ACCESS_KEY_ID": "key", "SECRET_ACCESS_KEY": "secret", "REGION": "eu-west-1", "ENDPOINT_URL": url}
        for name, value in variables.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        yield url


def test_a_killed_stream_goes_on_however_its_location_in_s3_is_spelled(
    kafka: LocalKafka, topic: Callable[..., str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start finds micro-batch 0 planned and not recorded: under another name it would be written again."""
    hadoop = Module("org.apache.hadoop", "hadoop-aws", hadoop_version(), transitive=True)
    jars = ":".join(map(str, fetched_jars(hadoop.name, hadoop.revision, [hadoop])))
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS", shlex.join(["--driver-class-path", jars, "--conf", PATH_STYLE, "pyspark-shell"])
    )
    name, options = topic(2), (f"receiptsPath={RECEIPTS}", "--derived-name")
    incoming(tmp_path / "incoming")
    for location, step, compared in (
        (f"{CHECKPOINT}/", f"before TxnOffsetCommit {SINK}.decision", "being written"),
        (f"{BUCKET}//streams/checkpoint", f"after EndTxn {SINK}.driver commit", "decided and not recorded yet"),
    ):
        run = Run(
            kafka, name, tmp_path, *options, step=step, kill="application", checkpoint=location, name=compared[:5]
        )
        with run as killed:
            assert killed.end()[0] == KILLED, killed.said
        assert compared in output_of("-m", "kafka_sink", *STATUS, kafka.bootstrap_servers)
    # The file of the second run has replaced that of the first.
    assert output_of("-c", READS_RECEIPTS) == f"{2 * ROWS_A_FILE}\n"
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")

    location = f"{BUCKET}/./streams/x/../checkpoint"
    app = [SUPPORT / "exactly_once_app.py", kafka.bootstrap_servers, name, tmp_path / "incoming", location, *options]
    ended = run_bash("docs/deploying.md", "Object stores", 0, {
        "--packages org.apache.hadoop:hadoop-aws:3.5.0": f"--driver-class-path {jars}",
        "http://minio:9000": url, "app.py": shlex.join(map(str, app)), "localhost:9092": kafka.bootstrap_servers,
    }, tmp_path)  # fmt: skip
    assert ended.returncode == 0, ended.stdout
    assert f"{FILES * ROWS_A_FILE} EQUAL" in ended.stdout, ended.stdout
    assert read(kafka, name) == ALL_ONCE
    assert "in step with the sink" in output_of("-m", "kafka_sink", *STATUS, kafka.bootstrap_servers)


def output_of(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout
