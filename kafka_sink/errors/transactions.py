"""Errors of exactly-once: the two-phase commit stopped. An error names the slots of a partly visible micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError, WriteKind, named_principal
from kafka_sink.errors.quoting import several
from kafka_sink.errors.redaction import redacted

__all__ = [
    "REFUSALS", "AbortedRowsOpen", "AnotherCheckpoint", "AnotherName", "AttemptFenced", "AttemptReplaced",
    "CheckpointBehind", "CommitOutcomeUnknown", "CommittedDataMissing", "DecisionPending", "DriverFenced",
    "ExactlyOnceError", "FingerprintsLost", "HangingTransaction", "LeaderDisagrees", "MarkersLost",
    "NonDeterministicReplay", "PreparedRowsGone", "QuotaOutlastsTransaction", "RateOutlastsTransaction",
    "ReceiptNotWritten", "StateExpired", "StateWentBack", "TornBatch", "TransactionRefused", "TransactionTimedOut",
    "UnreadableState", "VerificationRefused", "WrittenOtherwise", "advice_on_refusal",
]  # fmt: skip

_SAME_ROWS = "(the same code, inputs and number of partitions; no rand() or current_timestamp())"


class ExactlyOnceError(KafkaSinkError):
    """The two-phase commit could not continue. A slot is a Spark partition of the micro-batch.

    For a batch write with a version, `sink` is its txnAppId and `micro_batch_id` its txnVersion. A batch write without
    a version is a single micro-batch, and its number has no meaning.
    """

    _data = DataState.RUN_STOPPED

    @property
    def _is_batch(self) -> bool:
        return self.write_kind in (WriteKind.VERSION, WriteKind.BATCH)

    def _numbered(self, micro_batch_id: int) -> str:
        match self.write_kind:
            case WriteKind.VERSION:
                return f"version {micro_batch_id}"
            case WriteKind.BATCH:
                return "the batch write"
        return f"micro-batch {micro_batch_id}"

    def _run(self, sink: str, micro_batch_id: int) -> str:
        of = "txnAppId" if self.write_kind is WriteKind.VERSION else "sink"
        return f"{self._numbered(micro_batch_id)} of {of} {sink!r}"

    @property
    def _once(self) -> str:
        return "write it once" if self._is_batch else "start once"

    @property
    def _smaller(self) -> str:
        """Advice for a transaction that was open for too long. The name of a setting to raise must follow."""
        if self._is_batch:
            return "A write's transactions are open from its tasks' first row to the end of its job: split it, or raise"
        return "If micro-batches take that long, make them smaller, or raise"


def _slots(slots: Sequence[int]) -> str:
    """Return the first 10 slots, as in `slots 0, 1, 2 and 5 more`."""
    if not slots:
        return "no slot"
    return f"slot{'s' if len(slots) > 1 else ''} {several(slots, 10)}"


# --- what was decided before ------------------------------------------------------------------------------------------


class TornBatch(ExactlyOnceError):
    """Only some slots of a decided micro-batch are visible, and the replay has other rows."""

    sink: str
    micro_batch_id: int
    visible: Sequence[int]
    missing: Sequence[int]

    def explanation(self) -> Explanation:
        return self._told(
            f"{self._run(self.sink, self.micro_batch_id)} is partly visible: {_slots(self.visible)} can be read, "
            f"{_slots(self.missing)} cannot, because a transaction timed out during the commit. The replay cannot "
            "write the missing rows, because its rows or its Spark partitions differ.",
            f"Run the write again with the same rows as the first time {_SAME_ROWS}. Or write all of its rows again, "
            "the visible ones a second time: under a new txnAppId."
            if self._is_batch
            else f"Make the query give the same rows again {_SAME_ROWS} and restart it. Or write all of its rows "
            "again, the visible ones a second time: allowLostState=true for one start, with a new "
            "transactionalIdPrefix.",
        )


class CommitOutcomeUnknown(ExactlyOnceError):
    sink: str
    micro_batch_id: int
    visible: Sequence[int]
    missing: Sequence[int]
    reason: str

    def explanation(self) -> Explanation:
        return self._told(
            f"the commit of {self._run(self.sink, self.micro_batch_id)} was decided, and {_slots(self.missing)} did "
            f"not become visible ({_slots(self.visible)} did): {self.reason}.",
            data=DataState.PARTLY_VISIBLE,
        )


class NonDeterministicReplay(ExactlyOnceError):
    sink: str
    micro_batch_id: int
    slots: Sequence[int]

    def explanation(self) -> Explanation:
        return self._told(
            f"{self._run(self.sink, self.micro_batch_id)} was written before and its {_slots(self.slots)} gave other "
            "rows this time. To skip the visible slots would lose rows, and to write them would duplicate rows.",
            "If this is the same write again, look for rand(), current_timestamp(), changed code or inputs: a higher "
            "txnVersion or a new txnAppId would write rows twice that are there. New rows need a higher txnVersion, "
            "and another writer, or another topic, a txnAppId of its own."
            if self._is_batch
            else "Look for rand(), current_timestamp(), a changed query, changed options of its source "
            "(minPartitions, maxPartitions), or inputs that changed; restart with the query that wrote it first. "
            "`pykafka transactions list` shows how many tasks it had (SLOTS). If a schema registry has learned an id "
            "since, and all rows of the first run can be read, start behind them, with a new checkpoint.",
        )


class CommittedDataMissing(ExactlyOnceError):
    sink: str
    micro_batch_id: int
    visible: Sequence[int]
    missing: Sequence[int]
    next_micro_batch_id: int

    def explanation(self) -> Explanation:
        last = self.micro_batch_id
        cause = (
            "A transaction timed out during the commit, or another program aborted it."
            if self._is_batch
            else "Another program aborted a transaction, or the checkpoint belongs to another query."
        )
        return self._told(
            f"{self._run(self.sink, self.next_micro_batch_id)} is not written: the last decided one is {last}, and its "
            f"{_slots(self.missing)} cannot be read ({_slots(self.visible)} can). {cause}",
            f"Run version {last} again with the rows that it had: it writes what is missing. To leave those rows out "
            "for good set allowLostState=true for one write."
            if self._is_batch
            else f"To write what is missing restore the checkpoint to before {last}; to leave those rows out for good "
            "set allowLostState=true for one start.",
        )


class WrittenOtherwise(ExactlyOnceError):
    """The last decided micro-batch, `micro_batch_id`, is visible whole, and Spark has recorded later micro-batches."""

    sink: str
    micro_batch_id: int
    next_micro_batch_id: int

    _happened = (
        "micro-batch {next_micro_batch_id} of sink {sink!r} is not written: exactly-once decided {micro_batch_id} "
        "last, and the checkpoint has later ones. They were written at least once, by another format or as another "
        "sink; or Spark repartitioned the query's state; or the brokers' state is an older copy."
    )
    _advice = (
        "If the state was repartitioned with enforce_exactly_once_sink=False, restore the checkpoint from before that: "
        "Spark may read the rows of micro-batch {micro_batch_id} again. Else do not go back to an older checkpoint: "
        "the rows of those micro-batches would be in the topics twice. If their rows are there, or they have none, go "
        "on from micro-batch {next_micro_batch_id} with allowLostState=true for one start."
    )


class CheckpointBehind(ExactlyOnceError):
    sink: str
    micro_batch_id: int
    committed_micro_batch_id: int

    def explanation(self) -> Explanation:
        run, committed = self._run(self.sink, self.micro_batch_id), self.committed_micro_batch_id
        if self._is_batch:
            happened = (
                f"{run} is not written: {committed} is committed, by another run just now, or before, and the record "
                "of which versions were decided is gone."
            )
            advice = (
                f"Go on with a version above {committed}. A new txnAppId writes {self.micro_batch_id}, and a second "
                "time what is there of it."
            )
        else:
            happened = (
                f"Spark runs {run}, and {committed} of the same query was committed before: the checkpoint is an older "
                "copy."
            )
            advice = "Use the newest checkpoint. A new transactionalIdPrefix would write those micro-batches a second "
            advice += "time."
        return self._told(happened, advice)


class AnotherCheckpoint(ExactlyOnceError):
    """`found_query_id`: the query of the checkpoint in the driver host's folder that the option checkpointLocation
    names."""

    sink: str
    query_id: str
    found_query_id: str

    _happened = (
        "query {query_id} was planned as sink {sink!r}, which belongs to query {found_query_id}: checkpointLocation "
        "names a folder on the driver's host that has the checkpoint of that query. Spark has this query's checkpoint "
        "on another file system."
    )
    _advice = "Name checkpointLocation with its scheme (hdfs://..., s3a://...), or set transactionalIdPrefix."


class AnotherName(ExactlyOnceError):
    """`found_sink`: the name under which the query's first micro-batch was written, or may have been."""

    sink: str
    query_id: str
    found_sink: str

    _happened = (
        "query {query_id} began as sink {found_sink!r}, and its micro-batch 0 was now planned as sink {sink!r}: "
        "checkpointLocation was spelled in another way."
    )
    _advice = "Spell checkpointLocation as before, or set transactionalIdPrefix={found_sink}."


# --- what is not known any more ---------------------------------------------------------------------------------------


class StateExpired(ExactlyOnceError):
    """`decided_query_id`: the query that decided last under this name, if known and different from `query_id`.

    `is_derived`: the name was derived from the checkpoint.
    """

    sink: str
    micro_batch_id: int
    query_id: str
    decided_query_id: str | None = None
    is_derived: bool = False

    def explanation(self) -> Explanation:
        number = self.micro_batch_id
        if self._is_batch:
            return self._told(
                f"nothing is known of what txnAppId {self.sink!r} committed before version {number}: "
                f"{self._why_not_of_a_version()}.",
                f"If version {number} cannot be in the topic already, write it once with allowLostState=true.",
            )
        return self._told(
            f"nothing is known of what query {self.query_id} committed as sink {self.sink!r} before micro-batch "
            f"{number}: {self._why_not_of_a_query()}.",
            f"{self._two_names()}If micro-batch {number} cannot be in the topics already, start once with "
            "allowLostState=true.",
        )

    def _why_not_of_a_version(self) -> str:
        if self.decided_query_id is not None:
            return f"the name is a stream's transactionalIdPrefix ({self.decided_query_id}); use another"
        return f"it is the first under this name and not 0, or {_GROUPS_GONE}"

    def _why_not_of_a_query(self) -> str:
        if self.decided_query_id is not None:
            return f"the last that was committed under this name is query {self.decided_query_id}'s"
        if self.is_derived:
            return f"{_GROUPS_GONE}, or checkpointLocation was spelled in another way before"
        return f"{_GROUPS_GONE}, or the transactionalIdPrefix is a new one"

    def _two_names(self) -> str:
        if self.decided_query_id is None:
            return "Spell checkpointLocation as before. " if self.is_derived else ""
        named = "transactionalIdPrefix; both have this one"
        if self.is_derived:
            named = "transactionalIdPrefix is not set, and the name was derived from the checkpoint; both have it"
        return (
            f"Two queries need two names ({named}). Stop that query, or set a transactionalIdPrefix of its own for one "
            "of the two; if it has ended, this one's checkpoint is from before it. "
        )


_GROUPS_GONE = (
    "its consumer groups are gone (deleted, idle for longer than the brokers' offsets.retention.minutes, or the commit "
    "topic was deleted)"
)


class StateWentBack(ExactlyOnceError):
    """An internal topic of the brokers has lost its last records.

    `topic`: __consumer_offsets if coordinators have committed transactions that no decision names; __transaction_state
    if leaders have later ids than the coordinators. `decided_micro_batch_id`: the last one that the consumer groups
    know of, None if they know of none. `found`: for each of `slots`, what shows it.
    """

    sink: str
    topic: str
    decided_micro_batch_id: int | None
    slots: Sequence[int]
    found: Sequence[str]

    def explanation(self) -> Explanation:
        last = self.decided_micro_batch_id
        known = "know of no" if last is None else f"know of {self._numbered(last)} and no later"
        return self._told(
            f"the brokers have lost state of sink {self.sink!r}: its consumer groups {known} committed one, and "
            f"{_slots(self.slots)} went further ({', '.join(self.found[:3])}). {self.topic} lost its last records, by "
            "an unclean leader election or with the disk of a single replica, or groups were deleted.",
            self._what_to_do(),
        )

    def _what_to_do(self) -> str:
        last = self.decided_micro_batch_id
        if self._is_batch:
            after = "the first version" if last is None else f"the version after {last}"
            return (
                f"Look in the topics, with read_committed, for the rows of {after}. If they are not there, write that "
                "version once with allowLostState=true, which would write rows twice that are there. If they are, "
                "write the next version of this txnAppId once with allowLostState=true."
            )
        after = "the first micro-batch" if last is None else f"the micro-batch after {last}"
        return (
            f"Look in the topics, with read_committed, for the rows of {after}. If none is there, start once with "
            "allowLostState=true, which would write rows twice that are there. If they are there, start behind them, "
            "with a new checkpoint and a new transactionalIdPrefix."
        )


class MarkersLost(ExactlyOnceError):
    """`slots`: the slots of the decided `decided_micro_batch_id` that may be visible or not, because nothing proves
    it."""

    sink: str
    micro_batch_id: int
    decided_micro_batch_id: int
    slots: Sequence[int]

    def explanation(self) -> Explanation:
        decided = self._numbered(self.decided_micro_batch_id)
        return self._told(
            f"{self._run(self.sink, self.micro_batch_id)} is not written: it is unknown whether {_slots(self.slots)} "
            f"of {decided}, the last decided one, can be read. The consumer groups with their markers were deleted or "
            "have expired (offsets.retention.minutes), and the brokers do not remember how their transactions ended.",
            f"Look in the topics, with read_committed, for the rows of {decided}. {self._by_what_is_there()}",
        )

    def _by_what_is_there(self) -> str:
        decided = self.decided_micro_batch_id
        if self.micro_batch_id == decided:
            behind = "write the next version" if self._is_batch else "start behind them, with a new checkpoint"
            return f"If they are not there, {self._once} with allowLostState=true. If they are, {behind}."
        first = (
            f"write version {decided} with them again first"
            if self._is_batch
            else f"restore the checkpoint to before {decided}"
        )
        return f"If they are there, {self._once} with allowLostState=true. If they are not, {first}."


class FingerprintsLost(ExactlyOnceError):
    """`slots`: visible slots whose rows cannot be compared with the rows of this run."""

    sink: str
    micro_batch_id: int
    slots: Sequence[int]

    def explanation(self) -> Explanation:
        return self._told(
            f"{self._run(self.sink, self.micro_batch_id)} runs again, and {_slots(self.slots)} can be read already. "
            "It is unknown if this run has the same rows: the consumer groups with their fingerprints were deleted "
            "or have expired (offsets.retention.minutes).",
            f"If its code, inputs and number of partitions are the same, {self._once} with allowLostState=true: these "
            "slots are not written again.",
        )


class UnreadableState(ExactlyOnceError):
    group: str
    found: str

    def __post_init__(self) -> None:
        self.found = self.found[:80]

    def explanation(self) -> Explanation:
        return self._told(
            f"consumer group {self.group!r} holds {self.found!r}, which this version did not write: somebody reset the "
            "group's offsets (kafka-consumer-groups.sh --reset-offsets), another program uses its name, or a newer "
            "version of this sink wrote it.",
            "If a newer version wrote it, use that version. Else delete the group (kafka-consumer-groups.sh --delete "
            f"--group {self.group}) and run again: the sink restores what the brokers can prove, or stops. A new "
            f"{'txnAppId' if self._is_batch else 'transactionalIdPrefix'} would write rows twice that are there.",
        )


# --- fenced and timed out ---------------------------------------------------------------------------------------------


class DriverFenced(ExactlyOnceError):
    sink: str
    generation: str
    current: str

    def explanation(self) -> Explanation:
        return self._told(
            f"another run took over sink {self.sink!r} (this one's generation was {self.generation}, now it is "
            f"{self.current}): a second driver, or another stream or write of this one, runs with the same "
            "transactionalIdPrefix or txnAppId, or this run was assumed dead and replaced.",
            "No other write has the same name: somebody aborted this write with `pykafka transactions`, or its tasks "
            "were planned twice."
            if self.write_kind is WriteKind.BATCH
            else "Stop one of the two; two writers need two names.",
            data=DataState.NOTHING_VISIBLE,
        )


class AttemptFenced(ExactlyOnceError):
    """`name`: the name of the error code, which shows what fenced the attempt."""

    transactional_id: str
    api: str
    name: str

    _data = DataState.NOTHING_VISIBLE
    _happened = (
        "{api} for {transactional_id!r} was refused with {name}: a later attempt of the task has begun, or the "
        "transaction timed out."
    )


class AttemptReplaced(ExactlyOnceError):
    """Spark has the result of an attempt, and a later attempt of the same task has ended its transaction."""

    transactional_id: str
    expected: str
    found: str

    _data = DataState.NOTHING_VISIBLE
    _happened = (
        "transaction {transactional_id!r} ({expected}) was complete, and a later attempt of its task took it over (now "
        "{found}). Spark ran the stage again, after a FetchFailed or a lost executor, and kept the result of the "
        "earlier attempt; or somebody else uses the transactional id."
    )


class TransactionTimedOut(ExactlyOnceError):
    transactional_id: str
    expected: str
    found: str
    age_ms: int
    timeout_ms: int

    _data = DataState.NOTHING_VISIBLE
    _happened = (
        "transaction {transactional_id!r} ({expected}) cannot be committed any more: its coordinator says {found}, age "
        "{age_ms} ms of kafka.transaction.timeout.ms {timeout_ms}. It took too long."
    )
    _advice = "{_smaller} kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms."


class RateOutlastsTransaction(ExactlyOnceError):
    """`row_count`: the number of the task's rows that were sent in time."""

    transactional_id: str
    timeout_ms: int
    row_count: int

    _data = DataState.NOTHING_VISIBLE
    _happened = (
        "the rows of transaction {transactional_id!r} take longer than kafka.transaction.timeout.ms {timeout_ms} at "
        "the rate that maxRowsPerSecond and maxBytesPerSecond leave to one task: {row_count} of them were sent, and "
        "there are more."
    )
    _advice = "{_smaller} kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms, or the rate."


class QuotaOutlastsTransaction(ExactlyOnceError):
    """`left_ms`: the time until brokers abort the transaction. `waiting_bytes`: the size of record batches that are not
    written yet. `bytes_per_s`: the rate of the throttling brokers, 0 if unknown. `rest_ms`: the time that these brokers
    need for the waiting bytes, as far as known."""

    transactional_id: str
    timeout_ms: int
    left_ms: int
    client_id: str
    bytes_per_s: int
    waiting_bytes: int
    rest_ms: int

    def explanation(self) -> Explanation:
        rate = f", at {self.bytes_per_s} bytes/s" if self.bytes_per_s else ""
        return self._told(
            f"brokers throttle this write by a quota of its user or of client id {self.client_id!r} "
            f"(producer_byte_rate or request_percentage): {self.waiting_bytes} bytes of transaction "
            f"{self.transactional_id!r} wait and take another {self.rest_ms} ms{rate}, and {self.left_ms} ms of its "
            f"kafka.transaction.timeout.ms {self.timeout_ms} are left.",
            f"{self._smaller} kafka.transaction.timeout.ms up to the brokers' transaction.max.timeout.ms, or the quota "
            "(kafka-configs.sh --entity-type clients or users).",
            data=DataState.NOTHING_VISIBLE,
        )


# --- what leaders and coordinators say --------------------------------------------------------------------------------


class LeaderDisagrees(ExactlyOnceError):
    """A leader's open transaction does not match the rows that were acknowledged to the task.

    `first_offset`: the offset of the attempt's first row, None if the leader did not return it. `open_since_offset`:
    the start offset of the transaction on the leader, None if it has no open transaction.
    """

    micro_batch_id: int
    topic: str
    partition: int
    transactional_id: str
    open_since_offset: int | None
    first_offset: int | None

    _data = DataState.NOTHING_VISIBLE

    @property
    def _not_committed(self) -> str:
        return f"{self._numbered(self.micro_batch_id)} was not committed:"


class AbortedRowsOpen(LeaderDisagrees):
    """The leader has more rows: a commit would make rows of an earlier attempt visible too."""

    _happened = (
        "{_not_committed} the leader of {topic}-{partition} has transaction {transactional_id!r} open since offset "
        "{open_since_offset}, and the task's rows begin at {first_offset}. The leader missed the end of an earlier "
        "attempt (KAFKA-20734), and a commit would make the rows of both visible. The sink aborts both."
    )


class PreparedRowsGone(LeaderDisagrees):
    """The leader has fewer rows: a commit would leave acknowledged rows out. `lacking_count`: how many of the last
    rows it lacks, if it has the first."""

    lacking_count: int = 0

    def explanation(self) -> Explanation:
        since = self.open_since_offset
        has = "has nothing open" if since is None else f"has only rows from offset {since} on"
        if since is not None and self.lacking_count:
            has = f"lacks the last {self.lacking_count}"
        return self._told(
            f"{self._not_committed} transaction {self.transactional_id!r} has lost acknowledged rows, from offset "
            f"{self.first_offset} of {self.topic}-{self.partition} on. Its coordinator has it open, but the leader of "
            f"the partition {has}. Somebody aborted it on the leader (kafka-transactions.sh abort), or an unclean "
            "leader election lost the rows. The sink aborts the rest."
        )


class HangingTransaction(ExactlyOnceError):
    """`reason`: why the sink could not end it. `command`: the command that ends it; empty if the brokers have no
    request for that."""

    topic: str
    partition: int
    transactional_id: str
    producer_id: int
    start_offset: int
    reason: str
    command: str

    def explanation(self) -> Explanation:
        ends = f"Add the ACL CLUSTER ALTER for {self._whom}, or run as a principal that has it: `{self.command}`."
        if not self.command:
            ends = "Ask the operators of these brokers to commit it, and run the write again then."
        return self._told(
            f"transaction {self.transactional_id!r} is committed, and the leader of {self.topic}-{self.partition} "
            f"still has it open (KAFKA-20734; producer id {self.producer_id}): read_committed readers see nothing from "
            f"offset {self.start_offset} on. The sink could not end it there: {self.reason}.",
            "Never abort it: its rows are committed, and kafka-transactions.sh abort would remove them permanently. "
            f"{ends}",
            data=DataState.NOT_RECORDED,
        )


class VerificationRefused(ExactlyOnceError):
    """`committed`: True if the micro-batch is committed, False if the check was made before its commit."""

    sink: str
    micro_batch_id: int
    topic: str
    partition: int
    code: int
    name: str
    committed: bool

    def explanation(self) -> Explanation:
        what = (
            "is committed, but the sink could not check that read_committed readers see its rows"
            if self.committed
            else "was not committed: the sink could not check if a commit would show rows of an earlier attempt"
        )
        return self._told(
            f"{self._run(self.sink, self.micro_batch_id)} {what} on {self.topic}-{self.partition}. "
            f"DescribeProducers was refused: {self.name} (error {self.code}).",
            f"Add the ACL TOPIC READ on {self.topic} for {self._whom}.",
            data=DataState.NOT_RECORDED if self.committed else DataState.NOTHING_VISIBLE,
        )


class DecisionPending(ExactlyOnceError):
    """`command`: the command that finishes the decision."""

    sink: str
    micro_batch_id: int
    slots: Sequence[int]
    command: str

    def explanation(self) -> Explanation:
        return self._told(
            f"nothing of sink {self.sink!r} was aborted: its micro-batch {self.micro_batch_id} is decided, and "
            f"{_slots(self.slots)} not committed yet.",
            f"Start the query or the write, or run: `{self.command}`.",
            data=DataState.DECIDED,
            known="Aborting them would leave the micro-batch visible in part.",
        )


class TransactionRefused(ExactlyOnceError):
    transactional_id: str
    api: str
    code: int
    name: str

    def explanation(self) -> Explanation:
        return self._told(
            f"{self.api} for {self.transactional_id!r} was refused: {self.name} (error {self.code}).",
            advice_on_refusal(self.name, self.principal),
            # During the commit the refusal may have come after the decision.
            data=DataState.OUTCOME_UNKNOWN if self.is_committing else DataState.NOTHING_VISIBLE,
        )


class ReceiptNotWritten(ExactlyOnceError):
    """The receipt is written before the decision, so nothing is visible yet."""

    path: str
    reason: str

    def __post_init__(self) -> None:
        self.path = redacted(self.path)

    _data = DataState.NOTHING_VISIBLE
    _happened = "the receipt {path} cannot be written, and nothing becomes visible without one: {reason}."
    _advice = "Correct that, or remove receiptsPath."


def advice_on_refusal(name: str, principal: str | None = None) -> str:
    """Return the advice for a broker's answer, by the name of its error code."""
    return _REFUSALS.get(name, "The broker's log says more.").replace("{principal}", named_principal(principal))


_REFUSALS = {
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "Add the ACL TRANSACTIONAL_ID WRITE and DESCRIBE, prefixed with the "
    "transactionalIdPrefix, for {principal}. Without it the sink cannot end open transactions either, and "
    "read_committed readers wait until the next start with the ACL, or kafka.transaction.timeout.ms: pykafka "
    "transactions describe --prefix <transactionalIdPrefix> lists them.",
    "GROUP_AUTHORIZATION_FAILED": "Add the ACL GROUP READ, prefixed with the transactionalIdPrefix, for {principal}.",
    "TOPIC_AUTHORIZATION_FAILED": "Add the ACL TOPIC READ on the commit topic for {principal}.",
    "INVALID_TRANSACTION_TIMEOUT": "kafka.transaction.timeout.ms is above the brokers' transaction.max.timeout.ms.",
    "UNKNOWN_TOPIC_OR_PARTITION": "The commit topic (option commitTopic) does not exist.",
    "OFFSET_METADATA_TOO_LARGE": "The brokers' offset.metadata.max.bytes is below 4096, the default.",
}
REFUSALS = tuple(_REFUSALS)
