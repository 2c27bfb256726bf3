"""The two-phase commit, without any I/O: which requests go out, and what their answers mean.

    plan     fence older drivers ─> read the decision ─> finish what it names ─> abort what is left open ─> read markers
    begin    a task, before its rows:  is this run current? ─> Init the slot ─> is its marker this micro-batch's?
    prepare  a task, after its rows are acknowledged:  put the marker into the transaction
    commit   check messages, decision ─> all open, alone? and write the decision ─> DECIDE ─> EndTxn each ─> verify each
    abort    a plan that no tasks follow, unless another run has begun

Each is a generator of effects (`effects`). Whoever runs it (`runner`, a simulation) brings definite answers only: on
CONCURRENT_TRANSACTIONS, an unstable offset, a lost connection or a coordinator that moved, the same request goes out
again. Every request here may be carried out twice. A process may die between any two effects; what follows from that,
`tests/verification/model` enumerates. Why it is right, and each rule: docs/design/exactly-once.md.

* `plan` runs once for each micro-batch, in the process that plans it, and again if it failed. In the process that is to
  commit it would abort what is about to be committed.
* `commit` never Inits the driver's id: two processes doing so fence each other.
* A transaction that somebody decided to commit is never aborted, not even when its commit timed out.

Source: KIP-98, KIP-447 (require stable), KIP-664 (describing), KIP-890 (versions).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kafka_sink.commit.effects import PAUSES_MS, BrokerSetting, Pause, Steps, ToCoordinator, ToEveryBroker, at_once
from kafka_sink.commit.exchanges import (
    check_answer,
    check_definite,
    check_generation,
    described,
    end_txn,
    init_producer_id,
    is_definite,
    read_decision,
    read_markers,
    write_offset,
)
from kafka_sink.commit.handover import Facts, Sink, SlotBegun, SlotPrepared, visible_of
from kafka_sink.commit.hanging import check_leaders, end_hanging, still_open
from kafka_sink.commit.lineage import check_decision, check_lineage, check_replay
from kafka_sink.commit.markers import FORGOTTEN, NOTHING_COMMITTED, Decision, Ids, Marker, digest_of
from kafka_sink.errors import (
    AttemptFenced,
    CheckpointBehind,
    CommitOutcomeUnknown,
    DriverFenced,
    ExactlyOnceError,
    FingerprintsLost,
    InvalidOption,
    NonDeterministicReplay,
    StateExpired,
    TransactionTimedOut,
    UnreadableState,
)
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.end_txn import (
    EndTxnResponse,
)
from kafka_sink.kafka.protocol.apis.list_transactions import (
    ListTransactionsRequest,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, meaning
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# What a decision and its EndTxn requests may take, of a transaction's time to live; and by how much the driver's clock,
# which says what time it is, may be behind the brokers', which say when a transaction began: no answer has their time.
# With a clock that is further behind the check lets pass what may time out in mid-commit, and the markers tell.
LEAST_TIME_LEFT_MS = 5_000
# The brokers' setting that no transaction's time to live may exceed.
TIMEOUT_CEILING = "transaction.max.timeout.ms"


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(sink: Sink) -> Steps[Facts]:
    """Takes the sink over, and leaves none of its transactions open. Raises DriverFenced, TransactionRefused, and
    InvalidOption for a timeout that the brokers do not allow."""
    generation = yield from take_over(sink)
    # What is listed before a decision is finished is described after.
    decision, listed = yield from at_once(_last_decision(sink, generation), _listed(sink))
    if decision is None and not listed and sink.comes_again:
        # No task has begun yet: from now on a decision that is not found was lost.
        (text,) = Decision.nothing(generation, sink.transaction_version).texts()
        return (yield from _plan_after(sink, generation, {sink.names.decision(0): (0, text)}))
    is_forgotten = decision is None and sink.comes_again
    if decision is not None and decision.is_nothing:
        decision = None
    visible: dict[int, Marker] = {}
    was_committed: dict[int, bool | None] = {}
    if decision is not None:
        visible = yield from _visible(sink, decision)
        was_committed = yield from finish(sink, decision, visible)
    still_open = yield from _open_since(sink, decision, _in(listed, "Ongoing"))
    yield from abort_open(sink, generation, still_open)
    slots = range(len(decision.pinned)) if decision is not None else ()
    # After what was open: a marker in it is about to change, until it is ended.
    missing = [slot for slot in slots if slot not in visible]
    markers = visible | (yield from read_markers(sink, missing, barrier=f"plan {generation}"))
    lost, unproved = _lost_markers(decision, markers, was_committed) if decision is not None else ({}, ())
    if lost:
        # Before a task Inits the slot, after which its coordinator knows nothing of it any more.
        restored = {sink.names.slot(slot): (marker.micro_batch_id, marker.text) for slot, marker in lost.items()}
        return (yield from _plan_after(sink, generation, restored))
    return Facts(generation, decision, markers, unproved, is_forgotten)


def _lost_markers(
    decision: Decision, markers: Mapping[int, Marker], was_committed: Mapping[int, bool | None]
) -> tuple[dict[int, Marker], tuple[int, ...]]:
    """What is proved of slots whose groups do not say it, as markers; and the slots of which nothing is proved.

    A marker of before proves that what is pinned was not committed, as that would have replaced it: an offset that was
    deleted or has expired does not come back. That there is none proves nothing.
    """
    lost: dict[int, Marker] = {}
    unproved = []
    visible = visible_of(decision, markers)
    for slot, ids in enumerate(decision.pinned):
        if slot in visible:
            continue
        if ids is None or was_committed.get(slot):
            digest = decision.digests[slot] if decision.digests else FORGOTTEN
            lost[slot] = Marker(decision.micro_batch_id, decision.query_id, digest)
        elif slot not in markers and was_committed.get(slot) is False:
            lost[slot] = NOTHING_COMMITTED
        elif slot not in markers:
            unproved.append(slot)
    return lost, tuple(unproved)


def _plan_after(sink: Sink, generation: Ids, offsets: Mapping[str, tuple[int, str]]) -> Steps[Facts]:
    """Another plan, once these offsets are those of their groups: written by a transaction of the driver's, so that no
    generation but this one, which is spent with it, can do so. Raises as `plan`."""
    driver = sink.names.driver
    was_committed: bool | None = None
    try:
        for group_id, (offset, text) in offsets.items():
            yield from write_offset(sink, driver, generation, group_id, offset, text)
        ((_, was_committed),) = yield from _commit_each(sink, [(driver, generation)], sink.transaction_version)
    except AttemptFenced:
        (found,) = yield from described(sink, [driver])
        was_committed = _was_committed(found, generation, sink.transaction_version)
    if was_committed is None:
        (found,) = yield from described(sink, [driver])
        current = Ids(found.producer_id, found.producer_epoch)
        raise DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))
    return (yield from plan(sink))


def take_over(sink: Sink) -> Steps[Ids]:
    """The next generation. Whoever has the one before decides nothing any more. Raises as `plan`."""
    (driver,) = yield [init_producer_id(sink, sink.names.driver)]
    if driver.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        yield from _refuse_timeout(sink)
    check_answer(driver.error_code, "InitProducerId", sink.names.driver)
    return Ids(driver.producer_id, driver.producer_epoch)


def _refuse_timeout(sink: Sink) -> Steps[None]:
    (ceiling,) = yield [BrokerSetting(TIMEOUT_CEILING)]
    unknown = "; how much that is they tell only with the ACL CLUSTER DESCRIBE_CONFIGS"
    raise InvalidOption(
        option="kafka.transaction.timeout.ms",
        value=str(sink.timeout_ms),
        expected=f"at most the brokers' {TIMEOUT_CEILING}{unknown if ceiling is None else f', {ceiling}'}",
    )


def _last_decision(sink: Sink, generation: Ids) -> Steps[Decision | None]:
    """The one that nobody can change any more, now that this generation has taken the sink over."""
    try:
        decision = yield from read_decision(sink)
    except UnreadableState:
        # Perhaps its groups were read at different moments.
        decision = None
    if decision is not None and generation == _next_after(decision.generation, decision):
        return decision
    return (yield from read_decision(sink, barrier=f"plan {generation}"))


def _visible(sink: Sink, decision: Decision) -> Steps[dict[int, Marker]]:
    """The decision's slots that are visible already, all of them as a rule: so nothing is left to be finished."""
    found = yield from read_markers(sink, range(len(decision.pinned)), stable=False)
    return visible_of(decision, found)


def finish(sink: Sink, decision: Decision, visible: Container[int] = ()) -> Steps[dict[int, bool | None]]:
    """Commits every transaction that the decision names and that is not `visible`, by the ids it pins. Whether each of
    them was committed, by slot; None where its coordinator does not prove it either way."""
    slots = [slot for slot, ids in enumerate(decision.pinned) if ids is not None and slot not in visible]
    if not slots:
        return {}
    pinned = [(sink.names.slot(slot), ids) for slot in slots if (ids := decision.pinned[slot]) is not None]
    ended = yield from _commit_each(sink, pinned, decision.transaction_version)
    for (transactional_id, _), (answer, _) in zip(pinned, ended, strict=True):
        check_definite(answer.error_code, transactional_id)
    return {slot: was_committed for slot, (_, was_committed) in zip(slots, ended, strict=True)}


def _commit_each(
    sink: Sink, pinned: Sequence[tuple[str, Ids]], version: int
) -> Steps[list[tuple[EndTxnResponse, bool | None]]]:
    """The last answers, and whether each transaction was committed, as in `finish`. What is refused is over, in
    whatever way, unless its coordinator was stale: as long as it is not described as over it is told again."""
    answers = dict(zip(pinned, (yield [_commit(sink, *each, version) for each in pinned]), strict=True))
    found: dict[tuple[str, Ids], TransactionDescription] = {}
    for pause_ms in PAUSES_MS:
        refused = [each for each in pinned if meaning(answers[each].error_code).fenced]
        found |= zip(refused, (yield from described(sink, [name for name, _ in refused])), strict=True)
        again = [each for each in refused if not _is_over(found[each], each[1])]
        if not again:
            break
        yield [Pause(pause_ms)]
        answers |= zip(again, (yield [_commit(sink, *each, version) for each in again]), strict=True)
    proofs = {each: _was_committed(said, each[1], version) for each, said in found.items()}
    return [
        (answer, True if answer.error_code == ErrorCode.NONE else proofs.get(each)) for each, answer in answers.items()
    ]


def _was_committed(description: TransactionDescription, ids: Ids, version: int) -> bool | None:
    """Whether the transaction of these ids was committed, where its coordinator remembers: until the next
    InitProducerId. An end is for ever, so that a stale coordinator tells no lies about it."""
    raised_by = description.producer_epoch - ids.producer_epoch
    if description.producer_id != ids.producer_id:
        return None
    if description.state in ("PrepareCommit", "CompleteCommit"):
        return True if raised_by == version - 1 else None
    # A timeout raises the epoch on either version; an EndTxn on version 2.
    is_its_abort = description.state in ("PrepareAbort", "CompleteAbort") and raised_by in (version - 1, 1)
    return False if is_its_abort else None


def _commit(sink: Sink, transactional_id: str, ids: Ids, version: int) -> ToCoordinator:
    return end_txn(sink, transactional_id, ids, committed=True, version=version)


def _is_over(description: TransactionDescription, ids: Ids) -> bool:
    """Whether a transaction that was prepared with these ids is, for certain. Another producer id, or none, is of
    before, or of long after."""
    if description.producer_id != ids.producer_id:
        return False
    is_it = description.producer_epoch == ids.producer_epoch
    return description.producer_epoch > ids.producer_epoch or (is_it and description.state not in ("Empty", "Ongoing"))


def list_open(sink: Sink) -> Steps[list[str]]:
    """The transactional ids of the slots, of any, that have something open. Raises TransactionRefused."""
    return _in((yield from _listed(sink)), "Ongoing")


def _in(listed: Sequence[tuple[str, str]], state: str) -> list[str]:
    return sorted({transactional_id for transactional_id, is_in in listed if is_in == state})


def _listed(sink: Sink) -> Steps[list[tuple[str, str]]]:
    """The transactional ids of the slots, with their states, as each broker has them. Raises TransactionRefused."""
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(transactional_id_prefix=f"{sink.names.sink}."))]
    for listing in listings:
        check_answer(listing.error_code, "ListTransactions", sink.names.sink)
    return [
        (listed.transactional_id, listed.state)
        for listing in listings
        for listed in listing.transactions
        if sink.names.is_slot(listed.transactional_id)
    ]


def _open_since(sink: Sink, decision: Decision | None, listed: Sequence[str]) -> Steps[list[TransactionDescription]]:
    """What is open of what was `listed`, and was begun since the decision, all of which is committed by now."""
    found = yield from described(sink, listed)
    for pause_ms in PAUSES_MS:
        if not (yield from _is_of_before(sink, decision, found)):
            break
        yield [Pause(pause_ms)]
        found = yield from described(sink, listed)
    are_open = [each for each in found if each.state == "Ongoing"]
    return [each for each in are_open if decision is None or not is_decided(sink, decision, each)]


def _is_of_before(sink: Sink, decision: Decision | None, found: Sequence[TransactionDescription]) -> Steps[bool]:
    """True if an answer is stale: it says that a decided transaction is open, or that a transaction has ended which the
    list shows as open afterwards. Every broker is asked for the list, the true coordinator too."""
    are_open = [each for each in found if each.state == "Ongoing"]
    if decision is not None and any(is_decided(sink, decision, each) for each in are_open):
        return True
    ended = {each.transactional_id for each in found} - {each.transactional_id for each in are_open}
    return bool(ended) and not ended.isdisjoint((yield from list_open(sink)))


def is_decided(sink: Sink, decision: Decision, description: TransactionDescription) -> bool:
    """Whether it is a transaction that the decision names, or one of before, which that slot cannot have any more."""
    slot = int(description.transactional_id.removeprefix(f"{sink.names.sink}."))
    pinned = decision.pinned[slot] if slot < len(decision.pinned) else None
    return (
        pinned is not None
        and description.producer_id == pinned.producer_id
        and description.producer_epoch <= pinned.producer_epoch
    )


def open_ones(sink: Sink, listed: Sequence[str]) -> Steps[list[TransactionDescription]]:
    """Those of `listed` that are open. Raises TransactionRefused."""
    found = yield from described(sink, listed)
    return [each for each in found if each.state == "Ongoing"]


def abort_open(
    sink: Sink, generation: Ids, still_open: Sequence[TransactionDescription]
) -> Steps[Sequence[TransactionDescription]]:
    """Ends transactions that nobody decided to commit: their rows hide what comes after them. Returns them, as they
    were. Raises DriverFenced, TransactionRefused."""
    if not still_open:
        return []
    # After describing and before aborting: what was described is then of this run or an older one.
    yield from check_generation(sink, generation)
    answers = yield _aborts(
        sink, {each.transactional_id: Ids(each.producer_id, each.producer_epoch) for each in still_open}
    )
    for each, answer in zip(still_open, answers, strict=True):
        # One that is fenced was ended by whoever fenced it.
        api = "InitProducerId" if sink.transaction_version < 2 else "EndTxn"
        check_definite(answer.error_code, each.transactional_id, api)
    return still_open


def _aborts(sink: Sink, transactions: Mapping[str, Ids]) -> list[ToCoordinator]:
    if sink.transaction_version < 2:
        # A late abort of version 1 can hit the next transaction of its id; a new epoch cannot.
        return [init_producer_id(sink, transactional_id) for transactional_id in transactions]
    return [end_txn(sink, transactional_id, ids, committed=False) for transactional_id, ids in transactions.items()]


# --- versions ---------------------------------------------------------------------------------------------------------


def is_written(sink: Sink, facts: Facts, *, query_id: str, version: int, allow_lost_state: bool) -> Steps[bool]:
    """Whether a version is passed over: it is visible whole, or a later one was decided. Told after `plan`, before any
    row is read. Raises DriverFenced, and what `check_lineage` does."""
    decision = facts.decision
    if decision is not None and decision.query_id == query_id:
        is_whole = decision.micro_batch_id == version and not facts.missing
        if is_whole or decision.micro_batch_id > version:
            return True
    # Markers that a later run replaced while this one looked are not missing.
    yield from check_generation(sink, facts.generation)
    check_lineage(sink, facts, query_id=query_id, micro_batch_id=version, allow_lost_state=allow_lost_state)
    return False


def check_written(
    sink: Sink,
    facts: Facts,
    counted: Sequence[str],
    *,
    total: Callable[[Iterable[str]], Any],
    touched: Sequence[TopicPartition],
    allow_lost_state: bool = False,
) -> Steps[None]:
    """That the last version, which is passed over, has the rows that are visible, and that readers see them.

    `counted`: the fingerprint of each slot's rows. `total`: of all slots', by which rows can be compared that came in
    other slots, as nothing is to be filled in; not where a marker was lost. `touched`: all partitions that they can be
    in. Raises NonDeterministicReplay, FingerprintsLost, VerificationRefused, HangingTransaction.
    """
    decision, visible = facts.decision, facts.visible
    assert decision is not None, "a version that is passed over was decided"
    version = decision.micro_batch_id
    # Whatever rows come this time, those of the first are to be seen.
    yield from end_what_hangs(sink, facts, touched)
    visible_in_order = [visible[slot] for slot in sorted(visible)]
    restored = sorted(slot for slot, marker in visible.items() if marker.is_restored)
    if restored:
        is_same = len(counted) == len(visible) and all(map(Marker.may_be_of, visible_in_order, counted))
        if (facts.incomparable or not is_same) and not allow_lost_state:
            raise FingerprintsLost(sink=sink.names.sink, micro_batch_id=version, slots=restored)
    elif total(counted) != total(marker.fingerprint for marker in visible.values()):
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=version, slots=sorted(visible))


def end_what_hangs(sink: Sink, facts: Facts, touched: Iterable[TopicPartition]) -> Steps[None]:
    """That readers see the rows of the last decision, where its driver died before it looked. For a run that goes on to
    other rows: written behind them on a leader that has them open, they would share their end, even an abort.

    `touched`: all partitions that they can be in, of the decision's topics. Raises VerificationRefused,
    HangingTransaction.
    """
    decision, visible = facts.decision, facts.visible
    if decision is None:
        return
    pinned = {ids: slot for slot, ids in enumerate(decision.pinned) if ids is not None and slot in visible}
    ours = {ids: sink.names.slot(slot) for ids, slot in pinned.items()}
    yield from end_hanging(sink, ours, sorted(touched), decision.micro_batch_id)


# --- a task -----------------------------------------------------------------------------------------------------------


def begin(
    sink: Sink, facts: Facts, *, slot: int, micro_batch_id: int, query_id: str, allow_lost_state: bool = False
) -> Steps[SlotBegun]:
    """Opens the slot's next run, which fences every earlier attempt. Raises DriverFenced, CheckpointBehind,
    StateExpired, TransactionRefused, AttemptFenced; nothing is written then."""
    transactional_id = sink.names.slot(slot)
    yield from check_generation(sink, facts.generation)
    ids = yield from _init_slot(sink, transactional_id)
    is_first_since = _is_first_since(facts.decision, slot, ids)
    marker = facts.markers.get(slot) if is_first_since else (yield from _marker_now(sink, facts, slot, ids))
    is_pinned = facts.decision is not None and slot < len(facts.decision.pinned)
    if marker is None and sink.comes_again and not is_pinned:
        if facts.is_forgotten and not allow_lost_state:
            raise StateExpired(sink=sink.names.sink, micro_batch_id=micro_batch_id, query_id=query_id)
        # From now on a marker that is not found was lost.
        said = NOTHING_COMMITTED
        yield from write_offset(sink, transactional_id, ids, transactional_id, said.micro_batch_id, said.text)
        yield from _commit_each(sink, [(transactional_id, ids)], sink.transaction_version)
        ended, ids = ids, (yield from _init_slot(sink, transactional_id))
        if ids != Ids(ended.producer_id, ended.producer_epoch + sink.transaction_version):
            # Somebody has Inited it in between.
            marker = yield from _marker_now(sink, facts, slot, ids)
    visible = None
    if marker is not None and marker.query_id == query_id:
        if marker.micro_batch_id > micro_batch_id:
            raise CheckpointBehind(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                committed_micro_batch_id=marker.micro_batch_id,
            )
        if marker.micro_batch_id == micro_batch_id:
            visible = marker
    return SlotBegun(slot, ids, visible)


def _init_slot(sink: Sink, transactional_id: str) -> Steps[Ids]:
    (answer,) = yield [init_producer_id(sink, transactional_id)]
    check_answer(answer.error_code, "InitProducerId", transactional_id)
    return Ids(answer.producer_id, answer.producer_epoch)


def _marker_now(sink: Sink, facts: Facts, slot: int, ids: Ids) -> Steps[Marker | None]:
    """What `plan` found, and whether this run was current, may be long ago. Behind rows that were committed since, and
    that a leader hides (KAFKA-20734), this attempt's would share their end, and its abort would take them away. Raises
    DriverFenced."""
    _, markers = yield from at_once(
        check_generation(sink, facts.generation), read_markers(sink, [slot], barrier=f"begin {ids}")
    )
    # One that is gone was deleted since.
    marker: Marker | None = markers.get(slot, facts.markers.get(slot))
    return marker


def _is_first_since(decision: Decision | None, slot: int, ids: Ids) -> bool:
    """Whether nobody can have committed rows of the slot since the decision that pins its ids."""
    pinned = decision.pinned[slot] if decision is not None and slot < len(decision.pinned) else None
    return decision is not None and pinned is not None and ids == _next_after(pinned, decision)


def _next_after(ids: Ids, decision: Decision) -> Ids:
    """What the first InitProducerId after the end of a transaction of the decision's returns. It raises the epoch by
    one, and so does an EndTxn of version 2: whoever comes later has done one of them once more, or both."""
    return Ids(ids.producer_id, ids.producer_epoch + decision.transaction_version)


def prepare(sink: Sink, begun: SlotBegun, marker: Marker) -> Steps[None]:
    """Puts the marker next to the rows, all of which are acknowledged. Raises AttemptFenced, TransactionRefused: the
    attempt has then failed."""
    transactional_id = sink.names.slot(begun.slot)
    # Group and transactional id have the same name.
    yield from write_offset(sink, transactional_id, begun.ids, transactional_id, marker.micro_batch_id, marker.text)


# --- commit -----------------------------------------------------------------------------------------------------------


def commit(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    now_ms: int,
    allow_lost_state: bool = False,
    topic_ids: Mapping[str, str | None] = MappingProxyType({}),
) -> Steps[None]:
    """Makes a micro-batch visible, whole. `prepared` has one for each slot, in order; `now_ms` is wall-clock time;
    `topic_ids`: as the slots' tasks found them.

    Raises one of the errors of exactly-once; Spark then does not record the micro-batch, and runs it again.
    """
    check_decision(sink, facts, prepared, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)
    check_replay(sink, prepared, micro_batch_id=micro_batch_id)
    open_slots = [each for each in prepared if each.visible is None]
    unproved: list[SlotPrepared] = []
    decided = facts.decision
    is_decided = decided is not None and (decided.micro_batch_id, decided.query_id, len(decided.pinned)) == (
        micro_batch_id,
        prepared[0].query_id,
        len(prepared),
    )
    if open_slots or not is_decided:
        topics = sorted({topic for each in prepared for topic, _ in each.partitions})
        decision = Decision(
            micro_batch_id=micro_batch_id,
            query_id=prepared[0].query_id,
            generation=facts.generation,
            transaction_version=sink.transaction_version,
            decided_ms=now_ms,
            pinned=tuple(None if each.visible else each.ids for each in prepared),
            topics=tuple(topics),
            topic_ids={topic: topic_id for topic in topics if (topic_id := topic_ids.get(topic)) is not None},
            digests=tuple(digest_of(each.fingerprint) for each in prepared),
        )
        _, _, waited_ms = yield from at_once(
            _write_decision(sink, decision),
            _check_open(sink, open_slots, decision, now_ms),
            check_leaders(sink, open_slots, generation=facts.generation, micro_batch_id=micro_batch_id),
        )
        if waited_ms:
            # What was open, and for long enough, may be so no more.
            yield from _check_open(sink, open_slots, decision, now_ms + waited_ms)
        yield from _decide(sink, decision)
        # Not one is aborted after this, whatever happens.
        pinned = [(sink.names.slot(each.slot), each.ids) for each in open_slots]
        ended = yield from _commit_each(sink, pinned, sink.transaction_version)
        refused = {
            each.slot: error_name(answer.error_code)
            for each, (answer, _) in zip(open_slots, ended, strict=True)
            if not is_definite(answer.error_code)
        }
        if refused:
            raise CommitOutcomeUnknown(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                visible=[each.slot for each in prepared if each.slot not in refused],
                missing=list(refused),
                reason=f"EndTxn was refused with {', '.join(sorted(set(refused.values())))}",
            )
        unproved = [each for each, (_, was_committed) in zip(open_slots, ended, strict=True) if not was_committed]
    yield from _verify(sink, facts, prepared, unproved, micro_batch_id=micro_batch_id)


def _check_open(sink: Sink, slots: Sequence[SlotPrepared], decision: Decision, now_ms: int) -> Steps[None]:
    """Raises TransactionTimedOut unless every transaction is still open, for long enough; DriverFenced where another
    run has ended it."""
    found, waited_ms = yield from _described_since_begun(sink, slots)
    for each, description in zip(slots, found, strict=True):
        ids = Ids(description.producer_id, description.producer_epoch)
        age_ms = now_ms + waited_ms - description.start_time_ms
        is_open = description.state == "Ongoing" and ids == each.ids
        if not is_open or age_ms > sink.timeout_ms - LEAST_TIME_LEFT_MS:
            (driver,) = yield from described(sink, [sink.names.driver])
            if Ids(driver.producer_id, driver.producer_epoch) != decision.generation:
                raise (yield from _lost(sink, decision))
            raise TransactionTimedOut(
                transactional_id=description.transactional_id,
                expected=str(each.ids),
                found=f"{description.state} {ids}",
                age_ms=age_ms,
                timeout_ms=sink.timeout_ms,
            )


def _described_since_begun(
    sink: Sink, slots: Sequence[SlotPrepared]
) -> Steps[tuple[list[TransactionDescription], int]]:
    """What the coordinators know of the slots' transactions since these began, and the milliseconds of waiting for it.
    A stale coordinator, whose place another took, answers by what it knew, until it learns of its successor. Epochs do
    not go back."""
    names = [sink.names.slot(each.slot) for each in slots]
    waited_ms = 0
    found = yield from described(sink, names)
    for pause_ms in PAUSES_MS:
        if not any(map(_is_from_before, slots, found)):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
        found = yield from described(sink, names)
    return found, waited_ms


def _is_from_before(slot: SlotPrepared, description: TransactionDescription) -> bool:
    """Also where the id is another, or none: one that was spent since, or was not in use; and where nothing was written
    yet."""
    is_same = description.producer_id == slot.ids.producer_id
    return not is_same or description.producer_epoch < slot.ids.producer_epoch or description.state == "Empty"


def _write_decision(sink: Sink, decision: Decision) -> Steps[None]:
    """Into the driver's transaction, by whose end it is decided. Raises DriverFenced, TransactionTimedOut."""
    names = sink.names
    try:
        for part, text in enumerate(decision.texts(sink.metadata_max_characters)):
            group_id = names.decision(part)
            yield from write_offset(sink, names.driver, decision.generation, group_id, decision.micro_batch_id, text)
    except AttemptFenced:
        raise (yield from _lost(sink, decision)) from None


def _decide(sink: Sink, decision: Decision) -> Steps[None]:
    """The one moment: before it nothing of the micro-batch will be visible, after it everything will."""
    pinned = [(sink.names.driver, decision.generation)]
    ((answer, _),) = yield from _commit_each(sink, pinned, sink.transaction_version)
    if answer.error_code == ErrorCode.NONE:
        return
    check_definite(answer.error_code, sink.names.driver)
    # It may have been carried out and its answer lost, or somebody else may have come in between.
    found = yield from read_decision(sink, barrier=f"decide {decision.generation}")
    if found != decision:
        raise (yield from _lost(sink, decision))


def _lost(sink: Sink, decision: Decision) -> Steps[ExactlyOnceError]:
    """Why the driver's ids are good for nothing any more."""
    generation = decision.generation
    (driver,) = yield from described(sink, [sink.names.driver])
    current = Ids(driver.producer_id, driver.producer_epoch)
    # Brokers raise the epoch by one when they end a transaction that took too long (the same for either version, seen
    # on 3.9.2 and 4.3.1); a driver that takes the sink over leaves no aborted transaction behind, but an empty one.
    if driver.state.endswith("Abort") and current == Ids(generation.producer_id, generation.producer_epoch + 1):
        return TransactionTimedOut(
            transactional_id=driver.transactional_id,
            expected=str(generation),
            found=f"{driver.state} {current}",
            age_ms=decision.decided_ms - driver.start_time_ms,
            timeout_ms=sink.timeout_ms,
        )
    return DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))


def _verify(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    unproved: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
) -> Steps[None]:
    """Raises CommitOutcomeUnknown unless every marker is there, and what hangs cannot be ended. `unproved`: the slots
    whose coordinators do not say that the transaction was committed. Another run may have written their rows again, and
    the marker."""
    markers = yield from read_markers(sink, [each.slot for each in prepared])
    expected = {each.slot: each.visible or Marker(micro_batch_id, each.query_id, each.fingerprint) for each in prepared}
    missing = [slot for slot, marker in expected.items() if markers.get(slot) != marker]
    if missing:
        markers |= yield from read_markers(sink, missing, barrier=f"verify {facts.generation}")
        missing = [slot for slot in missing if markers.get(slot) != expected[slot]]
    reason = (
        "somebody ended the transactions from outside or deleted the slots' consumer groups, or the transactions timed "
        "out"
    )
    touched = sorted({partition for each in prepared for partition in each.partitions})
    committed, unsure = _committed(facts, prepared, micro_batch_id), {}
    for each in unproved:
        unsure[each.ids] = sink.names.slot(committed.pop(each.ids))
    if not missing and unsure and touched:
        hanging = yield from still_open(sink, unsure, touched, micro_batch_id)
        names = {each.transactional_id for each in hanging}
        missing = [each.slot for each in unproved if sink.names.slot(each.slot) in names]
        reason = "a leader has transactions open of which nothing proves that they were committed, and not aborted"
    if missing:
        raise CommitOutcomeUnknown(
            sink=sink.names.sink,
            micro_batch_id=micro_batch_id,
            visible=sorted(expected.keys() - set(missing)),
            missing=missing,
            reason=reason,
        )
    ours = {ids: sink.names.slot(slot) for ids, slot in committed.items()}
    yield from end_hanging(sink, ours, touched, micro_batch_id)


def _committed(facts: Facts, prepared: Sequence[SlotPrepared], micro_batch_id: int) -> dict[Ids, int]:
    """The transactions that the visible rows are from, slots by ids: by epoch too, as what a later attempt of a slot
    has open is none of this micro-batch's. Of a slot that was visible before, those that were pinned then."""
    new = {each.ids: each.slot for each in prepared if each.visible is None}
    decided = facts.decision
    if decided is None or (decided.micro_batch_id, decided.query_id) != (micro_batch_id, prepared[0].query_id):
        return new
    visible_before = {each.slot for each in prepared if each.visible is not None}
    return new | {ids: slot for slot, ids in enumerate(decided.pinned) if ids is not None and slot in visible_before}


# --- abort ------------------------------------------------------------------------------------------------------------


def abort(sink: Sink, generation: Ids) -> Steps[None]:
    """Leaves nothing open of a run whose micro-batch failed: by being the next run, for as long as it takes to plan.

    So tasks that have not begun yet will not, what was decided is committed, and the rest is aborted, whether anybody
    has its ids or not. Runs in another process than `commit`, and possibly after one that decided without knowing it.
    Where another run has taken the sink over nothing of this one is open, or its own to end.
    """
    try:
        yield from check_generation(sink, generation)
        # Without tasks there is nothing to be told apart later.
        facts = yield from plan(replace(sink, comes_again=False))
        yield from _fence_begun(sink, facts.generation)
    except DriverFenced:
        # Of version 2, also the end of its own decision's transaction raises the driver's epoch.
        decision = yield from read_decision(sink, barrier=f"abort {generation}")
        if decision is not None and decision.generation == generation:
            yield from finish(sink, decision)


def _fence_begun(sink: Sink, generation: Ids) -> Steps[None]:
    """Attempts that have begun and written nothing yet: Spark ends a task only a moment after its job has failed, and
    what they write in it would stay open. One that begins later finds another generation."""
    begun = _in((yield from _listed(sink)), "Empty")
    if not begun:
        return
    yield from check_generation(sink, generation)
    answers = yield [init_producer_id(sink, transactional_id) for transactional_id in begun]
    for transactional_id, answer in zip(begun, answers, strict=True):
        check_answer(answer.error_code, "InitProducerId", transactional_id)
