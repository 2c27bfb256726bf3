"""Update mode's batch writes: their name is the query's, their version the micro-batch's number."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.errors import InvalidArgument, InvalidOption
from kafka_sink.exporting.streams import each_micro_batch, in_update_mode, telling

AT_LEAST_ONCE = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
EXACTLY_ONCE = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once"}


class Writer:
    """Of Spark's writers what is called here; keeps its options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.saves: list[dict[str, str]] = []
        self.each: Any = None
        self.format = self.mode = lambda name: self

    def options(self, **more: str) -> Writer:
        self.given |= more
        return self

    def foreachBatch(self, each: Any) -> Writer:
        self.each = each
        return self

    def save(self) -> None:
        self.saves.append(self.given)
        self.given = {}


class Checkpoint:
    """The session's reader, of a checkpoint whose query has an id."""

    def __init__(self, query_id: str) -> None:
        self.query_id, self.asked = query_id, list[str]()

    def text(self, path: str) -> Any:
        self.asked.append(path)
        line = SimpleNamespace(value=json.dumps({"id": self.query_id}))
        return SimpleNamespace(collect=lambda: [line])


def written(options: dict[str, str], *numbers: int, query_id: str = "q-1") -> tuple[Writer, list[dict[str, str]], Any]:
    writer, rows, checkpoint = Writer(), Writer(), Checkpoint(query_id)
    made: Any = each_micro_batch(writer, in_update_mode(options))  # type: ignore[arg-type]
    frame = SimpleNamespace(write=rows, sparkSession=SimpleNamespace(read=checkpoint))
    for number in numbers:
        made.each(frame, number)
    return writer, rows.saves, checkpoint


def test_at_least_once_needs_no_name_and_no_checkpoint() -> None:
    query, saves, checkpoint = written({**AT_LEAST_ONCE, "queryName": "sums"}, 0, 1)
    assert query.given == {"queryName": "sums"}
    assert saves == [AT_LEAST_ONCE, AT_LEAST_ONCE]
    assert checkpoint.asked == []


@pytest.mark.parametrize(("prefix", "name"), [({}, "pykafka"), ({"transactionalIdPrefix": "sums"}, "sums")])
def test_exactly_once_writes_under_the_querys_id_and_the_micro_batchs_number(prefix: dict[str, str], name: str) -> None:
    options = {**EXACTLY_ONCE, **prefix, "checkpointLocation": "/c"}
    query, saves, checkpoint = written(options, 7, 8)
    assert query.given == {"checkpointLocation": "/c"}
    assert saves == [{**EXACTLY_ONCE, "txnAppId": f"{name}-q-1", "txnVersion": number} for number in ("7", "8")]
    assert checkpoint.asked == ["/c/metadata"], "once a start"
    assert written(options, 7, query_id="q-2")[1][0]["txnAppId"] == f"{name}-q-2", "a new checkpoint is another query"


def test_what_has_no_name_or_too_long_a_one_is_told_before_the_query_starts() -> None:
    with pytest.raises(InvalidArgument) as refused:
        written(EXACTLY_ONCE)
    assert refused.value.argument == "checkpoint_location"
    with pytest.raises(InvalidOption, match="txnAppId"):
        written({**EXACTLY_ONCE, "checkpointLocation": "/c", "transactionalIdPrefix": "x" * 180})


def test_a_query_stays_what_it_is_and_raises_the_sinks_error() -> None:
    class Query:
        def __init__(self) -> None:
            self.id = "q"

        def awaitTermination(self, timeout: float | None = None) -> bool:
            raise RuntimeError(
                "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: kafka_sink.errors.TornBatch: torn"
            )

        def processAllAvailable(self) -> None:
            raise KeyError("x")

    query: Any = telling(Query())  # type: ignore[arg-type]
    assert isinstance(query, Query) and query.id == "q" and type(query).__name__ == "Query"
    with pytest.raises(Exception, match=r"^torn$") as raised:
        query.awaitTermination(1)
    assert type(raised.value).__name__ == "TornBatch" and isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(KeyError):
        query.processAllAvailable()
