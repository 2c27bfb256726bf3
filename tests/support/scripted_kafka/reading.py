"""The seam of `kafka_sink.verification.cluster`: a consumer of a ScriptedKafka's topics."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.verification.checking import Log, Record
from kafka_sink.verification.cluster import Topic
from scripted_kafka.kafka import ScriptedKafka


@dataclass
class ReadablePartition:
    """`there`: its records. `asked`: first and last offset of each read."""

    there: list[Record]
    log_now: Log
    asked: list[tuple[int, int]] = field(default_factory=list)

    def log(self) -> Log:
        return self.log_now

    def records(self, first: int, last: int) -> Iterator[Record]:
        self.asked.append((first, last))
        return (record for record in self.there if first <= record.offset <= last)


@dataclass
class ReadableCluster:
    """`partitions`: by topic and number. `committed`: of each partition that was read, whether as committed."""

    kafka: ScriptedKafka
    partitions: dict[tuple[str, int], ReadablePartition]
    committed: list[bool] = field(default_factory=list)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        answer = self.kafka.answer(min(self.kafka.brokers), MetadataRequest(tuple(names), False))
        return {
            topic.name: Topic(len(topic.partitions), topic.topic_id and str(topic.topic_id), is_compacted=False)
            for topic in answer.topics
            if not topic.error_code
        }

    def partition(self, topic: str, partition: int, *, committed: bool, is_compacted: bool | None) -> ReadablePartition:
        self.committed.append(committed)
        return self.partitions[topic, partition]
