"""Whether this task writes over its executor's relay (`kafka_sink/relay`): if PYKAFKA_RELAY is `on` in the environment
of the executors (`spark.executorEnv.PYKAFKA_RELAY`), and the system has what it needs."""

from __future__ import annotations

import os

from kafka_sink.kafka.net.shared_memory import is_possible


def is_wanted() -> bool:
    return os.environ.get("PYKAFKA_RELAY") == "on" and is_possible()
