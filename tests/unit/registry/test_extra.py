"""A module of the extra that is not there is said with what installs it."""

from __future__ import annotations

import sys
import uuid

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from kafka_sink.errors import RegistryExtraMissing
from kafka_sink.registry import avro, protobuf
from kafka_sink.registry.extra import extra

NOTHING_SENT = "No row of this write was sent."


def test_what_is_not_installed_is_said_with_what_installs_it() -> None:
    with pytest.raises(RegistryExtraMissing, match=r"pip install 'pyspark-pykafka\[registry\]'") as missing:
        extra("fastavro_that_nobody_has")
    assert missing.value.module == "fastavro_that_nobody_has"
    assert missing.value.parts().data == NOTHING_SENT


COLUMNS = T.StructType([T.StructField("missing_on_executors", T.LongType())])
ROWS = pa.array([{"missing_on_executors": 1}])
AVRO = avro.fitted(avro.derived(COLUMNS, "r"), COLUMNS)
PROTOBUF = protobuf.fitted(protobuf.derived(COLUMNS, "r", None), COLUMNS)


@pytest.mark.parametrize("module", ["fastavro", "google.protobuf.message_factory", "google.protobuf.descriptor_pool"])
def test_an_executor_without_it_says_that_rows_may_be_written(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Classes of messages that were met before are kept.
    unmet = protobuf.fitted(protobuf.derived(COLUMNS, f"r_{uuid.uuid4().hex}", None), COLUMNS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegistryExtraMissing) as missing:
        if module == "fastavro":
            avro.encoded(ROWS, b"", AVRO.written, AVRO.plan)
        else:
            protobuf.encoded(ROWS, b"", unmet.files, unmet.name, unmet.plan)
    assert missing.value.module == module
    assert "all its rows are sent again" in str(missing.value) and NOTHING_SENT not in str(missing.value)


def test_the_driver_without_it_says_that_no_row_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(RegistryExtraMissing, match=NOTHING_SENT):
        avro.fitted(AVRO.text, COLUMNS)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    with pytest.raises(RegistryExtraMissing, match=NOTHING_SENT):
        protobuf.fitted(PROTOBUF.text, COLUMNS)
