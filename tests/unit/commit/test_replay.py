"""What may follow upon the last decision, whose a name is, what clocks decide, and the record of the name under which a
query writes its first micro-batch."""

import contextlib
from dataclasses import replace
from typing import Any, TypeVar

import pytest

import apis
from exchange import (
    BOTH_VERSIONS,
    GENERATION,
    NOTHING,
    SINK,
    WHOLE,
    Exchange,
    after_tasks,
    facts,
    instead,
    outcome,
    prepared,
)
from kafka_sink import errors
from kafka_sink.commit import planning
from kafka_sink.commit.handover import Facts, Sink, SlotPrepared
from kafka_sink.commit.markers import FORGOTTEN, Ids, Marker, Names, digest_of
from kafka_sink.commit.replay import check_decision, check_replay
from kafka_sink.commit.requests import ToCoordinator
from kafka_sink.commit.stream_name import began_as, check_first_name
from kafka_sink.kafka.protocol.error_codes import ErrorCode

E = TypeVar("E", bound=errors.ExactlyOnceError)
OF_ANOTHER = facts(9, WHOLE, query_id="another")


@pytest.mark.parametrize(("found", "again", "micro_batch_id", "expected"), [
    # the first micro-batch of a lineage, and a later one of which nothing is known
    (NOTHING, prepared("a", "b"), 0, None), (NOTHING, prepared("a", "b"), 5, errors.StateExpired),
    (OF_ANOTHER, prepared("a", "b"), 0, None), (OF_ANOTHER, prepared("a", "b"), 5, errors.StateExpired),
    # the one after the last
    (facts(4, WHOLE), prepared("c", "d"), 5, None), (facts(4, WHOLE), prepared("c"), 5, None),
    (facts(4, {0: "a"}), prepared("c", "d"), 5, errors.CommittedDataMissing),
    (facts(4, {}), prepared("c", "d"), 5, errors.CommittedDataMissing),
    (facts(3, WHOLE), prepared("c", "d"), 5, errors.WrittenOtherwise),
    (facts(3, {0: "a"}), prepared("c", "d"), 5, errors.CommittedDataMissing),
    # the last one again
    (facts(5, WHOLE), prepared("a", "b"), 5, None), (facts(5, {0: "a"}), prepared("a", "b"), 5, None),
    (facts(5, {0: "a"}), prepared("a", "other"), 5, None), (facts(5, {}), prepared("x", "y", "z"), 5, None),
    (facts(5, {0: "a"}), prepared("x", "b"), 5, errors.TornBatch),
    (facts(5, {1: "b"}), prepared("a"), 5, errors.TornBatch),
    (facts(5, WHOLE), prepared("a", "x"), 5, errors.NonDeterministicReplay),
    (facts(5, WHOLE), prepared("a"), 5, errors.NonDeterministicReplay),
    # an older checkpoint
    (facts(6, WHOLE), prepared("a", "b"), 5, errors.CheckpointBehind),
])  # fmt: skip
def test_what_may_follow_upon_the_last_decision(
    found: Facts, again: list[SlotPrepared], micro_batch_id: int, expected: type[errors.ExactlyOnceError] | None
) -> None:
    assert outcome(found, again, micro_batch_id) is expected


def told(
    error: type[E], found: Facts, *again: str, sink: Sink = SINK, micro_batch_id: int = 5, match: str | None = None
) -> E:
    with pytest.raises(error, match=match) as raised:
        check_decision(sink, found, prepared(*again), micro_batch_id=5, allow_lost_state=False)
    return raised.value


def test_whose_the_name_is_where_another_query_has_decided_after() -> None:
    derived = replace(SINK, is_derived=True)
    for sink, said in ((derived, "transactionalIdPrefix is not set"), (SINK, "transactionalIdPrefix; both have this")):
        error = told(errors.StateExpired, OF_ANOTHER, "a", "b", sink=sink, match=said)
        assert (error.query_id, error.decided_query_id) == ("q", "another")


def test_micro_batches_that_were_written_otherwise_are_no_aborted_transaction() -> None:
    """To go back before them would write them twice."""
    error = told(errors.WrittenOtherwise, facts(3, WHOLE), "c", "d", match="do not go back")
    assert (error.micro_batch_id, error.next_micro_batch_id) == (3, 5)


def test_lost_state_can_be_allowed_and_a_checkpoint_that_is_behind_cannot() -> None:
    for found in (NOTHING, facts(4, {0: "a"}), facts(3, WHOLE)):
        assert outcome(found, prepared("c", "d"), 5, allowed=True) is None
    assert outcome(facts(6, WHOLE), prepared("a", "b"), 5, allowed=True) is errors.CheckpointBehind


def unproved(found: Facts, *slots: int) -> Facts:
    return replace(found, unproved=slots)


def test_slots_without_proof_of_being_visible_are_not_written_again() -> None:
    for again in (4, 5):
        assert outcome(unproved(facts(4, {0: "a"}), 1), prepared("a", "b"), again) is errors.MarkersLost
        assert outcome(unproved(facts(4, {}), 0, 1), prepared("a", "b"), again) is errors.MarkersLost
        assert outcome(unproved(facts(4, {}), 0, 1), prepared("a", "b"), again, allowed=True) is None
    # Those of a query before are no business of a new one's.
    assert outcome(unproved(facts(4, {}, query_id="another"), 0, 1), prepared("a", "b"), 0) is None
    error = told(errors.MarkersLost, unproved(facts(4, {0: "a"}), 1), "a", match="whether slot 1 of micro-batch 4")
    assert (error.micro_batch_id, error.decided_micro_batch_id, error.slots) == (5, 4, (1,))


def test_rows_that_cannot_be_compared_come_again_only_if_that_is_allowed() -> None:
    found = facts(5, {0: FORGOTTEN, 1: "b"})
    assert outcome(found, prepared("a", "b"), 5) is errors.FingerprintsLost
    assert outcome(found, prepared("a", "b"), 5, allowed=True) is None
    # What can be compared is, by the digest too.
    assert outcome(facts(5, {0: digest_of("a"), 1: "b"}), prepared("a", "b"), 5) is None
    assert outcome(facts(5, {0: digest_of("a"), 1: "b"}), prepared("x", "b"), 5) is errors.NonDeterministicReplay
    assert outcome(found, prepared("a", "x"), 5, allowed=True) is errors.NonDeterministicReplay
    # A slot that does not come has no rows to be the same.
    assert outcome(facts(5, {0: "a", 1: FORGOTTEN}), prepared("a"), 5, allowed=True) is errors.NonDeterministicReplay
    assert outcome(facts(5, {0: FORGOTTEN}), prepared("a", "b"), 5, allowed=True) is None
    # The next micro-batch needs none of it.
    assert outcome(found, prepared("c", "d"), 6) is None


def test_a_torn_batch_says_which_slots_are_visible_by_markers_of_its_own() -> None:
    error = told(errors.TornBatch, facts(5, {0: "a"}), "x", "b")
    assert (error.visible, error.missing) == ((0,), (1,))
    older = Facts(GENERATION, facts(4, {}).decision, {0: Marker(3, "q", "a"), 1: Marker(4, "another", "b")})
    assert outcome(older, prepared("c"), 5) is errors.CommittedDataMissing


def test_rows_that_are_visible_must_come_again() -> None:
    marker = Marker(5, "q", "a")
    again = SlotPrepared(0, Ids(0, 1), "q", "a", visible=marker)
    changed = SlotPrepared(1, Ids(1, 1), "q", "other", visible=marker)
    check_replay(SINK, [again], micro_batch_id=5)
    with pytest.raises(errors.NonDeterministicReplay) as raised:
        check_replay(SINK, [again, changed], micro_batch_id=5)
    assert raised.value.slots == (1,)
    check_replay(SINK, [replace(changed, visible=Marker(5, "q", FORGOTTEN))], micro_batch_id=5)


def writes(exchange: Exchange) -> list[Any]:
    return [
        each for each in exchange.requests if isinstance(each, apis.InitProducerIdRequest | apis.OffsetCommitRequest)
    ]


def test_a_sink_that_nobody_began_is_not_the_querys_and_stays_untouched() -> None:
    exchange = Exchange(is_new=True)
    assert not exchange.run(began_as(exchange.sink, "q"))
    assert writes(exchange) == []
    assert exchange.asked == {"OffsetFetch": 1, "DescribeTransactions": 1}


def test_a_sink_whose_last_decision_is_the_querys_is_its_own_and_not_anothers() -> None:
    exchange = Exchange(is_new=True)
    exchange.micro_batch(2)
    exchange.requests.clear()
    assert exchange.run(began_as(exchange.sink, "q"))
    assert writes(exchange) == []
    assert not exchange.run(began_as(exchange.sink, "another"))


@pytest.mark.parametrize("planned", [True, False])
def test_a_sink_that_has_decided_nothing_may_be_about_to(planned: bool) -> None:
    """Its driver may have died in the first micro-batch, or be about to decide: who plans next has to fence it."""
    exchange = Exchange(is_new=True)
    exchange.run(planning.plan(exchange.sink) if planned else planning.take_over(exchange.sink))
    assert exchange.run(began_as(exchange.sink, "q"))


@pytest.mark.parametrize("changes", range(1, 16))
@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_coordinator_that_stood_still_does_not_hide_the_querys_decision(reads: int, changes: int) -> None:
    """Another query decided before it."""
    exchange = Exchange(is_new=True)
    for query_id in ("another", "q"):
        facts = exchange.run(planning.plan(exchange.sink))
        exchange.commit(facts, [exchange.task(facts, 0, slot, query_id) for slot in range(2)])
    exchange.kafka.stand_still(changes, reads)
    assert exchange.run(began_as(exchange.sink, "q"))


def test_what_could_not_be_asked_is_not_taken_for_no_but_a_missing_acl_is() -> None:
    def began(error_code: int) -> bool:
        described = apis.TransactionDescription("orders.driver", error_code, "", 0, -1, -1, -1, ())
        answer = instead(apis.DescribeTransactionsRequest, apis.DescribeTransactionsResponse(0, (described,)))
        return Exchange(is_new=True, answer=answer).run(began_as(SINK, "q"))

    assert not began(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(errors.TransactionRefused):
        began(ErrorCode.UNKNOWN_SERVER_ERROR)


HOUR_MS = 3_600_000


@BOTH_VERSIONS
@pytest.mark.parametrize("skew_ms", [HOUR_MS, 0, -HOUR_MS])
@pytest.mark.parametrize(("open_ms", "is_in_time"), [(0, True), (54_000, True), (55_001, False)])
def test_a_drivers_clock_may_be_an_hour_off(version: int, skew_ms: int, open_ms: int, is_in_time: bool) -> None:
    exchange = Exchange(version)
    exchange.kafka.now_ms = 10 * HOUR_MS
    found, done = exchange.tasks(2)
    exchange.kafka.now_ms += open_ms
    now_ms = exchange.kafka.now_ms + skew_ms
    with contextlib.nullcontext() if is_in_time else pytest.raises(errors.TransactionTimedOut) as raised:
        exchange.run(exchange.committing(found, done, now_ms=now_ms, open_ms=open_ms))
    assert exchange.kafka.visible == (["0/0", "0/1"] if is_in_time else [])
    assert raised is None or raised.value.age_ms == open_ms


def test_tasks_that_wrote_late_are_in_time_however_long_ago_the_plan_is() -> None:
    """The time since the plan is the most that a transaction can have been open; the brokers know how long it was."""
    exchange, found, done = after_tasks(2)
    exchange.run(exchange.committing(found, done, now_ms=10 * HOUR_MS, open_ms=3 * HOUR_MS))
    assert exchange.kafka.visible == ["0/0", "0/1"]


def test_the_age_of_a_transaction_that_is_over_is_no_date() -> None:
    exchange, found, done = after_tasks(2)
    exchange.kafka.time_out("orders.1")
    with pytest.raises(errors.TransactionTimedOut) as raised:
        exchange.run(exchange.committing(found, done, now_ms=1_795_737_867_331, open_ms=7))
    assert raised.value.age_ms == 7


def named(exchange: Exchange, name: str) -> Exchange:
    """The same Kafka, of a sink with another name."""
    other = Exchange(is_new=True)
    other.kafka, other.sink = exchange.kafka, replace(exchange.sink, names=replace(exchange.sink.names, sink=name))
    return other


def test_a_build_that_went_back_and_decided_nothing_takes_no_stream_from_its_plain_name() -> None:
    """An earlier build derives another name of the checkpoint, finds nothing there, and stops with StateExpired."""
    exchange = Exchange(is_new=True)
    earlier = named(exchange, "spelled")
    earlier.run(planning.plan(earlier.sink))
    assert earlier.run(began_as(earlier.sink, None, otherwise="orders"))
    exchange.micro_batch(2)
    assert not earlier.run(began_as(earlier.sink, None, otherwise="orders"))
    assert earlier.run(began_as(earlier.sink, None))
    # Who may not read the plain name has written nothing there.
    denied = apis.GroupOffset("orders.decision", ErrorCode.GROUP_AUTHORIZATION_FAILED, -1, "")
    earlier.answer = lambda request: (
        apis.OffsetFetchResponse(0, (denied,)) if getattr(request, "group_ids", ()) == (denied.group_id,) else None
    )
    assert earlier.run(began_as(earlier.sink, None, otherwise="orders"))
    earlier.answer = lambda request: None
    # What was decided under the earlier name goes on there, and a decision that is lost is looked for there.
    earlier.micro_batch(1)
    assert earlier.run(began_as(earlier.sink, None, otherwise="orders"))
    exchange.kafka.forget_offsets(["spelled.decision"])
    assert earlier.run(began_as(earlier.sink, None, otherwise="orders"))


ONE, OTHER = (replace(SINK, names=Names(name, SINK.names.commit_topic)) for name in ("pykafka-1", "pykafka-2"))
RECORD = "pykafka-q.name"


def check(exchange: Exchange, sink: Sink, query_id: str = "q") -> None:
    exchange.run(check_first_name(replace(sink, transaction_version=exchange.sink.transaction_version), query_id))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_first_name_of_a_query_is_its_only_one(version: int) -> None:
    exchange = Exchange(version, is_new=True)
    check(exchange, ONE)
    for _ in range(2):
        with pytest.raises(errors.AnotherName) as raised:
            check(exchange, OTHER)
        assert (raised.value.sink, raised.value.query_id, raised.value.found_sink) == ("pykafka-2", "q", "pykafka-1")
        check(exchange, ONE)
    check(exchange, OTHER, "another")


@pytest.mark.parametrize("rounds", range(1, 8))
@BOTH_VERSIONS
def test_of_two_drivers_one_has_its_name_whoever_comes_between(version: int, rounds: int) -> None:
    """The other driver does the whole of it after each round of the first one's requests."""
    exchange, ended = Exchange(version, is_new=True), []
    one = check_first_name(replace(ONE, transaction_version=version), "q")
    try:
        effects = next(one)
        for _ in range(rounds):
            effects = one.send([exchange.execute(effect) for effect in effects])
        with pytest.raises((errors.AnotherName, errors.AttemptFenced)):
            try:
                check(exchange, OTHER)
                ended.append(OTHER)
            finally:
                exchange.run(one, waits_for=effects)
                ended.append(ONE)
    except StopIteration:
        check(exchange, ONE)
        return
    assert len(ended) == 1
    check(exchange, ended[0])


@pytest.mark.parametrize("changes", range(1, 12))
def test_a_stale_coordinator_does_not_hide_the_record(changes: int) -> None:
    exchange = Exchange(is_new=True)
    check(exchange, ONE)
    exchange.kafka.stand_still(changes, 2)
    with pytest.raises(errors.AnotherName):
        check(exchange, OTHER)


def test_a_record_of_another_program_is_not_taken_for_ours() -> None:
    exchange = Exchange(is_new=True)
    text = apis.OffsetCommitRequest(RECORD, SINK.names.commit_topic, 0, 0, "2|pykafka-1")
    exchange.execute(ToCoordinator(apis.CoordinatorKind.GROUP, RECORD, text))
    with pytest.raises(errors.UnreadableState):
        check(exchange, ONE)


@pytest.mark.parametrize(("code", "is_refused"), [
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
    (ErrorCode.UNKNOWN_SERVER_ERROR, True),
])  # fmt: skip
def test_a_principal_that_may_not_use_the_record_has_written_none(code: int, is_refused: bool) -> None:
    refused = apis.InitProducerIdResponse(0, code, -1, -1)
    exchange = Exchange(is_new=True, answer=instead(apis.InitProducerIdRequest, refused))
    with pytest.raises(errors.TransactionRefused) if is_refused else contextlib.nullcontext():
        check(exchange, ONE)
