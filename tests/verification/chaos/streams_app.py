"""Streams that run on whatever happens, in one Spark application. Run as a script:

    streams_app.py <bootstrap servers> <folder> <topic> ...

Each is `jobs/stream_to_kafka.py` with a source that always has the next micro-batch: numbers from 0, ROWS of them in
SLOTS partitions, as key and value. `folder` has its preset, <topic>.conf, and gets its checkpoint, <topic>. A stream
that ends is started again, as its owner would, and why it ended is a line of JSON, {topic: error}, in `endings`. On
SIGTERM all end between two micro-batches.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import stream_support
import stream_to_kafka
from job_support import session, sigterm

ROWS, SLOTS = 2_000, 2
# With leading zeros, for size: a micro-batch takes some requests a partition.
NUMBER = "lpad(CAST(value AS STRING), 100, '0')"
POLL_S = 0.1


@dataclass(slots=True)
class Stream:
    spark: SparkSession
    servers: str
    folder: Path
    topic: str
    query: StreamingQuery | None = None

    def look_after(self) -> StreamingQuery:
        if self.query is not None:
            if self.query.isActive:
                return self.query
            with (self.folder / "endings").open("a") as endings:
                endings.write(json.dumps({self.topic: str(self.query.exception())}) + "\n")
        arguments = stream_to_kafka.parse([
            "--format", "rate-micro-batch", "--source-option", f"rowsPerBatch={ROWS}", "--source-option",
            f"numPartitions={SLOTS}", "--key", NUMBER, "--value", NUMBER, "--processing-time", "0 seconds",
            "--bootstrap-servers", self.servers, "--topic", self.topic, "--checkpoint", str(self.folder / self.topic),
            "--preset", str(self.folder / f"{self.topic}.conf"),
        ])  # fmt: skip
        self.query = stream_to_kafka.start(stream_to_kafka.read(self.spark, arguments), arguments)
        return self.query

    def hold(self) -> None:
        """Between two micro-batches, the last of which went well."""
        query = self.look_after()
        stream_support.hold_between_micro_batches(query)
        if not query.isActive:
            self.hold()


def main() -> None:
    servers, folder, *topics = sys.argv[1:]
    terminate = sigterm()
    # A stream whose tasks wait for a broker leaves the others cores.
    builder = SparkSession.builder.master(f"local[{SLOTS * len(topics)}]").config("spark.ui.enabled", "false")
    builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark = session("streams", terminate)
    streams = [Stream(spark, servers, Path(folder), topic) for topic in topics]
    while not terminate.is_set():
        for stream in streams:
            stream.look_after()
        terminate.wait(POLL_S)
    for stream in streams:
        stream.hold()
    spark.stop()


if __name__ == "__main__":
    main()
