"""The drawn trees are the tree; every error survives pickling, and says the three things to every kind of write; and
what a worker lacks is named."""

import copy
import errno
import http.client
import inspect
import os
import pickle
import re
import socket
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import pyarrow as pa
import pytest

from effort import each
from error_examples import MADE_UP, example
from kafka_sink import errors
from kafka_sink.broker import errors as broker_errors
from kafka_sink.broker.errors import LocalKafkaError
from kafka_sink.errors import (
    DataState,
    InvalidOption,
    KafkaSinkError,
    MissingOption,
    ProtocolError,
    StateExpired,
    WorkerExhausted,
    WriteKind,
)
from kafka_sink.errors.exhaustion import exhausted, exhaustion_named, is_exhaustion
from kafka_sink.errors.wording import words
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net import resolver
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.tls import TlsSettings, client_context
from kafka_sink.kafka.net.transport import Address, Disconnected
from kafka_sink.kafka.oauth import TokenEndpoint
from kafka_sink.spark.exactly_once.transactional_errors import told_of_a_transaction


def tree(base: type[KafkaSinkError]) -> Iterator[type[KafkaSinkError]]:
    yield base
    for cls in base.__subclasses__():
        yield from tree(cls)


# Tests elsewhere have errors of their own.
CLASSES = [cls for cls in tree(KafkaSinkError) if cls.__module__.startswith("kafka_sink.")]
# Raised as they are, with facts of their own; abstract ones are only caught.
LEAVES = [cls for cls in CLASSES if not any(each in CLASSES for each in cls.__subclasses__())]
RAISED = [cls for cls in LEAVES if not issubclass(cls, LocalKafkaError | ProtocolError)]


@pytest.mark.parametrize(("module", "root"), [(errors, KafkaSinkError), (broker_errors, LocalKafkaError)])
def test_the_drawing_is_the_tree(module: ModuleType, root: type[KafkaSinkError]) -> None:
    drawn: dict[str, str] = {}
    parents: dict[int, str] = {}
    for branch, name in re.findall(r"^( {4}[│ ├└─]*)([A-Z]\w+)", module.__doc__ or "", re.MULTILINE):
        above = {depth: parent for depth, parent in parents.items() if depth < len(branch)}
        drawn[name] = list(above.values())[-1] if len(branch) > 4 else ""
        parents = above | {len(branch): name}
    of_module = [cls for cls in tree(root) if cls.__module__ == module.__name__]
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ if cls is not root else "" for cls in of_module}


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
    of_another = StateExpired(sink="orders", micro_batch_id=7, query_id="one", decided_query_id="other")
    assert "query other's" in str(of_another) and "query one" in str(of_another)
    assert "offsets.retention.minutes" not in str(of_another)
    assert "offsets.retention.minutes" in str(StateExpired(sink="orders", micro_batch_id=7, query_id="one"))
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
    errors.DecisionPending, errors.WrittenOtherwise, errors.AnotherCheckpoint, errors.CheckpointUnusable,
    errors.ContinuousTriggerUnsupported, errors.WriteModeUnsupported,
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
    with pytest.raises(WorkerExhausted) as raised, exhaustion_named():
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no"), OSError("no number"), RuntimeError("another"), ValueError(), KeyError("x")]
)
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
    invisible = pytest.raises(WorkerExhausted, match="no row of this attempt is visible")
    with invisible as raised, told_of_a_transaction(None):
        raise MemoryError
    assert raised.value.write_kind is WriteKind.STREAM


def test_a_connection_that_has_no_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = Selector(metrics=Metrics())
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
        Selector(metrics=Metrics())
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
    with pytest.raises(WorkerExhausted), exhaustion_named():
        client_context(settings)


def test_a_token_is_not_asked_for_again_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = mock.Mock(side_effect=NO_FILE)
    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    endpoint = TokenEndpoint(
        url="http://h/t", client_id="id", client_secret="s", scope=None, header_urlencode=False, contexts=None
    )
    with pytest.raises(WorkerExhausted), exhaustion_named():
        endpoint.fetch(lambda: 0.0)
    connect.assert_called_once()
