"""An aborted transaction, as a Fetch answer names it. Apart, because the protocol needs no more of reading."""

from __future__ import annotations

from typing import NamedTuple


class AbortedTransaction(NamedTuple):
    """As in a Fetch answer."""

    producer_id: int
    first_offset: int
