"""Every error survives pickling, and says the three things to every kind of write; what a worker lacks is named; and
what a user's Python finds in the text of Spark's exceptions."""

import copy
import errno
import http.client
import inspect
import os
import pickle
import re
import socket
import sys
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from effort import each
from kafka_sink import error_of, errors
from kafka_sink.broker import errors as broker_errors
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.cli.explain import ERRORS
from kafka_sink.errors import DataState, InvalidOption, KafkaSinkError, MissingOption, ProtocolError, WriteKind
from kafka_sink.errors.base import words
from kafka_sink.errors.exhaustion import exhausted, exhaustion_named, is_exhaustion
from kafka_sink.errors.failures import told_by_spark, told_to_spark
from kafka_sink.kafka.auth.oauth import TokenEndpoint
from kafka_sink.kafka.net import resolver
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.tls import TlsSettings, client_context
from kafka_sink.kafka.net.transport import Address, Disconnected
from kafka_sink.spark.exactly_once.plan import in_transaction_errors

MADE_UP = {
    "Mapping[str, int]": {"HeaderKeyNull": 7}, "Sequence[tuple[int | None, int]]": [(3, 4)],
    "float": 0.25, "bool": True,
}  # fmt: skip


def example(cls: type[KafkaSinkError], *, is_whole: bool = True) -> KafkaSinkError:
    """The facts have the right types, by the signature; a flag that has a default has that. Unless `is_whole` every
    fact that has a default has that."""
    facts = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        annotation = str(parameter.annotation)
        if parameter.default is not parameter.empty and (annotation == "bool" or not is_whole):
            continue
        text = [f"<{name}>"] if annotation == "Sequence[str]" else f"<{name}>"
        number = 7 if annotation.startswith("int") else [3] if "Sequence[int]" in annotation else text
        facts[name] = MADE_UP.get(annotation, number)
    return cls(**facts)


def tree(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    yield base
    for cls in base.__subclasses__():
        yield from tree(cls)


# Tests elsewhere have errors of their own.
CLASSES = [cls for cls in tree(KafkaSinkError) if cls.__module__.startswith("kafka_sink.")]
# Raised as they are, with facts of their own; abstract ones are only caught.
LEAVES = [cls for cls in CLASSES if not any(each in CLASSES for each in cls.__subclasses__())]
RAISED = [cls for cls in LEAVES if not issubclass(cls, LocalKafkaError | ProtocolError)]


@each("cls", CLASSES)
def test_a_stack_trace_names_the_module_that_users_import(cls: type[KafkaSinkError]) -> None:
    module = broker_errors if issubclass(cls, LocalKafkaError) else errors
    assert getattr(module, cls.__name__) is cls
    if cls in LEAVES:
        (line,) = traceback.format_exception_only(example(cls))[:1]
        assert line.startswith(f"{module.__name__}.{cls.__name__}: ")


HOSTILE = "\x1b[2J\r\nERROR all is lost\u202e" + "x" * 8_000_000


@each("cls", LEAVES)
def test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short(cls: type[KafkaSinkError]) -> None:
    error = cls(**{name: hostile(parameter) for name, parameter in inspect.signature(cls).parameters.items()})
    # The end of a program's output is shown in its lines, and there is one of it.
    assert all(line.isprintable() for line in str(error).split("\n"))
    assert "\n" not in str(error) or any(name.endswith("_tail") for name in vars(error))
    assert len(pickle.dumps(error)) < 100_000
    for name, fact in vars(error).items():
        for text in fact if isinstance(fact, tuple | list | dict) else [fact]:
            assert not isinstance(text, str) or name.endswith("_tail") or text.isprintable()


def hostile(parameter: inspect.Parameter) -> object:
    annotation = str(parameter.annotation)
    if parameter.name == "command":
        return "of shell_command"
    if annotation in MADE_UP:
        return {HOSTILE: 7} if "Mapping" in annotation else MADE_UP[annotation]
    text = [HOSTILE] * 3 if "Sequence[str]" in annotation else HOSTILE
    return 7 if annotation.startswith("int") else [3] if "Sequence[int]" in annotation else text


def test_what_an_examination_finds_is_printed_as_it_reads() -> None:
    error = errors.BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=1, last_error=HOSTILE)
    error.of_principal(HOSTILE).in_transaction(committing=True, write_kind=WriteKind.BATCH, repair="repair\n")
    error.examined(step="dns", where=HOSTILE, found=HOSTILE, remedy=HOSTILE, command="again")
    assert str(error).isprintable() and len(str(error)) < 20_000


@each("cls", LEAVES)
def test_an_error_keeps_its_facts_through_pickling_and_copying(cls: type[KafkaSinkError]) -> None:
    error = example(cls).of_principal("User:alice")
    error.in_transaction(committing=True, write_kind=WriteKind.BATCH, repair="<repair>")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert (type(again), str(again), vars(again)) == (cls, str(error), vars(error))


SENT_AGAIN = words(DataState.SENT_AGAIN, None).data
NOTHING_VISIBLE = words(DataState.NOTHING_VISIBLE, WriteKind.STREAM).data
UNKNOWN = words(DataState.OUTCOME_UNKNOWN, WriteKind.STREAM).data


def test_a_failed_batch_write_says_what_the_topic_has_now_and_what_running_it_again_does() -> None:
    parts = "rows are in the topic", "others may be missing", "run a failed batch write again", "in the topic twice"
    assert all(part in SENT_AGAIN for part in parts)


@each("cls", RAISED)
def test_in_a_transaction_no_message_says_that_rows_will_be_there_twice(cls: type[KafkaSinkError]) -> None:
    was_to_be_sent_again = SENT_AGAIN in str(example(cls))
    before, amid = (str(example(cls).in_transaction(committing=committing)) for committing in (False, True))
    assert "in the topic twice" not in before + amid
    # Refused in mid-commit, it may have been after the decision.
    if was_to_be_sent_again or cls is errors.TransactionRefused:
        assert NOTHING_VISIBLE in before and UNKNOWN in amid


def test_what_an_exactly_once_error_knows_decides_what_it_says() -> None:
    hanging = (example(errors.HangingTransaction).in_transaction(committing=amid) for amid in (False, True))
    before, amid = map(str, hanging)
    assert "none of this run was written. " in before and "none of this run was written" not in amid
    assert "its replay writes nothing again" in amid and "its replay" not in before
    of_another = errors.StateExpired(sink="orders", micro_batch_id=7, query_id="one", decided_query_id="other")
    assert "query other's" in str(of_another) and "query one" in str(of_another)
    assert "offsets.retention.minutes" not in str(of_another)
    assert "offsets.retention.minutes" in str(errors.StateExpired(sink="orders", micro_batch_id=7, query_id="one"))
    for cls in (errors.AttemptFenced, errors.TransactionTimedOut, errors.AbortedRowsOpen):
        assert "the micro-batch runs again" in str(example(cls).in_transaction())


@each("cls", RAISED)
def test_a_message_that_asks_for_an_acl_says_for_whom(cls: type[KafkaSinkError]) -> None:
    error = example(cls)
    before = str(error)
    assert str(error.of_principal(None)) == before
    after = str(error.of_principal("User:alice"))
    assert ("ACL" in before) == ("principal User:alice" in after) == ("this principal" in before)
    assert "this principal" not in after


@pytest.mark.parametrize("name", errors.REFUSALS)
def test_a_refusal_that_asks_for_an_acl_says_for_whom(name: str) -> None:
    error = errors.TransactionRefused(transactional_id="orders.0", api="EndTxn", code=7, name=name)
    assert ("ACL" in str(error)) == ("for this principal" in str(error))
    assert ("ACL" in str(error)) == ("for principal User:alice" in str(error.of_principal("User:alice")))


# What only `pykafka transactions` raises, or only a stream, or what is only seen before a row moves.
NEVER_OF_A_BATCH = {
    errors.DecisionPending, errors.WrittenOtherwise, errors.AnotherCheckpoint, errors.AnotherName,
    errors.CheckpointUnusable, errors.ContinuousTriggerUnsupported, errors.WriteModeUnsupported,
}  # fmt: skip
CONTEXTS = [(None, False), *((kind, committing) for kind in WriteKind for committing in (False, True))]


def in_context(cls: type[KafkaSinkError], kind: WriteKind | None, committing: bool) -> KafkaSinkError:
    error = example(cls)
    repair = "<repair>" if committing else ""
    if isinstance(error, errors.CommitRefused) and kind in (WriteKind.VERSION, WriteKind.BATCH):
        error.micro_batch_id = None
    return error if kind is None else error.in_transaction(committing=committing, write_kind=kind, repair=repair)


@pytest.mark.parametrize(("kind", "committing"), CONTEXTS)
def test_messages_have_their_three_parts_for_every_kind_of_write(kind: WriteKind | None, committing: bool) -> None:
    for cls in RAISED:
        if (cls, kind, committing) == (errors.CommitOutcomeUnknown, WriteKind.BATCH, False):
            continue  # it is of a commit, and of no other step
        error = in_context(cls, kind, committing)
        happened, data, advice = error.parts()
        assert str(error) == f"{happened} {data} {advice}"
        assert "No row" in data or "Nothing is lost" in data, cls
        # Sentences, made whole: no command is missing, no placeholder is left.
        for part in error.parts():
            assert re.search(r"([.?]|<\w+>)$", part), part
            assert not re.search(r"[{}]|``|: ?\.|  ", part), part


@pytest.mark.parametrize("committing", [False, True])
@pytest.mark.parametrize("kind", [WriteKind.VERSION, WriteKind.BATCH])
def test_a_batch_write_is_told_nothing_of_a_stream(kind: WriteKind, committing: bool) -> None:
    for cls in RAISED:
        if cls in NEVER_OF_A_BATCH or cls is errors.ColumnNotRead or issubclass(cls, errors.ReadError):
            continue
        said = re.sub(r"<\w+>", "", str(in_context(cls, kind, committing)))
        for word in ("micro-batch", "query", "restart", "checkpoint"):
            assert word not in said.lower().replace("checkpointlocation", ""), cls


@each("cls", RAISED)
def test_a_message_shows_every_fact_that_a_field_holds(cls: type[KafkaSinkError]) -> None:
    error = example(cls)
    for name, value in vars(error).items():
        if isinstance(value, bool):
            continue
        shown = value[0] if isinstance(value, tuple | list) else value
        shown = next(": ".join(map(str, item)) for item in value.items()) if isinstance(value, dict) else shown
        assert str(shown) in str(error), f"{name} is not in the message"


@pytest.mark.parametrize("cls", [errors.CommitOutcomeUnknown, errors.HangingTransaction, errors.BrokersUnreachable])
def test_a_batch_write_without_a_name_is_told_what_finishes_it_in_place_of_a_rerun(cls: type[KafkaSinkError]) -> None:
    message = str(in_context(cls, WriteKind.BATCH, committing=True))
    assert "`<repair>`" in message
    assert "Do not run the write again" in message and "another" in message
    assert "un the write again" not in message.replace("Do not run the write again", "")


OF_A_RUN = [cls for cls in RAISED if {"sink", "micro_batch_id"} <= set(inspect.signature(cls).parameters)]


@pytest.mark.parametrize("cls", [cls for cls in OF_A_RUN if cls not in NEVER_OF_A_BATCH], ids=lambda cls: cls.__name__)
def test_a_batch_write_is_told_of_its_version_and_a_stream_of_its_micro_batch(cls: type[KafkaSinkError]) -> None:
    of_version, of_stream = (str(in_context(cls, kind, True)) for kind in (WriteKind.VERSION, WriteKind.STREAM))
    assert "version 7" in of_version and "txnAppId '<sink>'" in of_version
    assert "micro-batch 7" in of_stream and "txnAppId" not in of_stream
    assert str(example(cls)).startswith(of_stream.partition(". ")[0])


NO_FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
no_file = mock.Mock(side_effect=NO_FILE)


@pytest.mark.parametrize(("error", "what"), [
    (MemoryError(), "memory"), (pa.ArrowMemoryError("malloc failed"), "memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
    (OSError(errno.ENOBUFS, "No buffer space available"), "memory"),
    (RuntimeError("can't start new thread"), "threads"), (NO_FILE, "open files"),
    (OSError(errno.ENFILE, "Too many open files in system"), "open files"),
])  # fmt: skip
def test_what_is_named(error: Exception, what: str) -> None:
    named = exhausted(error)
    assert named is not None
    assert named.what == what
    with pytest.raises(errors.WorkerExhausted) as raised, exhaustion_named():
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize("error", [
    OSError(errno.EACCES, "no"), OSError("no number"), RuntimeError("another"), ValueError(), KeyError("x"),
])  # fmt: skip
def test_what_is_not(error: Exception) -> None:
    assert exhausted(error) is None
    with pytest.raises(type(error)) as raised, exhaustion_named():
        raise error
    assert raised.value is error
    assert not is_exhaustion(getattr(error, "errno", None))


def test_an_error_with_a_name_keeps_it_and_one_of_a_transaction_says_so() -> None:
    named = MissingOption(option="x", hint="y")
    with pytest.raises(MissingOption) as raised, exhaustion_named():
        raise named
    assert raised.value is named
    invisible = pytest.raises(errors.WorkerExhausted, match="no row of this attempt is visible")
    with invisible as raised, in_transaction_errors(None):
        raise MemoryError
    assert raised.value.write_kind is WriteKind.STREAM


def test_a_connection_that_has_no_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = Selector()
    monkeypatch.setattr(socket, "socket", no_file)
    try:
        selector.connect(0, Address(socket.AF_INET, ("127.0.0.1", 9)))
        assert selector.poll(0) == [Disconnected(0, NO_FILE.strerror, lacks=errno.EMFILE)]
    finally:
        selector.close_all()


def test_a_selector_without_a_pipe_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = mock.Mock()
    monkeypatch.setattr("selectors.DefaultSelector", made)
    monkeypatch.setattr(socket, "socketpair", no_file)
    with pytest.raises(OSError, match="Too many open files"):
        Selector()
    made().close.assert_called_once()


@pytest.mark.parametrize("without_files", [True, False])
def test_a_name_not_looked_up_for_want_of_files_says_so(monkeypatch: pytest.MonkeyPatch, without_files: bool) -> None:
    """The C library calls it a name that is not known."""
    not_known = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=not_known))
    if without_files:
        monkeypatch.setattr(os, "open", no_file)
    with pytest.raises(OSError) as raised:
        resolver.resolve("broker", 9092)
    assert is_exhaustion(raised.value.errno) == without_files
    assert isinstance(raised.value, socket.gaierror) != without_files


def test_a_certificate_not_opened_for_want_of_files_is_no_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = TlsSettings(truststore_location=str(tmp_path / "ca.pem"))
    with pytest.raises(InvalidOption):
        client_context(settings)
    monkeypatch.setattr(Path, "open", no_file)
    with pytest.raises(errors.WorkerExhausted), exhaustion_named():
        client_context(settings)


def test_a_token_is_not_asked_for_again_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = mock.Mock(side_effect=NO_FILE)
    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    endpoint = TokenEndpoint(
        url="http://h/t", client_id="id", client_secret="s", scope=None, header_urlencode=False, contexts=None
    )
    with pytest.raises(errors.WorkerExhausted), exhaustion_named():
        endpoint.fetch(lambda: 0.0)
    connect.assert_called_once()


MISSING = errors.TopicNotFound(topic="orders", waited_ms=500)
QUERY = "[id = 93d13b02-f472-4807-b071-819ad5a78f1c, runId = 8faea724-04fb-4703-a0a3-269d8c2392b1]"
STREAM = f"[STREAM_FAILED] Query {QUERY} terminated with exception: "
PLANNED = "[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: "
IN_TASK = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
# Spark's words in front of a worker's traceback, as 4.1 to 4.3 have them.
HEADS = {
    "plan": PLANNED,
    "read": "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: ",
    "commit": "[PYTHON_DATA_SOURCE_ERROR] Failed to commit or abort Python data source write: ",
    "task": "An exception was thrown from the Python worker:\n",
    "stage": "An error occurred while calling o93.save.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 1 in stage 4.0 failed 4 times, most recent failure: Lost task 1.3 in stage 4.0 (TID 11) (10.0.0.7 "
    "executor 2): org.apache.spark.api.python.PythonException: ",
    "stream plan": STREAM + PLANNED,
    "stream task": STREAM.replace("Query ", "Query orders ") + IN_TASK,
    "stream commit": STREAM
    + "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform commit: ",
    "Connect task": "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n" + IN_TASK,
    "Connect exception()": "(STREAM_FAILED) " + PLANNED,
    "Connect foreachBatch": STREAM + "[PYTHON_EXCEPTION] [session: 01874519-d5f7-4b2a-9d27-b83ea363137a] [userId: ] "
    "Found error inside foreachBatch Python process: ",
    "listener": "org.apache.spark.api.python.PythonException: " + IN_TASK,
    "listener, foreachBatch": "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: ",
    "foreachBatch": STREAM + "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in "
    "foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent "
    "call last):\n  File \"c.py\", line 7, in call\npyspark.errors.exceptions.captured.AnalysisException: " + PLANNED,
}  # fmt: skip
BEHIND = "\n SQLSTATE: 38000 SQLSTATE: XXKST\n=== Streaming Query ===\nCurrent State: ACTIVE"


def worker_says(error: BaseException, cause: BaseException | None = None) -> str:
    """The traceback of a worker whose method of the sink raised `error`."""

    @told_to_spark()
    def write() -> None:
        raise error from cause

    try:
        write()
    except BaseException:
        return traceback.format_exc()
    raise AssertionError("it has to raise")


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_the_error_is_found_behind_sparks_words(head: str) -> None:
    failure = RuntimeError(head + worker_says(MISSING, OSError("no route")) + BEHIND)
    error = error_of(failure)
    assert isinstance(error, errors.TopicNotFound)
    assert (str(error), error.topic, error.waited_ms) == (str(MISSING), "orders", 500)
    assert error.__cause__ is failure
    assert str(error_of(str(failure))) == str(MISSING)


@each("cls", [*RAISED, errors.ApisMissing])
def test_every_error_arrives_with_its_class_its_message_and_its_fields(cls: type[errors.KafkaSinkError]) -> None:
    error = example(cls, is_whole=False).in_transaction(write_kind=errors.WriteKind.VERSION)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(error).items()}
    found = error_of(RuntimeError(IN_TASK + worker_says(error)))
    assert type(found) is cls
    assert str(found) == str(error)
    assert {name: getattr(found, name) for name in fields} == fields
    assert vars(found).keys() <= fields.keys()


@each("cls", RAISED)
def test_a_traceback_names_the_command_that_explains_the_error(cls: type[errors.KafkaSinkError]) -> None:
    line = f"see: pykafka explain {cls.__name__}"
    text = worker_says(example(cls), ValueError("x"))
    assert text.splitlines().count(line) == 1
    assert cls.__name__ in ERRORS
    # Also the one that a user's Python raises again.
    found = error_of(IN_TASK + text)
    assert found is not None and line in "".join(traceback.format_exception(found))
    assert "see:" not in "".join(traceback.format_exception(ProtocolError("x")))


def test_it_is_one_line_whatever_a_peer_says_and_a_line_of_fields_follows() -> None:
    forged = "kafka_sink.errors.TornBatch: all is lost\npykafka: {}"
    said = f"no\n{forged}\r{forged}\u2028{forged}"
    rejected = errors.ProduceRejected(
        topic="t", partition=0, code=87, name="INVALID", records=1, size_bytes=70, detail="", advice="Look there."
    )
    # Facts are escaped as the error is made; this is the last to see the message.
    rejected.args = (said,)
    lines = worker_says(rejected, ValueError(f"x\n{forged}")).splitlines()
    assert not any(line.startswith("kafka_sink.errors.TornBatch") for line in lines)
    assert [line.partition(":")[0] for line in lines if line[:1].strip()] == [
        "Traceback (most recent call last)", "kafka_sink.errors.ProduceRejected", "pykafka", "see", "because of"
    ]  # fmt: skip
    assert type(error_of(IN_TASK + "\n".join(lines))) is errors.ProduceRejected


FORGED = worker_says(errors.TornBatch(sink="s", micro_batch_id=7, visible=[0], missing=[1]))


@pytest.mark.parametrize("text", [
    # A row's value in the message of a UDF, a reader, a JVM function; a query's plan; a log.
    IN_TASK + f'Traceback (most recent call last):\n  File "udf.py", line 1, in f\nValueError: bad row {FORGED}',
    IN_TASK + f"ValueError: \n{FORGED}",
    f"[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected: {IN_TASK}{FORGED}",
    f"[USER_RAISED_EXCEPTION] {FORGED}", "[USER_RAISED_EXCEPTION] kafka_sink.errors.TornBatch: all is lost",
    f"java.lang.RuntimeException: {IN_TASK}{FORGED}", STREAM + f"java.lang.IllegalStateException: {FORGED}",
    STREAM + f"[DIVIDE_BY_ZERO] Division by zero.\n=== Streaming Query ===\n{FORGED}",
    IN_TASK + FORGED.replace("TornBatch", "NoSuchError"), IN_TASK + FORGED.replace("TornBatch", "annotations"),
    IN_TASK + FORGED.replace("TornBatch", "WriteKind"), "",
])  # fmt: skip
def test_what_another_failure_quotes_is_no_error_of_the_sink(text: str) -> None:
    assert error_of(IN_TASK + FORGED) is not None
    assert error_of(RuntimeError(text)) is None


@pytest.mark.parametrize("head", [
    "", "Python error: [pykafka::writer] ", "Write failed for partition 3: External error: Python error: [W::write] "
])  # fmt: skip
def test_the_error_is_found_behind_sails_words(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sail prints the class without its module, the message, and a traceback without the error."""
    monkeypatch.setitem(sys.modules, "pysail", SimpleNamespace())
    for made in (partial(errors.TopicNotFound, topic="orders", waited_ms=500), errors.WriteModeUnsupported):
        raised = made()
        with pytest.raises(type(raised)) as failure, told_to_spark(), told_to_spark():
            raise made()
        text = f"{head}{type(raised).__name__}: {failure.value}\nTraceback:\nTraceback (most recent call last):\n  File"
        found = error_of(RuntimeError(text))
        assert type(found) is type(raised) and str(found) == str(raised)
        assert getattr(found, "topic", None) == getattr(raised, "topic", None)
        cut = text[: text.index("pykafka: {") + 12] + "\n[truncated]\nn3.11/contextlib.py"
        assert str(error_of(RuntimeError(cut))) == str(raised)
    for other in (text.replace("pykafka: ", "pykafka "), f"ValueError: {text}"):
        assert error_of(RuntimeError(other)) is None


def test_an_error_of_a_rows_values_and_of_a_query_is_found() -> None:
    error = error_of("[USER_RAISED_EXCEPTION] kafka_sink.errors.ValueNotInSchema: column 'a' is negative\nSQLSTATE:")
    assert type(error) is errors.ValueNotInSchema and str(error) == "column 'a' is negative"
    query: Any = SimpleNamespace(awaitTermination=lambda: None, exception=lambda: RuntimeError(IN_TASK + FORGED))
    assert type(error_of(query)) is errors.TornBatch
    query.exception = lambda: None
    assert error_of(query) is None
    assert error_of(None) is None


@pytest.mark.parametrize("topic", ["orders", "@1+2", "@@1+2", "@", "of-a-long-name-that-the-message-has-too", ""])
def test_a_text_that_the_message_has_is_not_told_twice(topic: str) -> None:
    text = worker_says(errors.TopicNotFound(topic=topic, waited_ms=500))
    error = error_of(text)
    assert isinstance(error, errors.TopicNotFound)
    assert (error.topic, error.waited_ms) == (topic, 500)
    assert text.count(topic) == 1 or len(topic) < 10
    assert "null" not in text and "false" not in text, "defaults are not told"
    assert "pykafka: " not in worker_says(errors.WriteModeUnsupported()), "no line for no field"


@pytest.mark.parametrize("cut", ["pykafka: {", '"topic":'])
def test_where_spark_cuts_its_text_off_the_message_is_still_there(cut: str) -> None:
    text = IN_TASK + worker_says(MISSING)
    error = error_of(text[: text.index(cut)])
    assert isinstance(error, errors.TopicNotFound) and str(error) == str(MISSING)
    assert not hasattr(error, "topic")


def test_fields_without_end_are_left_out() -> None:
    many = errors.TooManyBadRows(
        counts={"HeaderKeyNull": 9}, rows=9, limit="maxBadRows", allowed=0, first_rows=[(n, n) for n in range(9_000)],
        rows_are_written=False,
    )  # fmt: skip
    assert "pykafka:" not in worker_says(many)
    assert type(error_of(IN_TASK + worker_says(many))) is errors.TooManyBadRows


def test_an_error_is_found_where_it_is_an_object_still() -> None:
    error = example(errors.TornBatch)
    assert error_of(error) is error
    wrapped = RuntimeError("Spark")
    wrapped.__cause__ = error
    assert error_of(wrapped) is error
    # As PySpark keeps what the JVM says.
    captured: Any = RuntimeError("[SOMETHING_ELSE]")
    captured._cause = RuntimeError(IN_TASK + worker_says(MISSING))
    assert type(error_of(captured)) is errors.TopicNotFound


def test_another_failure_is_raised_and_goes_to_spark_as_it_is() -> None:
    failure = RuntimeError(IN_TASK + worker_says(MISSING))
    with pytest.raises(errors.TopicNotFound) as raised, told_by_spark():
        raise failure
    assert raised.value.__cause__ is failure
    other = RuntimeError("the disk is full")
    with pytest.raises(RuntimeError) as as_it_is, told_by_spark():
        raise other
    assert as_it_is.value is other
    defect = KeyError("x")
    assert "because of" not in worker_says(defect, ValueError("y")) and "direct cause" in worker_says(defect, OSError())
