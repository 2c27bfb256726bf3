"""What follows on a micro-batch that failed: the end of the transactions that hold its rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.commit import two_phase
from kafka_sink.commit.markers import Ids
from kafka_sink.commit.runner import run
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.exactly_once.messages import PreparedCommitMessage
from kafka_sink.spark.exactly_once.plan import planned_config, sink_of
from kafka_sink.spark.last_run import recall
from kafka_sink.spark.stream_naming import stream_name
from kafka_sink.text.quoting import shell_command

log = logging.getLogger(__name__)


def abort_micro_batch(
    given: GivenOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    checkpoint: str | None = None,
) -> None:
    """Ends what a stream's micro-batch has left open. Does nothing where neither a message nor this driver's processes
    know which run that was. Never raises, as `abort_run`."""
    prepared = next((message for message in messages if isinstance(message, PreparedCommitMessage)), None)
    if prepared is not None:
        abort_run(given, prepared.sink.names.sink, prepared.generation)
        return
    try:
        name = stream_name(given, checkpoint)
    except ConfigError:  # who planned has said so
        return
    if name is not None and (generation := recall(name.sink, checkpoint)) is not None:
        abort_run(given, name.sink, generation)


def abort_run(given: GivenOptions, prefix: str, generation: Ids) -> None:
    """Leaves nothing open of a run, as far as it can be done now. Never raises: if it did, Spark would show its error
    instead of the one that failed the micro-batch, and whatever is left the next plan ends."""
    try:
        config = planned_config(given)
    except ConfigError:  # who planned has said so
        return
    try:
        with lease_admin_client(config.producer) as client:
            run(client, two_phase.abort(sink_of(config, prefix, client), generation))
    except KafkaSinkError as error:
        log.warning(
            "what this run of %r has open could not be ended, and read_committed readers wait for its transactions' "
            "time-out (kafka.transaction.timeout.ms) or the next start; `%s` tells which: %s",
            prefix,
            shell_command("pykafka transactions describe", {"--prefix": prefix}),
            error,
        )
