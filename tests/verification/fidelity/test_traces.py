"""What traces are made of: by the seed alone, with the codes that matter, and like themselves on a second model."""

from collections import Counter

import pytest

from effort import some
from fidelity.player import OneBroker
from fidelity.traces import PROTOCOLS, Difference, Trace, compare, make_trace, model_player

SEEDS = range(25)


def test_a_seed_is_a_trace() -> None:
    assert make_trace(3, "4.3.1") == make_trace(3, "4.3.1")
    assert make_trace(3, "4.3.1").steps != make_trace(4, "4.3.1").steps


# Epochs of leaders that there are not, offsets that there are not, topics that are gone.
OF_READERS = {
    "Fetch": {0, 1, 3, 75}, "ListOffsets": {0, 3, 75}, "OffsetForLeaderEpoch": {0}, "DeleteRecords": {0},
}  # fmt: skip
OF_READERS_BY_ID = OF_READERS | {"Fetch": {0, 1, 3, 75, 100}}
IN_TRANSACTIONS = {
    "Produce": {0, 3, 45, 47, 48}, "InitProducerId": {0, 50, 51}, "EndTxn": {0, 48, 49, 90}, "OffsetFetch": {0, 88},
    "AddPartitionsToTxn": {0, 3}, "TxnOffsetCommit": {0, 47, 49},
}  # fmt: skip
# Its leaders ask no coordinator (KIP-890).
IN_TRANSACTIONS_OF_3_0 = IN_TRANSACTIONS | {"TxnOffsetCommit": {0, 3}}
OFTEN = {
    "2.1.1": {"Produce": {0, 2, 3, 10, 45, 47, 59}, "InitProducerId": {0}, "OffsetFetch": {0}, "OffsetCommit": {0, 3}}
    | OF_READERS | {"DeleteRecords": set()},
    "2.8.2": {"Produce": {0, 2, 3, 10, 45, 47, 87}, "InitProducerId": {0}, "OffsetFetch": {0}, "OffsetCommit": {0, 3}}
    | OF_READERS,
    "3.0.2": IN_TRANSACTIONS_OF_3_0 | OF_READERS, "3.9.2": IN_TRANSACTIONS | OF_READERS_BY_ID,
    "4.3.1": IN_TRANSACTIONS | OF_READERS_BY_ID,
}  # fmt: skip


@pytest.mark.parametrize("kafka_version", some(tuple(PROTOCOLS), "codes"))
def test_the_codes_that_producers_and_readers_live_by_come_often(kafka_version: str) -> None:
    seen: Counter[tuple[str, int]] = Counter()
    for seed in SEEDS:
        trace = make_trace(seed, kafka_version)
        for step, answer in zip(trace.steps, trace.answers, strict=True):
            seen.update((type(step).__name__, code) for code in set(answer.codes))
    often = OFTEN[kafka_version]
    rare = {(request, code) for request, codes in often.items() for code in codes if seen[request, code] < 3}
    assert not rare


def replayed(trace: Trace, client_type: type[OneBroker] = OneBroker) -> Difference | None:
    player = model_player(trace.kind, trace.name)
    client = player.client
    player.client = client_type(client.call, client.leader_of, client.pause, client.produce_version)
    return compare(trace, player)


def test_the_model_is_like_itself() -> None:
    for seed in range(5):
        assert replayed(make_trace(seed, "4.3.1")) is None
