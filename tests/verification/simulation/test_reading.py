"""The shipped reader over the model: nothing is lost in silence, doubled or made up. Each rule is seen to be broken."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.kafka.consumer import topic_watch
from kafka_sink.kafka.consumer.fetch_range import Loss
from kafka_sink.kafka.consumer.fetcher import Fetcher
from kafka_sink.kafka.consumer.gaps import Gaps
from kafka_sink.kafka.protocol.apis.fetch import FetchResponse
from kafka_sink.kafka.protocol.client_response import ClientResponse
from simulation.read_world import WEIGHTS, ReadResult
from simulation.reading import run_reads


@functools.cache
def run(seed: int) -> ReadResult:
    return run_reads(seed)


@pytest.mark.long
def test_the_faults_are_real() -> None:
    counts: Counter[str] = sum((run(seed).counts for seed in range(30)), Counter())
    kinds = {name.removeprefix("read: fault ") for name in counts if name.startswith("read: fault ")}
    assert kinds >= {"cut", "mute", "deafen", *(set(WEIGHTS) - {"topic_again"})}
    assert counts["read: records"] > 3_000
    assert counts["read: losses"] > 0
    assert counts["read: OffsetsLost"] > 0
    for what in ("fault harm", "told harm", "fault acl_describe", "TopicAuthorizationFailed"):
        assert counts[f"read: {what}"] > 0, what


def no_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    take = Fetcher._take_records

    def mistaken(self: Fetcher, answer: ClientResponse, response: FetchResponse, now_ms: int) -> None:
        take(self, answer, replace(response, aborted_transactions=()), now_ms)

    patch.setattr(Fetcher, "_take_records", mistaken)


def losses_untold(patch: pytest.MonkeyPatch) -> None:
    lose = Fetcher._lose

    def mistaken(self: Fetcher, loss: Loss) -> None:
        lose(self, loss)
        self.losses.clear()

    patch.setattr(Fetcher, "_lose", mistaken)


def epochs_unchecked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "_must_check_epoch", lambda self: False)


def topic_ids_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(topic_watch, "ids_differ", lambda first, second: False)


def gaps_by_empty_answers(patch: pytest.MonkeyPatch) -> None:
    take = Fetcher._take_records

    def mistaken(self: Fetcher, answer: ClientResponse, response: FetchResponse, now_ms: int) -> None:
        take(self, answer, response, now_ms)
        if not response.records:
            self._position = max(self._position, response.last_stable_offset)

    patch.setattr(Fetcher, "_take_records", mistaken)


def offsets_not_doubted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gaps, "has_doubt", lambda *args, **facts: False)


@pytest.mark.parametrize(
    ("mistake", "seed"),
    [
        (no_aborted_transactions, 0), (losses_untold, 17), (epochs_unchecked, 30), (topic_ids_not_compared, 15),
        (gaps_by_empty_answers, 2), (offsets_not_doubted, 27),
    ],
)  # fmt: skip
def test_a_reader_with_a_mistake_is_found(mistake: Any, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert run_reads(seed).problem is not None
