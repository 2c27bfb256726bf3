"""The drawn tree is the tree; every error survives pickling and tells what it means for the data."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from kafka_sink import errors
from kafka_sink.errors import KafkaSinkError, LocalKafkaError, ProtocolError, StateExpired, WriteKind

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, KafkaSinkError) and cls.__module__ == errors.__name__
]
# Raised as they are, with facts of their own; abstract ones are only caught.
RAISED = [
    cls
    for cls in CLASSES
    if not cls.__subclasses__() and not issubclass(cls, LocalKafkaError | ProtocolError)
]


MADE_UP = {"Mapping[str, int]": {"HeaderKeyNull": 7}, "Sequence[tuple[int, int]]": [(3, 4)], "float": 0.25}


def example(cls: type[KafkaSinkError], *, versioned: bool = False) -> KafkaSinkError:
    """An instance with made-up facts of the right types, from the signature; what has a default, with that."""
    facts = {"versioned": True} if versioned and "versioned" in inspect.signature(cls).parameters else {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.annotation == "bool" and parameter.default is not parameter.empty:
            continue
        annotation = str(parameter.annotation)
        if annotation in MADE_UP:
            facts[name] = MADE_UP[annotation]
            continue
        facts[name] = 7 if annotation.startswith("int") else [3] if "Sequence[int]" in annotation else f"<{name}>"
    return cls(**facts)


def test_the_drawing_is_the_tree() -> None:
    drawn: dict[str, str] = {}
    parents: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^( {4}[│ ├└─]*)([A-Z]\w+)", line)
        if match:
            depth = len(match[1])
            parents[depth] = match[2]
            above = [parents[d] for d in parents if d < depth]
            drawn[match[2]] = above[-1] if depth > 4 else ""
            parents = {d: name for d, name in parents.items() if d <= depth}
    actual = {cls.__name__: cls.__bases__[0].__name__ if cls is not KafkaSinkError else "" for cls in CLASSES}
    assert drawn == actual


def test_a_peer_puts_no_lines_into_a_log_and_does_not_fill_it() -> None:
    """Found by fuzzing: the name of a topic that nobody asked for, which may be anything."""
    error = ProtocolError("topic a\nERROR all is lost\x1b[2J" + "x" * 16_000_000)
    assert error.detail.startswith(r"topic a\nERROR all is lost\x1b[2Jxxx")
    assert str(error).isprintable()
    assert len(str(error)) < 1_100


HOSTILE = "\x1b[2J\r\nERROR all is lost\u202e" + "x" * 8_000_000


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short(cls: type[KafkaSinkError]) -> None:
    if cls is errors.LeaderDisagrees:
        return  # abstract
    signature = inspect.signature(cls)
    if "args" in signature.parameters:
        error = cls(HOSTILE)
    else:
        error = cls(**{name: hostile(parameter) for name, parameter in signature.parameters.items()})
    # The end of a program's output is shown in its lines, and there is one of it.
    assert all(line.isprintable() for line in str(error).split("\n"))
    assert "\nERROR" not in str(error) or any(name.endswith("_tail") for name in vars(error))
    assert "\n" not in str(error) or any(name.endswith("_tail") for name in vars(error))
    assert len(pickle.dumps(error)) < 100_000
    for name, fact in vars(error).items():
        for text in (fact if isinstance(fact, tuple | list | dict) else [fact]):
            assert not isinstance(text, str) or name.endswith("_tail") or text.isprintable()


def hostile(parameter: inspect.Parameter) -> object:
    annotation = str(parameter.annotation)
    if parameter.name == "command":
        return "of shell_command"
    if annotation in MADE_UP:
        return {HOSTILE: 7} if "Mapping" in annotation else MADE_UP[annotation]
    if annotation == "bool":
        return False
    return 7 if annotation.startswith("int") else [3] if "Sequence[int]" in annotation else (
        [HOSTILE] * 3 if "Sequence[str]" in annotation else HOSTILE
    )


def test_help_tells_of_an_error_its_own_facts() -> None:
    assert list(inspect.signature(errors.BrokersUnreachable).parameters) == [
        "bootstrap_servers", "waited_ms", "last_error",
    ]  # fmt: skip
    with pytest.raises(TypeError):
        errors.TopicNull(topic="t")  # type: ignore[call-arg]


def test_what_an_examination_finds_is_printed_as_it_reads() -> None:
    error = errors.BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=1, last_error=HOSTILE)
    error.examined(step="dns", where=HOSTILE, found=HOSTILE, remedy=HOSTILE, command="again")
    assert str(error).isprintable()
    assert len(str(error)) < 20_000


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_an_error_keeps_its_facts_through_pickling(cls: type[KafkaSinkError]) -> None:
    error = example(cls)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize("committing", [False, True])
@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_in_a_transaction_no_message_says_that_rows_will_be_there_twice(
    cls: type[KafkaSinkError], committing: bool
) -> None:
    error = example(cls)
    before = str(error)
    after = str(error.in_transaction(committing=committing))
    assert "in the topic twice" not in after
    assert "No row" in after or "Nothing is lost" in after
    # Refused in mid-commit, it may have been after the decision.
    is_changed = "in the topic twice" in before or (committing and cls is errors.TransactionRefused)
    # Told while a run is planned, of the one before.
    is_changed |= not committing and errors.NOT_RECORDED in before
    assert (after != before) == is_changed
    if committing and is_changed:
        assert errors.NOTHING_VISIBLE not in after


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_a_message_that_asks_for_an_acl_says_for_whom(cls: type[KafkaSinkError]) -> None:
    error = example(cls)
    before = str(error)
    assert str(error.of_principal(None)) == before
    after = str(error.of_principal("User:alice"))
    assert ("ACL" in before) == ("User:alice" in after)
    assert errors.PRINCIPAL not in after


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_a_message_tells_what_it_means_for_the_data(cls: type[KafkaSinkError]) -> None:
    message = str(example(cls))
    assert "No row" in message or "Nothing is lost" in message


@pytest.mark.parametrize("cls", RAISED, ids=lambda cls: cls.__name__)
def test_a_message_shows_every_fact_that_a_field_holds(cls: type[KafkaSinkError]) -> None:
    error = example(cls)
    for name, value in vars(error).items():
        shown = value[0] if isinstance(value, tuple | list) else value
        shown = next(": ".join(map(str, item)) for item in value.items()) if isinstance(value, dict) else shown
        assert str(shown) in str(error), f"{name} is not in the message"


# What these tell of is known only where a name comes again; a batch write without txnAppId has one of its own.
NOT_OF_A_NEW_NAME = {
    errors.TornBatch, errors.NonDeterministicReplay, errors.CommittedDataMissing, errors.CheckpointBehind,
    errors.StateExpired, errors.MarkersLost, errors.FingerprintsLost, errors.UnreadableState,
}  # fmt: skip
# What only `kafka_sink.transactions` raises, or only a stream.
NEVER_OF_A_BATCH = {errors.DecisionPending, errors.WrittenOtherwise, errors.AnotherCheckpoint}
EXACTLY_ONCE = [cls for cls in RAISED if issubclass(cls, errors.ExactlyOnceError) and cls not in NEVER_OF_A_BATCH]


@pytest.mark.parametrize("committing", [False, True])
@pytest.mark.parametrize("cls", EXACTLY_ONCE, ids=lambda cls: cls.__name__)
def test_a_batch_write_is_told_who_runs_it_again_and_as_what(cls: type[KafkaSinkError], committing: bool) -> None:
    for write_kind in (WriteKind.VERSION, WriteKind.BATCH):
        if write_kind is WriteKind.BATCH and cls in NOT_OF_A_NEW_NAME:
            continue
        error = example(cls, versioned=write_kind is WriteKind.VERSION)
        message = str(error.in_transaction(committing=committing, write_kind=write_kind, repair="<repair>"))
        assert error.write_kind is write_kind
        said = re.sub(r"<\w+>", "", message)
        for word in ("micro-batch", "query", "restart", "checkpoint", "{"):
            assert word not in said
        assert "No row" in message or "Nothing is lost" in message
        assert "txnAppId" in message or write_kind is WriteKind.BATCH
        assert "same txnAppId" not in message or write_kind is WriteKind.VERSION


@pytest.mark.parametrize("cls", [errors.CommitOutcomeUnknown, errors.HangingTransaction, errors.BrokersUnreachable])
def test_a_batch_write_without_a_name_is_told_what_finishes_it_in_place_of_a_rerun(cls: type[KafkaSinkError]) -> None:
    message = str(example(cls).in_transaction(committing=True, write_kind=WriteKind.BATCH, repair="<repair>"))
    assert "<repair>" in message
    assert "another write" in message
    assert "run the write again" not in message


def test_state_that_is_another_querys_is_told_from_state_that_is_gone() -> None:
    of_another = StateExpired(sink="orders", micro_batch_id=7, query_id="one", decided_query_id="other")
    assert "query other's" in str(of_another) and "query one" in str(of_another)
    assert "offsets.retention.minutes" not in str(of_another)
    assert "offsets.retention.minutes" in str(StateExpired(sink="orders", micro_batch_id=7, query_id="one"))


def test_a_stream_is_told_of_its_micro_batch() -> None:
    for cls in (errors.AttemptFenced, errors.TransactionTimedOut, errors.AbortedRowsOpen):
        assert "the micro-batch runs again" in str(example(cls).in_transaction())


VERSIONED = [cls for cls in RAISED if "versioned" in inspect.signature(cls).parameters]


@pytest.mark.parametrize("cls", VERSIONED, ids=lambda cls: cls.__name__)
def test_a_batch_write_is_told_of_its_version_and_not_of_a_stream(cls: type[KafkaSinkError]) -> None:
    facts = inspect.signature(cls).parameters
    made_up = {
        name: "orders" if name == "sink" else 7 if parameter.annotation == "int" else [3]
        for name, parameter in facts.items()
        if name not in ("versioned", "reason")
    }
    if "reason" in facts:
        made_up["reason"] = "a reason"
    message, of_a_stream = str(cls(**made_up, versioned=True)), str(cls(**made_up))
    assert "'orders'" in message
    assert "version 7" in message
    for word in ("micro-batch", "query", "restart", "checkpoint"):
        assert word not in message
    assert "No row" in message or "Nothing is lost" in message
    assert "txnAppId" in message and "txnAppId" not in of_a_stream
    assert "micro-batch 7" in of_a_stream
