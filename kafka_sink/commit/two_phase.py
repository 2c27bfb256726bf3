"""The two-phase commit without I/O: the requests to send, and the meaning of their answers.

    plan     fence older drivers ─> read the decision ─> finish what it names ─> abort what is left open ─> read markers
    begin    a task, before its rows:  is this run current? ─> Init the slot ─> is its marker this micro-batch's?
    prepare  a task, after its rows are acknowledged:  put the marker into the transaction
    commit   check messages, decision ─> all open, alone? and write the decision ─> DECIDE ─> EndTxn each ─> verify each
    abort    a plan that no tasks follow, unless another run has begun
    forget   after the commit of a batch write without a version: delete its groups

Each step is a generator of effects (`requests`). The caller (`runner` or a simulation) sends back definite answers. It
repeats a request on CONCURRENT_TRANSACTIONS, an unstable offset, a lost connection or a moved coordinator. So brokers
may carry out any request twice. A process may die between any two effects: `tests/verification/model`
enumerates the consequences. docs/design/exactly-once.md explains why the protocol is correct, and each of its rules.

Not obvious here:

* `plan` runs once for each micro-batch, in the planning process, and again after a failure. It must never run in the
  committing process: there it would abort the transactions that `commit` is about to commit.
* `commit` never Inits the driver's id. Two processes that Init it fence each other.
* The EndTxn of the driver's transaction makes the decision. So `commit` writes the text of the decision while it checks
  the slots. If a check fails, the driver's transaction stays open, and the abort or the next plan ends it with Init.
* The answer to EndTxn alone proves neither success nor failure: PRODUCER_FENCED after a lost answer may mean either.
* A transaction that a decision names is never aborted, even if its commit timed out.
* A batch write with a version is a micro-batch with an id that the user chose. Versions may have gaps, so the last
  decision may be several numbers back. That decision must be visible whole before a new version is written, because
  nobody can write its rows later. A version below the last decision was visible whole by then, or was never decided:
  `is_written` skips it.

Source: KIP-98, KIP-447 (require stable), KIP-664 (describing), KIP-890 (versions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from kafka_sink.commit.handover import Facts, Sink, SlotBegun, SlotPrepared, visible_of
from kafka_sink.commit.hanging import check_leaders, end_hanging, producers, still_open
from kafka_sink.commit.markers import NOTHING_COMMITTED, Decision, Ids, Marker, digest_of
from kafka_sink.commit.replay import check_decision, check_may_follow, check_replay
from kafka_sink.commit.requests import (
    PAUSES_MS,
    BrokerSetting,
    Pause,
    Steps,
    ToCoordinator,
    ToEveryBroker,
    at_once,
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
from kafka_sink.commit.went_back import check_offsets, check_transactions
from kafka_sink.errors import (
    AttemptFenced,
    AttemptReplaced,
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
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind, DeleteGroupsRequest
from kafka_sink.kafka.protocol.apis.transaction_state import ListTransactionsRequest, TransactionDescription
from kafka_sink.kafka.protocol.apis.transactions import EndTxnResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, meaning
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# A decision and its EndTxn requests may take this long. If they take longer, a transaction may time out during the
# commit, and the markers show it.
LEAST_TIME_LEFT_MS = 5_000
# The broker setting that limits a transaction's timeout.
TIMEOUT_CEILING = "transaction.max.timeout.ms"


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(sink: Sink, *, allow_lost_state: bool = False) -> Steps[Facts]:
    """Take the sink over, and end all of its open transactions.

    Raises DriverFenced, TransactionRefused, StateWentBack unless `allow_lost_state`, or InvalidOption for a timeout
    above the brokers' limit.
    """
    generation = yield from take_over(sink)
    # The list is taken before the decision is finished. `_open_since` describes its transactions afterwards.
    decision, listed = yield from at_once(_last_decision(sink, generation), _listed(sink))
    if decision is None and not listed and sink.comes_again:
        # No task has begun yet. After this write, a missing decision is a lost decision.
        (text,) = Decision.nothing(generation, sink.transaction_version).texts()
        return (yield from _plan_after(sink, generation, {sink.names.decision(0): (0, text)}, allow_lost_state))
    is_last = _is_last(decision, generation)
    if decision is not None and not is_last:
        generation = yield from _beyond(sink, sink.names.driver, generation, decision.generation, decision)
    if sink.comes_again and not allow_lost_state and not is_last:
        # Before any transaction is ended: those of a lost decision are not to be aborted.
        yield from check_offsets(sink, generation, decision, listed)
    is_forgotten = decision is None and sink.comes_again
    if decision is not None and decision.is_nothing:
        decision = None
    known: dict[int, Marker] = {}
    was_committed: dict[int, bool | None] = {}
    if decision is not None:
        known = yield from _known(sink, decision)
        was_committed = yield from finish(sink, decision, known)
    still_open, decided = yield from _open_since(sink, decision, _in(listed, "Ongoing"))
    yield from abort_open(sink, generation, still_open)
    awake = tuple(sorted(sink.names.slot_of(each.transactional_id) for each in decided))
    slots = range(len(decision.pinned)) if decision is not None else ()
    # Read after the aborts: the marker of an open transaction is unstable until the transaction ends.
    missing = [slot for slot in slots if slot not in known]
    markers = known | (yield from read_markers(sink, missing, barrier=f"plan {generation}"))
    lost, unproved = _lost_markers(decision, markers, was_committed) if decision is not None else ({}, ())
    if lost:
        # Write the proof before a task Inits the slot: after an Init the coordinator has forgotten the last end.
        restored = {sink.names.slot(slot): (marker.micro_batch_id, marker.text) for slot, marker in lost.items()}
        return (yield from _plan_after(sink, generation, restored, allow_lost_state))
    return Facts(generation, decision, markers, unproved, is_forgotten, awake)


def _lost_markers(
    decision: Decision, markers: Mapping[int, Marker], was_committed: Mapping[int, bool | None]
) -> tuple[dict[int, Marker], tuple[int, ...]]:
    """Return the markers to restore, by slot, and the slots whose state is unproved.

    A marker is restored where its group does not show the decision, but other facts prove the state of the slot. A slot
    that rested has no marker of the decision. If its older marker has expired, it says that nothing was committed. An
    older marker proves that the pinned transaction was not committed: the commit would have replaced it, and a deleted
    or expired offset does not come back. A missing marker proves nothing.
    """
    lost: dict[int, Marker] = {}
    unproved = []
    visible = visible_of(decision, markers)
    for slot, ids in enumerate(decision.pinned):
        if slot in decision.resting:
            if slot not in markers:
                lost[slot] = NOTHING_COMMITTED
        elif slot in visible:
            continue
        elif ids is None or was_committed.get(slot):
            lost[slot] = decision.marker_of(slot)
        elif slot not in markers and was_committed.get(slot) is False:
            lost[slot] = NOTHING_COMMITTED
        elif slot not in markers:
            unproved.append(slot)
    return lost, tuple(unproved)


def _plan_after(
    sink: Sink, generation: Ids, offsets: Mapping[str, tuple[int, str]], allow_lost_state: bool
) -> Steps[Facts]:
    """Write these offsets to their groups in a transaction of the driver, then plan again. Raises as `plan`.

    Only the current generation can commit this transaction, and the commit uses up the generation.
    """
    driver = sink.names.driver
    was_committed: bool | None = None
    try:
        for group_id, (offset, text) in offsets.items():
            yield from write_offset(sink, driver, generation, group_id, offset, text)
        ((_, was_committed),) = yield from _commit_each(sink, [(driver, generation)], sink.transaction_version)
    except AttemptFenced:
        (found,) = yield from described([driver])
        was_committed = _was_committed(found, generation, sink.transaction_version)
    if was_committed is None:
        (found,) = yield from described([driver])
        current = Ids.of(found)
        raise DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))
    return (yield from plan(sink, allow_lost_state=allow_lost_state))


def take_over(sink: Sink) -> Steps[Ids]:
    """Return the next generation. A driver with the previous generation can decide nothing more. Raises as `plan`."""
    (driver,) = yield [init_producer_id(sink, sink.names.driver)]
    if driver.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        yield from _refuse_timeout(sink)
    check_answer(driver.error_code, "InitProducerId", sink.names.driver)
    return Ids.of(driver)


def _refuse_timeout(sink: Sink) -> Steps[None]:
    (ceiling,) = yield [BrokerSetting(TIMEOUT_CEILING)]
    unknown = "; brokers show its value only with the ACL CLUSTER DESCRIBE_CONFIGS"
    raise InvalidOption(
        option="kafka.transaction.timeout.ms",
        value=str(sink.timeout_ms),
        expected=f"at most the brokers' {TIMEOUT_CEILING}{unknown if ceiling is None else f', {ceiling}'}",
    )


def _beyond(sink: Sink, transactional_id: str, ids: Ids, named: Ids, decision: Decision) -> Steps[Ids]:
    """Return ids that no earlier run can have had, from `ids`, which InitProducerId has returned. `named`: the ids that
    the decision names.

    A coordinator whose log lost its last records gives ids out again. A later EndTxn for the decision would then commit
    rows that nobody has decided on.
    """
    while ids.producer_id == named.producer_id and ids.producer_epoch < _next_after(named, decision).producer_epoch:
        ids = yield from _init(sink, transactional_id)
    return ids


def _last_decision(sink: Sink, generation: Ids) -> Steps[Decision | None]:
    """Return the last decision. No older driver can change it, because this generation has taken the sink over."""
    try:
        decision = yield from read_decision(sink)
    except UnreadableState:
        # Perhaps the groups of the decision were read at different times.
        decision = None
    if _is_last(decision, generation):
        return decision
    return (yield from read_decision(sink, barrier=f"plan {generation}"))


def _is_last(decision: Decision | None, generation: Ids) -> bool:
    """Return True if no run can have decided between this decision and this generation."""
    return decision is not None and generation == _next_after(decision.generation, decision)


def _known(sink: Sink, decision: Decision) -> Steps[dict[int, Marker]]:
    """Return the markers of the decision's visible slots, and the older ones of slots that rested.

    Normally these are all slots, and `finish` sends nothing.
    """
    found = yield from read_markers(sink, range(len(decision.pinned)), stable=False)
    needed = visible_of(decision, found).keys() | decision.resting
    return {slot: marker for slot, marker in found.items() if slot in needed}


def finish(
    sink: Sink, decision: Decision, visible: Mapping[int, Marker] = MappingProxyType({})
) -> Steps[dict[int, bool | None]]:
    """Commit each transaction that the decision names and that is not `visible`, with the pinned ids.

    Returns True by slot if the transaction was committed, False if it was not, None if the coordinator proves neither.
    """
    done = visible.keys() | decision.resting
    slots = [slot for slot, ids in enumerate(decision.pinned) if ids is not None and slot not in done]
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
    """Return the last answer for each transaction, and True, False or None as `finish` does.

    A refused transaction has already ended, unless the coordinator was stale. So the EndTxn is sent again until the
    coordinator describes the transaction as ended.
    """
    answers = dict(
        zip(pinned, (yield [end_txn(sink, *each, committed=True, version=version) for each in pinned]), strict=True)
    )
    found: dict[tuple[str, Ids], TransactionDescription] = {}
    for pause_ms in PAUSES_MS:
        refused = [each for each in pinned if meaning(answers[each].error_code).fenced]
        found |= zip(refused, (yield from described([name for name, _ in refused])), strict=True)
        again = [each for each in refused if not _is_over(found[each], each[1])]
        if not again:
            break
        yield [Pause(pause_ms)]
        answers |= zip(
            again, (yield [end_txn(sink, *each, committed=True, version=version) for each in again]), strict=True
        )
    proofs = {each: _was_committed(description, each[1], version) for each, description in found.items()}
    return [
        (answer, True if answer.error_code == ErrorCode.NONE else proofs.get(each)) for each, answer in answers.items()
    ]


def _was_committed(description: TransactionDescription, ids: Ids, version: int) -> bool | None:
    """Return True if the transaction of these ids was committed, False if it was aborted, None if neither is proved.

    The coordinator remembers an end until the next InitProducerId. An end is final, so a stale answer is true as well.
    """
    raised_by = description.producer_epoch - ids.producer_epoch
    if description.producer_id != ids.producer_id:
        return None
    if description.state in ("PrepareCommit", "CompleteCommit"):
        return True if raised_by == version - 1 else None
    # A timeout raises the epoch on both versions, an EndTxn on version 2 only.
    is_its_abort = description.state in ("PrepareAbort", "CompleteAbort") and raised_by in (version - 1, 1)
    return False if is_its_abort else None


def _is_over(description: TransactionDescription, ids: Ids) -> bool:
    """Return True if a transaction that was prepared with these ids has certainly ended.

    A different or missing producer id proves nothing: the answer may be older, or much later.
    """
    if description.producer_id != ids.producer_id:
        return False
    is_it = description.producer_epoch == ids.producer_epoch
    return description.producer_epoch > ids.producer_epoch or (is_it and description.state not in ("Empty", "Ongoing"))


def list_open(sink: Sink) -> Steps[list[str]]:
    """Return the transactional ids of all slots that have an open transaction. Raises TransactionRefused."""
    return _in((yield from _listed(sink)), "Ongoing")


def _in(listed: Sequence[tuple[str, str]], state: str) -> list[str]:
    return sorted({transactional_id for transactional_id, is_in in listed if is_in == state})


def _listed(sink: Sink) -> Steps[list[tuple[str, str]]]:
    """Return the slots' transactional ids and states, as each broker lists them. Raises TransactionRefused."""
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(transactional_id_prefix=f"{sink.names.sink}."))]
    for listing in listings:
        check_answer(listing.error_code, "ListTransactions", sink.names.sink)
    return [
        (listed.transactional_id, listed.state)
        for listing in listings
        for listed in listing.transactions
        if sink.names.is_slot(listed.transactional_id)
    ]


def _open_since(
    sink: Sink, decision: Decision | None, listed: Sequence[str]
) -> Steps[tuple[list[TransactionDescription], list[TransactionDescription]]]:
    """Return the `listed` transactions that are open: those that began after the decision, and those under its ids.

    The transactions that the decision names have ended by now, so normally there are none under its ids.
    """
    found = yield from described(listed)
    for pause_ms in PAUSES_MS:
        if not (yield from _is_of_before(sink, decision, found)):
            break
        yield [Pause(pause_ms)]
        found = yield from described(listed)
    are_open = [each for each in found if each.state == "Ongoing"]
    decided = [each for each in are_open if decision is not None and is_decided(sink, decision, each)]
    return [each for each in are_open if each not in decided], decided


def _is_of_before(sink: Sink, decision: Decision | None, found: Sequence[TransactionDescription]) -> Steps[bool]:
    """Return True if an answer is stale.

    An answer is stale if it reports a decided transaction as open. It is also stale if it reports a transaction as
    ended and a later list shows it as open: all brokers answer the list, the current coordinator too.
    """
    are_open = [each for each in found if each.state == "Ongoing"]
    if decision is not None and any(is_decided(sink, decision, each) for each in are_open):
        return True
    ended = {each.transactional_id for each in found} - {each.transactional_id for each in are_open}
    return bool(ended) and not ended.isdisjoint((yield from list_open(sink)))


def is_decided(sink: Sink, decision: Decision, description: TransactionDescription) -> bool:
    """Return True if the decision names this transaction, or if it is older than the transaction that is named."""
    slot = sink.names.slot_of(description.transactional_id)
    pinned = _pinned(decision, slot)
    return (
        pinned is not None
        and description.producer_id == pinned.producer_id
        and description.producer_epoch <= pinned.producer_epoch
    )


def open_ones(listed: Sequence[str]) -> Steps[list[TransactionDescription]]:
    """Return the `listed` transactions that are open. Raises TransactionRefused."""
    found = yield from described(listed)
    return [each for each in found if each.state == "Ongoing"]


def abort_open(
    sink: Sink, generation: Ids, still_open: Sequence[TransactionDescription]
) -> Steps[Sequence[TransactionDescription]]:
    """Abort open transactions that no decision names, because read_committed readers stop at their rows.

    Returns `still_open`, as described before the abort. Raises DriverFenced, TransactionRefused.
    """
    if not still_open:
        return []
    # Checked after describing: so the described transactions belong to this run or to an older one.
    yield from check_generation(sink, generation)
    answers = yield _aborts(sink, {each.transactional_id: Ids.of(each) for each in still_open})
    for each, answer in zip(still_open, answers, strict=True):
        # If the request was fenced, the InitProducerId that fenced it has ended the transaction.
        api = "InitProducerId" if sink.transaction_version < 2 else "EndTxn"
        check_definite(answer.error_code, each.transactional_id, api)
    return still_open


def _aborts(sink: Sink, transactions: Mapping[str, Ids]) -> list[ToCoordinator]:
    if sink.transaction_version < 2:
        # On version 1 a late abort can end the next transaction of the id. InitProducerId avoids this with a new epoch.
        return [init_producer_id(sink, transactional_id) for transactional_id in transactions]
    return [end_txn(sink, transactional_id, ids, committed=False) for transactional_id, ids in transactions.items()]


# --- versions ---------------------------------------------------------------------------------------------------------


def is_written(sink: Sink, facts: Facts, *, query_id: str, version: int, allow_lost_state: bool) -> Steps[bool]:
    """Return True if the write skips this version: it is visible whole, or a later version was decided.

    Call it after `plan` and before any row is read. Raises DriverFenced, and the errors of `check_may_follow`.
    """
    decision = facts.decision
    if decision is not None and decision.query_id == query_id:
        is_whole = decision.micro_batch_id == version and not facts.missing
        if is_whole or decision.micro_batch_id > version:
            return True
    # A later run may have replaced markers during the read. Such markers are not missing.
    yield from check_generation(sink, facts.generation)
    check_may_follow(sink, facts, query_id=query_id, micro_batch_id=version, allow_lost_state=allow_lost_state)
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
    """Check that the skipped version has the same rows as the visible rows, and that readers see them.

    `counted`: the fingerprint of each slot's rows. `total`: a function that adds up fingerprints, so that rows may come
    in other slots than before. If a marker was lost, fingerprints are compared slot by slot. `touched`: all partitions
    that may have the rows.

    Raises NonDeterministicReplay, FingerprintsLost, VerificationRefused, HangingTransaction.
    """
    decision, visible = facts.decision, facts.visible
    assert decision is not None, "a skipped version was decided"
    version = decision.micro_batch_id
    # The rows of the first write must be readable, even if this write has other rows.
    yield from end_what_hangs(sink, facts, touched, allow_lost_state=allow_lost_state)
    visible_in_order = [visible[slot] for slot in sorted(visible)]
    with_rows = {slot: marker for slot, marker in visible.items() if slot not in decision.resting}
    restored = sorted(slot for slot, marker in with_rows.items() if marker.is_restored)
    if restored:
        is_same = len(counted) == len(visible) and all(map(Marker.may_be_of, visible_in_order, counted))
        if (facts.incomparable or not is_same) and not allow_lost_state:
            raise FingerprintsLost(sink=sink.names.sink, micro_batch_id=version, slots=restored)
    elif total(counted) != total(marker.fingerprint for marker in with_rows.values()):
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=version, slots=sorted(visible))


def end_what_hangs(
    sink: Sink, facts: Facts, touched: Sequence[TopicPartition], *, allow_lost_state: bool = False
) -> Steps[None]:
    """End hanging transactions of the last decision, whose driver may have died before it checked the leaders.

    A run must call it before it writes other rows. On a leader that still has the old transaction open, the new rows
    join that transaction, and an abort would remove both. `touched`: all partitions of the decision's topics that may
    have its rows.

    Raises VerificationRefused, HangingTransaction, and StateWentBack unless `allow_lost_state`.
    """
    decision, visible = facts.decision, facts.visible
    if decision is None or not touched:
        return
    leaders = yield from producers(sink, sorted(touched), decision.micro_batch_id, committed=True)
    if not allow_lost_state:
        yield from check_transactions(sink, facts, leaders)
    pinned = {ids: slot for slot, ids in enumerate(decision.pinned) if ids is not None and slot in visible}
    ours = {ids: sink.names.slot(slot) for ids, slot in pinned.items()}
    yield from end_hanging(sink, ours, sorted(touched), decision.micro_batch_id, leaders)


# --- a task -----------------------------------------------------------------------------------------------------------


def begin(
    sink: Sink, facts: Facts, *, slot: int, micro_batch_id: int, query_id: str, allow_lost_state: bool = False
) -> Steps[SlotBegun]:
    """Init the slot's transactional id, which fences every earlier attempt.

    Raises DriverFenced, CheckpointBehind, StateExpired, TransactionRefused or AttemptFenced, and then writes no row.
    """
    transactional_id = sink.names.slot(slot)
    yield from check_generation(sink, facts.generation)
    ids = yield from _init(sink, transactional_id)
    is_first_since = _is_first_since(facts.decision, slot, ids)
    if facts.decision is not None and (pinned := _pinned(facts.decision, slot)) is not None:
        ids = yield from _beyond(sink, transactional_id, ids, pinned, facts.decision)
    marker = facts.markers.get(slot) if is_first_since else (yield from _marker_now(sink, facts, slot, ids))
    is_pinned = facts.decision is not None and slot < len(facts.decision.pinned)
    if marker is None and sink.comes_again and not is_pinned:
        if facts.is_forgotten and not allow_lost_state:
            raise StateExpired(sink=sink.names.sink, micro_batch_id=micro_batch_id, query_id=query_id)
        # After this write, a missing marker is a lost marker.
        nothing = Marker.nothing(ids, sink.transaction_version)
        yield from write_offset(sink, transactional_id, ids, transactional_id, nothing.micro_batch_id, nothing.text)
        yield from _commit_each(sink, [(transactional_id, ids)], sink.transaction_version)
        ended, ids = ids, (yield from _init(sink, transactional_id))
        if ids != Ids(ended.producer_id, ended.producer_epoch + sink.transaction_version):
            # Another process has Inited the slot in between.
            marker = yield from _marker_now(sink, facts, slot, ids)
    visible = None
    if marker is not None and marker.query_id == query_id:
        if marker.micro_batch_id > micro_batch_id:
            raise CheckpointBehind(
                sink=sink.names.sink, micro_batch_id=micro_batch_id, committed_micro_batch_id=marker.micro_batch_id
            )
        if marker.micro_batch_id == micro_batch_id:
            visible = marker
    return SlotBegun(slot, ids, visible)


def _init(sink: Sink, transactional_id: str) -> Steps[Ids]:
    (answer,) = yield [init_producer_id(sink, transactional_id)]
    check_answer(answer.error_code, "InitProducerId", transactional_id)
    return Ids.of(answer)


def _marker_now(sink: Sink, facts: Facts, slot: int, ids: Ids) -> Steps[Marker | None]:
    """Check the generation and read the marker again, because the facts of `plan` may be old. Raises DriverFenced.

    Another run may have committed rows since, and a leader may have missed that commit (KAFKA-20734). Rows of this
    attempt would join them in one transaction there, and an abort would remove both.
    """
    _, markers = yield from at_once(
        check_generation(sink, facts.generation), read_markers(sink, [slot], barrier=f"begin {ids}")
    )
    # If there is no marker now, somebody deleted it after `plan` read it.
    marker: Marker | None = markers.get(slot, facts.markers.get(slot))
    return marker


def _is_first_since(decision: Decision | None, slot: int, ids: Ids) -> bool:
    """Return True if nobody can have committed rows of the slot after the decision that pins its ids."""
    pinned = None if decision is None else _pinned(decision, slot)
    return decision is not None and pinned is not None and ids == _next_after(pinned, decision)


def _pinned(decision: Decision, slot: int) -> Ids | None:
    return decision.pinned[slot] if slot < len(decision.pinned) else None


def _next_after(ids: Ids, decision: Decision) -> Ids:
    """Return the ids of the first InitProducerId after the end of a transaction that the decision names.

    InitProducerId raises the epoch by one, and EndTxn of version 2 does too. A higher epoch means that another run sent
    at least one of these requests since.
    """
    return Ids(ids.producer_id, ids.producer_epoch + decision.transaction_version)


def prepare(sink: Sink, begun: SlotBegun, marker: Marker) -> Steps[None]:
    """Put the marker into the transaction of the rows, after all rows are acknowledged.

    Raises AttemptFenced or TransactionRefused: then the attempt has failed.
    """
    transactional_id = sink.names.slot(begun.slot)
    # The group has the same name as the transactional id.
    yield from write_offset(sink, transactional_id, begun.ids, transactional_id, marker.micro_batch_id, marker.text)


# --- commit -----------------------------------------------------------------------------------------------------------


def commit(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    now_ms: int,
    open_ms: int = 0,
    allow_lost_state: bool = False,
    topic_ids: Mapping[str, str | None] = MappingProxyType({}),
) -> Steps[None]:
    """Make a whole micro-batch visible.

    `prepared`: an item for each slot, in the order of slots. `now_ms`: wall-clock time in ms since 1970. `open_ms`: the
    time since the plan, so that no transaction has been open for longer. `topic_ids`: the ids of topics that the tasks
    found, by topic.

    Raises an ExactlyOnceError: Spark then does not record the micro-batch, and runs it again.
    """
    check_decision(sink, facts, prepared, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)
    check_replay(sink, prepared, micro_batch_id=micro_batch_id)
    if facts.is_forgotten and not allow_lost_state:
        yield from _check_beyond(sink, facts, prepared, micro_batch_id)
    open_slots = [each for each in prepared if each.is_open]
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
            resting=frozenset(each.slot for each in prepared if each.rests),
        )
        _, (found, described_ms), *waits_ms = yield from at_once(
            _write_decision(sink, decision),
            _check_open(sink, open_slots, decision, open_ms),
            check_leaders(sink, open_slots, generation=facts.generation, micro_batch_id=micro_batch_id),
            _check_resting(sink, decision),
        )
        if waited_ms := sum(waits_ms):
            # During the wait a transaction may have ended or come too close to its timeout.
            described_ms += waited_ms
            found, more_ms = yield from _check_open(sink, open_slots, decision, open_ms + described_ms)
            described_ms += more_ms
        yield from _check_ages(sink, found, decision, open_ms=open_ms, waited_ms=described_ms)
        yield from _decide(sink, decision)
        # After the decision no transaction of the micro-batch may be aborted.
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


def _check_beyond(sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], micro_batch_id: int) -> Steps[None]:
    """Where the decision is gone, check that no slot beyond those of this run shows the micro-batch. Raises
    NonDeterministicReplay."""
    slots = {sink.names.slot_of(name) for name, _ in (yield from _listed(sink))}
    beyond = sorted(slot for slot in slots if slot >= len(prepared))
    markers = yield from read_markers(sink, beyond, barrier=f"beyond {facts.generation}")
    this = micro_batch_id, prepared[0].query_id
    visible = [slot for slot, marker in markers.items() if (marker.micro_batch_id, marker.query_id) == this]
    if visible:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=visible)


def _check_open(
    sink: Sink, slots: Sequence[SlotPrepared], decision: Decision, open_ms: int
) -> Steps[tuple[list[TransactionDescription], int]]:
    """Check that each transaction is open. Return the descriptions, and the milliseconds of waiting for them.

    Raises TransactionTimedOut, AttemptReplaced, or DriverFenced if another run has ended the transaction.
    """
    found, waited_ms = yield from _described_since_begun(sink, slots)
    for each, description in zip(slots, found, strict=True):
        if description.state != "Ongoing" or Ids.of(description) != each.ids:
            raise (yield from _too_late(sink, decision, description, each.ids, open_ms + waited_ms))
    return found, waited_ms


def _check_resting(sink: Sink, decision: Decision) -> Steps[int]:
    """Check that no attempt of a slot that rests has left a transaction open, which no decision would end.

    Such an attempt found rows where the attempt whose message came found none. Returns the milliseconds of waiting for
    stale coordinators. Raises AttemptReplaced, or DriverFenced if another run has begun.
    """
    resting = {sink.names.slot(slot) for slot in decision.resting}
    waited_ms = 0
    if not resting:
        return waited_ms
    for pause_ms in (*PAUSES_MS, None):
        listed = yield from list_open(sink)
        found = yield from described([name for name in listed if name in resting])
        still_open = [each for each in found if each.state == "Ongoing"]
        # A transaction that an earlier decision ended is open for a stale coordinator alone.
        if pause_ms is None or not any(is_decided(sink, decision, each) for each in still_open):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
    if still_open:
        yield from check_generation(sink, decision.generation)
        first = still_open[0]
        raise AttemptReplaced(
            transactional_id=first.transactional_id,
            expected=str(_pinned(decision, sink.names.slot_of(first.transactional_id))),
            found=f"{first.state} {Ids.of(first)}",
        )
    return waited_ms


def _check_ages(
    sink: Sink, found: Sequence[TransactionDescription], decision: Decision, *, open_ms: int, waited_ms: int
) -> Steps[None]:
    """Check that the timeout of each transaction is at least LEAST_TIME_LEFT_MS away. Raises as `_check_open`.

    Brokers' times are compared with brokers' times only: the driver's own transaction has just begun, so its start is
    their clock. Most micro-batches are too young to be checked. `waited_ms`: since the driver's transaction began.
    """
    most_ms = sink.timeout_ms - LEAST_TIME_LEFT_MS
    if not found or open_ms + waited_ms <= most_ms:
        return
    (driver,) = yield from described([sink.names.driver])
    for each in found:
        age_ms = driver.start_time_ms - each.start_time_ms + waited_ms
        if age_ms > most_ms:
            raise (yield from _too_late(sink, decision, each, Ids.of(each), age_ms))


def _too_late(
    sink: Sink, decision: Decision, description: TransactionDescription, expected: Ids, age_ms: int
) -> Steps[ExactlyOnceError]:
    (driver,) = yield from described([sink.names.driver])
    if Ids.of(driver) != decision.generation:
        return (yield from _lost(sink, decision))
    if _is_replaced(description, expected):
        return AttemptReplaced(
            transactional_id=description.transactional_id,
            expected=str(expected),
            found=f"{description.state} {Ids.of(description)}",
        )
    return TransactionTimedOut(
        transactional_id=description.transactional_id,
        expected=str(expected),
        found=f"{description.state} {Ids.of(description)}",
        age_ms=age_ms,
        timeout_ms=sink.timeout_ms,
    )


def _is_replaced(description: TransactionDescription, prepared: Ids) -> bool:
    """Return True if InitProducerId has ended the transaction. A timeout leaves an abort, and no further state."""
    if description.producer_id == prepared.producer_id:
        is_later = description.producer_epoch > prepared.producer_epoch
    else:
        # A spent producer id was replaced. Coordinators that have forgotten the transactional id say -1.
        is_later = description.producer_id >= 0
    return is_later and not description.state.endswith("Abort")


def _described_since_begun(
    sink: Sink, slots: Sequence[SlotPrepared]
) -> Steps[tuple[list[TransactionDescription], int]]:
    """Return descriptions of the slots' transactions, and the milliseconds of waiting for them.

    A replaced coordinator answers with old data until it learns of its successor. Epochs never decrease, so a lower
    epoch shows that an answer is stale: then the coordinators are asked again.
    """
    names = [sink.names.slot(each.slot) for each in slots]
    waited_ms = 0
    found = yield from described(names)
    for pause_ms in PAUSES_MS:
        if not any(map(_is_from_before, slots, found)):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
        found = yield from described(names)
    return found, waited_ms


def _is_from_before(slot: SlotPrepared, description: TransactionDescription) -> bool:
    """Return True if the description may be older than the slot's transaction.

    A different or missing producer id counts as older too, and so does Empty at the slot's own epoch.
    """
    is_same = description.producer_id == slot.ids.producer_id
    raised_by = description.producer_epoch - slot.ids.producer_epoch
    return not is_same or raised_by < 0 or (raised_by == 0 and description.state == "Empty")


def _write_decision(sink: Sink, decision: Decision) -> Steps[None]:
    """Write the decision into the driver's transaction. The end of that transaction makes the decision.

    Raises DriverFenced, TransactionTimedOut.
    """
    names = sink.names
    try:
        for part, text in enumerate(decision.texts(sink.metadata_max_characters)):
            group_id = names.decision(part)
            yield from write_offset(sink, names.driver, decision.generation, group_id, decision.micro_batch_id, text)
    except AttemptFenced:
        raise (yield from _lost(sink, decision)) from None


def _decide(sink: Sink, decision: Decision) -> Steps[None]:
    """Commit the driver's transaction, which makes the decision.

    Before it, no row of the micro-batch can become visible. After it, all rows will.
    """
    pinned = [(sink.names.driver, decision.generation)]
    ((answer, _),) = yield from _commit_each(sink, pinned, sink.transaction_version)
    if answer.error_code == ErrorCode.NONE:
        return
    check_definite(answer.error_code, sink.names.driver)
    # Perhaps the EndTxn succeeded and its answer was lost, or another run fenced this one. The decision shows which.
    found = yield from read_decision(sink, barrier=f"decide {decision.generation}")
    if found != decision:
        raise (yield from _lost(sink, decision))


def _lost(sink: Sink, decision: Decision) -> Steps[ExactlyOnceError]:
    """Return the error that says why the driver's ids are no longer valid."""
    generation = decision.generation
    (driver,) = yield from described([sink.names.driver])
    current = Ids.of(driver)
    # A timeout leaves an aborted transaction with an epoch one higher (both versions, seen on 3.9.2 and 4.3.1). A
    # driver that takes the sink over leaves the state Empty.
    if driver.state.endswith("Abort") and current == Ids(generation.producer_id, generation.producer_epoch + 1):
        return TransactionTimedOut(
            transactional_id=driver.transactional_id,
            expected=str(generation),
            found=f"{driver.state} {current}",
            age_ms=sink.timeout_ms,
            timeout_ms=sink.timeout_ms,
        )
    return DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))


def _verify(
    sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], unproved: Sequence[SlotPrepared], *, micro_batch_id: int
) -> Steps[None]:
    """Check that every marker is visible, and end hanging transactions.

    `unproved`: the slots whose coordinators do not prove the commit. There another run may have written the rows and
    the marker again. Raises CommitOutcomeUnknown, VerificationRefused, HangingTransaction.
    """
    expected = {
        each.slot: each.visible or Marker(micro_batch_id, each.query_id, each.fingerprint)
        for each in prepared
        if not each.rests
    }
    markers = yield from read_markers(sink, list(expected))
    missing = [slot for slot, marker in expected.items() if markers.get(slot) != marker]
    if missing:
        markers |= yield from read_markers(sink, missing, barrier=f"verify {facts.generation}")
        missing = [slot for slot in missing if markers.get(slot) != expected[slot]]
    reason = (
        "another program ended the transactions or deleted the slots' consumer groups, or the transactions timed out"
    )
    touched = sorted({partition for each in prepared for partition in each.partitions})
    committed, unsure = _committed(facts, prepared, micro_batch_id), {}
    for each in unproved:
        unsure[each.ids] = sink.names.slot(committed.pop(each.ids))
    if not missing and unsure and touched:
        hanging = yield from still_open(sink, unsure, touched, micro_batch_id)
        names = {each.transactional_id for each in hanging}
        missing = [each.slot for each in unproved if sink.names.slot(each.slot) in names]
        reason = "a leader reports open transactions, and nothing proves if they were committed or aborted"
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
    """Return the slots by the ids of the transactions that wrote the visible rows.

    The key has the epoch too, because a later attempt of a slot has the same producer id. A slot that was visible
    before has the ids that the earlier decision pins.
    """
    new = {each.ids: each.slot for each in prepared if each.is_open}
    decided = facts.decision
    if decided is None or (decided.micro_batch_id, decided.query_id) != (micro_batch_id, prepared[0].query_id):
        return new
    visible_before = {each.slot for each in prepared if each.visible is not None}
    return new | {ids: slot for slot, ids in enumerate(decided.pinned) if ids is not None and slot in visible_before}


def forget(sink: Sink, generation: Ids) -> Steps[None]:
    """Delete the groups of a batch write whose name is never used again, when the commit of `generation` has succeeded.

    A decision without its markers would look like missing rows. So its first group is deleted first. Transactional ids
    stay until the brokers expire them, and still show the outcome of the write.

    Raises TransactionRefused and leaves groups behind; the usual cause is a missing ACL GROUP DELETE.

    Source: KIP-229 (DeleteGroups); OffsetMetadataManager.deleteAllOffsets, GroupMetadata.removeAllOffsets in Kafka.
    """
    # Brokers that delete a group also drop its offsets in open transactions. This read waits for their end, so that no
    # offset comes back later.
    decision = yield from read_decision(sink)
    if decision is None or decision.generation != generation:
        return
    first, *others = (sink.names.decision(part) for part, _ in enumerate(decision.texts(sink.metadata_max_characters)))
    yield from _delete([first])
    yield from _delete([*others, *(sink.names.slot(slot) for slot, _ in enumerate(decision.pinned))])


def _delete(group_ids: Sequence[str]) -> Steps[None]:
    answers = yield [
        ToCoordinator(CoordinatorKind.GROUP, group_id, DeleteGroupsRequest((group_id,))) for group_id in group_ids
    ]
    for group_id, answer in zip(group_ids, answers, strict=True):
        (deleted,) = answer.groups
        # GROUP_ID_NOT_FOUND: an earlier request deleted the group, and its answer was lost.
        if deleted.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check_answer(deleted.error_code, "DeleteGroups", group_id)


# --- abort ------------------------------------------------------------------------------------------------------------


def abort(sink: Sink, generation: Ids) -> Steps[None]:
    """End all transactions of a run whose micro-batch failed, by a plan without tasks.

    The plan fences tasks that have not begun, commits decided transactions and aborts all others. It needs no ids from
    the tasks. It runs in another process than `commit`, and `commit` may have decided without knowing it. If another
    run has taken the sink over, that run ends the transactions.
    """
    try:
        yield from check_generation(sink, generation)
        # No task follows, so the plan need not write down that nothing was decided.
        facts = yield from plan(replace(sink, comes_again=False))
        yield from _end_begun(sink, facts)
    except DriverFenced:
        # On version 2 the EndTxn of this run's own decision raises the driver's epoch as well.
        decision = yield from read_decision(sink, barrier=f"abort {generation}")
        if decision is not None and decision.generation == generation:
            yield from finish(sink, decision)


def _end_begun(sink: Sink, facts: Facts) -> Steps[None]:
    """Fence attempts that began before this plan. Abort their rows if they wrote the first ones since the plan's list.

    Spark stops a task a moment after its job has failed. Rows that the task writes in this moment would stay open. An
    attempt that begins later finds another generation, and stops.
    """
    listed = yield from _listed(sink)
    still_open, _ = yield from _open_since(sink, facts.decision, _in(listed, "Ongoing"))
    yield from abort_open(sink, facts.generation, still_open)
    begun = _in(listed, "Empty")
    if not begun:
        return
    yield from check_generation(sink, facts.generation)
    answers = yield [init_producer_id(sink, transactional_id) for transactional_id in begun]
    for transactional_id, answer in zip(begun, answers, strict=True):
        check_answer(answer.error_code, "InitProducerId", transactional_id)
