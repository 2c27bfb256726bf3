"""A warning about a micro-batch, or a batch write, with so many Spark partitions that its commit takes seconds."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

# On brokers that shared two cores a commit of 256 slots took 1.3 s, and one of 1,024 slots 4.0 s
# (docs/design/performance.md, "Many slots").
MANY = 500

# In this process. Each micro-batch of a stream has about as many slots as the one before.
_TOLD: set[str] = set()


def tell_many_slots(sink: str, slots: int, took_s: float) -> None:
    """Log one line for each sink with more than MANY slots. `took_s`: how long the commit took."""
    if slots <= MANY or sink in _TOLD:
        return
    _TOLD.add(sink)
    log.warning(
        "a commit of exactly-once sink %r took %.1f s: it has %d slots, one for each Spark partition. The rows "
        "are safe. Fewer Spark partitions make it faster: df.coalesce(64) before the write.",
        sink,
        took_s,
        slots,
    )
