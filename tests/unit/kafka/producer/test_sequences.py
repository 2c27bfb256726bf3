import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.kafka.producer.producer_batch import NO_SEQUENCE
from kafka_sink.kafka.producer.sequences import Sequences, advance
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


def batch(records: int, partition: int = 0, topic_id: uuid.UUID | None = None) -> Any:
    return SimpleNamespace(
        topic_partition=TopicPartition("t", partition), topic_id=topic_id, record_count=records,
        base_sequence=NO_SEQUENCE, in_flight=False, last_attempt_ms=0,
    )  # fmt: skip


def warm() -> Sequences:
    """The leader of partition 0 has acknowledged one record, so that it knows the producer."""
    sequences = Sequences()
    sequences.acknowledged(numbered(sequences, 1), 0)
    return sequences


FORMER, NEW = uuid.UUID(int=1), uuid.UUID(int=2)


def numbered(sequences: Sequences, records: int, partition: int = 0) -> Any:
    made = batch(records, partition)
    made.base_sequence = sequences.number(made)
    made.in_flight = True
    return made


def test_sequences_wrap_from_2147483647_to_0() -> None:
    last = 2**31 - 1
    assert [advance(*each) for each in ((0, 1), (last, 1), (last - 2, 5), (0, last))] == [1, 0, 2, last]


def test_each_batch_starts_where_the_one_before_ended_by_partition() -> None:
    sequences = Sequences()
    assert [numbered(sequences, n).base_sequence for n in (3, 4, 5)] == [0, 3, 7]
    assert numbered(sequences, 9, partition=1).base_sequence == 0


@pytest.mark.parametrize("max_in_flight", [1, 3, 5])
def test_no_more_than_max_in_flight_of_a_partition(max_in_flight: int) -> None:
    sequences = warm()
    for _ in range(max_in_flight):
        assert sequences.may_send(batch(1), max_in_flight)
        numbered(sequences, 1)
    assert not sequences.may_send(batch(1), max_in_flight)
    assert sequences.may_send(batch(1, partition=1), max_in_flight)


@pytest.mark.parametrize("max_in_flight", [2, 5])
def test_no_unanswered_batch_is_left_behind_further_than_its_leader_remembers(max_in_flight: int) -> None:
    """A broker that led before owes the first answer, while the one that leads now acknowledges what comes later."""
    sequences = warm()
    for _ in range(2):
        first = numbered(sequences, 1)
        for _ in range(4):
            assert sequences.may_send(batch(1), max_in_flight)
            sequences.acknowledged(numbered(sequences, 1), 10)
        assert not sequences.may_send(batch(1), max_in_flight)
        assert sequences.may_send(first, max_in_flight)
        sequences.acknowledged(first, 20)
        assert sequences.may_send(batch(1), max_in_flight)


def test_the_first_batch_of_a_partition_goes_alone_until_its_leader_remembers_it() -> None:
    sequences = Sequences()
    first = numbered(sequences, 1)
    assert not sequences.may_send(batch(1), 5)
    first.in_flight = False
    assert sequences.may_send(first, 5)
    sequences.acknowledged(first, 10)
    assert sequences.may_send(batch(1), 5)


def test_a_topic_made_again_starts_at_0() -> None:
    sequences = Sequences()
    sequences.number(batch(3, topic_id=FORMER))
    assert (sequences.number(batch(1, topic_id=NEW)), sequences.may_send(batch(1, topic_id=NEW), 5)) == (0, False)


@pytest.mark.parametrize(("before", "after"), [(None, NEW), (NEW, None)])
def test_a_topic_whose_id_becomes_known_or_is_not_told_goes_on(before: Any, after: Any) -> None:
    """From 0 again, a leader would take new rows for the first ones, and drop them."""
    sequences, first = Sequences(), batch(3, topic_id=before)
    sequences.number(first)
    sequences.acknowledged(first, 0)
    sequences.by_name = True
    assert sequences.may_send(batch(1, topic_id=after), 5)
    assert sequences.number(batch(1, topic_id=after)) == 3
    assert sequences.former_topic_id(batch(1, topic_id=after)) is None


def test_a_former_topic_is_one_that_had_the_partition() -> None:
    sequences = Sequences()
    sequences.number(batch(1, partition=1, topic_id=FORMER))
    cases = (batch(1, topic_id=NEW), batch(1, partition=1, topic_id=FORMER), batch(1, partition=1, topic_id=NEW))
    assert [sequences.former_topic_id(each) for each in cases] == [None, None, FORMER]


def test_sequences_that_a_topic_made_again_may_have_by_name_are_used_up() -> None:
    sequences = Sequences()
    sequences.by_name = True
    assert sequences.may_send(batch(1, partition=3), 5)
    assert not sequences.used_up
    sequences.number(batch(1, topic_id=FORMER))
    unanswered = numbered(sequences, 1, partition=2)
    assert not sequences.may_send(batch(1, topic_id=NEW), 5)
    assert sequences.used_up
    assert not sequences.may_send(batch(1), 5)
    assert not sequences.may_send(batch(1, partition=3), 5)
    unanswered.in_flight = False
    assert sequences.may_send(unanswered, 5)


def test_while_a_batch_waits_for_its_retry_only_it_may_go() -> None:
    sequences = warm()
    first, second = numbered(sequences, 1), numbered(sequences, 1)
    first.in_flight = second.in_flight = False
    assert sequences.may_send(first, 5)
    assert not sequences.may_send(second, 5)
    assert not sequences.may_send(batch(1), 5)
    first.in_flight = True
    assert not sequences.may_send(second, 5)
    sequences.acknowledged(first, 10)
    assert sequences.may_send(second, 5)


def test_the_parts_of_a_batch_stand_in_its_place() -> None:
    sequences = warm()
    first, second, third = (numbered(sequences, 4) for _ in range(3))
    parts = [batch(2), batch(2)]
    parts[0].base_sequence, parts[1].base_sequence = second.base_sequence, second.base_sequence + 2
    sequences.split(second, parts)
    assert list(sequences.unanswered()) == [first, *parts, third]
    sequences.acknowledged(first, 5)
    assert sequences.may_send(parts[0], 5)
    assert not sequences.may_send(parts[1], 5)
    assert not sequences.may_send(batch(1), 5)


def test_a_gap_may_heal_while_an_earlier_batch_is_or_was_unanswered() -> None:
    sequences = Sequences()
    first, second = numbered(sequences, 1), numbered(sequences, 1)
    first.last_attempt_ms = second.last_attempt_ms = 5
    assert (sequences.gap_may_heal(first), sequences.gap_may_heal(second)) == (False, True)
    sequences.acknowledged(first, 6)
    # Sent while the first was unanswered, or in the millisecond of its answer.
    for at_ms, heals in ((5, True), (6, True), (7, False)):
        second.last_attempt_ms = at_ms
        assert sequences.gap_may_heal(second) == heals
