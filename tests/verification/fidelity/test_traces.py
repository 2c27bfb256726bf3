"""A replay reports a different answer. Here a second model replaces the broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fidelity.player import OneBroker
from fidelity.report import Findings, campaign
from fidelity.steps import Answer, EndTxn
from fidelity.traces import Difference, Trace, compare, make_trace, model_player
from model.transaction_client import Ended, Producer


class Forgetful(OneBroker):
    """Its brokers answer every end of a transaction with INVALID_TXN_STATE."""

    def end(self, transactional_id: str, producer: Producer, is_commit: bool, *, version: int | None = None) -> Ended:
        return Ended(48, None)


def replayed(trace: Trace, client_type: type[OneBroker] = OneBroker) -> Difference | None:
    player = model_player(trace.kind, trace.name)
    client = player.client
    player.client = client_type(client.call, client.leader_of, client.pause, client.versions)
    return compare(trace, player)


def ended_well() -> Iterator[Trace]:
    for seed in range(100):
        trace = make_trace(seed, "4.3.1")
        for step, answer in zip(trace.steps, trace.answers, strict=True):
            if isinstance(step, EndTxn) and answer.codes == (0,):
                yield trace


def test_the_model_is_like_itself() -> None:
    for seed in range(5):
        assert replayed(make_trace(seed, "4.3.1")) is None


def test_another_code_is_a_difference() -> None:
    trace = next(ended_well())
    difference = replayed(trace, Forgetful)
    assert difference is not None
    assert isinstance(trace.steps[difference.place], EndTxn)
    assert difference.answer == Answer((48,), (None,))


def test_a_difference_tells_how_to_see_it_again() -> None:
    trace = make_trace(3, "3.9.2", steps=5)
    difference = replayed(replace(trace, answers=(*trace.answers[:-1], Answer((99,)))))
    assert difference is not None
    told = str(difference)
    assert "TRACES=1 ARGS='--kafka-version 3.9.2 --seed 3'" in told
    assert f"{trace.steps[4]}" in told
    assert f"broker {trace.answers[4]}" in told


def test_findings_count_what_was_alike() -> None:
    trace = make_trace(3, "3.9.2", steps=5)
    findings = Findings("3.9.2")
    findings.count(trace, None)
    findings.count(trace, Difference(trace, 2, Answer((99,))))
    assert (findings.traces, findings.steps, len(findings.differences)) == (2, 7, 1)
    assert sum(findings.pairs.values()) >= 7
    whole = Findings.of("3.9.2", [findings, Findings("4.3.1", traces=9), findings])
    assert (whole.traces, whole.steps, len(whole.differences)) == (4, 14, 2)
    assert whole.pairs.total() == 2 * findings.pairs.total()
    page = campaign([findings], "make fidelity")
    assert not page.passed
    assert page.figures["Kafka 3.9.2: differences"] == 1
    assert any(sentence.startswith("Kafka 3.9.2: InitProducerId: NONE") for sentence in page.explained)
