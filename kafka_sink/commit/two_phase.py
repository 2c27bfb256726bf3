"""The two-phase commit, without any I/O: which requests go out, and what their answers mean.

    plan     fence older drivers ─> read the decision ─> finish what it names ─> abort what is left open ─> read markers
    begin    a task, before its rows:  is this run current? ─> Init the slot ─> is its marker this micro-batch's?
    prepare  a task, after its rows are acknowledged:  put the marker into the transaction
    commit   check messages, decision ─> all open, alone? and write the decision ─> DECIDE ─> EndTxn each ─> verify each
    abort    a plan that no tasks follow, unless another run has begun

Each is a generator: it yields effects, requests that may go out at the same time, and is sent their answers in the same
order. Whoever runs it (`coordinator_client`, a simulation) brings definite answers only: on CONCURRENT_TRANSACTIONS, an
unstable offset, a lost connection or a coordinator that moved, the same request goes out again. Every request here may
be carried out twice. A process may die between any two effects; what follows from that, `tests/model` enumerates.

Why it is right, in short. Rows of a slot become visible together with its marker or not at all, as they are in one
transaction. No transaction is committed that no decision names, and a decision names all slots of a micro-batch, each
prepared, or is not written. From then on plan and commit only ever commit them, by the very ids that are pinned: a
request that comes late meets another epoch. And whoever reads a marker knows whether the rows are there, whatever an
EndTxn's answer got lost. So a micro-batch whose decision is written becomes visible whole, unless the brokers' own
timeout comes first; then the markers tell which slots are missing, and the fingerprints whether a replay may fill in.

Non-obvious:

* `plan` runs once a micro-batch, in the process that plans it, and again if it failed; never in one that is to commit:
  there it would abort what is about to be committed. `commit` never Inits the driver's id: two processes doing so fence
  each other.
* A decision is made by the EndTxn of the driver's transaction, not by what is written in it. So it is written while the
  slots are looked at; where one is not as it should be, the transaction stays open, and the abort or the next plan ends
  it by Init.
* An EndTxn's answer is never taken for success or failure. PRODUCER_FENCED after a lost answer may be either.
* A transaction that somebody decided to commit is never aborted, not even when its commit timed out.
* A batch write with a version is a micro-batch whose id its user chose. Ids may leave numbers out, so that the last
  decision need not be of the one before; but it must be whole, as nobody could write it any more after the next one.
  A version below the last decision was whole when that was written, or was never decided: it is passed over.

Source: delivery guarantees in DESIGN.md; KIP-98, KIP-447 (require stable), KIP-664 (describing), KIP-890 (versions).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka_sink.commit.markers import METADATA_MAX_CHARACTERS, Decision, Ids, Marker, Names
from kafka_sink.errors import (
    AbortedRowsOpen,
    AttemptFenced,
    CheckpointBehind,
    CommitOutcomeUnknown,
    CommittedDataMissing,
    DriverFenced,
    ExactlyOnceError,
    HangingTransaction,
    InvalidOption,
    NonDeterministicReplay,
    StateExpired,
    TornBatch,
    TransactionRefused,
    TransactionTimedOut,
    VerificationRefused,
)
from kafka_sink.protocol.error_codes import ErrorCode, error_name
from kafka_sink.protocol.requests import InitProducerIdRequest
from kafka_sink.protocol.transactions import (
    AddOffsetsToTxnRequest,
    CoordinatorKind,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    GroupOffset,
    ListTransactionsRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicAndPartition,
    TransactionDescription,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

PARTITION = 0
# What a decision and its EndTxn requests may take, of a transaction's time to live; and by how much the driver's clock,
# which says what time it is, may be behind the brokers', which say when a transaction began: no answer has their time.
# With a clock that is further behind the check lets pass what may time out in mid-commit, and the markers tell.
LEAST_TIME_LEFT_MS = 5_000
# `offsets.retention.minutes`, Kafka's default: markers and decisions older than that may be gone for no other reason.
OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
# The brokers' setting that no transaction's time to live may exceed.
TIMEOUT_CEILING = "transaction.max.timeout.ms"
# What an EndTxn may answer for good; whatever it is, the marker decides.
DEFINITE = frozenset({
    ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED,
})  # fmt: skip
FENCED = DEFINITE - {ErrorCode.NONE}
# After a commit's answer its markers are written within 1 to 4 ms, 150 at most (measured); twice as long each time,
# 2 + 4 + ... + 16384 ms, is half a minute, about what a broker that dies takes to be replaced.
PAUSES_MS = tuple(2**n for n in range(1, 15))


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """`request` goes to the coordinator of `key`."""

    kind: CoordinatorKind
    key: str
    request: Any


@dataclass(frozen=True, slots=True)
class ToEveryBroker:
    """`request` goes to each broker; the answer is the list of their answers."""

    request: Any


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """`request` goes to the leaders of its partitions, to each with its own; the answer is one for all of them."""

    request: Any


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """No request of ours: a broker's setting, as text, or None where the principal may not know."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """No request: time for brokers to do what they have promised; answered with None."""

    milliseconds: int


Effect = ToCoordinator | ToEveryBroker | ToLeaders | BrokerSetting | Pause
Result = TypeVar("Result")
Steps = Generator[Sequence[Effect], Sequence[Any], Result]


def at_once(*several: Steps[Any]) -> Steps[list[Any]]:
    """Runs steps side by side: what they ask next goes out together. Their results; raises what the first one does
    that raises, which ends the others."""
    results: list[Any] = [None] * len(several)
    waiting: dict[int, Sequence[Effect]] = {}
    answers: dict[int, Sequence[Any] | None] = dict.fromkeys(range(len(several)))
    try:
        while answers:
            waiting.clear()
            for place, of_steps in answers.items():
                try:
                    steps = several[place]
                    waiting[place] = next(steps) if of_steps is None else steps.send(of_steps)
                except StopIteration as ended:
                    results[place] = ended.value
            if not waiting:
                break
            found = iter((yield [effect for effects in waiting.values() for effect in effects]))
            answers = {place: [next(found) for _ in effects] for place, effects in waiting.items()}
    finally:
        for steps in several:
            steps.close()
    return results


# --- values that travel -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sink:
    """What stays the same for a sink. `timeout_ms` is the transactions' (`kafka.transaction.timeout.ms`),
    `transaction_version` the cluster's (2: KIP-890), `metadata_max_characters` the brokers' limit
    (`offset.metadata.max.bytes`). `bootstrap_servers`: for the commands that errors tell. `is_versioned`: its
    micro-batches are the versions of batch writes (`txnVersion`)."""

    names: Names
    timeout_ms: int
    transaction_version: int
    metadata_max_characters: int = METADATA_MAX_CHARACTERS
    bootstrap_servers: str = "HOST:PORT"
    is_versioned: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """What `plan` found. They ride in the writer to the tasks, and in their messages to `commit`, which is another
    process. `generation`: the driver's ids of this micro-batch; whoever has others belongs to another run. `markers`:
    by slot, those of the decision's slots."""

    generation: Ids
    decision: Decision | None
    markers: Mapping[int, Marker]

    @property
    def visible(self) -> dict[int, Marker]:
        """The markers of the slots that are visible of what was decided."""
        return _of(self.decision, self.markers) if self.decision is not None else {}

    def tell_of(self, slot: int) -> bool:
        """Whether `plan` has looked for a marker of this slot."""
        return self.decision is not None and slot < len(self.decision.pinned)

    @property
    def missing(self) -> list[int]:
        """The slots that were decided and are not visible."""
        visible = self.visible
        return [slot for slot in range(len(self.decision.pinned)) if slot not in visible] if self.decision else []


def _of(decision: Decision, markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """Those of `markers` that belong to the decision's micro-batch."""
    decided = decision.micro_batch_id, decision.query_id
    return {slot: marker for slot, marker in markers.items() if (marker.micro_batch_id, marker.query_id) == decided}


@dataclass(frozen=True, slots=True)
class SlotBegun:
    """`visible`: the marker, where rows of this slot and micro-batch are visible already: nothing is to be written."""

    slot: int
    ids: Ids
    visible: Marker | None


@dataclass(frozen=True, slots=True)
class SlotPrepared:
    """A task's rows, acknowledged and not visible; or its rows, counted again, where they were `visible` before.

    `partitions`: those it wrote to; where its rows were visible before, all that they can be in. `first_offsets`: where
    its rows begin in those it wrote to, None where the leader did not say.
    """

    slot: int
    ids: Ids
    query_id: str
    fingerprint: str
    visible: Marker | None
    partitions: tuple[TopicAndPartition, ...] = ()
    first_offsets: Mapping[TopicAndPartition, int | None] = field(default_factory=dict)


# --- requests ---------------------------------------------------------------------------------------------------------


def _init(sink: Sink, transactional_id: str) -> ToCoordinator:
    request = InitProducerIdRequest(transaction_timeout_ms=sink.timeout_ms, transactional_id=transactional_id)
    return ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, request)


def _end(sink: Sink, transactional_id: str, ids: Ids, *, committed: bool, version: int | None = None) -> ToCoordinator:
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=ids.producer_id,
        producer_epoch=ids.producer_epoch,
        committed=committed,
        transaction_version=sink.transaction_version if version is None else version,
    )
    return ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, request)


def _describe(transactional_id: str) -> ToCoordinator:
    return ToCoordinator(
        CoordinatorKind.TRANSACTION, transactional_id, DescribeTransactionsRequest((transactional_id,))
    )


def _fetch(sink: Sink, group_id: str, *, stable: bool = True) -> ToCoordinator:
    request = OffsetFetchRequest((group_id,), sink.names.commit_topic, PARTITION, require_stable=stable)
    return ToCoordinator(CoordinatorKind.GROUP, group_id, request)


def _write(sink: Sink, transactional_id: str, ids: Ids, group_id: str, offset: int, text: str) -> Steps[None]:
    """Puts a group's offset into the transaction of `transactional_id`."""
    if sink.transaction_version < 2:
        add = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=ids.producer_id,
            producer_epoch=ids.producer_epoch,
            group_id=group_id,
        )
        (added,) = yield [ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, add)]
        _check(added.error_code, "AddOffsetsToTxn", transactional_id)
    write = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=ids.producer_id,
        producer_epoch=ids.producer_epoch,
        topic=sink.names.commit_topic,
        partition=PARTITION,
        offset=offset,
        metadata=text,
        transaction_version=sink.transaction_version,
    )
    (written,) = yield [ToCoordinator(CoordinatorKind.GROUP, group_id, write)]
    # Anything but NONE leaves the transaction open without its marker, and EndTxn would commit it so.
    _check(written.error_code, "TxnOffsetCommit", transactional_id)


def _check(error_code: int, api: str, transactional_id: str) -> None:
    if error_code in FENCED:
        raise AttemptFenced(transactional_id=transactional_id, api=api, name=error_name(error_code))
    if error_code != ErrorCode.NONE:
        raise TransactionRefused(
            transactional_id=transactional_id, api=api, code=error_code, name=error_name(error_code)
        )


# --- reading ----------------------------------------------------------------------------------------------------------


def _offsets(sink: Sink, group_ids: Sequence[str], *, stable: bool = True) -> Steps[list[GroupOffset]]:
    """The offsets of the groups; if `stable`, once no transaction is about to change one."""
    if not group_ids:
        return []
    answers = yield [_fetch(sink, group_id, stable=stable) for group_id in group_ids]
    return _groups(answers)


def _groups(answers: Sequence[OffsetFetchResponse]) -> list[GroupOffset]:
    found = [group for answer in answers for group in answer.groups]
    for group in found:
        _check(group.error_code, "OffsetFetch", group.group_id)
    return found


def read_decision(sink: Sink, *, stable: bool = True) -> Steps[Decision | None]:
    """The last decision of the sink's; waits for one that is being written, if `stable`."""
    (first,) = yield from _offsets(sink, [sink.names.decision(0)], stable=stable)
    while parts := Decision.parts(first.group_id, first.offset, first.metadata):
        more = yield from _offsets(sink, [sink.names.decision(part) for part in range(1, parts)], stable=stable)
        # Another driver may have decided between two reads. It writes the first part first, so that one that is still
        # there, and stable, says that none of the others was new.
        again = (yield from _offsets(sink, [sink.names.decision(0)], stable=stable))[0] if more else first
        if again == first:
            return Decision.read([(group.group_id, group.offset, group.metadata) for group in (first, *more)])
        first = again
    return None


def read_markers(sink: Sink, slots: Sequence[int], *, stable: bool = True) -> Steps[dict[int, Marker]]:
    """The markers of those of `slots` that have one. Unless `stable` a transaction that is about to replace
    one is not waited for: what is found is visible, and what is not may become so."""
    groups = yield from _offsets(sink, [sink.names.slot(slot) for slot in slots], stable=stable)
    return _markers(slots, groups)


def _markers(slots: Sequence[int], groups: Sequence[GroupOffset]) -> dict[int, Marker]:
    markers = (Marker.read(group.group_id, group.offset, group.metadata) for group in groups)
    return {slot: marker for slot, marker in zip(slots, markers, strict=True) if marker is not None}


def described(sink: Sink, transactional_ids: Sequence[str]) -> Steps[list[TransactionDescription]]:
    if not transactional_ids:
        return []
    answers = yield [_describe(transactional_id) for transactional_id in transactional_ids]
    return _descriptions(answers)


def _descriptions(answers: Sequence[DescribeTransactionsResponse]) -> list[TransactionDescription]:
    found = [description for answer in answers for description in answer.transactions]
    for description in found:
        # An id that nobody used for a week is none that has something open.
        if description.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            _check(description.error_code, "DescribeTransactions", description.transactional_id)
    return found


def check_generation(sink: Sink, generation: Ids) -> Steps[None]:
    """Raises DriverFenced where another run has Inited the driver's id since."""
    (answer,) = yield [_describe(sink.names.driver)]
    _check_generation(sink, generation, answer)


def _check_generation(sink: Sink, generation: Ids, answer: DescribeTransactionsResponse) -> None:
    (driver,) = _descriptions([answer])
    current = Ids(driver.producer_id, driver.producer_epoch)
    if driver.error_code != ErrorCode.NONE or current != generation:
        raise DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(sink: Sink) -> Steps[Facts]:
    """Takes the sink over, and leaves none of its transactions open. Raises DriverFenced, TransactionRefused, and
    InvalidOption for a timeout that the brokers do not allow."""
    generation = yield from take_over(sink)
    # What is listed before a decision is finished is described after.
    decision, listed = yield from at_once(read_decision(sink), list_open(sink))
    visible: dict[int, Marker] = {}
    if decision is not None:
        visible = yield from _visible(sink, decision)
        yield from finish(sink, decision, visible)
    yield from abort_open(sink, generation, listed)
    slots = range(len(decision.pinned)) if decision is not None else ()
    # After what was open: a marker in it is about to change, until it is ended.
    markers = yield from read_markers(sink, [slot for slot in slots if slot not in visible])
    return Facts(generation, decision, visible | markers)


def take_over(sink: Sink) -> Steps[Ids]:
    """The next generation. Whoever has the one before decides nothing any more. Raises as `plan`."""
    (driver,) = yield [_init(sink, sink.names.driver)]
    if driver.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        yield from _refuse_timeout(sink)
    _check(driver.error_code, "InitProducerId", sink.names.driver)
    return Ids(driver.producer_id, driver.producer_epoch)


def _refuse_timeout(sink: Sink) -> Steps[None]:
    (ceiling,) = yield [BrokerSetting(TIMEOUT_CEILING)]
    unknown = "; how much that is they tell only with the ACL CLUSTER DESCRIBE_CONFIGS"
    raise InvalidOption(
        option="kafka.transaction.timeout.ms",
        value=str(sink.timeout_ms),
        expected=f"at most the brokers' {TIMEOUT_CEILING}{unknown if ceiling is None else f', {ceiling}'}",
    )


def _visible(sink: Sink, decision: Decision) -> Steps[dict[int, Marker]]:
    """The decision's slots that are visible already, all of them as a rule: so nothing is left to be finished."""
    found = yield from read_markers(sink, range(len(decision.pinned)), stable=False)
    return _of(decision, found)


def finish(sink: Sink, decision: Decision, visible: Container[int] = ()) -> Steps[None]:
    """Commits every transaction that the decision names and that is not `visible`, by the ids it pins."""
    pinned = [
        (sink.names.slot(slot), ids)
        for slot, ids in enumerate(decision.pinned)
        if ids is not None and slot not in visible
    ]
    if not pinned:
        return
    answers = yield [
        _end(sink, transactional_id, ids, committed=True, version=decision.transaction_version)
        for transactional_id, ids in pinned
    ]
    for (transactional_id, _), answer in zip(pinned, answers, strict=True):
        _check_definite(answer.error_code, transactional_id)


def _check_definite(error_code: int, transactional_id: str, api: str = "EndTxn") -> None:
    if error_code not in DEFINITE:
        _check(error_code, api, transactional_id)


def list_open(sink: Sink) -> Steps[list[str]]:
    """The transactional ids of the slots, of any, that have something open. Raises TransactionRefused."""
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(transactional_id_prefix=f"{sink.names.sink}."))]
    for listing in listings:
        _check(listing.error_code, "ListTransactions", sink.names.sink)
    return sorted({
        listed.transactional_id
        for listing in listings
        for listed in listing.transactions
        if listed.state == "Ongoing" and sink.names.is_slot(listed.transactional_id)
    })  # fmt: skip


def abort_open(sink: Sink, generation: Ids, listed: Sequence[str]) -> Steps[list[TransactionDescription]]:
    """Ends what is still open of what was `listed`: nobody decided to commit it, and its rows hide what comes after
    them. Returns it, as it was. Raises DriverFenced, TransactionRefused."""
    found = yield from described(sink, listed)
    still_open = [each for each in found if each.state == "Ongoing"]
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
        _check_definite(answer.error_code, each.transactional_id, api)
    return still_open


def _aborts(sink: Sink, transactions: Mapping[str, Ids]) -> list[ToCoordinator]:
    if sink.transaction_version < 2:
        # A late abort of version 1 can hit the next transaction of its id; a new epoch cannot.
        return [_init(sink, transactional_id) for transactional_id in transactions]
    return [_end(sink, transactional_id, ids, committed=False) for transactional_id, ids in transactions.items()]


# --- versions ---------------------------------------------------------------------------------------------------------


def is_written(
    sink: Sink, facts: Facts, *, query_id: str, version: int, now_ms: int, allow_lost_state: bool
) -> Steps[bool]:
    """Whether a version is passed over: it is visible whole, or a later one was decided. Told after `plan`, before any
    row is read. Raises DriverFenced, and what `check_lineage` does."""
    decision = facts.decision
    if decision is not None and decision.query_id == query_id:
        is_whole = decision.micro_batch_id == version and not facts.missing
        if is_whole or decision.micro_batch_id > version:
            return True
    # Markers that a later run replaced while this one looked are not missing.
    yield from check_generation(sink, facts.generation)
    check_lineage(
        sink, facts, query_id=query_id, micro_batch_id=version, now_ms=now_ms, allow_lost_state=allow_lost_state
    )
    return False


def check_written(
    sink: Sink,
    facts: Facts,
    counted: Sequence[str],
    *,
    total: Callable[[Iterable[str]], Any],
    touched: Sequence[TopicAndPartition],
) -> Steps[None]:
    """That the last version, which is passed over, has the rows that are visible, and that readers see them.

    `counted`: the fingerprint of each slot's rows. `total`: of all slots', by which rows can be compared that came in
    other slots, as nothing is to be filled in. `touched`: all partitions that they can be in. Raises
    NonDeterministicReplay, VerificationRefused, HangingTransaction.
    """
    decision, visible = facts.decision, facts.visible
    assert decision is not None, "a version that is passed over was decided"
    version = decision.micro_batch_id
    # Whatever rows come this time, those of the first are to be seen.
    yield from end_what_hangs(sink, facts, touched)
    if total(counted) != total(marker.fingerprint for marker in visible.values()):
        raise NonDeterministicReplay(
            sink=sink.names.sink, micro_batch_id=version, slots=sorted(visible), versioned=True
        )


def end_what_hangs(sink: Sink, facts: Facts, touched: Iterable[TopicAndPartition]) -> Steps[None]:
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
    yield from _end_what_hangs(sink, ours, sorted(touched), decision.micro_batch_id)


# --- a task -----------------------------------------------------------------------------------------------------------


def begin(sink: Sink, facts: Facts, *, slot: int, micro_batch_id: int, query_id: str) -> Steps[SlotBegun]:
    """Opens the slot's next run, which fences every earlier attempt. Raises DriverFenced, CheckpointBehind,
    TransactionRefused; nothing is written then."""
    transactional_id = sink.names.slot(slot)
    # Deciding raises the driver's epoch on version 2: while it is this run's, no marker is another than `plan` found.
    is_told = sink.transaction_version >= 2 and facts.tell_of(slot)
    # Not a stable offset: one would wait for one's own abandoned transaction, which Init will end. Of what was decided
    # `plan` has left no marker on its way, and nothing else can make one.
    look = [] if is_told else [_fetch(sink, transactional_id, stable=False)]
    driver, *fetched = yield [_describe(sink.names.driver), *look]
    _check_generation(sink, facts.generation, driver)
    marker = facts.markers.get(slot) if is_told else _markers([slot], _groups(fetched)).get(slot)
    (answer,) = yield [_init(sink, transactional_id)]
    _check(answer.error_code, "InitProducerId", transactional_id)
    ids = Ids(answer.producer_id, answer.producer_epoch)
    if not _is_first_since(facts.decision, slot, ids):
        # What was looked at may be long ago. Behind rows that were committed since, and that a leader hides
        # (KAFKA-20734), this attempt's would share their end, and its abort would take them away.
        driver, fetched = yield [_describe(sink.names.driver), _fetch(sink, transactional_id)]
        _check_generation(sink, facts.generation, driver)
        marker = _markers([slot], _groups([fetched])).get(slot)
    visible = None
    if marker is not None and marker.query_id == query_id:
        if marker.micro_batch_id > micro_batch_id:
            raise CheckpointBehind(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                committed_micro_batch_id=marker.micro_batch_id,
                versioned=sink.is_versioned,
            )
        if marker.micro_batch_id == micro_batch_id:
            visible = marker
    return SlotBegun(slot, ids, visible)


def _is_first_since(decision: Decision | None, slot: int, ids: Ids) -> bool:
    """Whether nobody can have committed rows of the slot with this producer id since the decision: its first ids, or
    those that come next after the pinned ones. An InitProducerId raises the epoch by one, and so does an EndTxn of
    version 2; others would have had to do both once more."""
    if ids.producer_epoch == 0:
        return True
    pinned = decision.pinned[slot] if decision is not None and slot < len(decision.pinned) else None
    if decision is None or pinned is None:
        return False
    return ids == Ids(pinned.producer_id, pinned.producer_epoch + decision.transaction_version)


def prepare(sink: Sink, begun: SlotBegun, marker: Marker) -> Steps[None]:
    """Puts the marker next to the rows, all of which are acknowledged. Raises AttemptFenced, TransactionRefused: the
    attempt has then failed."""
    transactional_id = sink.names.slot(begun.slot)
    # Group and transactional id have the same name.
    yield from _write(sink, transactional_id, begun.ids, transactional_id, marker.micro_batch_id, marker.text)


# --- commit -----------------------------------------------------------------------------------------------------------


def commit(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    now_ms: int,
    allow_lost_state: bool = False,
) -> Steps[None]:
    """Makes a micro-batch visible, whole. `prepared` has one for each slot, in order; `now_ms` is wall-clock time.

    Raises one of the errors of exactly-once; Spark then does not record the micro-batch, and runs it again.
    """
    check_decision(
        sink, facts, prepared, micro_batch_id=micro_batch_id, now_ms=now_ms, allow_lost_state=allow_lost_state
    )
    check_replay(sink, prepared, micro_batch_id=micro_batch_id)
    open_slots = [each for each in prepared if each.visible is None]
    decided = facts.decision
    is_decided = decided is not None and (decided.micro_batch_id, decided.query_id, len(decided.pinned)) == (
        micro_batch_id,
        prepared[0].query_id,
        len(prepared),
    )
    if open_slots or not is_decided:
        decision = Decision(
            micro_batch_id=micro_batch_id,
            query_id=prepared[0].query_id,
            generation=facts.generation,
            transaction_version=sink.transaction_version,
            decided_ms=now_ms,
            pinned=tuple(None if each.visible else each.ids for each in prepared),
            topics=tuple(sorted({topic for each in prepared for topic, _ in each.partitions})),
        )
        yield from at_once(
            _write_decision(sink, decision),
            _check_open(sink, open_slots, now_ms),
            _check_alone(sink, open_slots, micro_batch_id),
        )
        yield from _decide(sink, decision)
        # Not one is aborted after this, whatever happens.
        answers = yield [_end(sink, sink.names.slot(each.slot), each.ids, committed=True) for each in open_slots]
        refused = {
            each.slot: error_name(answer.error_code)
            for each, answer in zip(open_slots, answers, strict=True)
            if answer.error_code not in DEFINITE
        }
        if refused:
            raise CommitOutcomeUnknown(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                visible=[each.slot for each in prepared if each.slot not in refused],
                missing=list(refused),
                reason=f"EndTxn was refused with {', '.join(sorted(set(refused.values())))}",
                versioned=sink.is_versioned,
            )
    yield from _verify(sink, facts, prepared, micro_batch_id=micro_batch_id)


def check_replay(sink: Sink, prepared: Sequence[SlotPrepared], *, micro_batch_id: int) -> None:
    """Raises NonDeterministicReplay unless slots that were visible before have the same rows again.

    Of a micro-batch that was decided `check_decision` knows more; this is for one whose decision is gone.
    """
    changed = [each.slot for each in prepared if each.visible and each.visible.fingerprint != each.fingerprint]
    if changed:
        raise NonDeterministicReplay(
            sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed, versioned=sink.is_versioned
        )


def check_decision(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    now_ms: int,
    allow_lost_state: bool,
) -> None:
    """Whether these rows may follow upon the sink's last decision, as `plan` found it.

    Raises StateExpired, TornBatch, NonDeterministicReplay, CommittedDataMissing or CheckpointBehind.
    """
    query_id, decision = prepared[0].query_id, facts.decision
    check_lineage(
        sink, facts, query_id=query_id, micro_batch_id=micro_batch_id, now_ms=now_ms, allow_lost_state=allow_lost_state
    )
    if decision is None or (decision.micro_batch_id, decision.query_id) != (micro_batch_id, query_id):
        return
    # Nothing visible: it never began, and the replay replaces it, with whatever rows and slots it has.
    visible, missing = facts.visible, facts.missing
    again = {each.slot: each.fingerprint for each in prepared}
    changed = sorted(slot for slot, marker in visible.items() if again.get(slot) != marker.fingerprint)
    if changed and missing:
        raise TornBatch(
            sink=sink.names.sink,
            micro_batch_id=micro_batch_id,
            visible=sorted(visible),
            missing=missing,
            versioned=sink.is_versioned,
        )
    if not missing:
        # All of its rows are visible, so that those of a further slot are others.
        changed += [each.slot for each in prepared if each.slot >= len(decision.pinned) and each.partitions]
    if changed:
        raise NonDeterministicReplay(
            sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=changed, versioned=sink.is_versioned
        )


def check_lineage(
    sink: Sink, facts: Facts, *, query_id: str, micro_batch_id: int, now_ms: int, allow_lost_state: bool
) -> None:
    """Whether this micro-batch may follow upon the sink's last decision, whatever its rows are.

    Raises StateExpired, CommittedDataMissing or CheckpointBehind.
    """
    sink_name, decision, versioned = sink.names.sink, facts.decision, sink.is_versioned
    if decision is None or decision.query_id != query_id:
        # A stream with a new checkpoint begins anew under its old name; versions have one query for ever, so that a
        # decision of another is somebody else's.
        is_new = micro_batch_id == 0 and not (versioned and decision is not None)
        if not is_new and not allow_lost_state:
            raise StateExpired(
                sink=sink_name,
                micro_batch_id=micro_batch_id,
                query_id=query_id,
                decided_query_id=None if decision is None else decision.query_id,
                versioned=versioned,
            )
        return
    if decision.micro_batch_id > micro_batch_id:
        raise CheckpointBehind(
            sink=sink_name,
            micro_batch_id=micro_batch_id,
            committed_micro_batch_id=decision.micro_batch_id,
            versioned=versioned,
        )
    missing = facts.missing
    # Markers are older than the decision, by as much as a transaction may last, and are gone before it.
    is_old = now_ms - decision.decided_ms > OFFSETS_RETENTION_MS - sink.timeout_ms
    if missing and is_old and not allow_lost_state:
        raise StateExpired(sink=sink_name, micro_batch_id=micro_batch_id, query_id=query_id, versioned=versioned)
    if decision.micro_batch_id == micro_batch_id:
        return
    is_next = versioned or decision.micro_batch_id == micro_batch_id - 1
    if (missing or not is_next) and not allow_lost_state:
        raise CommittedDataMissing(
            sink=sink_name,
            micro_batch_id=decision.micro_batch_id,
            visible=sorted(facts.visible),
            missing=missing,
            next_micro_batch_id=micro_batch_id,
            versioned=versioned,
        )


def _check_open(sink: Sink, slots: Sequence[SlotPrepared], now_ms: int) -> Steps[None]:
    """Raises TransactionTimedOut unless every transaction is still open, for long enough."""
    found = yield from described(sink, [sink.names.slot(each.slot) for each in slots])
    for each, description in zip(slots, found, strict=True):
        ids = Ids(description.producer_id, description.producer_epoch)
        age_ms = now_ms - description.start_time_ms
        is_open = description.error_code == ErrorCode.NONE and description.state == "Ongoing" and ids == each.ids
        if not is_open or age_ms > sink.timeout_ms - LEAST_TIME_LEFT_MS:
            raise TransactionTimedOut(
                transactional_id=description.transactional_id,
                expected=str(each.ids),
                found=f"{description.state} {ids}",
                age_ms=age_ms,
                timeout_ms=sink.timeout_ms,
            )


def _check_alone(sink: Sink, slots: Sequence[SlotPrepared], micro_batch_id: int) -> Steps[None]:
    """That each transaction begins, on every leader, with a row of the slot's: where one did not hear of the end of an
    aborted attempt (KAFKA-20734), this one's rows joined those, and would take them along.

    Raises AbortedRowsOpen; the abort that follows ends both. VerificationRefused.
    """
    written = {each.ids.producer_id: each for each in slots}
    touched = sorted({partition for each in slots for partition in each.first_offsets})
    if not touched:
        return
    answer = yield from _producers(sink, touched, micro_batch_id, committed=False)
    for found in answer.partitions:
        for producer in found.producers:
            slot, since = written.get(producer.producer_id), producer.current_txn_start_offset
            # Where the slot has no rows its coordinator will commit nothing, whatever hangs there.
            if slot is None or since < 0 or (found.topic, found.partition) not in slot.first_offsets:
                continue
            first = slot.first_offsets[found.topic, found.partition]
            if first is None or since < first:
                raise AbortedRowsOpen(
                    micro_batch_id=micro_batch_id,
                    topic=found.topic,
                    partition=found.partition,
                    transactional_id=sink.names.slot(slot.slot),
                    open_since_offset=since,
                    first_offset=first,
                )


def _write_decision(sink: Sink, decision: Decision) -> Steps[None]:
    """Into the driver's transaction, by whose end it is decided. Raises DriverFenced, TransactionTimedOut."""
    names = sink.names
    try:
        for part, text in enumerate(decision.texts(sink.metadata_max_characters)):
            group_id = names.decision(part)
            yield from _write(sink, names.driver, decision.generation, group_id, decision.micro_batch_id, text)
    except AttemptFenced:
        raise (yield from _lost(sink, decision)) from None


def _decide(sink: Sink, decision: Decision) -> Steps[None]:
    """The one moment: before it nothing of the micro-batch will be visible, after it everything will."""
    (answer,) = yield [_end(sink, sink.names.driver, decision.generation, committed=True)]
    if answer.error_code == ErrorCode.NONE:
        return
    _check_definite(answer.error_code, sink.names.driver)
    # It may have been carried out and its answer lost, or somebody else may have come in between.
    found = yield from read_decision(sink)
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


def _verify(sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], *, micro_batch_id: int) -> Steps[None]:
    """Raises CommitOutcomeUnknown unless every marker is there, and what hangs cannot be ended."""
    markers = yield from read_markers(sink, [each.slot for each in prepared])
    expected = {each.slot: Marker(micro_batch_id, each.query_id, each.fingerprint) for each in prepared}
    missing = [slot for slot, marker in expected.items() if markers.get(slot) != marker]
    if missing:
        visible = sorted(expected.keys() - set(missing))
        raise CommitOutcomeUnknown(
            sink=sink.names.sink,
            micro_batch_id=micro_batch_id,
            visible=visible,
            missing=missing,
            reason="somebody ended the transactions from outside, or they timed out",
            versioned=sink.is_versioned,
        )
    touched = sorted({partition for each in prepared for partition in each.partitions})
    committed = _committed(facts, prepared, micro_batch_id)
    ours = {ids: sink.names.slot(slot) for ids, slot in committed.items()}
    yield from _end_what_hangs(sink, ours, touched, micro_batch_id)


def _committed(facts: Facts, prepared: Sequence[SlotPrepared], micro_batch_id: int) -> dict[Ids, int]:
    """The transactions that the visible rows are from, slots by ids: by epoch too, as what a later attempt of a slot
    has open is none of this micro-batch's. Of a slot that was visible before, those that were pinned then."""
    new = {each.ids: each.slot for each in prepared if each.visible is None}
    decided = facts.decision
    if decided is None or (decided.micro_batch_id, decided.query_id) != (micro_batch_id, prepared[0].query_id):
        return new
    visible_before = {each.slot for each in prepared if each.visible is not None}
    return new | {ids: slot for slot, ids in enumerate(decided.pinned) if ids is not None and slot in visible_before}


@dataclass(frozen=True, slots=True)
class Hanging:
    """A leader has not ended a transaction that its coordinator has. `coordinator_epoch`: of the producer's last marker
    on this partition."""

    topic: str
    partition: int
    transactional_id: str
    ids: Ids
    start_offset: int
    coordinator_epoch: int


def _end_what_hangs(
    sink: Sink, ours: Mapping[Ids, str], touched: Sequence[TopicAndPartition], micro_batch_id: int
) -> Steps[None]:
    """Waits for the leaders of the partitions `touched` to end the transactions `ours`, transactional ids by
    the producer's, all of them committed; and has them do it where the coordinators did not (KAFKA-20734).

    Raises VerificationRefused, HangingTransaction.
    """
    hanging = yield from _still_open(sink, ours, touched, micro_batch_id)
    for pause_ms in PAUSES_MS:
        if not hanging:
            return
        yield [Pause(pause_ms)]
        hanging = yield from _still_open(sink, ours, touched, micro_batch_id)
    if not hanging:
        return
    reasons = yield from write_commit_markers(hanging)
    refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, strict=True)}
    # Also where it was refused: another run may have ended it in the meantime, and gone on.
    still = yield from _still_open(sink, ours, touched, micro_batch_id)
    if still:
        reason = refused.get((still[0].topic, still[0].partition))
        raise _hanging(
            sink, still[0], reason or "the leader took a marker from WriteTxnMarkers, and has it open even so"
        )


def write_commit_markers(hanging: Sequence[Hanging]) -> Steps[list[str]]:
    """COMMIT, in the coordinators' place, for transactions that are committed; never ABORT, which would take rows away
    that others of the micro-batch are visible with. Returns why one was refused, by transaction; empty if it was not.

    With the epoch of the transaction itself, not with the one that its coordinator has now: a leader refuses a marker
    of an earlier epoch than its own, so that one which comes late cannot commit what a later attempt of the slot has
    open there.
    """
    answers = yield [
        ToLeaders(
            WriteTxnMarkersRequest(
                producer_id=each.ids.producer_id,
                producer_epoch=each.ids.producer_epoch,
                committed=True,
                # A leader takes none of an earlier coordinator than its last one; -1 where it has had none.
                coordinator_epoch=max(0, each.coordinator_epoch),
                partitions=((each.topic, each.partition),),
            )
        )
        for each in hanging
    ]
    codes = [answer.results[0].error_code for answer in answers]
    return ["" if code == ErrorCode.NONE else f"WriteTxnMarkers was refused: {error_name(code)}" for code in codes]


def command(sink: Sink, name: str) -> str:
    """What an operator types to do what `kafka_sink.transactions` calls `name`."""
    return (
        f"python -m kafka_sink.transactions {name} --bootstrap-servers {sink.bootstrap_servers} "
        f"--prefix {sink.names.sink} --commit-topic {sink.names.commit_topic}"
    )


def _hanging(sink: Sink, hanging: Hanging, reason: str) -> HangingTransaction:
    return HangingTransaction(
        topic=hanging.topic,
        partition=hanging.partition,
        transactional_id=hanging.transactional_id,
        producer_id=hanging.ids.producer_id,
        start_offset=hanging.start_offset,
        reason=reason,
        command=command(sink, "repair") + f" --topic {hanging.topic}",
    )


def _still_open(
    sink: Sink, ours: Mapping[Ids, str], touched: Sequence[TopicAndPartition], micro_batch_id: int
) -> Steps[list[Hanging]]:
    """Which of `ours` the leaders have open. Raises VerificationRefused."""
    if not touched:
        return []
    answer = yield from _producers(sink, touched, micro_batch_id, committed=True)
    return [
        Hanging(
            found.topic, found.partition, ours[ids], ids, producer.current_txn_start_offset, producer.coordinator_epoch
        )
        for found in answer.partitions
        for producer in found.producers
        if (ids := Ids(producer.producer_id, producer.producer_epoch)) in ours
        and producer.current_txn_start_offset >= 0
    ]


def _producers(
    sink: Sink, partitions: Sequence[TopicAndPartition], micro_batch_id: int, *, committed: bool
) -> Steps[DescribeProducersResponse]:
    """What the leaders know of producers. Raises VerificationRefused."""
    (answer,) = yield [ToLeaders(DescribeProducersRequest(partitions=tuple(partitions)))]
    for found in answer.partitions:
        if found.error_code != ErrorCode.NONE:
            raise VerificationRefused(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                topic=found.topic,
                partition=found.partition,
                code=found.error_code,
                name=error_name(found.error_code),
                committed=committed,
            )
    response: DescribeProducersResponse = answer
    return response


# --- abort ------------------------------------------------------------------------------------------------------------


def abort(sink: Sink, generation: Ids) -> Steps[None]:
    """Leaves nothing open of a run whose micro-batch failed: by being the next run, for as long as it takes to plan.

    So tasks that have not begun yet will not, what was decided is committed, and the rest is aborted, whether anybody
    has its ids or not. Runs in another process than `commit`, and possibly after one that decided without knowing it.
    Where another run has taken the sink over nothing of this one is open, or its own to end.
    """
    try:
        yield from check_generation(sink, generation)
        yield from plan(sink)
    except DriverFenced:
        # Of version 2, also the end of its own decision's transaction raises the driver's epoch.
        decision = yield from read_decision(sink)
        if decision is not None and decision.generation == generation:
            yield from finish(sink, decision)
