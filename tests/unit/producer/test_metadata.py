from __future__ import annotations

import random
import uuid
from dataclasses import replace

from kafka_sink.producer.metadata import NO_LEADER, Metadata
from producer_core import TOPIC, metadata_response


def fresh() -> Metadata:
    return Metadata(max_age_ms=10_000, backoff_initial_ms=100, backoff_max_ms=1_000, rng=random.Random(1))


def test_asks_only_once_something_is_wanted_then_at_once_then_when_old() -> None:
    metadata = fresh()
    assert metadata.next_request_delay_ms(0) is None
    metadata.want([TOPIC], 0)
    assert metadata.next_request_delay_ms(0) == 0
    request = metadata.request()
    assert request.topics == (TOPIC,)
    assert metadata.next_request_delay_ms(0) is None
    metadata.update(metadata_response([0, 1]), 50)
    assert metadata.next_request_delay_ms(50) == 10_000
    metadata.want([TOPIC], 0)
    assert metadata.next_request_delay_ms(50) == 10_000


def test_a_snapshot_in_hand_does_not_change() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.update(metadata_response([0, 1]), 0)
    before = metadata.snapshot
    metadata.update(metadata_response([1, 1, 2], leader_epoch=1), 0)
    assert before.topics[TOPIC].leaders == (0, 1)
    assert metadata.snapshot.topics[TOPIC].leaders == (1, 1, 2)
    assert metadata.snapshot.version == before.version + 1


def test_errors_missing_leaders_and_lost_answers_are_asked_about_again_with_growing_pauses() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    pauses = []
    for answer in (None, metadata_response([], error_code=3), None, metadata_response([], error_code=3)):
        metadata.request()
        if answer is None:
            metadata.failed(0)
        else:
            metadata.update(answer, 0)
        delay = metadata.next_request_delay_ms(0)
        assert delay is not None
        pauses.append(delay)
    assert all(80 * 2**n <= pause <= 120 * 2**n for n, pause in enumerate(pauses))


def test_a_request_for_an_update_is_not_a_storm() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.request()
    metadata.update(metadata_response([0]), 0)
    metadata.request_update()
    pauses = []
    for _ in range(4):
        delay = metadata.next_request_delay_ms(0)
        assert delay is not None
        pauses.append(delay)
        metadata.request()
        metadata.update(metadata_response([0]), 0)  # the same leader again
        metadata.request_update()
    assert all(80 * 2**n <= pause <= 120 * 2**n for n, pause in enumerate(pauses))
    metadata.update(metadata_response([1], leader_epoch=1), 0)
    assert (metadata.next_request_delay_ms(0) or 0) <= 120


def test_a_partition_without_a_leader_is_asked_about_again() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.request()
    metadata.update(metadata_response([0, NO_LEADER]), 0)
    assert 80 <= (metadata.next_request_delay_ms(0) or 0) <= 120


def test_what_is_wanted_is_fresh_when_it_is_known_and_not_old() -> None:
    metadata = fresh()
    assert metadata.want([TOPIC], 0) == 1
    metadata.request()
    assert metadata.want([TOPIC], 0) == 1
    assert metadata.answered == 0
    metadata.update(metadata_response([0]), 0)
    assert metadata.answered == 1
    assert metadata.want([TOPIC], 9_999) == 0
    # Waiting for the request under way has not asked for another one.
    assert metadata.next_request_delay_ms(0) == 10_000
    assert metadata.want([TOPIC], 10_000) == 2
    assert metadata.next_request_delay_ms(10_000) == 0


def test_an_answer_about_one_topic_makes_no_other_one_fresh() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.request()
    metadata.update(metadata_response([0]), 0)
    metadata.want_nothing()
    other = metadata_response([0])
    other = replace(other, topics=(replace(other.topics[0], name="other"),))
    metadata.want(["other"], 9_000)
    metadata.request()
    metadata.update(other, 9_000)
    assert metadata.want(["other"], 10_000) == 0
    assert metadata.want([TOPIC], 10_000) == 3


def test_a_topic_that_was_denied_is_not_fresh() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.request()
    metadata.update(metadata_response([0]), 0)
    metadata.request()
    metadata.update(metadata_response([], error_code=3), 0)
    assert metadata.want([TOPIC], 1) == 3


def test_a_topic_wanted_while_a_request_for_others_is_under_way_is_asked_for_next() -> None:
    metadata = fresh()
    metadata.want(["other"], 0)
    metadata.request()
    assert metadata.want([TOPIC], 0) == 2
    answer = metadata_response([0])
    metadata.update(replace(answer, topics=(replace(answer.topics[0], name="other"),)), 0)
    delay = metadata.next_request_delay_ms(0)
    assert delay is not None
    assert 80 <= delay <= 120
    assert set(metadata.request().topics) == {"other", TOPIC}


def test_an_idle_producer_asks_for_nothing_and_brings_no_deleted_topic_back() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    assert metadata.request().allow_auto_topic_creation
    metadata.update(metadata_response([0]), 0)
    assert metadata.next_request_delay_ms(50_000) == 0
    assert not metadata.request().allow_auto_topic_creation
    metadata.update(metadata_response([], error_code=3), 50_000)
    metadata.want_nothing()
    assert metadata.next_request_delay_ms(900_000) is None



def test_only_the_answer_to_a_later_question_is_fresh() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.request()
    needed = metadata.request_update()  # while a question is under way, which may have been answered already
    metadata.update(metadata_response([0]), 0)
    assert metadata.answered < needed
    assert metadata.next_request_delay_ms(100) == 0
    metadata.request()
    metadata.failed(100)
    assert metadata.answered < needed
    metadata.request()
    metadata.update(metadata_response([0, 0]), 300)
    assert metadata.answered >= needed
    assert metadata.answered < metadata.request_update()


def test_an_answer_with_an_error_keeps_what_was_known_of_the_topic() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.update(metadata_response([0, 1]), 0)
    metadata.update(metadata_response([], error_code=3), 0)
    assert metadata.snapshot.topics[TOPIC].leaders == (0, 1)
    assert metadata.snapshot.errors[TOPIC] == 3
    metadata.update(metadata_response([0, 1]), 0)
    assert not metadata.snapshot.errors


def test_a_broker_that_lags_behind_does_not_bring_an_old_leader_back() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.update(metadata_response([2, 2], leader_epoch=5), 0)
    metadata.update(metadata_response([1, 1, 1], leader_epoch=4), 0)
    assert metadata.snapshot.topics[TOPIC].leaders == (2, 2, 1)
    metadata.update(metadata_response([0, 0], topic_id=uuid.UUID(int=9), leader_epoch=0), 0)
    assert metadata.snapshot.topics[TOPIC].leaders == (0, 0)


def test_a_topic_grows_and_a_broker_that_has_not_heard_of_it_does_not_shrink_it() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    for leaders in ([0, 1], [0, 1, 2], [2, 1]):
        metadata.update(metadata_response(leaders), 0)
    assert metadata.snapshot.topics[TOPIC].leaders == (2, 1, 2)
    assert metadata.snapshot.topics[TOPIC].leader_epochs == (0, 0, 0)


def test_without_topic_ids_a_topic_with_fewer_partitions_may_be_another_one() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    for leaders in ([0, 1, 2], [0, 1]):
        answer = metadata_response(leaders)
        metadata.update(replace(answer, topics=(replace(answer.topics[0], topic_id=None),)), 0)
    assert metadata.snapshot.topics[TOPIC].leaders == (0, 1)


def test_leaders_and_available_partitions() -> None:
    metadata = fresh()
    metadata.want([TOPIC], 0)
    metadata.update(metadata_response([0, NO_LEADER, 2]), 0)
    snapshot = metadata.snapshot
    assert [snapshot.leader(TOPIC, p) for p in range(4)] == [0, NO_LEADER, 2, NO_LEADER]
    assert snapshot.leader("other", 0) == NO_LEADER
    assert snapshot.topics[TOPIC].available == (0, 2)
