"""How many connections to a broker the worker of tasks holds after each kind of write.

python connections_app.py BOOTSTRAP_SERVERS TOPIC FOLDER prints a JSON object: write -> number. All writes have the same
options of connections, and their tasks run in one worker.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import processes
from open_connections import connections_to
from spark_writes import finish, pykafka

bootstrap_servers, topic, folder = sys.argv[1:]
# One task at a time.
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def connections() -> int:
    """Of the worker that runs tasks. Plans and commits run in others."""
    ours = processes.below(os.getpid(), processes.of_session(os.getsid(0)))
    tasks = {each.process_id for each in ours if each.command.split()[-1:] == ["pyspark.worker"]}
    return sum(process_id in tasks for process_id in connections_to(bootstrap_servers).values())


values = spark.range(0, 100, 1, 1).selectExpr("cast(id AS STRING) AS value", "cast(null AS INT) AS partition")
one_bad = spark.range(0, 2, 1, 1).selectExpr("'v' AS value", "if(id = 1, 99, cast(null AS INT)) AS partition")
incoming = Path(folder, "incoming")
incoming.mkdir()
(incoming / "0.json").write_text('{"value": "v"}\n{"value": "v", "partition": 99}\n')
stream = spark.readStream.schema(values.schema).json(str(incoming)).coalesce(1)

exactly_once, drop = {"deliveryGuarantee": "exactly-once"}, {"badRows": "drop"}
counts = {}
pykafka(values.write.mode("append"), bootstrap_servers, topic).save()
counts["at-least-once"] = connections()
pykafka(one_bad.write.mode("append"), bootstrap_servers, topic).options(**drop).save()
counts["at-least-once, a bad row"] = connections()
pykafka(values.write.mode("append"), bootstrap_servers, topic).options(**exactly_once).save()
counts["exactly-once"] = connections()
writer = pykafka(stream.writeStream, bootstrap_servers, topic).options(**exactly_once, **drop)
finish(writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start())
counts["exactly-once, a micro-batch with a bad row"] = connections()
print(json.dumps(counts))
spark.stop()
