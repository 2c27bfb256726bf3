"""End transactions, describe them, and prove how they ended: what plan, task and commit share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Decision, Ids, Marker
from kafka_sink.commit.requests import (
    PAUSES_MS,
    Pause,
    Steps,
    ToCoordinator,
    ToEveryBroker,
    check_answer,
    check_definite,
    check_generation,
    described,
    end_txn,
    init_producer_id,
)
from kafka_sink.kafka.protocol.apis.transaction_state import ListTransactionsRequest, TransactionDescription
from kafka_sink.kafka.protocol.apis.transactions import EndTxnResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning


def init(sink: Sink, transactional_id: str) -> Steps[Ids]:
    (answer,) = yield [init_producer_id(sink, transactional_id)]
    check_answer(answer.error_code, "InitProducerId", transactional_id)
    return Ids.of(answer)


def beyond(sink: Sink, transactional_id: str, ids: Ids, named: Ids, decision: Decision) -> Steps[Ids]:
    """Return ids that no earlier run can have had, from `ids`, which InitProducerId has returned. `named`: the ids that
    the decision names.

    A coordinator whose log lost its last records gives ids out again. A later EndTxn for the decision would then commit
    rows that nobody has decided on.
    """
    while ids.producer_id == named.producer_id and ids.producer_epoch < next_after(named, decision).producer_epoch:
        ids = yield from init(sink, transactional_id)
    return ids


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
    ended = yield from commit_each(sink, pinned, decision.transaction_version)
    for (transactional_id, _), (answer, _) in zip(pinned, ended, strict=True):
        check_definite(answer.error_code, transactional_id)
    return {slot: was_committed for slot, (_, was_committed) in zip(slots, ended, strict=True)}


def commit_each(
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
    proofs = {each: outcome_of(description, each[1], version) for each, description in found.items()}
    return [
        (answer, True if answer.error_code == ErrorCode.NONE else proofs.get(each)) for each, answer in answers.items()
    ]


def outcome_of(description: TransactionDescription, ids: Ids, version: int) -> bool | None:
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
    return in_state((yield from listed_slots(sink)), "Ongoing")


def in_state(listed: Sequence[tuple[str, str]], state: str) -> list[str]:
    return sorted({transactional_id for transactional_id, is_in in listed if is_in == state})


def listed_slots(sink: Sink) -> Steps[list[tuple[str, str]]]:
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


def open_since(
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
    pinned = pinned_in(decision, slot)
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


def pinned_in(decision: Decision, slot: int) -> Ids | None:
    return decision.pinned[slot] if slot < len(decision.pinned) else None


def next_after(ids: Ids, decision: Decision) -> Ids:
    """Return the ids of the first InitProducerId after the end of a transaction that the decision names.

    InitProducerId raises the epoch by one, and EndTxn of version 2 does too. A higher epoch means that another run sent
    at least one of these requests since.
    """
    return Ids(ids.producer_id, ids.producer_epoch + decision.transaction_version)
