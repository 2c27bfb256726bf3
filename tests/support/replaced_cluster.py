"""Another cluster behind the addresses of a local one: made anew, or restored from a snapshot."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from kafka_sink.broker import LocalKafka

NODE = 1


def wipe(kafka: LocalKafka) -> None:
    """Delete the broker's data and start an empty cluster with another id at its address."""
    kafka.kill(NODE)
    shutil.rmtree(_data(kafka))
    cluster_id = str(uuid.uuid4())[:22]
    properties = str(kafka.dir / f"node-{NODE}" / "server.properties")
    kafka.run_tool("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "--config", properties)
    kafka.start(NODE)


def take_snapshot(kafka: LocalKafka) -> Path:
    """Kill the broker, copy its data for `restore`, and start it again."""
    kafka.kill(NODE)
    snapshot = kafka.dir / "snapshot"
    shutil.copytree(_data(kafka), snapshot)
    kafka.start(NODE)
    return snapshot


def restore(kafka: LocalKafka, snapshot: Path) -> None:
    """Restore the snapshot: the cluster id is the same, all data is as of the snapshot."""
    kafka.kill(NODE)
    shutil.rmtree(_data(kafka))
    shutil.copytree(snapshot, _data(kafka))
    kafka.start(NODE)


def _data(kafka: LocalKafka) -> Path:
    return kafka.dir / f"node-{NODE}" / "data"
