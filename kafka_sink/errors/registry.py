"""Errors about the schema registry."""

from __future__ import annotations

from kafka_sink.errors.base import DataState, Explanation, KafkaSinkError, WriteKind
from kafka_sink.errors.quoting import quoted

__all__ = [
    "RegistryAnswerUnusable", "RegistryError", "RegistryExtraMissing", "RegistryRefused", "RegistryUnreachable",
    "SchemaIncompatible", "SchemaNotRegistered", "SchemaUnreadable",
]  # fmt: skip


class RegistryError(KafkaSinkError):
    """The schema registry did not answer, or refused. Raised on the driver before any row is sent.

    Executors raise RegistryExtraMissing too, and those that read ask the registry for the schemas of records.
    """

    reason: str

    _data = DataState.NOTHING_SENT

    def __post_init__(self) -> None:
        # Behind it is a full stop of ours.
        self.reason = quoted(self.reason).removesuffix(".") or "no reason was given"


class RegistryExtraMissing(RegistryError):
    """A package that encodes is missing. Executors raise it too, because they encode.

    `on_executor`: raised on an executor, when other tasks may have written already.
    """

    module: str
    on_executor: bool = False

    def explanation(self) -> Explanation:
        return self._told(
            f"Python module {self.module} cannot be imported ({self.reason}).",
            "On the driver and on executors: pip install 'pyspark-pykafka[registry]'. Or send the packages along with "
            "the job.",
            data=DataState.SENT_AGAIN if self.on_executor else DataState.NOTHING_SENT,
        )


class RegistryUnreachable(RegistryError):
    """Raised on the driver, and by a read on executors too."""

    url: str

    _happened = "the schema registry ({url}) could not be asked: {reason}."
    _advice = (
        "Check the url, that the driver can reach it, for a read executors as well, its certificates and bearer.auth.*."
    )


class RegistryAnswerUnusable(RegistryError):
    """`reason`: what is wrong with the answer. It does not quote the answer."""

    url: str
    subject: str

    _happened = "an answer of the schema registry ({url}) about subject {subject!r} cannot be used: {reason}."
    _advice = "Check that the url points to a schema registry, and check any proxy in between."


class RegistryRefused(RegistryError):
    """`error_code`: the registry's own, or -1 if its answer has none."""

    subject: str
    status: int
    error_code: int

    def explanation(self) -> Explanation:
        code = "" if self.error_code == -1 else f", code {self.error_code}"
        return self._told(
            f"the schema registry refused a request about subject {self.subject!r}, with status {self.status}{code}: "
            f"{self.reason}.",
            self._what_to_do,
        )

    @property
    def _what_to_do(self) -> str:
        if self.status == 403 and self.write_kind is WriteKind.READ:
            return "Allow this user to read the subject."
        return _HINTS.get(self.status, "Ask the administrators of the registry.")


_HINTS = {
    401: "Check basic.auth.user.info or bearer.auth.* in the registry's conf. A token may have expired.",
    403: "Allow this user to read and write the subject; with auto.register.schemas=false reading is enough.",
    404: "Check that the url points to a schema registry.",
    422: "The registry cannot read the schema: correct it.",
}


class SchemaIncompatible(RegistryError):
    """`version`: the subject's version that the schema was compared with."""

    subject: str
    version: str

    _happened = (
        "the schema is not compatible with version {version} of subject {subject!r}, and was not registered. The "
        "registry says: {reason}."
    )
    _advice = (
        "Make new columns nullable and keep the old ones' names and types; or give a schema that fits both; or use "
        "another topic or subject strategy; or, when its readers are ready, change the subject's compatibility level."
    )


class SchemaNotRegistered(RegistryError):
    subject: str

    _happened = "the schema registry has no such schema under subject {subject!r}: {reason}."
    _advice = "{_what_to_do}"

    @property
    def _what_to_do(self) -> str:
        if self.write_kind is WriteKind.READ:
            return (
                "Check topic, subject, is_key, schema_id and version, and that the url leads to the topic's registry."
            )
        return (
            "Register it, or let it be registered: leave out auto.register.schemas=false and use.latest.version=true. "
            "Check the subject strategy as well."
        )


class SchemaUnreadable(RegistryError):
    """`subject`: the subject whose schema it is. None for a schema that the user gave."""

    form: str
    subject: str | None = None

    def explanation(self) -> Explanation:
        whose = "that was given" if self.subject is None else f"of subject {self.subject!r}"
        return self._told(f"the {self.form} schema {whose} cannot be used: {self.reason}.", self._what_to_do)

    @property
    def _what_to_do(self) -> str:
        is_read = self.write_kind is WriteKind.READ
        if self.subject is None:
            without = "the subject's latest is used" if is_read else "it is derived from the columns"
            return f"Correct the schema that was given; without one {without}."
        if is_read:
            return "Correct the subject's schema; or give a text (schema), or another schema_id or version."
        return "Correct the subject's latest schema; or give a schema, without use.latest.version=true."
