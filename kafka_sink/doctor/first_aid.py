"""The automatic examination of a write that cannot reach its brokers.

The failed process runs the steps of `pykafka check`, and adds the failing step to the error. This takes some seconds
more, after `kafka.max.block.ms` has passed. A write that works does not even import the doctor.
"""

from __future__ import annotations

from kafka_sink.errors import BrokersUnreachable, KafkaSinkError, WorkerExhausted
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.text.quoting import shell_command

CHECK = "pykafka check"


def look_at_hosts(error: KafkaSinkError, config: ClientConfig) -> None:
    """Add the failing step to a BrokersUnreachable error. Other errors are not changed."""
    if not isinstance(error, BrokersUnreachable):
        return
    from kafka_sink.doctor.engine import examine_hosts, first_failure

    try:
        with exhaustion_named():
            verdict = first_failure(examine_hosts(config))
    except WorkerExhausted:
        # A lack of memory or files in the examination must not hide the original error.
        return
    if verdict is not None:
        error.examined(
            step=verdict.step,
            where=verdict.where,
            found=verdict.finding.found,
            remedy=verdict.finding.remedy,
            command=f"All steps, one by one: {command(config)}.",
        )


def command(config: ClientConfig) -> str:
    """Return the command that takes the same steps, in backticks. It contains no secret options."""
    said = shell_command(CHECK, {"--bootstrap-servers": config.bootstrap_servers_text})
    if config.security.security_protocol == "PLAINTEXT":
        return f"`{said}`"
    return f"`{said} --preset FILE`, where FILE has the write's kafka.security, kafka.ssl and kafka.sasl options"
