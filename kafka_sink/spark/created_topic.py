"""Creates the topic of the option createTopics before a write begins. Error texts come from `doctor.findings`.

Only writes with createTopics import this module, because the import takes time in a worker.
"""

from __future__ import annotations

import os

from kafka_sink.doctor import findings
from kafka_sink.doctor.report import Status
from kafka_sink.errors import ClusterError, TopicNotCreated
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.topics import await_leaders, create_topic
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import SinkConfig
from kafka_sink.spark.kept_clients import once

# A task looks for the topic for this time. After it, the write itself waits for the brokers.
LOOK_MS = 8_000
# Wait this long for the leaders of a new topic. After it, the write waits for the missing leaders.
PATIENCE_MS = 4_000
# Topics that exist: (process id, bootstrap servers, topic), until the process ends. A forked child looks again.
_there: set[tuple[int, str, str]] = set()


def ensure_topic(config: SinkConfig) -> None:
    """With createTopics, create the topic of the options if it is missing, once in a process.

    If no broker can be reached, return: the write itself waits for the brokers. Raises TopicNotCreated, ClusterError.
    """
    if not _is_wanted(config):
        return
    # This runs once in a process, so no connection is kept.
    with once(AdminClient, config.producer) as client:
        try:
            with client.within(LOOK_MS):
                topic = _look(client, config)
        except ClusterError:
            return
        _ensure(client, config, topic)


def ensure_topic_by(client: AdminClient, config: SinkConfig) -> None:
    """Do the same with the caller's client. Raises ClusterError too if no broker can be reached."""
    if _is_wanted(config):
        _ensure(client, config, _look(client, config))


def _is_wanted(config: SinkConfig) -> bool:
    return bool(config.create_topics) and config.topic is not None and _key(config) not in _there


def _key(config: SinkConfig) -> tuple[int, str, str]:
    return os.getpid(), config.producer.bootstrap_servers_text, config.topic or ""


def _look(client: AdminClient, config: SinkConfig) -> TopicMetadata:
    assert config.topic is not None, "rows that name their topics themselves ask for none"
    return client.topics((config.topic,))[config.topic]


def _ensure(client: AdminClient, config: SinkConfig, topic: TopicMetadata) -> None:
    if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        finding = findings.topic(topic, config)
    else:
        wanted = config.create_topics
        assert wanted, "asked for by createTopics"
        finding = findings.created(create_topic(client, topic.name, wanted), topic.name, wanted, config)
        if finding.status is not Status.FAILED:
            topic = await_leaders(client, topic.name, PATIENCE_MS)
            finding = finding if topic.partitions else findings.topic(topic, config)
    if finding.status is Status.FAILED:
        raise TopicNotCreated(topic=topic.name, reason=finding.found, remedy=finding.remedy)
    _there.add(_key(config))
