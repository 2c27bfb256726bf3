"""What a leader remembers between asking a coordinator of a transaction and appending its first batch (KIP-890).

A marker that is appended meanwhile ends the verification: otherwise the coordinator's late "yes" would open a
transaction that nobody ends. In version 2 only one with another epoch does, as the next transaction has another one.

Source: VerificationGuard, VerificationStateEntry, UnifiedLog (maybeStartTransactionVerification, updateProducers) in
Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Verification:
    """`lowest_sequence`: of the batches that came under it; a later one must not be appended first. `starts_at_0`: a
    producer without state must begin with sequence 0 (transaction version 2)."""

    producer_epoch: int
    lowest_sequence: int
    starts_at_0: bool


class Verifications:
    """Of one replica, by producer id."""

    def __init__(self) -> None:
        self._begun: dict[int, Verification] = {}

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int, starts_at_0: bool) -> Verification:
        begun = self._begun.setdefault(producer_id, Verification(producer_epoch, base_sequence, starts_at_0))
        if producer_epoch > begun.producer_epoch:
            begun.producer_epoch, begun.lowest_sequence = producer_epoch, base_sequence
        elif producer_epoch == begun.producer_epoch:
            begun.lowest_sequence = min(begun.lowest_sequence, base_sequence)
        return begun

    def of(self, producer_id: int) -> Verification | None:
        return self._begun.get(producer_id)

    def holds(self, producer_id: int, verification: Verification) -> bool:
        return self._begun.get(producer_id) is verification

    def end(self, producer_id: int) -> None:
        self._begun.pop(producer_id, None)
