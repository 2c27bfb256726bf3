"""Exports from a thread pool and from an InheritableThread, each to its own topic. The receipts are kept."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from pyspark import InheritableThread
from pyspark.sql import SparkSession

import kafka_sink

ROWS = 1_000
spark = SparkSession.builder.getOrCreate()


def export(number: int) -> int | None:
    receipt = kafka_sink.export(
        spark.range(ROWS), f"threads-{number}", key="id", value="json", create_topics=True,
        bootstrap_servers=os.environ["SERVERS"], receipts_path=os.path.abspath("receipts"),
    )  # fmt: skip
    print(receipt)
    return receipt.rows


with ThreadPoolExecutor(2) as pool:
    written = list(pool.map(export, range(3)))
thread = InheritableThread(target=lambda: written.append(export(3)))
thread.start()
thread.join()
assert written == [ROWS] * 4, written
