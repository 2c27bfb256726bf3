import random
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS, MAX_IDLE_MS, NO_LEADER, Metadata
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataResponse, NamedLeader
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from producer_core import TOPIC, TOPIC_ID, make_core, metadata_response

DENIED = metadata_response([], error_code=3)


def told(*names: str, leaders: Sequence[int] = (0,), error_code: int = 0) -> MetadataResponse:
    """An answer about each of these topics."""
    answer = metadata_response(leaders, error_code=error_code)
    return replace(answer, topics=tuple(replace(answer.topics[0], name=name) for name in names))


def fresh() -> Metadata:
    return Metadata(
        max_age_ms=10_000, max_idle_ms=MAX_IDLE_MS, backoff_initial_ms=100, backoff_max_ms=1_000, rng=random.Random(1)
    )


def ask(metadata: Metadata, answer: MetadataResponse, now_ms: int = 0) -> None:
    metadata.request((), now_ms)
    metadata.update(answer, now_ms)


def backs_off(metadata: Metadata, attempt: int = 0, now_ms: int = 0) -> bool:
    return 80 * 2**attempt <= (metadata.next_request_delay_ms(now_ms) or 0) <= 120 * 2**attempt


def known(*answers: MetadataResponse, names: Sequence[str] = (TOPIC,)) -> Metadata:
    """Wanted at 0, and answered at once."""
    metadata = fresh()
    metadata.want(names, 0)
    for answer in answers:
        ask(metadata, answer)
    return metadata


def test_asks_only_once_something_is_wanted_then_at_once_then_when_old() -> None:
    metadata = fresh()
    assert metadata.next_request_delay_ms(0) is None
    metadata.want([TOPIC], 0)
    assert (metadata.next_request_delay_ms(0), metadata.request((), 0).topics) == (0, (TOPIC,))
    assert metadata.next_request_delay_ms(0) is None
    metadata.update(metadata_response([0, 1]), 50)
    for _ in range(2):
        assert metadata.next_request_delay_ms(50) == 10_000
        metadata.want([TOPIC], 0)


def test_a_snapshot_in_hand_does_not_change() -> None:
    metadata = known()
    metadata.update(metadata_response([0, 1]), 0)
    before = metadata.snapshot
    metadata.update(metadata_response([1, 1, 2], leader_epoch=1), 0)
    assert (before.topics[TOPIC].leaders, metadata.snapshot.topics[TOPIC].leaders) == ((0, 1), (1, 1, 2))
    assert metadata.snapshot is not before


def test_errors_missing_leaders_and_lost_answers_are_asked_about_with_backoff() -> None:
    metadata = known()
    for attempt, answer in enumerate((None, DENIED, None, DENIED)):
        metadata.request((), 0)
        metadata.failed(0) if answer is None else metadata.update(answer, 0)
        assert backs_off(metadata, attempt)
    # Each leader that is news begins it anew.
    ask(metadata, metadata_response([0, NO_LEADER]))
    assert backs_off(metadata)


def test_a_request_for_an_update_is_not_a_storm() -> None:
    metadata = known(metadata_response([0]))
    metadata.request_update()
    for attempt in range(4):
        assert backs_off(metadata, attempt)
        ask(metadata, metadata_response([0]))  # the same leader again
        metadata.request_update()
    metadata.update(metadata_response([1], leader_epoch=1), 0)
    assert backs_off(metadata)


@pytest.mark.parametrize(("code", "ends_ms"), [(3, 1_000 + ABSENT_PATIENCE_MS), (5, None), (29, None)])
def test_patience_ends_for_a_topic_that_the_cluster_keeps_denying(code: int, ends_ms: int | None) -> None:
    metadata = known()
    for now_ms in (1_000, 2_000):
        ask(metadata, metadata_response([], error_code=code), now_ms)
        assert metadata.patience_ends_ms([TOPIC]) == ends_ms
    assert metadata.patience_ends_ms([]) is None


@pytest.mark.parametrize("event", ["known", "being created", "next write"])
def test_patience_begins_anew(event: str) -> None:
    metadata = known(DENIED)
    if event == "next write":
        metadata.want_nothing()
    else:
        ask(metadata, metadata_response([0]) if event == "known" else metadata_response([], error_code=5), 1_000)
    assert metadata.patience_ends_ms([TOPIC]) is None
    metadata.want([TOPIC], 2_000)
    ask(metadata, DENIED, 2_000)
    assert metadata.patience_ends_ms([TOPIC]) == 2_000 + ABSENT_PATIENCE_MS


def test_what_is_wanted_is_fresh_when_it_is_known_and_not_old() -> None:
    metadata = fresh()
    assert metadata.want([TOPIC], 0) == 1
    metadata.request((), 0)
    assert (metadata.want([TOPIC], 0), metadata.answered) == (1, 0)
    metadata.update(metadata_response([0]), 0)
    assert (metadata.answered, metadata.want([TOPIC], 9_999)) == (1, 0)
    # Waiting for the request under way has not asked for another one.
    assert (metadata.next_request_delay_ms(0), metadata.want([TOPIC], 10_000)) == (10_000, 2)
    assert metadata.next_request_delay_ms(10_000) == 0


def test_an_answer_about_one_topic_makes_no_other_one_fresh() -> None:
    metadata = known(metadata_response([0]))
    metadata.want_nothing()
    metadata.want(["other"], 9_000)
    ask(metadata, told("other"), 9_000)
    assert (metadata.want(["other"], 10_000), metadata.want([TOPIC], 10_000)) == (0, 3)
    # Nor is one fresh that was denied.
    metadata = known(metadata_response([0]), DENIED)
    assert metadata.want([TOPIC], 1) == 3


def test_a_topic_wanted_while_a_request_for_others_is_under_way_is_asked_for_next() -> None:
    metadata = fresh()
    metadata.want(["other"], 0)
    metadata.request((), 0)
    assert metadata.want([TOPIC], 0) == 2
    metadata.update(told("other"), 0)
    assert backs_off(metadata)
    assert set(metadata.request((), 0).topics) == {"other", TOPIC}


def test_an_idle_producer_asks_for_nothing_and_brings_no_deleted_topic_back() -> None:
    metadata = known()
    assert metadata.request((), 0).allow_auto_topic_creation
    metadata.update(metadata_response([0]), 0)
    assert metadata.next_request_delay_ms(50_000) == 0
    assert not metadata.request((), 0).allow_auto_topic_creation
    metadata.update(DENIED, 50_000)
    metadata.want_nothing()
    assert metadata.next_request_delay_ms(900_000) is None


def test_a_topic_that_is_idle_is_forgotten() -> None:
    metadata = fresh()
    metadata.want(["old", "bad", "new"], 0)
    ask(metadata, told("old", "new"))
    metadata.update(told("bad", error_code=29), 0)
    assert metadata.snapshot.errors == {"bad": 29}
    metadata.want(["new"], 1)
    assert set(metadata.request((), MAX_IDLE_MS - 1).topics) == {"old", "bad", "new"}
    before = metadata.snapshot
    assert (metadata.request((), MAX_IDLE_MS).topics, set(metadata.snapshot.topics)) == (("new",), {"new"})
    assert metadata.snapshot.errors == {} and metadata.snapshot is not before
    metadata.update(told("new"), MAX_IDLE_MS)
    assert metadata.want(["old"], MAX_IDLE_MS + 1) != 0
    # It is still one that was there, and is not brought back.
    request = metadata.request((), MAX_IDLE_MS + 1)
    assert (request.topics, request.allow_auto_topic_creation) == (("old",), False)


@pytest.mark.parametrize(("max_block_ms", "idle_ms"), [(60_000, MAX_IDLE_MS), (900_000, 900_000)])
def test_a_topic_that_somebody_may_still_wait_for_is_not_idle(max_block_ms: int, idle_ms: int) -> None:
    metadata = make_core(max_block_ms=max_block_ms).metadata
    assert metadata.request((), idle_ms - 1).topics == (TOPIC,)
    metadata.update(metadata_response([0]), 0)
    assert metadata.request((), idle_ms).topics == ()


def test_a_new_topic_is_asked_for_at_once_and_one_that_was_asked_for_is_not() -> None:
    metadata = fresh()
    for number in range(20):
        now_ms = number * 5
        metadata.want([f"t{number}"], now_ms)
        assert metadata.next_request_delay_ms(now_ms) == 0
        ask(metadata, told(*(f"t{n}" for n in range(number + 1))), now_ms)
    metadata.want(["t0", "t19"], 95)
    metadata.request_update()
    assert backs_off(metadata, now_ms=95)


def test_answers_that_age_made_due_do_not_slow_the_next_failure_down() -> None:
    metadata = known()
    for now_ms in range(0, 100_000, 10_000):
        assert metadata.next_request_delay_ms(now_ms) == 0
        ask(metadata, metadata_response([0]), now_ms)
        metadata.want([TOPIC], now_ms + 10_000)
    metadata.request_update()
    assert metadata.next_request_delay_ms(100_000) == 0
    ask(metadata, metadata_response([0]), 100_000)
    metadata.request_update()
    assert backs_off(metadata, 1, now_ms=100_000)


def test_only_the_answer_to_a_later_question_is_fresh() -> None:
    metadata = known()
    metadata.request((), 0)
    needed = metadata.request_update()  # while a question is under way, which may have been answered already
    metadata.update(metadata_response([0]), 0)
    assert metadata.answered < needed
    assert metadata.next_request_delay_ms(100) == 0
    metadata.request((), 0)
    metadata.failed(100)
    assert metadata.answered < needed
    ask(metadata, metadata_response([0, 0]), 300)
    assert needed <= metadata.answered < metadata.request_update()


def identified(leaders: Sequence[int], topic_id: int | None = None, leader_epoch: int = 0) -> MetadataResponse:
    answer = metadata_response(leaders, leader_epoch=leader_epoch)
    found = replace(answer.topics[0], topic_id=None if topic_id is None else uuid.UUID(int=topic_id))
    return replace(answer, topics=(found,))


@pytest.mark.parametrize(("answers", "leaders"), [
    pytest.param([([2, 2], 5), ([1, 1, 1], 4)], (2, 2, 1), id="a broker that lags behind does not bring it back"),
    pytest.param([([2, 2], 5), DENIED, ([1, 1], 4)], (2, 2), id="nor if the topic was denied for a moment"),
    pytest.param([([0, 1], -1), ([1, 0], -1)], (1, 0), id="without leader epochs the last answer counts"),
    pytest.param([([0, 1], 0), ([0, 1, 2], 0), ([2, 1], 0)], (2, 1, 2), id="a topic grows and does not shrink"),
    pytest.param([identified([0, 1, 2]), identified([0, 1])], (0, 1), id="without ids it may be another topic"),
    pytest.param([([2, 2], 5), identified([0, 0], 9)], (0, 0), id="another topic begins anew"),
])  # fmt: skip
def test_an_old_leader_does_not_come_back(answers: Sequence[Any], leaders: tuple[int, ...]) -> None:
    metadata = known()
    for answer in answers:
        if isinstance(answer, tuple):
            answer = metadata_response(answer[0], leader_epoch=answer[1])
        metadata.update(answer, 0)
        assert metadata.snapshot.errors == ({TOPIC: 3} if answer is DENIED else {})
    assert metadata.snapshot.topics[TOPIC].leaders == leaders


def test_forgotten_leader_epochs_make_the_next_answer_count_and_older_ones_not() -> None:
    metadata = known()
    metadata.update(metadata_response([2, 2], leader_epoch=5), 0)
    metadata.forget_leader_epochs()
    assert metadata.snapshot.topics[TOPIC].leaders == (2, 2)
    for leaders, leader_epoch in (([1, 0], 4), ([0, 1], 3)):
        metadata.update(metadata_response(leaders, leader_epoch=leader_epoch), 0)
        assert metadata.snapshot.topics[TOPIC].leaders == (1, 0)


def follow(metadata: Metadata, leader: int, epoch: int, host: str = "", **other: Any) -> list[Broker]:
    """Tell the leader of partition 1, as a broker names it. Return what the network learns."""
    learned: list[Broker] = []
    broker = Broker(leader, host, 9092) if host else None
    partition = TopicPartition(other.get("topic", TOPIC), other.get("partition", 1))
    metadata.follow(partition, other.get("topic_id", TOPIC_ID), NamedLeader(leader, epoch, broker), learned.append)
    return learned


class TestANamedLeader:
    @pytest.mark.parametrize(("leader", "epoch", "other", "is_followed"), [
        pytest.param(2, 6, {}, True, id="newer"),
        pytest.param(2, 5, {}, False, id="of the same epoch"),
        pytest.param(2, 4, {}, False, id="older"),
        pytest.param(9, 6, {}, False, id="without a known address"),
        pytest.param(9, 6, {"host": "new"}, True, id="with an address"),
        pytest.param(2, 6, {"partition": 2}, False, id="of an unknown partition"),
        pytest.param(2, 6, {"topic": "u"}, False, id="of an unknown topic"),
        pytest.param(2, 6, {"topic_id": uuid.UUID(int=8)}, False, id="of another topic"),
    ])  # fmt: skip
    def test_counts_if_it_is_newer_and_can_be_reached(
        self, leader: int, epoch: int, other: dict[str, Any], is_followed: bool
    ) -> None:
        metadata = known(metadata_response([0, 1], leader_epoch=5))
        before = metadata.snapshot
        assert follow(metadata, leader, epoch, **other) == ([Broker(9, "new", 9092)] if "host" in other else [])
        snapshot = metadata.snapshot
        if not is_followed:
            assert snapshot is before
            return
        topic = snapshot.topics[TOPIC]
        assert (topic.leaders, topic.leader_epochs) == ((0, leader), (5, epoch))
        assert leader in [broker.node_id for broker in snapshot.brokers]

    def test_that_is_known_keeps_its_address(self) -> None:
        """The answer may be older than the list of brokers."""
        metadata = known(metadata_response([0, 1]))
        assert follow(metadata, 2, 1, "elsewhere") == []
        assert {broker.host for broker in metadata.snapshot.brokers} == {"localhost"}

    def test_is_not_replaced_by_older_metadata_or_a_second_one_before_them(self) -> None:
        metadata = known(metadata_response([0, 1], leader_epoch=5))
        follow(metadata, 2, 6)
        follow(metadata, 0, 7)
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 2)
        ask(metadata, metadata_response([0, 1], leader_epoch=5))
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 2)
        follow(metadata, 0, 7)
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 0)

    def test_never_goes_back_after_a_new_connection(self) -> None:
        """Metadata may then: the cluster may be a restored one."""
        metadata = known(metadata_response([0, 1], leader_epoch=5))
        metadata.forget_leader_epochs()
        follow(metadata, 2, 5)
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 1)
        follow(metadata, 2, 6)
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 2)
        ask(metadata, metadata_response([0, 1], leader_epoch=2))
        assert metadata.snapshot.topics[TOPIC].leaders == (0, 1)

    def test_cannot_make_the_list_of_brokers_grow_without_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kafka_sink.kafka.metadata.MOST_BROKERS", 3)
        metadata = known(metadata_response([0, 1]))
        assert follow(metadata, 9, 6, "new") == []
        assert len(metadata.snapshot.brokers) == 3


@pytest.mark.parametrize(("old_id", "new_id"), [(1, 2), (None, 1), (1, None)])
def test_of_another_topic_the_answer_counts_whatever_its_leader_epochs(old_id: int | None, new_id: int | None) -> None:
    """Also where brokers are being upgraded, and only some of them know topic ids."""
    metadata = known()
    metadata.update(identified([2, 2, 2], old_id, 10), 0)
    metadata.update(identified([0, 1], new_id, 5), 0)
    snapshot = metadata.snapshot.topics[TOPIC]
    assert (snapshot.leaders, snapshot.leader_epochs) == ((0, 1), (5, 5))
    kept = new_id if None not in (old_id, new_id) else old_id
    assert snapshot.topic_id == (None if kept is None else uuid.UUID(int=kept))


def test_a_topic_that_one_may_not_see_is_not_one_that_is_not_there() -> None:
    hidden, missing = told("hidden", error_code=29), told("missing", error_code=3)
    metadata = known(replace(hidden, topics=hidden.topics + missing.topics), names=["hidden", "missing"])
    assert (metadata.snapshot.errors, metadata.snapshot.topics) == ({"hidden": 29, "missing": 3}, {})


def test_leaders_and_available_partitions() -> None:
    metadata = known()
    metadata.update(metadata_response([0, NO_LEADER, 2]), 0)
    snapshot = metadata.snapshot
    assert [snapshot.leader(TOPIC, p) for p in range(4)] == [0, NO_LEADER, 2, NO_LEADER]
    assert (snapshot.leader("other", 0), snapshot.topics[TOPIC].available) == (NO_LEADER, (0, 2))
