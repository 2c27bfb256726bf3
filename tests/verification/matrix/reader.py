"""What confluent-kafka finds in a topic. The matrix's own Python runs it, because there is no wheel for Python 3.15.

    reader.py BOOTSTRAP_SERVERS TOPIC

Prints a JSON object, how often each value is there for read_committed, or null if there is no such topic.
"""

import json
import sys
from collections import Counter

from confluent_kafka import Consumer, KafkaException, TopicPartition

DEADLINE_S = 120
PARTITION_EOF = -191


def main() -> None:
    servers, topic = sys.argv[1:]
    print(json.dumps(committed(servers, topic)))


def committed(servers: str, topic: str) -> Counter[str] | None:
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "matrix", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
    })  # fmt: skip
    seen: Counter[str] = Counter()
    try:
        # Of all topics: a request for one could create it.
        found = consumer.list_topics(timeout=DEADLINE_S).topics.get(topic)
        if found is None:
            return None
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found.partitions])
        ended: set[int | None] = set()
        while len(ended) < len(found.partitions):
            message = consumer.poll(DEADLINE_S)
            if message is None:
                raise TimeoutError(f"{topic} could not be read to its end in {DEADLINE_S} s")
            error = message.error()
            if error is None:
                seen[(message.value() or b"").decode()] += 1
            elif error.code() == PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return seen


if __name__ == "__main__":
    main()
