"""Reads the records that receipts list, and checks that all records are in the topics and unchanged.

For each run of a receipt (one record batch) it reads the records by their offsets with confluent-kafka, encodes them
again, and compares the checksums. It prints one line, with the receipt, for each difference, and for each run that it
cannot compare. It changes nothing.

    MISSING      offsets without a record
    ALTERED      as many records as were sent, with other content
    HIDDEN       exactly-once: records behind an open transaction, which readers cannot see
    NO RECEIPT   a micro-batch between two others has no receipt: it was lost, or receiptsPath was not set then
    NOT A RECEIPT  a file that cannot be read, or was changed
    DELETED, COMPACTED, COUNTED, UNPLACED   records that can no longer be compared; the line gives the reason

examples:
    pykafka verify --receipts /data/receipts --bootstrap-servers localhost:9092
    pykafka verify --receipts s3://lake/receipts/query_id=8d6f... --preset conf/production.conf
    pykafka verify --receipts batch-00000000000000000042.parquet --bootstrap-servers localhost:9092
    pykafka verify --receipts /data/receipts --bootstrap-servers localhost:9092 --json | jq 'select(.found=="SUM")'

with --json one document a line. `found` is one of the words above, with _ for spaces. The other keys:
    of a run        topic, partition, offsets ([first, last] each), records, run_records, why, micro_batch_id, query_id,
                    file
    UNPLACED        topic, partition (null: unknown), records, file
    NO_RECEIPT      query_id, first, last: micro-batches
    NOT_A_RECEIPT   file, why
    SUM, at the end  result (EQUAL, DIFFERENT, NOT_ALL_COMPARED, NO_RECEIPTS), receipts, rows, runs, dropped, and
                    records: the count of records for each word

exit status: 0 all records are there and unchanged; 1 records are missing, altered or hidden, or a receipt is missing or
unreadable; 2 wrong usage; 3 no difference was found, but not all records could be compared
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from kafka_sink.cli.verification.checking import WRONG, Finding, Log, Record, Verdict, all_absent, check
from kafka_sink.cli.verification.receipts import Receipts, Run
from kafka_sink.command_line import add_json, add_options, answer, needs_confluent_kafka, options_of, parser_of, say
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.quoting import several
from kafka_sink.errors.redaction import reason_for, redacted
from kafka_sink.kafka.clock import within
from kafka_sink.options.config import sink_config
from kafka_sink.records.receipt_file import filesystem_of

if TYPE_CHECKING:
    from kafka_sink.cli.verification.cluster import Cluster, Topic

EQUAL, DIFFERENT, WRONG_USAGE, NOT_COMPARED = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        config = sink_config(options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers}))
        folder = args.receipts if "://" in args.receipts else os.path.abspath(args.receipts)
        receipts = Receipts(*filesystem_of(folder, within))
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    except (OSError, pa.ArrowException) as error:
        return say(f"error: {redacted(args.receipts)} cannot be read: {reason_for(args.receipts, error)}", WRONG_USAGE)
    try:
        from kafka_sink.cli.verification.cluster import Cluster
    except ModuleNotFoundError as missing:
        return say(needs_confluent_kafka(missing), WRONG_USAGE)
    try:
        with closing(Cluster(config.producer)) as cluster:
            return verify(receipts, cluster, as_json=args.json)
    except KafkaSinkError as error:
        return say(f"error: {error}", NOT_COMPARED)


# --- the command line -------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka verify")
    made.add_argument(
        "--receipts", required=True, metavar="PATH",
        help="the write's receiptsPath, a query's folder in it, or one file",
    )  # fmt: skip
    made.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="required if the preset names none")
    add_json(made, "one document a line")
    add_options(made, example="kafka.security.protocol=SSL")
    return made


# --- comparing --------------------------------------------------------------------------------------------------------


class Reader(Protocol):
    """The interface of `verification.cluster.PartitionReader`."""

    def log(self) -> Log: ...

    def records(self, first: int, last: int) -> Iterator[Record]: ...


def verify(receipts: Receipts, cluster: Cluster, *, as_json: bool) -> int:
    """Print the differences, then the summary. Return the exit status."""
    teller = partial(answer, as_json)
    for file, why in receipts.unreadable:
        teller({"found": "NOT_A_RECEIPT", "file": file, "why": why}, f"NOT A RECEIPT  {file}: {why}.")
    for gap in receipts.gaps:
        numbers = f"micro-batch {gap.first}" if gap.first == gap.last else f"micro-batches {gap.first} to {gap.last}"
        teller(
            {"found": "NO_RECEIPT", "query_id": gap.query_id, "first": gap.first, "last": gap.last},
            f"NO RECEIPT  for {numbers} of query {gap.query_id}, although earlier and later ones have receipts.",
        )
    records: Counter[Verdict] = Counter()
    for unplaced in receipts.unplaced():
        where = "" if unplaced.topic is None else f" in {unplaced.topic}-{unplaced.partition}"
        teller(
            {
                "found": "UNPLACED",
                "topic": unplaced.topic,
                "partition": unplaced.partition,
                "records": unplaced.record_count,
                "file": unplaced.file,
            },
            f"UNPLACED  {unplaced.record_count:,} records{where}: their offsets are unknown. {unplaced.file}",
        )
        records[Verdict.UNPLACED] += unplaced.record_count
    for finding in findings(receipts.runs(), cluster, cluster.topics(receipts.topics)):
        absent = finding.absent_count
        records[finding.verdict] += absent or finding.run.record_count
        # The checksum covers the whole run. If some records are missing, the others can only be counted.
        if absent:
            records[Verdict.COUNTED] += finding.run.record_count - absent
        if finding.verdict is not Verdict.EQUAL:
            teller(document_of(finding), line(finding))
    status, document, lines = summary(receipts, records)
    teller(document, *lines)
    return status


def findings(runs: Iterable[Run], cluster: Cluster, topics: Mapping[str, Topic]) -> Iterator[Finding]:
    """Yield one finding for each run. `runs` is sorted by partition and offset. Raises RecordsUnreadable."""
    for (committed, name, partition), of_partition in groupby(
        runs, key=lambda run: (run.is_exactly_once, run.topic, run.partition)
    ):
        topic = topics.get(name)
        if topic is None or partition >= topic.partition_count:
            why = "there is no such topic" if topic is None else "the topic has no such partition"
            yield from (all_absent(run, f"{why}, or DESCRIBE is not allowed") for run in of_partition)
            continue
        reader = cluster.partition(name, partition, committed=committed, is_compacted=topic.is_compacted)
        log = reader.log()
        for run in of_partition:
            if None not in (run.topic_id, topic.topic_id) and run.topic_id != topic.topic_id:
                yield all_absent(
                    run, f"the topic was created again, with id {topic.topic_id} instead of {run.topic_id}"
                )
                continue
            found = compare(run, reader, log)
            if found.absent:
                # The log may have grown, or its start may have moved, since it was read.
                log = reader.log()
                found = compare(run, reader, log)
            yield found


def compare(run: Run, reader: Reader, log: Log) -> Finding:
    first, last = max(run.base_offset, log.start), min(run.last_offset, log.visible_end - 1)
    return check(run, reader.records(first, last) if first <= last else (), log)


# --- the texts --------------------------------------------------------------------------------------------------------


def line(finding: Finding) -> str:
    run = finding.run
    ranges = offsets_of(finding)
    shown = several(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
    count = finding.absent_count or run.record_count
    return (
        f"{finding.verdict.name}  {run.topic}-{run.partition} offsets {shown} ({count:,} of the run's "
        f"{run.record_count:,} records): {finding.why}. Batch {run.batch_id} of query {run.query_id}, {run.file}"
    )


def offsets_of(finding: Finding) -> Sequence[tuple[int, int]]:
    """Return the ranges (first, last) of missing offsets, or the range of the whole run if none is missing."""
    return finding.absent or ((finding.run.base_offset, finding.run.last_offset),)


def document_of(finding: Finding) -> dict[str, Any]:
    run = finding.run
    return {
        "found": finding.verdict.name,
        "topic": run.topic,
        "partition": run.partition,
        "offsets": [list(each) for each in offsets_of(finding)],
        "records": finding.absent_count or run.record_count,
        "run_records": run.record_count,
        "why": finding.why,
        "micro_batch_id": run.batch_id,
        "query_id": run.query_id,
        "file": run.file,
    }


def summary(receipts: Receipts, records: Mapping[Verdict, int]) -> tuple[int, dict[str, Any], tuple[str, str]]:
    """Return the exit status, and the summary as a document and as lines."""
    status, result, words = judged(receipts, records)
    counts = {verdict.name: count for verdict, count in records.items() if count}
    dropped = f", {receipts.dropped_count:,} bad rows skipped" if receipts.dropped_count else ""
    counted = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    document = {
        "found": "SUM",
        "result": result,
        "receipts": receipts.files,
        "rows": receipts.row_count,
        "runs": receipts.run_count,
        "dropped": receipts.dropped_count,
        "records": counts,
    }
    found = f"{receipts.files:,} receipts, {receipts.row_count:,} rows in {receipts.run_count:,} runs{dropped}"
    return status, document, (f"{found}: {counted}." if counted else f"{found}.", words)


def judged(receipts: Receipts, records: Mapping[Verdict, int]) -> tuple[int, str, str]:
    """Return the exit status, the result, and the result in words."""
    if receipts.unreadable or receipts.gaps or any(records.get(verdict) for verdict in WRONG):
        return DIFFERENT, "DIFFERENT", "DIFFERENT: not all records are there and unchanged."
    if receipts.files == 0:
        return NOT_COMPARED, "NO_RECEIPTS", "There are no receipts."
    if any(count for verdict, count in records.items() if verdict is not Verdict.EQUAL):
        nothing_wrong = "no difference was found, but not all records could be compared."
        return NOT_COMPARED, "NOT_ALL_COMPARED", f"NOT ALL COMPARED: {nothing_wrong}"
    return EQUAL, "EQUAL", "EQUAL: all records are there and unchanged."
