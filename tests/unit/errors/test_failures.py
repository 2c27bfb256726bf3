"""What a user's Python finds in the text of Spark's exceptions, and what it does not take for an error of the sink."""

import inspect
import traceback
from types import SimpleNamespace
from typing import Any

import pytest

from effort import each
from error_examples import example
from kafka_sink import error_of, errors
from kafka_sink.errors.failures import told_by_spark, told_to_spark

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


RAISED = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.KafkaSinkError) and not cls.__subclasses__()
    and cls is not errors.SaslRefused and cls is not errors.TlsExpected
]  # fmt: skip


@each("cls", RAISED)
def test_every_error_arrives_with_its_class_its_message_and_its_fields(cls: type[errors.KafkaSinkError]) -> None:
    error = example(cls, is_whole=False).in_transaction(write_kind=errors.WriteKind.VERSION)
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in vars(error).items()}
    found = error_of(RuntimeError(IN_TASK + worker_says(error)))
    assert type(found) is cls
    assert str(found) == str(error)
    assert {name: getattr(found, name) for name in fields} == fields
    assert vars(found).keys() <= fields.keys()


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
        "Traceback (most recent call last)", "kafka_sink.errors.ProduceRejected", "pykafka", "because of"
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
