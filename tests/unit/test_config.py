from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.config import NOT_YET, OPTIONS, REFUSED, REQUIRED, sink_config
from kafka_sink.errors import InvalidOption, MissingOption, RefusedOption, UnknownOption
from kafka_sink.records.partitioner import PARTITIONERS

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults_are_the_documented_ones() -> None:
    config = sink_config(SERVERS)
    assert (config.topic, config.delivery_guarantee, config.partitioner) == (None, "at-least-once", "murmur2")
    producer = config.producer
    assert producer.bootstrap_servers == (("localhost", 9092),)
    assert (producer.acks, producer.enable_idempotence, producer.retries) == ("all", True, 2**31 - 1)
    assert (producer.compression_type, producer.compression_zstd_level) == ("zstd", 3)
    assert (producer.buffer_memory, producer.batch_size) == (64 * 2**20, 2**20)
    assert (producer.max_block_ms, producer.delivery_timeout_ms) == (60_000, 120_000)


def test_equal_options_give_equal_configurations_that_can_be_a_key() -> None:
    one, other = sink_config({**SERVERS, "topic": "a"}), sink_config({**SERVERS, "topic": "b"})
    assert one.producer == other.producer
    assert len({one.producer, other.producer}) == 1
    assert one != other


@pytest.mark.parametrize(("codec", "level"), [("none", None), ("gzip", 2), ("snappy", None), ("lz4", 3), ("zstd", 4)])
def test_the_level_is_the_one_of_the_codec_in_use(codec: str, level: int | None) -> None:
    levels = {f"kafka.compression.{name}.level": str(n) for name, n in (("gzip", 2), ("lz4", 3), ("zstd", 4))}
    assert sink_config({**SERVERS, **levels, "kafka.compression.type": codec}).producer.compression_level == level


@pytest.mark.parametrize("name", list(PARTITIONERS))
def test_the_option_knows_every_partitioner(name: str) -> None:
    assert sink_config({**SERVERS, "partitioner": name.upper()}).partitioner == name


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_found_in_any_case_and_has_a_meaning(option) -> None:
    text = "localhost:9092" if option.default is REQUIRED else "x" if option.default is None else str(option.default)
    config = sink_config({**SERVERS, option.name.swapcase(): text})
    owner = config.producer if option.is_producer_option else config
    given = {REQUIRED: (("localhost", 9092),), None: text}
    assert getattr(owner, option.field) == given.get(option.default, option.default)
    assert option.doc


def test_sparks_own_keys_are_passed_over() -> None:
    assert sink_config({**SERVERS, "checkpointlocation": "x", "queryname": "q", "path": "p"}) == sink_config(SERVERS)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.lingerms", "kafka.linger.ms"),
        ("batch.size", "kafka.batch.size"),
        ("Topics", "topic"),
    ],
)
def test_an_unknown_option_comes_with_the_nearest_known(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOption) as failure:
        sink_config({**SERVERS, name: "x"})
    assert nearest in failure.value.nearest
    assert repr(nearest) in str(failure.value)


def test_an_unknown_option_that_resembles_nothing_has_no_suggestion() -> None:
    with pytest.raises(UnknownOption) as failure:
        sink_config({**SERVERS, "zzz": "x"})
    assert failure.value.nearest == ()


@pytest.mark.parametrize("name", [*REFUSED, *sorted(NOT_YET), "kafka.ssl.truststore.location", "kafka.sasl.any"])
def test_refused_options_say_what_to_do_and_not_their_value(name: str) -> None:
    with pytest.raises(RefusedOption) as failure:
        sink_config({**SERVERS, name.lower(): "hunter2"})
    assert failure.value.option.lower() == name.lower()
    assert "hunter2" not in str(failure.value)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(MissingOption, match=r"kafka\.bootstrap\.servers"):
        sink_config({"topic": "t"})


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 , b.c-d:65535 ,", (("a", 1), ("b.c-d", 65535))),
        ("[::1]:9092", (("::1", 9092),)),
        ("PLAINTEXT://h:9092", (("h", 9092),)),
    ],
)
def test_bootstrap_servers_are_read_as_kafka_reads_them(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    producer = sink_config({"kafka.bootstrap.servers": text}).producer
    assert producer.bootstrap_servers == servers
    again = sink_config({"kafka.bootstrap.servers": producer.bootstrap_servers_text}).producer
    assert again.bootstrap_servers == servers


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.bootstrap.servers", "localhost"),
        ("kafka.bootstrap.servers", "localhost:0"),
        ("kafka.bootstrap.servers", ""),
        ("kafka.bootstrap.servers", "a:1;b:2"),
        ("topic", "no spaces"),
        ("topic", ".."),
        ("topic", ""),
        ("deliveryGuarantee", "exactly-once"),
        ("kafka.acks", "2"),
        ("kafka.acks", "leader"),
        ("kafka.enable.idempotence", "maybe"),
        ("kafka.max.in.flight.requests.per.connection", "0"),
        ("kafka.retries", "-1"),
        ("kafka.linger.ms", "-1"),
        ("kafka.linger.ms", "5s"),
        ("kafka.compression.type", "brotli"),
        ("kafka.compression.zstd.level", "23"),
        ("kafka.compression.zstd.level", "-131073"),
        ("kafka.compression.gzip.level", "0"),
        ("kafka.compression.gzip.level", "10"),
        ("kafka.compression.gzip.level", "-2"),
        ("kafka.compression.gzip.level", "best"),
        ("kafka.compression.lz4.level", "0"),
        ("kafka.compression.lz4.level", "18"),
        ("partitioner", "random"),
        ("includeHeaders", "yes"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_was_expected(name: str, text: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        sink_config({**SERVERS, name: text})
    assert failure.value.option == name
    assert repr(text) in str(failure.value)
    assert "No row of this write was sent" in str(failure.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kafka.delivery.timeout.ms": "30000"}, "kafka.delivery.timeout.ms"),
        ({"kafka.buffer.memory": "1048576"}, "kafka.buffer.memory"),
        ({"kafka.max.request.size": str(2**26), "kafka.buffer.memory": str(2**25)}, "kafka.max.request.size"),
        # Memory for two batches, and a row that would take two and a half.
        (
            {
                "kafka.max.request.size": "2500000",
                "kafka.batch.size": "1000000",
                "kafka.buffer.memory": "2900000",
            },
            "kafka.max.request.size",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        sink_config({**SERVERS, **options})
    assert failure.value.option == named


@pytest.mark.parametrize(("text", "acks"), [("all", "all"), ("ALL", "all"), ("-1", "all"), ("1", "1"), ("0", "0")])
def test_acks_are_written_as_kafka_has_them(text: str, acks: str) -> None:
    assert sink_config({**SERVERS, "kafka.acks": text}).producer.acks == acks


WITHOUT_IDEMPOTENCE = [
    ("kafka.retries", "0", "send a batch again"),
    ("kafka.acks", "1", "was kept"),
    ("kafka.acks", "0", "was kept"),
    ("kafka.max.in.flight.requests.per.connection", "6", "a leader remembers"),
]


@pytest.mark.parametrize(("name", "text", "reason"), WITHOUT_IDEMPOTENCE)
def test_what_idempotence_cannot_have_switches_it_off_and_is_refused_beside_it(
    name: str, text: str, reason: str
) -> None:
    for beside in ({}, {"kafka.enable.idempotence": "FALSE"}):
        assert not sink_config({**SERVERS, name: text, **beside}).producer.enable_idempotence
    with pytest.raises(InvalidOption, match=reason) as failure:
        sink_config({**SERVERS, name: text, "kafka.Enable.Idempotence": "true"})
    assert failure.value.option == name
    assert repr(text) in str(failure.value)
    assert "kafka.enable.idempotence is true" in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("kafka.retries", "1"), ("kafka.acks", "-1"), ("kafka.max.in.flight.requests.per.connection", "5")],
)
def test_idempotence_stays_on_at_the_limits(name: str, text: str) -> None:
    assert sink_config({**SERVERS, name: text}).producer.enable_idempotence
    assert sink_config({**SERVERS, name: text, "kafka.enable.idempotence": "true"}).producer.enable_idempotence


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_an_option_or_a_config_error(name: str, text: str) -> None:
    from kafka_sink.errors import ConfigError

    try:
        sink_config({**SERVERS, name: text})
    except ConfigError as error:
        assert str(error)
