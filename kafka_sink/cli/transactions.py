"""Shows and repairs the transactions of exactly-once sinks: open transactions, their age, and the rows that they hide.

    list      all sinks, or the sinks whose names begin with the prefix: last decision, open transactions
    describe  one sink: its decision, its slots, its open transactions
    status    the same, compared with the query's checkpoint and its receipts, and how far its Kafka sources are
    repair    commit the decided transactions, and end hanging transactions; does not disturb a running query
    abort     abort the open, undecided transactions; stops a running query, so it needs --take-over

`list`, `describe` and `status` change nothing. A sink's name in Kafka is its option transactionalIdPrefix, or comes
from the query's checkpoint: usually `pykafka-<query id>`. `list` shows all names, --checkpoint finds a query's name.
The name of a batch write begins with its prefix or `pykafka-batch`, and ends with a unique id.

examples:
    pykafka transactions list --bootstrap-servers localhost:9092
    pykafka transactions describe --bootstrap-servers localhost:9092 --prefix orders
    pykafka transactions status --bootstrap-servers localhost:9092 --checkpoint /data/checkpoints/orders
    pykafka transactions repair --preset conf/production.conf --prefix orders --dry-run
    pykafka transactions abort --bootstrap-servers localhost:9092 --prefix orders --take-over
    pykafka transactions list --bootstrap-servers localhost:9092 --prefix pykafka- --json | jq '.sinks[].open[]'

with --json each prints one document. Times are milliseconds since 1970. null: unknown or absent
    list      sinks: [as describe]; unreadable: [one error for each sink]; not_looked_at
    describe  sink, commit_topic, transaction_version; decision (null: none): micro_batch_id, query_id, decided_ms,
              generation, slots, carried_out; decision_forgotten; slots: slot, pinned, visible, marker_micro_batch_id,
              transaction; open: transactional_id, slot, producer_id, producer_epoch, state, prepared, decided,
              start_time_ms, timeout_ms, holds; hanging: transactional_id, topic, partition, start_offset, committed;
              topics_gone; topics_created_again: topic, old_id, new_id; not_looked_at: topic, partition, why
    status    as describe, and checkpoint: query_id, planned, recorded, compared; sources: source, micro_batch_id,
              recorded, topics (null: not Kafka): topic, behind, planned, not_looked_at, gone, partitions: partition,
              position, behind, planned, behind_open_transactions, deleted, ahead; sources_error: why sources is null;
              receipt (null: none): micro_batch_id, rows, record_batches, bytes, acknowledged_ms, or error
    repair    dry_run; commit, end: transactions that were, or with --dry-run would be, committed or ended; refused:
              with why; after: as describe
    abort     sink, took_over, aborted; or refused, and open: the transactions that --take-over would abort

exit status: 0 done, or nothing to do; 1 failed, or only partly done; 2 wrong usage; 3 refused, and nothing was changed
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from kafka_sink.cli import transactions_json as documents
from kafka_sink.cli import transactions_text as text
from kafka_sink.cli.checkpoint import (
    Checkpoint,
    SourceProgress,
    compared,
    last_receipt,
    progress_of,
    read_checkpoint,
    read_sources,
)
from kafka_sink.cli.transactions_json import Document
from kafka_sink.command_line import (
    add_json,
    add_options,
    answer,
    examples_of,
    filled,
    options_of,
    parser_of,
    say,
    tell,
    tell_json,
)
from kafka_sink.commit import open_transactions
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.commit.handover import Sink, command
from kafka_sink.commit.hanging import Hanging
from kafka_sink.commit.markers import Names
from kafka_sink.commit.open_transactions import Seen, SinkTransactions
from kafka_sink.commit.runner import run
from kafka_sink.commit.stream_name import LocalCheckpoint, began_as, plain_name, spelled_name
from kafka_sink.errors import (
    ConfigError,
    DecisionPending,
    KafkaSinkError,
    MissingOption,
    TransactionRefused,
    UnreadableState,
)
from kafka_sink.errors.quoting import several
from kafka_sink.errors.redaction import reason_for
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE
from kafka_sink.options.cautions import warn_once
from kafka_sink.options.config import SinkConfig, sink_config

OK, FAILED, WRONG_USAGE, REFUSED = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        config = configuration(args)
        warn_once(config.producer.security)
        with closing(AdminClient(config.producer)) as client:
            client.require(EXACTLY_ONCE)
            subcommand: Callable[[Session], int] = args.subcommand
            return subcommand(named(Session(client, config, args)))
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    except DecisionPending as error:
        return say(f"error: {error}", REFUSED)
    except KafkaSinkError as error:
        return say(f"error: {error}", FAILED)


# --- the command line -------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka transactions")
    subcommands = made.add_subparsers(required=True, metavar="list | describe | status | repair | abort")
    for name, subcommand in (
        ("list", list_), ("describe", describe), ("status", status), ("repair", repair), ("abort", abort)
    ):  # fmt: skip
        what = " ".join((subcommand.__doc__ or "").split())
        of = subcommands.add_parser(
            name,
            description=filled(what),
            help=what.split(".")[0],
            epilog=examples_of(__doc__, f"pykafka transactions {name}"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        of.set_defaults(subcommand=subcommand)
        prefix_help = "the start of the sinks' names" if subcommand is list_ else "the sink's name"
        of.add_argument("--prefix", metavar="NAME", help=prefix_help)
        of.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="required if the preset names none")
        of.add_argument("--commit-topic", metavar="NAME", help="the sink's commitTopic, if it is not the default")
        add_options(of, example="kafka.max.block.ms=10000")
        add_json(of, "one document")
        if subcommand is not abort:
            of.add_argument(
                "--topic", action="append", metavar="NAME",
                help="look for open transactions on this topic only, repeatable; default: all topics",
            )  # fmt: skip
        if subcommand is not list_:
            of.add_argument(
                "--checkpoint", required=subcommand is status, metavar="LOCATION",
                help="the query's checkpointLocation, as in its option; gives the sink's name",
            )  # fmt: skip
        if subcommand is status:
            of.add_argument("--receipts", metavar="PATH", help="the query's receiptsPath, if it is set")
        if subcommand is repair:
            of.add_argument("--dry-run", action="store_true", help="print what would be done, and change nothing")
        if subcommand is abort:
            of.add_argument(
                "--take-over", action="store_true",
                help="abort, even if this stops a running query with this prefix (DriverFenced)",
            )  # fmt: skip
    return made


def configuration(args: argparse.Namespace) -> SinkConfig:
    """Return the sink's configuration as the command line gives it. Raises ConfigError."""
    over = {
        "kafka.bootstrap.servers": args.bootstrap_servers,
        "commitTopic": args.commit_topic,
        "transactionalIdPrefix": args.prefix,
    }
    config = sink_config(options_of(args, over))
    if config.transactional_id_prefix is not None or args.subcommand is list_:
        return config
    if args.checkpoint is None:
        hint = "name the sink with --prefix or --checkpoint. `pykafka transactions list` shows all names."
        raise MissingOption(option="transactionalIdPrefix", hint=hint)
    return replace(config, transactional_id_prefix=sink_of(args.checkpoint))


def sink_of(location: str) -> str:
    """Return the name of the sink of the query with the checkpoint at `location`, or the one that earlier builds gave
    it. Raises CheckpointUnusable."""
    checkpoint = LocalCheckpoint.at(location)
    return (checkpoint and checkpoint.name()) or spelled_name(location)


@dataclass(frozen=True, slots=True)
class Session:
    """One run of the command. `partitions` adds partitions without a leader to `leaderless`."""

    client: AdminClient
    config: SinkConfig
    args: argparse.Namespace
    leaderless: list[TopicPartition] = field(default_factory=list)

    @property
    def json(self) -> bool:
        """True if the user asked for a document instead of text."""
        asked: bool = self.args.json
        return asked

    @property
    def prefix(self) -> str:
        """The prefix of the sinks' names; empty for all sinks."""
        return self.config.transactional_id_prefix or ""

    def sink(self, name: str) -> Sink:
        return Sink(
            names=Names(name, self.config.commit_topic),
            timeout_ms=self.config.transaction_timeout_ms,
            transaction_version=self.client.transaction_version(),
            bootstrap_servers=self.config.producer.bootstrap_servers_text,
        )

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions to look at. Print the partitions that have no leader."""
        topics = getattr(self.args, "topic", None)
        led, leaderless = self.client.partitions(None if topics is None else tuple(topics))
        self.leaderless.extend(leaderless)
        if leaderless and not self.json:
            tell(f"Not looked at, because they have no leader now: {several(map(text.named, leaderless))}.")
        return led

    def look(self, prefix: str, partitions: Sequence[TopicPartition]) -> Seen:
        """Return what brokers show of the sink. Print the partitions that could not be read."""
        seen = run(self.client, open_transactions.look(prefix, partitions))
        if not self.json:
            text.tell_refused(seen)
        return seen

    def describe_sink(self, sink: Sink, partitions: Sequence[TopicPartition]) -> SinkTransactions:
        return run(self.client, open_transactions.describe_sink(sink, self.look(f"{sink.names.sink}.", partitions)))

    def document_of(self, found: SinkTransactions) -> Document:
        """Return the document of `describe`."""
        return documents.description(found, *changed_topics(self.client, found), self.leaderless)

    def tell_decision(self, found: SinkTransactions) -> None:
        text.tell_decision(found)
        text.tell_topics(*changed_topics(self.client, found))


def named(session: Session) -> Session:
    """Return the session of the sink that Kafka knows, if the query's checkpoint is elsewhere. Raises
    TransactionRefused."""
    location: str | None = getattr(session.args, "checkpoint", None)
    if location is None or session.args.prefix is not None or LocalCheckpoint.at(location) is not None:
        return session
    name = plain_name(location)
    if name == session.prefix or run(session.client, began_as(session.sink(session.prefix), None, otherwise=name)):
        return session
    return replace(session, config=replace(session.config, transactional_id_prefix=name))


# --- the subcommands --------------------------------------------------------------------------------------------------


def list_(session: Session) -> int:
    """Lists sinks: the last decision and the open transactions of each. Changes nothing."""
    seen = session.look(session.prefix, session.partitions())
    found, unreadable, busy = [], [], seen.busy_sinks()
    for name in sorted({*busy, *seen.sinks()}):
        try:
            of_sink = run(session.client, open_transactions.describe_sink(session.sink(name), seen))
            # A sink without open transactions and decision is a finished batch write, or another program's.
            if name in busy or of_sink.decision is not None:
                found.append(of_sink)
        except (TransactionRefused, UnreadableState) as error:
            # Another program may have written under that name. The other sinks are still listed.
            unreadable.append(error)
    if session.json:
        tell_json(
            {
                "sinks": [documents.sink(each) for each in found],
                "unreadable": [str(why) for why in unreadable],
                "not_looked_at": documents.not_looked_at(session.leaderless, seen.refused),
            }
        )
    else:
        text.tell_sinks(found)
        text.tell_open(found)
        for each in found:
            text.tell_what_to_do(each)
    for why in unreadable:
        say(f"error: {why}", FAILED)
    return FAILED if unreadable else OK


def describe(session: Session) -> int:
    """Describes one sink: its decision, its visible slots, its open transactions and the rows that they hide. Changes
    nothing."""
    found = session.describe_sink(session.sink(session.prefix), session.partitions())
    if session.json:
        tell_json(session.document_of(found))
        return OK
    session.tell_decision(found)
    text.tell_sink(found)
    return OK


def status(session: Session) -> int:
    """Compares a query's sink with its checkpoint, and describes the sink. Shows its decision, its visible slots, its
    open transactions and the rows that they hide. Shows how far the query's Kafka sources, Spark's or pykafka's, are
    behind the ends of their topics, as offsets. The topics are those of this cluster. Changes nothing."""
    try:
        checkpoint = read_checkpoint(session.args.checkpoint)
    except OSError as error:
        return say(f"error: {session.args.checkpoint} is not a readable checkpoint: {error}", FAILED)
    found = session.describe_sink(session.sink(session.prefix), session.partitions())
    receipts_path, receipt = session.args.receipts, None
    if receipts_path is not None:
        receipt = last_receipt(receipts_path, checkpoint.query_id)
    if session.json:
        tell_json(
            session.document_of(found)
            | {"checkpoint": documents.checkpoint(checkpoint, found.decision), "receipt": documents.receipt(receipt)}
            | documents.sources(sources_of(session, checkpoint))
        )
        return OK
    session.tell_decision(found)
    tell(f"Checkpoint of query {checkpoint.query_id}: {compared(checkpoint, found.decision)}")
    if receipts_path is not None:
        text.tell_receipt(receipts_path, receipt)
    text.tell_sources(sources_of(session, checkpoint))
    text.tell_sink(found)
    return OK


def repair(session: Session) -> int:
    """Commits the decided transactions, and ends hanging transactions that are committed. A hanging transaction is open
    on a leader, although its coordinator says that it is over. Does not disturb a running query. Needs the ACL
    TRANSACTIONAL_ID WRITE, and CLUSTER ALTER for hanging transactions."""
    sink, partitions = session.sink(session.prefix), session.partitions()
    before, dry_run = session.describe_sink(sink, partitions), session.args.dry_run
    if not session.json:
        session.tell_decision(before)
    after, refused = before, dict[Hanging, str]()
    if not dry_run:
        after, refused = run(session.client, open_transactions.finish_manually(sink, partitions))
    done = dry_run or not (after.hanging or after.missing or after.unknown)
    if session.json:
        committed = [each for each in before.decided if dry_run or each.slot not in after.missing]
        ended = [each for each in before.hanging if dry_run or each not in after.hanging]
        tell_json(
            {
                "dry_run": dry_run,
                "commit": [documents.open_transaction(each) for each in committed],
                "end": [documents.hanging_transaction(each, committed=True) for each in ended],
                "refused": [
                    documents.hanging_transaction(each, committed=True) | {"why": reason}
                    for each, reason in refused.items()
                ],
                "after": session.document_of(after),
            }
        )
    elif dry_run:
        text.tell_what_would_be_done(before)
    else:
        text.tell_what_was_done(before, after)
        text.tell_what_is_left(after, refused, done=done)
    return OK if done else FAILED


def abort(session: Session) -> int:
    """Aborts open transactions that were not decided, as the next start of the query would. First it takes over the
    sink, so that a running query cannot decide meanwhile: that query stops with DriverFenced. Refused while decided
    transactions are still open."""
    sink = session.sink(session.prefix)
    found = session.describe_sink(sink, ())
    if found.decided:
        assert found.decision is not None
        raise DecisionPending(
            sink=sink.names.sink,
            micro_batch_id=found.decision.micro_batch_id,
            slots=[each.slot for each in found.decided if each.slot is not None],
            command=command(sink, "repair"),
        )
    if not found.open:
        document = {"sink": sink.names.sink, "took_over": False, "aborted": []}
        answer(session.json, document, f"Sink {sink.names.sink} has no open transaction.")
        return OK
    if not session.args.take_over:
        if session.json:
            opened = [documents.open_transaction(each) for each in found.open]
            tell_json({"sink": sink.names.sink, "took_over": False, "refused": True, "open": opened})
        else:
            text.tell_open([found])
            tell("", "These would be aborted: their rows are never visible, and the query writes them again.")
        return say(
            f"refused: nothing was changed. A running query with prefix {sink.names.sink} would stop with "
            "DriverFenced, and its next start would write the micro-batch again. To abort, add --take-over.",
            REFUSED,
        )
    # The commit topic holds the decision that protects transactions from the abort, so it must exist first.
    ensure_commit_topic(session.client, sink.names.commit_topic)
    aborted = run(session.client, open_transactions.abort_manually(sink))
    answer(
        session.json,
        {"sink": sink.names.sink, "took_over": True, "aborted": [documents.ended(each) for each in aborted]},
        f"Took over sink {sink.names.sink}: a query that runs with this prefix stops with DriverFenced.",
        *map(text.aborted, aborted),
    )
    return OK


def changed_topics(client: AdminClient, found: SinkTransactions) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """Return topics of the decision that were created again (old and new id), and deleted topics (old id)."""
    decision = found.decision
    if decision is None or not decision.topic_ids:
        return {}, {}
    topics = tuple(decision.topic_ids)
    created_again = decision.created_again(client.topic_ids(topics))
    gone = {
        topic: decision.topic_ids[topic]
        for topic, metadata in client.topics(topics).items()
        if metadata.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    return created_again, gone


def sources_of(session: Session, checkpoint: Checkpoint) -> list[SourceProgress] | str:
    """Return how far the query's sources are, or why that is unknown."""
    try:
        offsets = read_sources(session.args.checkpoint, checkpoint)
        return progress_of(session.client, checkpoint, offsets)
    except OSError as error:
        return f"the checkpoint's offsets cannot be read: {reason_for(session.args.checkpoint, error)}"
    except KafkaSinkError as error:
        return str(error.of_read())
