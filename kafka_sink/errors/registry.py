"""Errors about the schema registry."""

from __future__ import annotations

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError
from kafka_sink.errors.quoting import quoted

__all__ = [
    "RegistryAnswerUnusable", "RegistryError", "RegistryExtraMissing", "RegistryRefused", "RegistryUnreachable",
    "SchemaIncompatible", "SchemaNotRegistered", "SchemaUnreadable",
]  # fmt: skip


class RegistryError(KafkaSinkError):
    """The schema registry did not answer, or refused. Raised on the driver before any row is sent.

    Executors raise RegistryExtraMissing too.
    """


class RegistryExtraMissing(RegistryError):
    """A package that encodes is missing. Executors raise it too, because they encode.

    `on_executor`: raised on an executor, when other tasks may have written already.
    """

    module: str
    reason: str
    on_executor: bool = False

    def explanation(self) -> Explanation:
        return Explanation(
            f"Python module {self.module} cannot be imported ({self.reason}).",
            DataState.SENT_AGAIN if self.on_executor else DataState.NOTHING_SENT,
            "On the driver and on executors: pip install 'pyspark-pykafka[registry]'. Or send the packages along with "
            "the job.",
        )


class RegistryUnreachable(RegistryError):
    url: str
    reason: str

    def __post_init__(self) -> None:
        self.reason = quoted(self.reason)

    def explanation(self) -> Explanation:
        return Explanation(
            f"the schema registry ({self.url}) could not be asked from the driver: {self.reason}.",
            DataState.NOTHING_SENT,
            "Check the url, that the driver can reach it, and its certificates.",
        )


class RegistryAnswerUnusable(RegistryError):
    """`reason`: what is wrong with the answer. It does not quote the answer."""

    url: str
    subject: str
    reason: str

    def explanation(self) -> Explanation:
        return Explanation(
            f"an answer of the schema registry ({self.url}) about subject {self.subject!r} cannot be used: "
            f"{self.reason}.",
            DataState.NOTHING_SENT,
            "Check that the url points to a schema registry, and check any proxy in between.",
        )


class RegistryRefused(RegistryError):
    subject: str
    status: int
    error_code: int
    reason: str

    def __post_init__(self) -> None:
        self.reason = quoted(self.reason)

    def explanation(self) -> Explanation:
        return Explanation(
            f"the schema registry refused a request about subject {self.subject!r}, with status {self.status}, code "
            f"{self.error_code}: {self.reason}.",
            DataState.NOTHING_SENT,
            _HINTS.get(self.status, "Ask the administrators of the registry."),
        )


_HINTS = {
    401: "Check basic.auth.user.info, or the other credentials in the registry's conf.",
    403: "Allow this user to read and write the subject; with auto.register.schemas=false reading is enough.",
    422: "The registry cannot read the schema: correct it.",
}


class SchemaIncompatible(RegistryError):
    """`version`: the subject's version that the schema was compared with."""

    subject: str
    version: str
    reason: str

    def __post_init__(self) -> None:
        self.reason = quoted(self.reason)

    def explanation(self) -> Explanation:
        return Explanation(
            f"the schema is not compatible with version {self.version} of subject {self.subject!r}, and was not "
            f"registered. The registry says: {self.reason}.",
            DataState.NOTHING_SENT,
            "Make new columns nullable and keep the old ones' names and types; or give a schema that fits both; or "
            "use another topic or subject strategy; or, when its readers are ready, change the subject's compatibility "
            "level.",
        )


class SchemaNotRegistered(RegistryError):
    subject: str
    reason: str

    def __post_init__(self) -> None:
        self.reason = quoted(self.reason)

    def explanation(self) -> Explanation:
        return Explanation(
            f"the schema registry has no such schema under subject {self.subject!r}: {self.reason}.",
            DataState.NOTHING_SENT,
            "Register it, or let it be registered: leave out auto.register.schemas=false and use.latest.version=true. "
            "Check the subject strategy as well.",
        )


class SchemaUnreadable(RegistryError):
    form: str
    reason: str

    def __post_init__(self) -> None:
        self.reason = quoted(self.reason)

    def explanation(self) -> Explanation:
        return Explanation(
            f"the {self.form} schema cannot be used: {self.reason}.",
            DataState.NOTHING_SENT,
            "Correct the schema that was given; without one it is derived from the columns.",
        )
