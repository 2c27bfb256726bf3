"""Record sets with one wrong bit that no CRC covers: both kernels refuse them, in the same way."""

from __future__ import annotations

import pytest

from fuzz.decoders import BY_NAME
from fuzz.record_sets import harmed_record_sets
from kafka_sink.records.undecodable import Undecodable


@pytest.mark.parametrize("choice", [0, 2, 16, 18])
@pytest.mark.parametrize("harmed", list(harmed_record_sets()))
def test_no_kernel_passes_over_a_wrong_bit(harmed: bytes, choice: int) -> None:
    """`choice`: with and without an end within the set, and with and without CRCs."""
    with pytest.raises(Undecodable):
        BY_NAME["record set"].decode(bytes([choice]) + harmed)
