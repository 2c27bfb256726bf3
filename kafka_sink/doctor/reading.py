"""The examination of a read: everything that it needs of a cluster. It reads no record.

bootstrap servers ─> each broker at its advertised address ─> each topic: is it there, may it be read, is it led
                                                           ─> the group of groupId: may it be committed to
"""

from __future__ import annotations

from kafka_sink.doctor import engine, findings
from kafka_sink.doctor.engine import Examination, Hosts, reached
from kafka_sink.doctor.report import Finding, Report, failed, ok
from kafka_sink.kafka.protocol.api import AclOperation
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.reading import ReadConfig

# Topics of a pattern that are examined. The others are counted.
MOST_TOPICS = 20


def examine_read(config: ReadConfig) -> Report:
    """Take all steps from this host."""
    with reached(config.consumer) as hosts:
        examination = _ReadExamination(config, hosts)
        examination.take_all()
        return Report((*hosts.verdicts, *examination.verdicts))


class _ReadExamination(Examination):
    def __init__(self, config: ReadConfig, hosts: Hosts) -> None:
        super().__init__(config.consumer, hosts)
        self._config = config
        self._names: tuple[str, ...] = ()

    def take_all(self) -> None:
        self.take("cluster", "cluster", self.look_at_cluster)
        self.take("service", "cluster", self.look_at_service)
        self.take("reading", "cluster", lambda: engine.reading(self.ranges()))
        if self._config.subscribe_pattern is not None:
            self.take("topic", "subscribePattern", self._matching)
        elif self._config.subscribe is not None:
            self._names = self._config.subscribe
        else:
            self._names = tuple(dict.fromkeys(each.topic for each in self._config.assign or ()))
        for name in self._names[:MOST_TOPICS]:
            self._take_topic(name)
        group_id = self._config.group_id
        if group_id is not None:
            self.take("group acl", f"group {group_id}", lambda: self._group(group_id))
        self.look_at_throttles()

    def _group(self, group_id: str) -> Finding:
        return findings.progress_group(*self.operations_on(group_id), group_id, self._client)

    def _matching(self) -> Finding:
        pattern = self._config.subscribe_pattern
        assert pattern is not None, "asked for by subscribePattern"
        response = self.ask(MetadataRequest(None, allow_auto_topic_creation=False), MetadataResponse)
        matching = (each.name for each in response.topics if not each.is_internal and pattern.search(each.name))
        self._names = tuple(sorted(matching))
        if not self._names:
            return failed("it matches none of the topics that this principal may see", "correct the pattern")
        count = len(self._names)
        more = f"; {MOST_TOPICS} are examined" if count > MOST_TOPICS else ""
        return ok(f"it matches {count} topic{'s' if count != 1 else ''}{more}")

    def _take_topic(self, name: str) -> None:
        where = f"topic {name}"
        found: list[TopicMetadata] = []

        def look() -> Finding:
            found.append(self.metadata_of(name))
            return self._judge(found[0])

        before = len(self.verdicts)
        self.take("topic", where, look)
        # Steps of this topic depend on this topic's verdict alone.
        others, self.verdicts = self.verdicts[:before], self.verdicts[before:]
        self.take("read acl", where, lambda: findings.may(AclOperation.READ, found[0], self._client))
        self.take("leaders", where, lambda: findings.leaders(found[0]))
        self.verdicts = others + self.verdicts

    def _judge(self, answer: TopicMetadata) -> Finding:
        match answer.error_code:
            case ErrorCode.NONE if answer.partitions:
                return ok(f"{len(answer.partitions)} partitions")
            case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return failed("there is no such topic", "correct subscribe or assign, or create it")
            case _:
                return findings.not_described(answer, AclOperation.READ, self._client)
