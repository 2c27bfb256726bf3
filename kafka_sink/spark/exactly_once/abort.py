"""Aborts a failed micro-batch: ends the transactions of its rows."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from kafka_sink.commit import two_phase
from kafka_sink.commit.markers import Ids
from kafka_sink.commit.runner import run
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.errors.quoting import shell_command
from kafka_sink.kept import lease_admin_client
from kafka_sink.options.config import GivenOptions
from kafka_sink.spark.exactly_once.messages import PreparedCommitMessage
from kafka_sink.spark.exactly_once.plan import planned_config, sink_of
from kafka_sink.spark.exactly_once.stream_state import recall, stream_name

log = logging.getLogger(__name__)

# Spark tells the user why the micro-batch failed only after the abort. The next plan ends what is left.
ABORT_MS = 60_000


def abort_micro_batch(
    given: GivenOptions, messages: Sequence[WriterCommitMessage | None], *, checkpoint: str | None = None
) -> None:
    """End the open transactions of a stream's micro-batch. Never raises, like `abort_run`.

    Does nothing if neither a message nor `last_run` has the generation of the run.
    """
    prepared = next((message for message in messages if isinstance(message, PreparedCommitMessage)), None)
    if prepared is not None:
        abort_run(given, prepared.sink_name, prepared.generation)
        return
    try:
        name = stream_name(given, checkpoint)
    except ConfigError:  # the planning process has raised it
        return
    if name is not None and (generation := recall(name.sink, checkpoint)) is not None:
        abort_run(given, name.sink, generation)


def abort_run(given: GivenOptions, prefix: str, generation: Ids) -> None:
    """End the open transactions of a run, if the cluster answers. The next plan ends those that remain.

    Never raises: Spark would show this error instead of the error that failed the micro-batch.
    """
    try:
        config = planned_config(given)
    except ConfigError:  # the planning process has raised it
        return
    try:
        with lease_admin_client(config.producer, has_worked=True) as client, client.within(ABORT_MS):
            run(client, two_phase.abort(sink_of(config, prefix, client), generation))
    except KafkaSinkError as error:
        log.warning(
            "the open transactions of this run of %r could not be ended. read_committed readers wait until the "
            "transactions time out (kafka.transaction.timeout.ms) or the next start ends them; `%s` lists them: %s",
            prefix,
            shell_command("pykafka transactions describe", {"--prefix": prefix}),
            error,
        )
