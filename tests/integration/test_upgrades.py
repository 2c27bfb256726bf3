"""An application goes on with another build of the package, in the middle of a micro-batch: `make upgrade FROM=v0.1.0`.

The other build is a commit or tag of this repository. Both directions: an upgrade, and the way back.
"""

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from broker_admin import held_back, open_transactions, read
from code_blocks import ROOT
from exactly_once_runs import ALL_ONCE, kill_at, run
from kafka_sink.broker import LocalKafka

FROM = os.environ.get("PYKAFKA_UPGRADE_FROM", "")
pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not FROM, reason="`make upgrade FROM=<commit>` names another build"),
]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of FROM, without its kernel."""
    folder = tmp_path_factory.mktemp("before")
    packed = subprocess.run(["git", "archive", FROM, "kafka_sink"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    code, environment = "import kafka_sink; print(kafka_sink.__file__)", {**os.environ, "PYTHONPATH": str(folder)}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.startswith(str(folder))
    return folder


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("before TxnOffsetCommit {sink}.decision", id="prepared"),
        pytest.param("after EndTxn {sink}.driver commit", id="decided"),
        pytest.param("after EndTxn {sink}.0 commit", id="half visible"),
    ],
)
@pytest.mark.parametrize("way", ["upgrade", "downgrade"])
def test_another_build_goes_on_in_mid_micro_batch(
    kafka: LocalKafka, tmp_path: Path, before: Path, way: str, step: str, request: pytest.FixtureRequest
) -> None:
    name = f"{way}-{request.node.callspec.indices['step']}"
    kafka.create_topic(name, 2)
    first, second = (before, None) if way == "upgrade" else (None, before)
    kill_at(step, kafka, name, tmp_path, package=first)
    status, said = run(kafka, name, tmp_path, None, package=second)
    assert status == 0, said
    assert read(kafka, name, "read_committed") == ALL_ONCE
    assert open_transactions(kafka, name) == []
    assert held_back(kafka, name) == 0
