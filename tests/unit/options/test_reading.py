"""The table of a read's options, the configuration that is made of them, and the texts that say what is read."""

import contextlib
import functools
import json
import pickle
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_properties import FILES, SECRET, ClientProperties, read_properties
from effort import each
from kafka_sink.errors import ConfigError, InvalidOption, MissingOption, RefusedOption
from kafka_sink.kafka.config import ConsumerConfig, IsolationLevel, SecurityConfig
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import (
    ASSIGNED,
    EARLIEST,
    ENDING_OFFSETS,
    LATEST,
    STARTING_OFFSETS,
    SUBSCRIBED,
    TIMESTAMP,
    TIMESTAMPS,
    AtGroup,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    begins_at_latest,
    is_reversed,
)
from kafka_sink.options.config import given_options
from kafka_sink.options.kinds import INT64_MAX, Kind, Option, Problem
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.options.table import WRITING

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
# org.apache.kafka.clients.consumer.ConsumerConfig of 4.3.1: name=default.
CONSUMER_CONFIGS = dict(
    line.partition("=")[::2]
    for line in (Path(__file__).parents[2] / "support" / "consumer_configs.txt").read_text().splitlines()
)
# Options whose defaults are not Java's: the name of the client, the system's sizes of socket buffers, and GSSAPI, which
# Java takes if no mechanism is named.
OWN_DEFAULTS = {
    "client.id", "receive.buffer.bytes", "send.buffer.bytes", "sasl.mechanism", "bootstrap.servers",
    "default.api.timeout.ms",
}  # fmt: skip


def config(*, is_stream: bool = False, **options: str) -> ReadConfig:
    return read_config(given_options(OPTIONS | options, table=READING), is_stream=is_stream)


stream_config = functools.partial(config, is_stream=True)


@each("option", READING.options)
def test_every_option_is_found_in_any_case_and_has_a_meaning(option: Option) -> None:
    assert READING.named(option.name.swapcase()) is option
    assert option.doc


def test_every_option_that_is_taken_reaches_the_read() -> None:
    """Reads have the sections of connections and security in common with writes: an option there that only the producer
    obeys would be taken and ignored."""
    reached = {field.name for owner in (ReadConfig, ConsumerConfig, SecurityConfig) for field in fields(owner)}
    bounds = {f"{which}_{what}" for which in ("starting", "ending") for what in ("timestamp", "timestamps", "offsets")}
    bounds |= {"starting_group", "starting_group_strategy"}
    taken = {option.field for option in READING.options if option.field is not None}
    assert taken - reached == bounds


@each("name", [*WRITING.by_key, *(name.lower() for name in WRITING.refused)])
def test_every_name_of_a_write_is_taken_or_refused_with_what_to_do(name: str) -> None:
    if name in ("kafka.key.serializer", "kafka.value.serializer"):
        return
    try:
        assert READING.named(name) is not None
    except RefusedOption as refused:
        assert refused.instead


@each("name", [name for name in CONSUMER_CONFIGS if not name.startswith("internal.")])
def test_every_line_that_a_jvm_consumer_takes_is_taken_or_refused_with_what_to_do(name: str) -> None:
    try:
        assert READING.named(f"kafka.{name}") is not None
    except RefusedOption as refused:
        assert refused.option == f"kafka.{name}"


@each("name", CONSUMER_CONFIGS)
def test_a_default_is_kafkas(name: str) -> None:
    option = READING.by_key.get(f"kafka.{name}")
    if option is None or option.field is None or name in OWN_DEFAULTS:
        return
    value = option.default
    text = "null" if value is None else getattr(value, "name", str(value)).lower()
    assert text == re.sub(r"[][ ]", "", CONSUMER_CONFIGS[name]).lower(), name


@each("name", [
    "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "groupIdPrefix", "kafka.group.id",
])  # fmt: skip
def test_every_option_that_sparks_guide_has_for_a_batch_is_taken(name: str) -> None:
    assert READING.named(name) is not None


@each("name", [name for name in READING.by_key.keys() - WRITING.by_key.keys() if not name.startswith("kafka.")])
def test_an_option_of_reads_is_told_to_a_write(name: str) -> None:
    try:
        assert WRITING.named(name) is not None, "it is accepted without effect"
    except RefusedOption as refused:
        assert "option of reads" in refused.instead


@pytest.mark.parametrize(("name", "instead"), [
    ("kafka.auto.offset.reset", "startingOffsets"), ("kafka.key.deserializer", "binary columns"),
    ("kafka.value.deserializer", "binary columns"), ("kafka.enable.auto.commit", "where it begins and ends"),
    ("kafka.interceptor.classes", "does not run classes"), ("topic", "subscribe"), ("kafka.acks", "option of writes"),
    ("deliveryGuarantee", "option of writes"), ("txnAppId", "option of writes"),
])  # fmt: skip
def test_what_a_read_cannot_take_is_refused_as_one_of_a_read(name: str, instead: str) -> None:
    with pytest.raises(RefusedOption, match=instead) as refused:
        config(**{name: "hunter2"})
    said = str(refused.value.of_read())
    assert "hunter2" not in said and "the records stay in Kafka" in said


def test_the_defaults_are_those_of_sparks_source() -> None:
    made = config()
    assert (made.subscribe, made.subscribe_pattern, made.assign) == (("t",), None, None)
    assert (made.starting, made.ending) == (AtOffset(EARLIEST), AtOffset(LATEST))
    assert (made.starting_strategy, made.include_headers, made.fail_on_data_loss) == ("error", False, True)
    assert (made.min_partitions, made.max_records_per_partition) == (None, None)
    # Spark's are spark.network.timeout, 120 s, and Kafka's 60 s: neither outlasts a restart of all brokers.
    assert (made.poll_timeout_ms, made.consumer.default_api_timeout_ms) == (360_000, 360_000)
    assert made.consumer.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert made.consumer.fetch_bytes == 1024 * 1024
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize(("options", "starting", "ending"), [
    ({"startingOffsets": '{"t":{"0":1}}'}, AtOffsets({TopicPartition("t", 0): 1}), AtOffset(LATEST)),
    ({"startingTimestamp": "0", "startingOffsets": '{"t":{"0":1}}'}, AtTime(0), AtOffset(LATEST)),
    ({"endingOffsetsByTimestamp": '{"t":{"0":7}}', "endingOffsets": '{"t":{"0":1}}'},
     AtOffset(EARLIEST), AtTimes({TopicPartition("t", 0): 7})),
    ({"endingTimestamp": "8", "endingOffsetsByTimestamp": '{"t":{"0":7}}'}, AtOffset(EARLIEST), AtTime(8)),
])  # fmt: skip
def test_of_several_bounds_that_one_counts_as_for_spark(options: dict[str, str], starting: Any, ending: Any) -> None:
    made = config(**options)
    assert (made.starting, made.ending) == (starting, ending)


@pytest.mark.parametrize("options", [
    {"startingTimestamp": "2", "endingTimestamp": "1"},
    {"startingTimestamp": "-10 minutes", "endingTimestamp": "-1 hour"},
    {"startingTimestamp": "2026-11-01T00:00:00Z", "endingTimestamp": "1793491199999"},
    {"startingOffsets": '{"t":{"0":2}}', "endingOffsets": '{"t":{"0":1}}'},
    {"startingOffsetsByTimestamp": '{"t":{"0":2}}', "endingOffsetsByTimestamp": '{"t":{"0":1}}'},
])  # fmt: skip
def test_a_read_that_ends_before_it_begins_is_refused(options: dict[str, str]) -> None:
    first, end = options
    with pytest.raises(InvalidOption, match=f"'{end}'.*nothing before {first}, which is "):
        config(**options)


@pytest.mark.parametrize(("name", "text"), [
    ("subscribe", " , "), ("subscribePattern", ""), ("subscribePattern", "orders-("), ("assign", '{"t": []}'),
    ("endingOffsets", "earliest"), ("startingTimestamp", "yesterday"),
    ("startingOffsetsByTimestampStrategy", "earliest"), ("failOnDataLoss", "maybe"), ("minPartitions", "0"),
    ("maxRecordsPerPartition", "0"), ("maxPartitions", "0"), ("includeHeaders", "1"),
    ("kafka.isolation.level", "serializable"), ("groupId", ""), ("kafka.max.partition.fetch.bytes", "1"),
    ("kafka.max.partition.fetch.bytes", str(2**31)), ("kafka.fetch.max.wait.ms", "-1"),
    ("kafkaConsumer.pollTimeoutMs", "0"),
])  # fmt: skip
def test_a_value_that_cannot_be_used_is_named_with_what_was_expected(name: str, text: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        config(**{name: text})
    assert failure.value.option == name and repr(text) in str(failure.value)


@pytest.mark.parametrize(("text", "shown"), [
    ("latest", "latest"), ('{"t":{"0":5,"1":-1}}', "t-0: 5, t-1: -1"),
    ('{"t":{"0":5},"u":"latest"}', "t-0: 5, u: latest"),
])  # fmt: skip
def test_only_a_stream_begins_at_the_latest_offset(text: str, shown: str) -> None:
    with pytest.raises(InvalidOption, match=f"is '{shown}'; expected earliest, a timestamp or offsets"):
        config(startingOffsets=text)
    assert begins_at_latest(stream_config(startingOffsets=text).starting)
    assert stream_config().starting == AtOffset(LATEST)


@pytest.mark.parametrize(("name", "text"), [
    ("endingOffsets", "latest"), ("endingTimestamp", "1"), ("endingOffsetsByTimestamp", '{"t":{"0":1}}'),
])  # fmt: skip
def test_a_stream_has_no_end(name: str, text: str) -> None:
    with pytest.raises(RefusedOption, match=f"{name}.*availableNow"):
        stream_config(**{name: text})


@pytest.mark.parametrize(("text", "milliseconds"), [("15m", 900_000), ("1h", 3_600_000), ("30s", 30_000), ("7", 7)])
def test_how_much_a_micro_batch_reads(text: str, milliseconds: int) -> None:
    made = stream_config(maxOffsetsPerTrigger="20", minOffsetsPerTrigger="10", maxTriggerDelay=text)
    assert (made.max_offsets_per_trigger, made.min_offsets_per_trigger) == (20, 10)
    assert made.max_trigger_delay_ms == milliseconds
    with pytest.raises(InvalidOption, match=r"minOffsetsPerTrigger.*at most maxOffsetsPerTrigger, which is 20"):
        stream_config(maxOffsetsPerTrigger="20", minOffsetsPerTrigger="21")
    with pytest.raises(InvalidOption, match="maxTriggerDelay"):
        stream_config(maxTriggerDelay="soon")


@pytest.mark.parametrize(("text", "count"), [
    ("7", 7), ("1b", 1), ("10k", 10 * 2**10), ("500M", 500 * 2**20), ("10g", 10 * 2**30), ("1TB", 2**40),
    ("8191p", 8191 * 2**50), ("0", None), ("8192p", None), ("1.5g", None), ("-1", None), ("1x", None), ("g", None),
])  # fmt: skip
def test_bytes_have_sparks_units(text: str, count: int | None) -> None:
    """JavaUtils.byteStringAs."""
    if count is not None:
        assert stream_config(maxBytesPerTrigger=text).max_bytes_per_trigger == count
        return
    with pytest.raises(InvalidOption, match="maxBytesPerTrigger"):
        stream_config(maxBytesPerTrigger=text)


def test_a_limit_of_tasks_that_another_option_contradicts_is_refused() -> None:
    assert config(maxPartitions="8", minPartitions="8").max_partitions == 8
    with pytest.raises(InvalidOption, match=r"'maxPartitions' is '7'; expected at least minPartitions, which is 8"):
        config(maxPartitions="7", minPartitions="8")
    with pytest.raises(InvalidOption, match=r"'maxPartitions'.*no value beside maxRecordsPerPartition: "):
        stream_config(maxPartitions="8", maxRecordsPerPartition="10")


def test_a_read_that_ends_before_it_begins_may_show_only_when_it_is_planned() -> None:
    made = config(startingTimestamp="-1 hour", endingTimestamp="2026-11-01T00:00:00Z")
    november_ms = 1_793_491_200_000
    assert made.at(november_ms).starting == AtTime(november_ms - 3_600_000)
    with pytest.raises(InvalidOption, match=r"'endingTimestamp' is '2026-11-01T00:00:00Z'; .* which is -1 hour"):
        made.at(november_ms + 3_600_001)


def test_a_later_look_at_a_batch_has_the_instants_of_its_plan() -> None:
    made = config(startingTimestamp="-1 minute", endingTimestamp="-1 second")
    assert made.again(100_000) == made.at(100_000)
    assert (made.again(100_000).starting, made.again(100_000).ending) == (AtTime(40_000), AtTime(99_000))
    # Where the last offsets began, only the plan knows.
    assert config(startingOffsets="latest-5").again(100_000).starting == AtOffset(EARLIEST)


@pytest.mark.parametrize(("strategy", "offset"), [
    ({}, None), ({"startingGroupStrategy": "error"}, None), ({"startingGroupStrategy": "Earliest"}, EARLIEST),
    ({"startingGroupStrategy": "latest"}, LATEST),
])  # fmt: skip
def test_a_read_begins_at_a_group(strategy: dict[str, str], offset: int | None) -> None:
    for made in (config(startingGroup="g", **strategy), stream_config(startingGroup="g", **strategy)):
        assert made.starting == AtGroup("g", offset)
    assert config(startingGroup="g").again(0).starting == AtOffset(EARLIEST)


@each("name", ["startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp"])
def test_a_group_and_another_start_are_refused_with_both_names(name: str) -> None:
    value = {"startingOffsets": "earliest", "startingTimestamp": "5"}.get(name, '{"t": {"0": 5}}')
    for make in (config, stream_config):
        with pytest.raises(InvalidOption, match=rf"'startingGroup' is 'g'; expected no value beside {name}: "):
            make(startingGroup="g", **{name: value})


def test_a_strategy_without_a_group_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"'startingGroupStrategy'.*no value without startingGroup"):
        config(startingGroupStrategy="earliest", startingTimestamp="5")
    with pytest.raises(InvalidOption, match="one of: error, earliest, latest"):
        config(startingGroup="g", startingGroupStrategy="none")


@given(st.text(min_size=1, max_size=30))
def test_any_name_is_one_of_a_group_and_no_character_of_it_is_lost(name: str) -> None:
    try:
        assert config(startingGroup=name).starting == AtGroup(name, None)
    except InvalidOption:
        with pytest.raises(UnicodeEncodeError):
            name.encode()


def test_a_name_that_no_request_can_carry_is_none_of_a_group() -> None:
    assert config(startingGroup="\u00e9" * 16_383, groupId="g" * 32_767).group_id is not None
    for name in ("", "\u00e9" * 16_384):
        for option in ("startingGroup", "groupId"):
            with pytest.raises(InvalidOption, match=f"'{option}'"):
                config(**{option: name})


def test_exactly_one_option_says_what_to_read() -> None:
    with pytest.raises(MissingOption, match=r"'subscribe'.*subscribePattern, or assign"):
        read_config(given_options({"kafka.bootstrap.servers": "localhost:9092"}, table=READING))
    for more in ({"assign": '{"t":[0]}'}, {"subscribePattern": "t.*"}):
        with pytest.raises(InvalidOption, match="only one of them counts"):
            config(**more)
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        read_config(given_options({"subscribe": "t"}, table=READING))


@pytest.mark.parametrize(("pattern", "names"), [
    ("^[a-z&&[^b]]$", "ac"), ("^[a[A-B]]$", "aAB"), (r"^[\p{Upper}0]$", "ABC0"), (r"^\Q.\E$", "."),
    (r"^\P{Alpha}\z", "0."), ("[a&&c]", ""),
])  # fmt: skip
def test_a_construct_of_java_finds_what_it_finds_there(pattern: str, names: str) -> None:
    made = read_config(given_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": pattern}, table=READING))
    assert made.subscribe_pattern is not None
    assert {each for each in "abcABC0." if made.subscribe_pattern.search(each)} == set(names)


def test_a_pattern_is_one_of_java() -> None:
    made = read_config(given_options({"kafka.bootstrap.servers": "a:1", "subscribePattern": "t[0-9]"}, table=READING))
    assert made.subscribe_pattern == re.compile("t[0-9]", re.ASCII)
    with pytest.raises(InvalidOption, match="missing \\), unterminated subpattern at position 7"):
        config(subscribePattern="orders-(")
    with pytest.raises(InvalidOption, match="begins at position 1 is not read as Java reads it"):
        config(subscribePattern="a{,3}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pasted_lines_of_a_clients_properties_work_or_are_named(file: ClientProperties) -> None:
    options = OPTIONS | {f"kafka.{key}": value for key, value in read_properties(file.text).items()}
    while True:
        try:
            made = read_config(given_options(options, table=READING))
            break
        except ConfigError as error:
            assert SECRET not in str(error)
            # As a user does what the message says.
            name: str = error.option  # type: ignore[attr-defined]
            instead = file.instead.get(name)
            if instead is None:
                del options[name]
            else:
                assert options.get(name) != instead, error
                options[name] = instead
    assert SECRET not in repr(made)


@given(st.sampled_from([option.name for option in READING.options]) | st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_an_option_or_a_config_error(name: str, text: str) -> None:
    try:
        config(**{name: text})
    except ConfigError as error:
        assert str(error.of_read())


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BY_PARTITION = (STARTING_OFFSETS, ENDING_OFFSETS, TIMESTAMPS)


@pytest.mark.parametrize(("kind", "text", "expected"), [
    (STARTING_OFFSETS, "earliest", AtOffset(EARLIEST)), (STARTING_OFFSETS, "EARLIEST", AtOffset(EARLIEST)),
    (STARTING_OFFSETS, "latest", AtOffset(LATEST)), (ENDING_OFFSETS, "Latest", AtOffset(LATEST)),
    (STARTING_OFFSETS, '{"a":{"0":23,"1":-2},"b":{"0":0}}', AtOffsets({A0: 23, A1: EARLIEST, B0: 0})),
    (ENDING_OFFSETS, '{"a": {"0": -1, "1": 9223372036854775807}}', AtOffsets({A0: LATEST, A1: INT64_MAX})),
    (STARTING_OFFSETS, '{"a":"eArLiEst","b":{"0":23},"c":"latest"}', AtOffsets({B0: 23}, {"a": EARLIEST, "c": LATEST})),
    (ENDING_OFFSETS, '{"a":"latest"}', AtOffsets({}, {"a": LATEST})), (TIMESTAMP, "0", AtTime(0)),
    (TIMESTAMP, "1700000000000", AtTime(1_700_000_000_000)),
    (TIMESTAMPS, '{"a":{"0":1,"1":2}}', AtTimes({A0: 1, A1: 2})), (ASSIGNED, '{"b":[0],"a":[1,0,1]}', (B0, A0, A1)),
    (SUBSCRIBED, " a, b ,,a", ("a", "b")),
])  # fmt: skip
def test_texts_are_read_as_sparks_source_reads_them(kind: Kind, text: str, expected: object) -> None:
    assert kind.read(text) == expected


@each("kind", [*BY_PARTITION, ASSIGNED])
def test_what_is_no_json_of_topics_is_refused(kind: Kind) -> None:
    texts = (
        "", "a", "1", "null", "[]", "{}", '"a"', '{"a": 1}', '{"a": null}', '{"a": "first"}', '"earliest"',
        '{"a": {"0": 1}, "a": {"1": 1}}', '{"no spaces": {"0": 1}}', "[" * 99_999,
    )  # fmt: skip
    for text in (*texts, '{"no spaces": [0]}', '{"a": []}' if kind is ASSIGNED else '{"a": [0]}'):
        with pytest.raises(ValueError):
            kind.read(text)


@each("kind", BY_PARTITION)
def test_what_is_no_partition_or_no_number_is_refused(kind: Kind) -> None:
    numbers = ("-1", "x", "", "0.0", "\N{ARABIC-INDIC DIGIT ONE}", " 0")
    values = (1.5, "1", None, True, [1], -3, INT64_MAX + 1)
    for said in [*({"a": {number: 1}} for number in numbers), *({"a": {"0": value}} for value in values)]:
        with pytest.raises(ValueError):
            kind.read(json.dumps(said))


@each("said", [
    *((ASSIGNED, text) for text in ('{"a":[-1]}', '{"a":[0.5]}', '{"a":["0"]}', '{"a":[true]}', '{"a":{"0":1}}')),
    *((TIMESTAMP, text) for text in ("", "-1", "+1", "1.0", "2024-01-01", "\u0661", str(INT64_MAX + 1))),
])  # fmt: skip
def test_only_numbers_of_partitions_are_assigned_and_a_time_is_in_milliseconds(said: tuple[Kind, str]) -> None:
    with pytest.raises(ValueError):
        said[0].read(said[1])


@pytest.mark.parametrize(("kind", "text", "why"), [
    (ENDING_OFFSETS, "earliest", "ends at the earliest offset has no rows"),
    (STARTING_OFFSETS, '{"a":"earliest","a":{"0":23}}', "a name is there twice"),
    (ENDING_OFFSETS, '{"a":"earliest"}', "cannot end at the earliest offset, -2"),
    (ENDING_OFFSETS, '{"a":{"0":-2}}', "cannot end at the earliest offset, -2"),
    (STARTING_OFFSETS, '{"a":{"0":-3}}', "-3 is no offset"), (TIMESTAMPS, '{"a":{"0":-1}}', "-1 is no time"),
    (STARTING_OFFSETS, "beginning", "it is no JSON"), (SUBSCRIBED, "a,b c", "'b c' is no topic name"),
    (SUBSCRIBED, "a/..", "'a/..' is no topic name"),
])  # fmt: skip
def test_what_a_batch_cannot_mean_says_why(kind: Kind, text: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        kind.read(text)


@given(
    st.text(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), lambda of: st.dictionaries(st.text(), of))
)
def test_any_text_is_read_or_refused(said: Any) -> None:
    text = said if isinstance(said, str) else json.dumps(said)
    for kind in (*BY_PARTITION, TIMESTAMP, ASSIGNED, SUBSCRIBED):
        with contextlib.suppress(ValueError):
            kind.read(text)


@pytest.mark.parametrize(("starting", "ending", "expected"), [
    (AtOffset(EARLIEST), AtOffset(LATEST), False), (AtOffsets({A0: 5}), AtOffsets({A0: 5}), False),
    (AtOffsets({A0: 5, A1: 6}), AtOffsets({A0: 5, A1: 5}), True), (AtOffsets({A0: 5}), AtOffsets({A0: LATEST}), False),
    (AtOffsets({A0: EARLIEST}), AtOffsets({A0: 0}), False), (AtOffsets({A0: 5}), AtOffsets({A1: 0}), False),
    (AtTime(2), AtTime(1), True), (AtTime(1), AtTime(1), False), (AtTimes({A0: 2}), AtTimes({A0: 1}), True),
    (AtTime(2), AtTimes({A0: 1}), False), (AtOffset(EARLIEST), AtOffsets({A0: 0}), False),
    (AtOffsets({A0: 5}), AtOffsets({}, {"a": LATEST}), False),
])  # fmt: skip
def test_a_read_that_ends_before_it_begins_is_found_by_its_options(starting: Any, ending: Any, expected: bool) -> None:
    assert is_reversed(starting, ending) is expected
