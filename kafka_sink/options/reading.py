"""The options of a read, as one table, and the configuration that is made of them.

They have the names, values and defaults of Spark's Kafka source. What is for every client is the same as for writes. A
value comes from the option or the default: Spark gives its conf to no process that plans a read.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider; org.apache.kafka.clients.consumer.ConsumerConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from kafka_sink.errors import InvalidOption, MissingOption, RefusedOption
from kafka_sink.errors.redaction import Discreet
from kafka_sink.kafka.config import ConsumerConfig, IsolationLevel, SecurityConfig
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options import kinds
from kafka_sink.options.bounds import (
    ASSIGNED,
    EARLIEST,
    ENDING_OFFSETS,
    LATEST,
    STARTING_OFFSETS,
    STRATEGIES,
    SUBSCRIBED,
    TIMESTAMP,
    TIMESTAMPS,
    AtGroup,
    AtOffset,
    Bound,
    begins_at_latest,
    is_reversed,
    moves,
    option_of,
    resolved,
    text_of,
)
from kafka_sink.options.config import (
    SECURITY_FIELDS,
    SECURITY_RULES,
    GivenOptions,
    check_protocol_is_named,
    with_defaults,
)
from kafka_sink.options.java_pattern import java_pattern
from kafka_sink.options.kinds import INT64_MAX, KIB, MIB, OUTAGE_MS, Kind, Option, OptionTable, Section
from kafka_sink.options.table import REFUSED, REFUSED_PREFIXES, SPARK_OPTIONS, WRITING


def _pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise ValueError
    try:
        return java_pattern(text)
    except re.error as error:
        raise kinds.Problem(f"{error.msg} at position {error.pos}") from None


_ISOLATION_LEVEL = kinds.words(
    "one of: read_uncommitted, read_committed", {level.name.lower(): level for level in IsolationLevel}
)
# GroupCoordinatorService takes every name that is not empty. A string of the protocol has a length of 16 bits.
_GROUP_ID = Kind("a name that is not empty", kinds.checked(lambda text: 0 < len(text.encode()) < 2**15))


def _of_writes(*names: str) -> tuple[Option, ...]:
    return tuple(WRITING.by_key[name] for name in names)


(_SECURITY,) = (section for section in WRITING.sections if section.title == "Security")
(_CONNECTIONS,) = (section for section in WRITING.sections if section.title == "Connections")

# Options that reads have too, with another meaning or default.
_OTHERWISE = ("kafka.client.rack", "kafka.receive.buffer.bytes")

_BOUNDS = """\
Of several, a timestamp counts first, then timestamps, then offsets. `startingGroup` stands alone. A stream begins there
once; afterwards its checkpoint counts. It has no end: options for one are refused."""
_PACE = """\
Batch reads accept these without effect, as Spark's source does. They need Spark 4.2: an earlier Spark asks no Python
source for less than all."""

_FETCHING = """\
A task has one request under way while Spark takes the rows of the answer before. So a task holds at most two answers,
and one Arrow batch. An answer has at most `kafka.max.partition.fetch.bytes`, or one record batch if that is larger.
With `maxPartitions` a request asks for several partitions of a leader. A task holds two answers of each leader then."""


SECTIONS: tuple[Section, ...] = (
    Section("What to read", "Exactly one of `subscribe`, `subscribePattern` and `assign` is required.", (
        *_of_writes("kafka.bootstrap.servers"),
        Option("subscribe", "subscribe", SUBSCRIBED, None, "topics to read, all partitions of them"),
        Option("subscribePattern", "subscribe_pattern", Kind("a Java regular expression", _pattern), None,
               "topics in whose names it is found; ^ and $ stand for start and end of a name"),
        Option("assign", "assign", ASSIGNED, None, "partitions to read"),
        Option("includeHeaders", "include_headers", kinds.BOOLEAN, False,
               "true: a column `headers` with the headers of each record"),
        Option("failOnDataLoss", "fail_on_data_loss", kinds.BOOLEAN, True,
               "true: the query fails if offsets that it should read are not there (any more); false: it logs a "
               "warning, and reads what is there"),
    )),
    Section("Where to begin and to end", _BOUNDS, (
        Option("startingOffsets", "starting_offsets", STARTING_OFFSETS, None,
               "first offset of each partition; -2: earliest; -1: latest, for streams only; latest-1000: 1000 offsets "
               "before the end. Not set: a batch begins at the earliest, a stream at the latest offset"),
        Option("startingTimestamp", "starting_timestamp", TIMESTAMP, None,
               "begins each partition at its first record that is not older"),
        Option("startingOffsetsByTimestamp", "starting_timestamps", TIMESTAMPS, None, "the same, by partition"),
        Option("startingOffsetsByTimestampStrategy", "starting_strategy", kinds.one_of("error", "latest"), "error",
               "if a partition has no record that is as new: error: the query fails; latest: it reads none of it"),
        Option("startingGroup", "starting_group", replace(_GROUP_ID, keeps_spaces=True), None,
               "a consumer group: begins each partition at the offset that the group has committed. The read joins no "
               "group, and commits nothing"),
        Option("startingGroupStrategy", "starting_group_strategy",
               kinds.words("one of: error, earliest, latest", STRATEGIES), None,
               "if the group has committed no offset of a partition: error: the query fails; earliest, latest: begins "
               "there. Not set: error. A group without any offset of the read is an error whatever this says"),
        Option("endingOffsets", "ending_offsets", ENDING_OFFSETS, AtOffset(LATEST),
               "offset after the last record of each partition; -1: latest"),
        Option("endingTimestamp", "ending_timestamp", TIMESTAMP, None,
               "ends each partition before its first record that is not older, or at its end"),
        Option("endingOffsetsByTimestamp", "ending_timestamps", TIMESTAMPS, None, "the same, by partition"),
        Option("reuseOffsets", "reuse_offsets", kinds.BOOLEAN, False,
               "batches: true: each action on the DataFrame reads the offsets of the first one; false: it reads what "
               "has arrived since, too, or fails where that cannot be planned (PlanReused)"),
    )),
    Section("How to divide the work", "Without these, each partition of Kafka is one of the DataFrame.", (
        Option("minPartitions", "min_partitions", kinds.integer(1), None,
               "splits partitions into ranges of offsets, so that the DataFrame has about as many partitions"),
        Option("maxRecordsPerPartition", "max_records_per_partition", kinds.integer(1, INT64_MAX), None,
               "most offsets in one partition of the DataFrame"),
        Option("maxPartitions", "max_partitions", kinds.integer(1), None,
               "most partitions of the DataFrame: one of them then has ranges of several partitions of Kafka. At least "
               "minPartitions, and not beside maxRecordsPerPartition"),
    )),
    Section("How much a micro-batch reads", _PACE, (
        Option("maxBytesPerTrigger", "max_bytes_per_trigger", kinds.BYTES, None,
               "about how many bytes of record batches, compressed as brokers have them, a micro-batch has; at least "
               "one batch"),
        Option("maxOffsetsPerTrigger", "max_offsets_per_trigger", kinds.integer(1, INT64_MAX), None,
               "about how many offsets a micro-batch has, divided in proportion to what each partition has"),
        Option("maxOffsetsPerPartitionPerTrigger", "max_offsets_per_partition", kinds.integer(1, INT64_MAX), None,
               "most offsets of one partition of Kafka in a micro-batch"),
        Option("minOffsetsPerTrigger", "min_offsets_per_trigger", kinds.integer(1, INT64_MAX), None,
               "how many new offsets a micro-batch waits for; trigger(availableNow=True) does not wait"),
        Option("maxTriggerDelay", "max_trigger_delay_ms", kinds.DURATION, 15 * 60 * 1000,
               "for how long it waits for them at most"),
    )),
    Section("Lag in Kafka's own tools", "", (
        Option("groupId", "group_id", _GROUP_ID, None,
               "streams: the consumer group that a stream commits its progress to, so that Kafka's tools show its lag; "
               "it must have no members. The stream never reads it. Batch reads commit nothing"),
    )),
    Section("Fetching", _FETCHING, (
        Option("kafka.isolation.level", "isolation_level", _ISOLATION_LEVEL, IsolationLevel.READ_UNCOMMITTED,
               "read_committed: only records of committed transactions, and of none, up to the first open transaction"),
        Option("kafka.max.partition.fetch.bytes", "max_partition_fetch_bytes", kinds.integer(1 * KIB, 64 * MIB),
               1 * MIB,
               "bytes of record batches in one answer"),
        Option("kafka.fetch.max.bytes", "fetch_max_bytes", kinds.integer(1 * KIB), 50 * MIB,
               "as kafka.max.partition.fetch.bytes: both limit a whole answer, and the smaller value counts"),
        Option("kafka.fetch.min.bytes", "fetch_min_bytes", kinds.integer(1), 1,
               "bytes for which a broker waits up to kafka.fetch.max.wait.ms"),
        Option("kafka.fetch.max.wait.ms", "fetch_max_wait_ms", kinds.MILLISECONDS_OR_NONE, 500,
               "milliseconds for which a broker waits for records"),
        Option("maxDecompressedBatchBytes", "max_batch_bytes", kinds.integer(1 * MIB, 2 * 1024 * MIB - 1), 128 * MIB,
               "bytes of records that one record batch may have after decompression; a larger one is an error"),
        Option("maxHeadersPerBatch", "max_headers_per_batch", kinds.integer(1, 2**31 - 1), 1_000_000,
               "headers that the records of one record batch may have together; more are an error"),
        Option("kafka.check.crcs", "check_crcs", kinds.BOOLEAN, True,
               "true: the checksum of each record batch is verified"),
        Option("kafka.client.rack", "client_rack", kinds.TEXT, "",
               "the executors' rack: the leader may name a replica in it to read from (KIP-392)"),
    )),
    Section("How long to wait", "All in milliseconds.", (
        Option("kafkaConsumer.pollTimeoutMs", "poll_timeout_ms", kinds.MILLISECONDS, OUTAGE_MS,
               "how long a task waits for the next record before it fails; time in which a broker throttles does not "
               "count"),
        Option("kafka.default.api.timeout.ms", "default_api_timeout_ms", kinds.MILLISECONDS, OUTAGE_MS,
               "how long the planning of a read waits for topics and offsets. If no broker has ever answered, it fails "
               "earlier"),
        *_of_writes("kafka.request.timeout.ms", "kafka.retry.backoff.ms", "kafka.retry.backoff.max.ms",
                    "kafka.metadata.max.age.ms"),
    )),
    Section("Connections", "", (
        *(option for option in _CONNECTIONS.options if option.name not in _OTHERWISE),
        Option("kafka.receive.buffer.bytes", "receive_buffer_bytes", kinds.SOCKET_BUFFER, -1,
               "the socket's SO_RCVBUF; -1: the system's default, which grows with the connection. With Java's default "
               "of 65536 a read takes up to two thirds more CPU in its Python workers"),
    )),
    _SECURITY,
    Section("Accepted without effect", "", (
        *(Option(name, None, kinds.TEXT, None, "reads join no consumer group; to see the lag of a stream, set groupId")
          for name in ("kafka.group.id", "groupIdPrefix")),
        *(Option(name, None, kinds.TEXT, None, "reads join no consumer group")
          for name in ("kafka.group.instance.id", "kafka.session.timeout.ms",
                       "kafka.heartbeat.interval.ms", "kafka.max.poll.interval.ms",
                       "kafka.partition.assignment.strategy", "kafka.group.protocol", "kafka.group.remote.assignor",
                       "kafka.share.acknowledgement.mode", "kafka.share.acquire.mode")),
        *(Option(name, None, kinds.TEXT, None, "the client retries until kafka.default.api.timeout.ms")
          for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs")),
        Option("kafka.max.poll.records", None, kinds.TEXT, None, "rows come in Arrow batches"),
        Option("kafka.exclude.internal.topics", None, kinds.TEXT, None,
               "subscribePattern never matches internal topics"),
        Option("kafka.allow.auto.create.topics", None, kinds.TEXT, None, "a read creates no topic"),
    )),
)  # fmt: skip

_OF_WRITES_ONLY = "remove it: it is an option of writes."
_BYTES = "remove it: 'key' and 'value' are binary columns. Decode them in the DataFrame, for example with from_json."
_OUR_OFFSETS = "remove it: the options of the read say where it begins and ends."

READING = OptionTable(
    SECTIONS,
    SPARK_OPTIONS,
    {
        **{name: instead for name, instead in REFUSED.items() if "serializer" not in name},
        "kafka.key.deserializer": _BYTES,
        "kafka.value.deserializer": _BYTES,
        "kafka.auto.offset.reset": "use startingOffsets and failOnDataLoss.",
        "kafka.enable.auto.commit": _OUR_OFFSETS,
        "kafka.auto.commit.interval.ms": _OUR_OFFSETS,
        "kafka.interceptor.classes": "remove it: the source does not run classes that options name.",
        "topic": "use subscribe: 'topic' is an option of writes.",
        **{
            option.name: _OF_WRITES_ONLY
            for option in WRITING.options
            if option.name not in {each.name for section in SECTIONS for each in section.options}
            and option.name != "topic"
        },
    },
    REFUSED_PREFIXES,
    WRITING.not_yet_prefixes,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadConfig(Discreet):
    """The configuration of a read. Exactly one of `subscribe`, `subscribe_pattern` and `assign` is set."""

    consumer: ConsumerConfig
    subscribe: tuple[str, ...] | None
    subscribe_pattern: re.Pattern[str] | None
    assign: tuple[TopicPartition, ...] | None
    starting: Bound
    ending: Bound
    starting_strategy: str
    include_headers: bool
    fail_on_data_loss: bool
    reuse_offsets: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_partitions: int | None
    max_bytes_per_trigger: int | None
    max_offsets_per_trigger: int | None
    max_offsets_per_partition: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    group_id: str | None
    max_batch_bytes: int
    max_headers_per_batch: int
    poll_timeout_ms: int

    def at(self, now_ms: int) -> ReadConfig:
        """Return the configuration of a read that is planned at `now_ms` (since 1970). Raises InvalidOption if it ends
        before it begins."""
        starting, ending = resolved(self.starting, now_ms), resolved(self.ending, now_ms)
        _check_order(starting, ending)
        return replace(self, starting=starting, ending=ending)

    def again(self, planned_ms: int) -> ReadConfig:
        """Return the configuration for a later look at what a batch reads that was planned at `planned_ms`. It begins
        where the plan begins, so only what the plan did not have, and where the logs begin, is looked for."""
        later = self.at(planned_ms)
        return replace(later, starting=AtOffset(EARLIEST)) if moves(later.starting) else later

    @property
    def limits_micro_batches(self) -> bool:
        """Whether a micro-batch may read less than all that is there."""
        limits = self.max_bytes_per_trigger, self.max_offsets_per_trigger, self.max_offsets_per_partition
        return any(limit is not None for limit in limits)


_OPTION_OF = {option.field: option for option in READING.options if option.field is not None}
_CONSUMER_FIELDS = frozenset(field.name for field in fields(ConsumerConfig)) - {"security"}
_WHAT = ("subscribe", "subscribe_pattern", "assign")


def read_config(given: GivenOptions, *, is_stream: bool = False) -> ReadConfig:
    """Return the configuration: `given`, completed with the defaults. Raises MissingOption, InvalidOption,
    RefusedOption."""
    values = with_defaults(given, _OPTION_OF)
    _check_what(values)
    _check_division(values)
    check_protocol_is_named(given)
    for rule in SECURITY_RULES:
        rule.check(values)
    security = SecurityConfig(**{field: values[field] for field in SECURITY_FIELDS})
    consumer = ConsumerConfig(**{field: values[field] for field in _CONSUMER_FIELDS}, security=security)
    group = _group(given, values)
    if values["starting_offsets"] is None:
        values["starting_offsets"] = AtOffset(LATEST if is_stream else EARLIEST)
    starting, ending = group or _bound(values, "starting"), _bound(values, "ending")
    if is_stream:
        _check_stream(given, values)
    elif begins_at_latest(starting):
        expected = "earliest, a timestamp or offsets: a batch that begins at the end (latest, -1) reads nothing"
        raise InvalidOption(option=option_of(starting, "starting"), value=text_of(starting), expected=expected)
    _check_order(starting, ending)
    return ReadConfig(
        consumer=consumer,
        starting=starting,
        ending=ending,
        **{
            field.name: values[field.name]
            for field in fields(ReadConfig)
            if field.name not in ("consumer", "starting", "ending")
        },
    )


def _check_stream(given: GivenOptions, values: Mapping[str, Any]) -> None:
    """Raise RefusedOption or InvalidOption for what a stream cannot have."""
    for field, option in _OPTION_OF.items():
        if field.startswith("ending_") and field in given:
            raise RefusedOption(
                option=option.name, instead="a stream has no end: use trigger(availableNow=True) to stop."
            )
    least, most = values["min_offsets_per_trigger"], values["max_offsets_per_trigger"]
    if least is not None and most is not None and least > most:
        name = _OPTION_OF["min_offsets_per_trigger"].name
        raise InvalidOption(option=name, value=str(least), expected=f"at most maxOffsetsPerTrigger, which is {most}")


def _check_division(values: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a limit of tasks that another option contradicts."""
    most = values["max_partitions"]
    if most is None:
        return
    name, least = _OPTION_OF["max_partitions"].name, values["min_partitions"]
    if values["max_records_per_partition"] is not None:
        expected = "no value beside maxRecordsPerPartition: one makes partitions few, the other small"
        raise InvalidOption(option=name, value=str(most), expected=expected)
    if least is not None and least > most:
        raise InvalidOption(option=name, value=str(most), expected=f"at least minPartitions, which is {least}")


def _bound(values: Mapping[str, Any], which: str) -> Bound:
    """Return the bound that counts."""
    fields_of = (f"{which}_timestamp", f"{which}_timestamps", f"{which}_offsets")
    bound: Bound = next(values[field] for field in fields_of if values[field] is not None)
    return bound


def _group(given: GivenOptions, values: Mapping[str, Any]) -> AtGroup | None:
    """Return the start at a consumer group, or None. Raises InvalidOption if another option contradicts it."""
    group_id, strategy = values["starting_group"], _OPTION_OF["starting_group_strategy"].name
    if group_id is None:
        if "starting_group_strategy" in given:
            raise InvalidOption(option=strategy, value=None, expected="no value without startingGroup")
        return None
    others = ("starting_offsets", "starting_timestamp", "starting_timestamps")
    for other in (_OPTION_OF[field].name for field in others if field in given):
        expected = f"no value beside {other}: a read begins at one of the two, and {strategy} says where it begins "
        expected += "without a committed offset"
        raise InvalidOption(option=_OPTION_OF["starting_group"].name, value=group_id, expected=expected)
    return AtGroup(group_id, values["starting_group_strategy"])


def _check_order(starting: Bound, ending: Bound) -> None:
    """Raise InvalidOption if a read of these bounds ends before it begins."""
    if is_reversed(starting, ending):
        expected = f"nothing before {option_of(starting, 'starting')}, which is {text_of(starting)}"
        raise InvalidOption(option=option_of(ending, "ending"), value=text_of(ending), expected=expected)


def _check_what(values: Mapping[str, Any]) -> None:
    given = [(_OPTION_OF[field].name, values[field]) for field in _WHAT if values[field] is not None]
    if not given:
        raise MissingOption(option="subscribe", hint="or subscribePattern, or assign: what to read.")
    if len(given) > 1:
        (option, value), (other, _) = given[:2]
        text = value.pattern if isinstance(value, re.Pattern) else ",".join(str(each) for each in value)
        raise InvalidOption(option=option, value=text, expected=f"no value beside {other}: only one of them counts")
