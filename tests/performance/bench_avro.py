"""`python tests/performance/bench_avro.py`: records of a schema registry in Avro, read into Spark's `noop` sink.

Two reads of the same topic in turns, in one application with two cores: `format("pykafka")` with `deserialized`, and
Spark's own source with the JVM's `from_avro` behind the framing's five bytes. Before the rounds, what both read is
compared by a checksum over all columns. A record has ten fields: two bigints, one of them nullable, a double, five
strings of 10 characters, a timestamp and a boolean.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

import frame as shared
from frame import arguments, bench, in_turns, jars
from kafka_sink.registry import deserialized, serialized
from spark_sessions import COUNTED, UNIX_CONF, Cost, local_session, timed

sys.path.append(str(Path(__file__).parents[1] / "support"))
from small_registry import small_registry

PYKAFKA, JVM = "pykafka, deserialized", "kafka, from_avro"
PARTITIONS = 4
COLUMNS = [
    "id", "CASE WHEN id % 10 > 0 THEN id * 1000 END AS amount", "id / 7D AS price",
    *(f"concat('text-', lpad(string(id % 99999 + {each}), 5, '0')) AS text{each}" for each in range(5)),
    "timestamp_micros(id * 1000003) AS at", "id % 2 = 0 AS paid",
]  # fmt: skip


class Reader:
    """An application."""

    def __init__(self, jars: str, servers: str, registry: str, folder: Path) -> None:
        confs = {"jars": jars, "sql_files_maxPartitionBytes": "16g", UNIX_CONF: True, **COUNTED}
        self._spark = local_session("avro", "local[2]", folder, **confs)
        self._servers = {"kafka.bootstrap.servers": servers}
        self._registry = {"url": registry}
        self._schema = ""

    def fill(self, topic: str, rows: int, schema: str) -> None:
        self._schema = schema
        frame = self._spark.range(0, rows, 1, 2).selectExpr(*COLUMNS)
        value = serialized(frame, frame.columns, topic=topic, form="avro", registry=self._registry, schema=schema)
        written = frame.select(value.alias("value")).write.format("pykafka").mode("append")
        written.options(**self._servers, topic=topic).save()

    def _frame(self, topic: str, reader: str) -> DataFrame:
        name = reader.partition(",")[0]
        options = {**self._servers, "subscribe": topic}
        frame = self._spark.read.format(name).options(**options).load()
        record = F.expr("substring(value, 6)")
        decoded: Any = from_avro(record, self._schema)
        if reader == PYKAFKA:
            decoded = deserialized(frame, "value", topic=topic, form="avro", registry=self._registry)
        return frame.select(decoded.alias("record")).select("record.*")

    def digest(self, topic: str, reader: str) -> list[int]:
        """Rows, and a sum over all that is in them."""
        frame = self._frame(topic, reader)
        crc = F.crc32(F.to_json(F.struct(*frame.columns)).cast("binary"))
        (row,) = frame.agg(F.count(F.lit(1)), F.sum(crc)).collect()
        return [int(row[0]), int(row[1] or 0)]

    def read(self, topic: str, reader: str) -> Cost:
        frame = self._frame(topic, reader)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())


SCHEMA = """{"type": "record", "name": "order", "fields": [
    {"name": "id", "type": "long"}, {"name": "amount", "type": ["null", "long"]}, {"name": "price", "type": "double"},
    %s, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "paid", "type": "boolean"}]}""" % ", ".join(  # noqa: UP031
    f'{{"name": "text{each}", "type": "string"}}' for each in range(5)
)


def main() -> None:
    parser = arguments(__doc__, 5, each="both reads", output="avro.json")
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    with small_registry() as registry, bench() as on:
        log = options.output / "spark-avro.log"
        spark = on.application(log, Reader, jars(), on.kafka.bootstrap_servers, registry.url, on.folder)
        (topic,) = on.topics.create(PARTITIONS)
        spark.ask("fill", topic, options.rows, SCHEMA)
        seen = [spark.ask("digest", topic, reader) for reader in (PYKAFKA, JVM)]
        if seen[0] != seen[1] or seen[0][0] != options.rows:
            raise SystemExit(f"of {options.rows} rows the two reads found {seen}")
        costs = in_turns((PYKAFKA, JVM), options.rounds, partial(spark.ask, "read", topic))
        millions = options.rows / 1e6
        rows = [
            f"{reader} | {millions / shared.median(each, 'wall_s'):.2f} | {shared.median(each, 'cpu_s') / millions:.2f}"
            for reader, each in costs.items()
        ]
        print(shared.markdown("a read | million rows/s | CPU s per million rows", rows))
        faster = shared.median_ratio(costs[JVM], costs[PYKAFKA], "wall_s")
        print(f"rows/s: {faster:.2f} x of from_avro; CPU: "
              f"{shared.median_ratio(costs[PYKAFKA], costs[JVM], 'cpu_s'):.2f} x")  # fmt: skip
        shared.write_report(options.output / "avro.json", {"rows": options.rows, "rounds": costs}, on.kafka)


if __name__ == "__main__":
    main()
