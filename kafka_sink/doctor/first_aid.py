"""What a write asks of the doctor by itself, where it fails to reach brokers.

A write that works is not examined, so the doctor costs it nothing, and is not even imported: looking comes after the
failure, from the process that failed, by the same steps as `pykafka check`. It adds seconds to the
`max.block.ms` that are over.
"""

from __future__ import annotations

from kafka_sink.errors import BrokersUnreachable, KafkaSinkError, WorkerExhausted
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.text.quoting import shell_command

CHECK = "pykafka check"


def look_at_hosts(error: KafkaSinkError, config: ProducerConfig) -> None:
    """Has an error about brokers that were not reached say at which step that fails; leaves any other alone."""
    if not isinstance(error, BrokersUnreachable):
        return
    from kafka_sink.doctor.engine import examine_hosts, first_failure

    try:
        with exhaustion_named():
            verdict = first_failure(examine_hosts(config))
    except WorkerExhausted:
        # Its own looking must not hide the error.
        return
    if verdict is not None:
        error.examined(
            step=verdict.step,
            where=verdict.where,
            found=verdict.finding.found,
            remedy=verdict.finding.remedy,
            command=f"All steps, one by one: {command(config)}.",
        )


def command(config: ProducerConfig) -> str:
    """The command that takes the same steps, in backticks. Of the options only what anybody may see."""
    said = shell_command(CHECK, {"--bootstrap-servers": config.bootstrap_servers_text})
    if config.security.security_protocol == "PLAINTEXT":
        return f"`{said}`"
    return f"`{said} --preset FILE`, where FILE has the write's kafka.security, kafka.ssl and kafka.sasl options"
