"""Another cluster behind the addresses of a local one: made anew, or restored from a snapshot."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from kafka_sink.broker import LocalKafka

NODE = 1


def wipe(kafka: LocalKafka) -> None:
    """The broker's data is gone; an empty cluster with another id starts behind its address."""
    kafka.kill(NODE)
    shutil.rmtree(_data(kafka))
    cluster_id = str(uuid.uuid4())[:22]
    properties = str(kafka.dir / f"node-{NODE}" / "server.properties")
    kafka.run_tool("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", properties)
    kafka.start(NODE)


def take_snapshot(kafka: LocalKafka) -> Path:
    """A copy of the broker's data, which `restore` takes. The broker is killed for it and started again."""
    kafka.kill(NODE)
    snapshot = kafka.dir / "snapshot"
    shutil.copytree(_data(kafka), snapshot)
    kafka.start(NODE)
    return snapshot


def restore(kafka: LocalKafka, snapshot: Path) -> None:
    """The same cluster id, and everything else as it was when the snapshot was taken."""
    kafka.kill(NODE)
    shutil.rmtree(_data(kafka))
    shutil.copytree(snapshot, _data(kafka))
    kafka.start(NODE)


def _data(kafka: LocalKafka) -> Path:
    return kafka.dir / f"node-{NODE}" / "data"
