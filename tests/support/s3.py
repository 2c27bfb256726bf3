"""A small S3 server, moto's, with one bucket. `make s3` installs it into an environment of its own."""

import os
import random
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError

from kafka_sink.broker.process import LeashedProcess
from kafka_sink.broker.settings import HOST, free_ports
from waiting import wait_until

PYTHON = Path(__file__).resolve().parents[2] / "build" / "s3" / "bin" / "python"
BUCKET = "bucket"
DEADLINE_S = 120


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """Yield its URL. Any credentials will do. Its output is in `folder`."""
    (port,) = free_ports(1, random.Random())
    url, said = f"http://{HOST}:{port}", folder / "s3.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with said.open("wb") as log:
        command: list[str | Path] = [PYTHON, "-m", "moto.server", "--host", HOST, "--port", str(port)]
        server = LeashedProcess(command, grace_seconds=0, stdout=log, stderr=subprocess.STDOUT, environ=environ)

    def has_bucket() -> bool:
        assert server.returncode is None, said.read_text()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT"), timeout=DEADLINE_S):
                return True
        except URLError as refused:
            assert isinstance(refused.reason, ConnectionRefusedError), refused
            return False

    try:
        wait_until(has_bucket, DEADLINE_S, "the S3 server makes a bucket")
        yield url
    finally:
        server.end()
