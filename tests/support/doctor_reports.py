"""What the doctor finds for options of a write: in time, and without a password."""

import time

from kafka_sink.doctor.report import Report, Verdict
from kafka_sink.doctor.writing import examine
from kafka_sink.options.config import sink_config
from secure_kafka import PASSWORDS

# Half of what a client would wait for a cluster that it does not reach.
ANSWER_S = 30
CANARY = "wrong-canary"


def examined(options: dict[str, str]) -> Report:
    started = time.monotonic()
    report = examine(sink_config(options))
    assert time.monotonic() - started < ANSWER_S
    shown = repr(report) + report._repr_html_()
    assert not any(password in shown for password in (*PASSWORDS.values(), CANARY))
    return report


def failure_found(options: dict[str, str]) -> Verdict:
    """Return the one thing that is wrong; what needs it was skipped."""
    report = examined(options)
    assert not report.ok
    (failure,) = report.failures
    return failure


def verdict_of(report: Report, step: str) -> Verdict:
    (verdict,) = (each for each in report.verdicts if each.step == step)
    return verdict
