"""The shipped reader and the shipped stream over the model: nothing is lost in silence, doubled or made up. Each rule
is seen to be broken."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from kafka_sink.kafka.consumer import fetch_policy
from kafka_sink.kafka.consumer.fetcher import Fetcher
from kafka_sink.kafka.consumer.gaps import Gaps
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.apis.fetch import FetchResponse
from kafka_sink.kafka.reader import Fetch, Reader
from kafka_sink.spark.reading import continuity, stream_logs, stream_plan
from kafka_sink.spark.reading.stream_plan import StreamPlan
from simulation.group_streaming import GroupStreamingWorld
from simulation.read_world import TOPIC, WEIGHTS, ReadResult
from simulation.reading import run_reads
from simulation.streaming import StreamingWorld, run_stream


@functools.cache
def read(seed: int) -> ReadResult:
    return run_reads(seed)


@pytest.mark.long
def test_the_faults_of_reads_are_real() -> None:
    counts: Counter[str] = sum((read(seed).counts for seed in range(30)), Counter())
    kinds = {name.removeprefix("read: fault ") for name in counts if name.startswith("read: fault ")}
    assert kinds >= {"cut", "mute", "deafen", *(set(WEIGHTS) - {"topic_again"})}
    assert counts["read: records"] > 3_000
    assert counts["read: losses"] > 0
    assert counts["read: OffsetsLost"] > 0
    for what in ("fault harm", "told harm", "fault acl_describe", "TopicAuthorizationFailed"):
        assert counts[f"read: {what}"] > 0, what


Mistake = Callable[[pytest.MonkeyPatch], None]


def instead(target: object, name: str, value: object) -> Mistake:
    return lambda patch: patch.setattr(target, name, value)


def after(target: type, name: str, mistake: Callable[..., object]) -> Mistake:
    """`mistake` is made after each call of a method, with the call's arguments."""
    shipped = getattr(target, name)

    def mistaken(*args: Any) -> Any:
        result = shipped(*args)
        mistake(*args)
        return result

    return instead(target, name, mistaken)


def forget_position(self: Fetcher, answer: ClientResponse, response: FetchResponse, now_ms: int) -> None:
    if not response.records:
        self._position = max(self._position, response.last_stable_offset)


take, fetch = Fetcher._take_records, Reader.fetch
no_aborted_transactions = instead(
    Fetcher, "_take_records",
    lambda self, answer, response, now_ms: take(self, answer, replace(response, aborted_transactions=()), now_ms),
)  # fmt: skip
read_losses_untold = after(Fetcher, "_lose", lambda self, loss: self.losses.clear())
gaps_by_empty_answers = after(Fetcher, "_take_records", forget_position)
epochs_unchecked = instead(Fetcher, "_must_check_epoch", lambda self: False)
read_topic_ids_not_compared = instead(fetch_policy, "ids_differ", lambda first, second: False)
offsets_not_doubted = instead(Gaps, "has_doubt", lambda *args, **facts: False)


@pytest.mark.parametrize(("mistake", "seed"), [
    (no_aborted_transactions, 0), (read_losses_untold, 17), (epochs_unchecked, 30), (read_topic_ids_not_compared, 15),
    (gaps_by_empty_answers, 2), (offsets_not_doubted, 27),
])  # fmt: skip
def test_a_reader_with_a_mistake_is_found(mistake: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert run_reads(seed).problem is not None


# Seed 171: a task read what had replaced its records, in one answer with those before. Seed 765: the new leader had no
# record of the known epoch. Seed 1974: a partition was added between the beginning and the first micro-batch. Seed 172:
# the new leader had not compacted the batch before the position yet.
SEEDS = (171, 172, 765, 1974)


@functools.cache
def run(seed: int) -> ReadResult:
    return run_stream(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(seed: int) -> None:
    assert run(seed).problem is None


def test_a_task_that_reads_all_partitions_at_once() -> None:
    result = run_stream(3, kind=harsh(share_of_packed=1))
    assert result.problem is None
    assert result.counts["stream: shared reads"] > 3


@pytest.mark.long
def test_where_a_group_is_is_real() -> None:
    results = [run_stream(seed, kind=GroupStreamingWorld) for seed in range(4)]
    assert not [result.problem for result in results if result.problem is not None]
    counts: Counter[str] = sum((result.counts for result in results), Counter())
    for what in ("commits of a consumer", "NoCommittedOffset", "crashes", "records"):
        assert counts[f"stream: {what}"] > 0, what


@pytest.mark.long
def test_what_happens_is_real() -> None:
    counts: Counter[str] = sum((run(seed).counts for seed in (*range(21), *SEEDS)), Counter())
    assert counts["stream: records"] > 3_000
    assert counts["stream: crashes"] > 20
    happened = (
        "shared reads", "tasks in vain", "told LogBroken truncated", "told LogBroken topic_recreated", "OffsetsLost",
        "LogBroken", "fault acl_read", "fault acl_describe", "fault acl_trouble", "TopicAuthorizationFailed",
    )  # fmt: skip
    for what in (*happened, "records that nothing showed"):
        assert counts[f"stream: {what}"] > 0, what


leaders_not_compared = instead(stream_logs, "with_newer_leaders", lambda *_: iter(()))
topic_ids_not_compared = instead(continuity, "ids_differ", lambda first, second: False)
steps_not_taken = instead(stream_plan, "_after", lambda start, steps: start)
losses_untold = instead(Fetch, "losses", ())
what_a_list_leaves_out_is_deleted = instead(stream_logs, "expected_topics", lambda *_: frozenset())
what_is_behind_the_last_stable_offset_is_lost = instead(
    stream_logs, "IsolationLevel", type("_", (), {"READ_COMMITTED": object(), "READ_UNCOMMITTED": None})
)


tasks_read_what_replaced_their_records = instead(
    Reader, "fetch", lambda self, range_, settings: fetch(self, range_, replace(settings, reads_replacements=True))
)
the_beginning_is_not_recorded = after(
    StreamPlan, "initial", lambda self, client: setattr(self, "_only_recorded", {})
)  # fmt: skip


class Steady(StreamingWorld):
    """Its options stay, and each task runs once."""

    share_of_changes = share_of_repeats = 0


class WithoutAcl(Steady):
    """A stream of a pattern that goes on, and whose ACLs are taken away and given back."""

    share_of_acls = 1
    kinds_of_acls = ("describe",)
    without_acl_ms = (8_000,)

    def _options(self) -> dict[str, str]:
        named = {name: value for name, value in super()._options().items() if name != "subscribe"}
        return {**named, "subscribePattern": f"^{TOPIC}$", "failOnDataLoss": "false"}


class Harsh(Steady):
    """A stream that goes on, and whose logs are truncated and made again all the time."""

    def _options(self) -> dict[str, str]:
        return {**super()._options(), "failOnDataLoss": "false", "kafka.max.partition.fetch.bytes": "1024"}

    def _weights(self) -> dict[str, int]:
        return {**super()._weights(), "truncation": 60, "topic_again": 3}


def harsh(given: Mapping[str, str] = MappingProxyType({}), **shares: float) -> type[StreamingWorld]:
    class Given(Harsh):
        def _options(self) -> dict[str, str]:
            return {**super()._options(), **given}

    for name, share in shares.items():
        setattr(Given, name, share)
    return Given


FromLatest = harsh({"startingOffsets": "latest"})
# It begins before the end, so its first micro-batch would have rows.
FromLastOffsets = harsh(share_of_moving=1)
OfCommitted = harsh({"kafka.isolation.level": "read_committed"})


@pytest.mark.parametrize(("mistake", "kind", "first_seed"), [
    # One seed in 60 finds the first, and one in 200 the last of these.
    pytest.param(leaders_not_compared, Harsh, 230, marks=pytest.mark.long),
    (what_a_list_leaves_out_is_deleted, WithoutAcl, 12), (topic_ids_not_compared, Harsh, 3),
    (steps_not_taken, Harsh, 3), (losses_untold, Harsh, 0),
    pytest.param(tasks_read_what_replaced_their_records, Harsh, 70, marks=pytest.mark.long),
    pytest.param(the_beginning_is_not_recorded, FromLatest, 0, marks=pytest.mark.long),
    pytest.param(the_beginning_is_not_recorded, FromLastOffsets, 0, marks=pytest.mark.long),
    pytest.param(the_beginning_is_not_recorded, GroupStreamingWorld, 10, marks=pytest.mark.long),
    pytest.param(what_is_behind_the_last_stable_offset_is_lost, OfCommitted, 200, marks=pytest.mark.long),
])  # fmt: skip
def test_a_stream_with_a_mistake_is_found(
    mistake: Any, kind: type[StreamingWorld], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    seeds = range(first_seed, first_seed + 100)
    found = next((seed for seed in seeds if run_stream(seed, kind=kind).problem is not None), None)
    assert found is not None
    monkeypatch.undo()
    assert run_stream(found, kind=kind).problem is None
