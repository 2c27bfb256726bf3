"""Prints the records of a topic as JSON lines, or counts them. It reads with confluent-kafka and changes nothing.

Records go to stdout, one a line: partition, offset, timestamp (milliseconds since 1970), key, headers, value. The count
goes to stderr. The command ends when it has read every partition to its end. A key, value or header that is not UTF-8
is shown as {"hex": "00ff"}.

examples:
    pykafka read --bootstrap-servers localhost:9092 --topic orders --limit 5
    pykafka read --bootstrap-servers localhost:9092 --topic orders --quiet --expect-records 1000
    pykafka read --bootstrap-servers localhost:9092 --topic orders --quiet --json | jq .records
    pykafka read --preset conf/production.conf --topic orders --isolation read_uncommitted

exit status: 0 read to the end, or to the limit; 1 it could not be read, or --expect-records is another number;
2 wrong usage
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from kafka_sink.cli.verification.checking import Record
from kafka_sink.command_line import add_json, add_options, needs_confluent_kafka, options_of, parser_of, say, tell_json
from kafka_sink.errors import BrokersUnreachable, ConfigError, KafkaSinkError
from kafka_sink.errors.quoting import json_line
from kafka_sink.options.config import sink_config

if TYPE_CHECKING:
    from kafka_sink.cli.verification.cluster import Cluster, Topic

OK, FAILED, WRONG_USAGE = 0, 1, 2
ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    try:
        config = sink_config(options_of(args, {"kafka.bootstrap.servers": args.bootstrap_servers}))
    except ConfigError as error:
        return say(f"error: {error}", WRONG_USAGE)
    try:
        from kafka_sink.cli.verification.cluster import Cluster
    except ModuleNotFoundError as missing:
        return say(needs_confluent_kafka(missing), WRONG_USAGE)
    count = 0
    try:
        with closing(Cluster(config.producer)) as cluster:
            topic = cluster.topics([args.topic]).get(args.topic)
            if topic is None:
                return say(f"error: topic {args.topic!r} does not exist, or this principal may not DESCRIBE it", FAILED)
            for partition, record in records(cluster, topic, args):
                count += 1
                if not args.quiet:
                    print(line_of(partition, record))
                if count == args.limit:
                    break
    except BrokersUnreachable as error:
        servers, waited_s = error.bootstrap_servers, error.waited_ms / 1000
        return say(
            f"error: no broker of {servers} answered within {waited_s:g} s; last: {error.last_error}. "
            "`pykafka check` shows the step that fails.",
            FAILED,
        )
    except KafkaSinkError as error:
        return say(f"error: {error}", FAILED)
    if args.quiet and args.json:
        tell_json({"topic": args.topic, "records": count})
    if args.expect_records not in (None, count):
        return say(f"DIFFERENT: {count:,} records, {args.expect_records:,} expected", FAILED)
    return say(f"{count:,} records", OK)


def parser() -> argparse.ArgumentParser:
    made = parser_of(__doc__, "pykafka read")
    made.add_argument("--bootstrap-servers", metavar="HOST:PORT,...", help="required if the preset names none")
    made.add_argument("--topic", required=True, metavar="NAME")
    made.add_argument("--isolation", choices=ISOLATION_LEVELS, default="read_committed", help="default: %(default)s")
    made.add_argument("--limit", type=int, metavar="N", help="end after N records")
    made.add_argument("--quiet", action="store_true", help="print only the number of records")
    add_json(made, "records are always JSON; with --quiet one document with topic and records (their number)")
    made.add_argument("--expect-records", type=int, metavar="N", help="exit status 1 if there are more or fewer")
    add_options(made, example="kafka.security.protocol=SSL")
    return made


def records(cluster: Cluster, topic: Topic, args: argparse.Namespace) -> Iterator[tuple[int, Record]]:
    """Yield (partition, record), partition by partition, in the order of offsets.

    The end of a partition is taken when its reading starts. Raises RecordsUnreadable.
    """
    for number in range(topic.partition_count):
        committed = args.isolation == "read_committed"
        partition = cluster.partition(args.topic, number, committed=committed, is_compacted=topic.is_compacted)
        log = partition.log()
        if log.start < log.visible_end:
            yield from ((number, record) for record in partition.records(log.start, log.visible_end - 1))


def line_of(partition: int, record: Record) -> str:
    shown = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "value": _text(record.value),
    }
    return json_line(shown)


def _text(part: bytes | None) -> str | dict[str, str] | None:
    if part is None:
        return None
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"hex": part.hex()}
