"""Under which name a query's first micro-batch is written: a record in Kafka, by the query's id.

Spark may reach one checkpoint by two texts, of which two names are derived. From micro-batch 1 on `replay` finds no
decision under the other name, and stops. Micro-batch 0 needs no decision before it. So its commit looks for this record
first, and writes it if there is none.

    transactional id, consumer group    pykafka-<query id>.name

The group's offset is 0, and its metadata `1|<name of the sink>`. Of two drivers with two names the later Init fences
the earlier one. So only one of them writes the record, and the other finds it. Brokers forget the record as they forget
a decision of micro-batch 0.
"""

from __future__ import annotations

from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import NO_OFFSET, Ids
from kafka_sink.commit.requests import Steps, check_answer, end_txn, init_producer_id, read_text, write_offset
from kafka_sink.commit.stream_name import is_never_ours, query_name
from kafka_sink.errors import AnotherName, TransactionRefused, UnreadableState

VERSION = "1"


def check_first_name(sink: Sink, query_id: str) -> Steps[None]:
    """Check that the query writes its first micro-batch under the name `sink`, and record that.

    Call it before the micro-batch is decided. A principal that may not use the record has never written one: nothing
    is checked. Raises AnotherName, AttemptFenced, TransactionRefused or UnreadableState.
    """
    try:
        yield from _check(sink, query_id, f"{query_name(query_id)}.name")
    except TransactionRefused as refused:
        if not is_never_ours(refused):
            raise


def _check(sink: Sink, query_id: str, name: str) -> Steps[None]:
    (begun,) = yield [init_producer_id(sink, name)]
    check_answer(begun.error_code, "InitProducerId", name)
    ids = Ids.of(begun)
    offset, text = yield from read_text(sink, name, barrier=f"name {ids}")
    if offset == NO_OFFSET:
        yield from write_offset(sink, name, ids, name, 0, f"{VERSION}|{sink.names.sink}")
        (ended,) = yield [end_txn(sink, name, ids, committed=True)]
        # After a lost answer a fence may mean success: the micro-batch runs again, and finds the record.
        check_answer(ended.error_code, "EndTxn", name)
        return
    version, _, found = text.partition("|")
    if version != VERSION or not found:
        raise UnreadableState(group=name, found=text)
    if found != sink.names.sink:
        raise AnotherName(sink=sink.names.sink, query_id=query_id, found_sink=found)
