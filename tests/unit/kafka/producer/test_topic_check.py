"""Brokers that took rows by name are asked which topic that is, each of them."""

import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from kafka_sink.errors import TopicRecreated
from kafka_sink.kafka.producer.checks import TopicCheck
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, TopicMetadata
from kafka_sink.kafka.protocol.apis.produce import ProduceResponse, ProduceResult
from producer_core import TOPIC, TOPIC_ID, Core, make_core, metadata_response, routed

ANOTHER_ID = uuid.UUID(int=8)
LEADERS = (0, 1)


def check(*node_ids: int, topic_id: uuid.UUID | None = TOPIC_ID, asked: bool = True) -> TopicCheck:
    made = TopicCheck({TOPIC: topic_id}, node_ids)
    for node_id in node_ids if asked else ():
        made.asked(node_id)
    return made


def same() -> object:
    return metadata_response(LEADERS)


def another() -> object:
    return metadata_response(LEADERS, topic_id=ANOTHER_ID)


def gone() -> object:
    return replace(metadata_response(LEADERS), topics=(TopicMetadata(3, TOPIC, None, ()),))


def test_it_is_settled_when_all_have_answered_also_to_a_question_that_was_lost() -> None:
    each = check(0, 2, asked=False)
    assert each.to_ask() == (0, 2)
    for node_id in (0, 2):
        each.asked(node_id)
    assert each.to_ask() == ()
    each.answered(0, None)
    each.answered(2, same())
    assert each.to_ask() == (0,) and not each.settled
    each.asked(0)
    each.answered(0, same())
    assert each.settled and each.recreated is None
    each = TopicCheck({"b": None, "a": None}, {0})
    assert each.request == MetadataRequest(topics=("a", "b"), allow_auto_topic_creation=False)


@pytest.mark.parametrize("last", [same, another])
def test_one_that_has_another_topic_settles_it_whatever_the_others_say(last: Callable[[], object]) -> None:
    each = check(0, 1)
    each.answered(0, another())
    assert each.settled
    each.answered(1, last())
    assert isinstance(each.recreated, TopicRecreated)
    told = each.recreated.topic, each.recreated.old_topic_id, each.recreated.new_topic_id
    assert told == (TOPIC, str(TOPIC_ID), str(ANOTHER_ID))


@pytest.mark.parametrize("topic_id", [TOPIC_ID, None], ids=["it is no other topic", "brokers without ids say nothing"])
def test_a_topic_that_is_gone_settles_it(topic_id: uuid.UUID | None) -> None:
    each = check(0, topic_id=topic_id)
    each.answered(0, gone())
    assert each.settled and each.recreated is None


def test_one_answer_stands_in_for_all_that_cannot_be_asked() -> None:
    each = check(0, 1, 2, asked=False)
    each.asked(2)
    each.gone(0)
    each.gone(1)
    assert each.wants_another and not each.settled
    # The one that can be asked has been, before; its answer to that question may be as old as the question.
    each.asked(2)
    assert not each.wants_another
    each.answered(2, same())
    assert not each.settled
    each.answered(2, same())
    assert each.settled


def taken_by_name(*down: int) -> tuple[Core, TopicCheck]:
    """The leader of each partition has taken a row, as one that knows no topic ids. Then they are asked."""
    core = make_core(LEADERS)
    for sent in core.send(routed([b"a", b"b"], [0, 1])):
        results = (ProduceResult(part.topic, None, part.partition, 0, None, 5) for part in sent.request.partitions)
        core.answer(sent, ProduceResponse(0, tuple(results)))
    assert core.acknowledgements.settled
    assert core.acknowledgements.takers_by_name == {0, 1}
    core.run()
    assert not core.network.sent, "without a question"
    core.kafka.down = set(down)
    core.sender.topic_check = TopicCheck({TOPIC: TOPIC_ID}, core.acknowledgements.takers_by_name)
    core.run()
    return core, core.sender.topic_check


def test_who_took_rows_by_id_is_not_asked() -> None:
    core = make_core(LEADERS)
    (sent,) = core.send(routed([b"a"], [0]))
    core.answer(sent, ProduceResponse(0, (ProduceResult(None, TOPIC_ID, 0, 0, None, 5),)))
    assert core.acknowledgements.settled and not core.acknowledgements.takers_by_name


@pytest.mark.parametrize(("down", "nodes"), [((), [0, 1]), ((1,), [0, 0])], ids=["each", "one stands in for the other"])
def test_each_of_them_is_asked_at_once(down: tuple[int, ...], nodes: list[int]) -> None:
    core, each = taken_by_name(*down)
    assert [sent.node_id for sent in core.network.sent] == nodes
    for sent in list(core.network.sent):
        core.answer(sent, same())
    assert each.settled and each.recreated is None


def test_an_answer_that_is_stale_does_not_hide_the_one_that_is_not() -> None:
    """What the broker that is asked last believes is nothing to go by: it was so once (seed 49 of the simulation)."""
    core, each = taken_by_name()
    first, last = core.network.sent
    core.answer(first, another())
    core.answer(last, same())
    assert each.recreated is not None


def test_while_nobody_can_be_asked_it_waits() -> None:
    core, each = taken_by_name(0, 1, 2)
    assert not core.network.sent and not each.settled
    core.kafka.down = {0, 1}
    core.run()
    (sent,) = core.network.sent
    core.answer(sent, same())
    assert (sent.node_id, each.settled) == (2, True)
