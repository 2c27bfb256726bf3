"""A module of the extra that is not there is said with what installs it."""

from __future__ import annotations

import pytest

from kafka_sink.errors import RegistryExtraMissing
from kafka_sink.registry.extra import extra


def test_what_is_not_installed_is_said_with_what_installs_it() -> None:
    with pytest.raises(RegistryExtraMissing, match=r"pip install 'pyspark-pykafka\[registry\]'") as missing:
        extra("fastavro_that_nobody_has")
    assert missing.value.module == "fastavro_that_nobody_has"
