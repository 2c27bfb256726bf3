"""Requests to coordinators over a network that keeps them, in a time that a test moves."""

import random
from collections.abc import Callable
from typing import Any

import pytest

import apis
from effort import each
from kafka_sink.kafka.coordinators import (
    QUICK_TRIES,
    READS_TOGETHER,
    Ask,
    Coordinators,
    Next,
    error_code_of,
    next_after,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.requests import select_version
from scripted_kafka import ScriptedKafka, ScriptedNetwork, Sent

GROUP, TXN = apis.CoordinatorKind.GROUP, apis.CoordinatorKind.TRANSACTION
LOADING, UNAVAILABLE, NOT_COORDINATOR, CONCURRENT, FENCED = 14, 15, 16, 51, 90
GROUP_DENIED = 30
BACKOFF_MS, BACKOFF_MAX_MS = 100, 1_000
DEADLINE_MS = 60_000
REFUSED = "broker 0 host0:9092: Connection refused"


def commit(key: str) -> apis.EndTxnRequest:
    return apis.EndTxnRequest(key, 7, 0, committed=True, transaction_version=2)


def ended(code: int = 0) -> apis.EndTxnResponse:
    return apis.EndTxnResponse(0, code, 7, 1) if code == 0 else apis.EndTxnResponse(0, code, -1, -1)


def of_one_key(request: Any) -> int | None:
    """As a broker of Kafka 2.8 or Redpanda: FindCoordinator 3, OffsetFetch 7."""
    return select_version(request, {10: (0, 3), 9: (0, 7)})


class World:
    """Its brokers are 0 to 2; others become known once they are learned."""

    def __init__(self, *, max_in_flight: int = 5, last_error: str = "", **kafka: Any) -> None:
        self.now_ms = 0
        self.kafka = ScriptedKafka(range(3))
        for name, value in kafka.items():
            setattr(self.kafka, name, value)
        self.network = ScriptedNetwork(self.kafka, max_in_flight=max_in_flight, last_error=last_error)
        self.coordinators = Coordinators(
            network=self.network, rng=random.Random(1), retry_backoff_ms=BACKOFF_MS, retry_backoff_max_ms=BACKOFF_MAX_MS
        )

    def ask(
        self, key: str = "s.0", kind: apis.CoordinatorKind = TXN, request: Any = None, deadline_ms: int = DEADLINE_MS
    ) -> Ask:
        request = commit(key) if request is None else request
        return self.coordinators.ask(kind, key, request, now_ms=self.now_ms, deadline_ms=deadline_ms)

    def find_for(self, *asks: Any, node_of: Callable[[str], int] | int = 0) -> list[Ask]:
        """Asks with these arguments, whose coordinators are found, and which are sent as far as they can be."""
        made = [self.ask(*(each if isinstance(each, tuple) else (each,))) for each in asks]
        self.run()
        while self.finding:
            self.find(node_of)
        return made

    def run(self, advance_ms: int = 0) -> int:
        self.now_ms += advance_ms
        return self.coordinators.run_once(self.now_ms)

    def answer(self, sent: Sent, response: object | None, error: str | None = None) -> None:
        if sent in self.network.sent:
            self.network.sent.remove(sent)
        sent.response, sent.error = response, error
        assert self.coordinators.handle(sent, self.now_ms)

    def end(self, code: int = 0) -> None:
        """Answers the oldest EndTxn."""
        self.answer(self.asked[0], ended(code))

    def find(self, node_of: Callable[[str], int] | int = 0, code: int = 0) -> apis.FindCoordinatorRequest:
        """Answers the oldest FindCoordinator that is under way, and sends what could not go before."""
        sent = self.network.take(apis.FindCoordinatorRequest)
        found = tuple(
            apis.FoundCoordinator(key, code, None, -1, "", -1) if code else at(key, node_of)
            for key in sent.request.keys
        )
        self.answer(sent, apis.FindCoordinatorResponse(0, found))
        self.run()
        request: apis.FindCoordinatorRequest = sent.request
        return request

    @property
    def finding(self) -> list[apis.FindCoordinatorRequest]:
        return [sent.request for sent in self.network.sent if isinstance(sent.request, apis.FindCoordinatorRequest)]

    @property
    def asked(self) -> list[Sent]:
        return [sent for sent in self.network.sent if not isinstance(sent.request, apis.FindCoordinatorRequest)]

    @property
    def nodes(self) -> list[int]:
        return [sent.node_id for sent in self.asked]

    def until_sent(self) -> tuple[Sent, int]:
        """Follows the waits that run_once asks for. The request that goes next, and how long that took."""
        began_ms = self.now_ms
        wait_ms = self.run()
        while not self.asked:
            assert self.now_ms < began_ms + 10_000, "nothing is sent any more"
            wait_ms = self.run(wait_ms)
        return self.asked[0], self.now_ms - began_ms


def asking(*asks: Any, node_of: Callable[[str], int] | int = 0, **options: Any) -> tuple[World, list[Ask]]:
    world = World(**options)
    return world, world.find_for(*asks, node_of=node_of)


def one() -> tuple[World, Ask]:
    """An ask that is sent to node 0."""
    world, (ask,) = asking("s.0")
    return world, ask


def marker_of(*groups: str, require_stable: bool = True) -> apis.OffsetFetchRequest:
    return apis.OffsetFetchRequest(groups, "state", 0, require_stable)


def describe(*keys: str) -> apis.DescribeTransactionsRequest:
    return apis.DescribeTransactionsRequest(keys)


def offsets(*groups: tuple[str, int, int]) -> apis.OffsetFetchResponse:
    """Of each group its offset and code."""
    return apis.OffsetFetchResponse(0, tuple(apis.GroupOffset(group, code, value, "") for group, value, code in groups))


def at(key: str, node_of: Callable[[str], int] | int) -> apis.FoundCoordinator:
    node_id = node_of if isinstance(node_of, int) else node_of(key)
    return apis.FoundCoordinator(key, 0, None, node_id, f"host{node_id}", 9092 + node_id)


class TestFind:
    def test_one_request_for_all_keys_of_a_kind(self) -> None:
        world = World()
        for key in ("s.0", "s.1", "s.2", "s.1"):
            world.ask(key)
        world.ask("g", GROUP)
        both = [apis.FindCoordinatorRequest(GROUP, ("g",)), apis.FindCoordinatorRequest(TXN, ("s.0", "s.1", "s.2"))]
        for after_ms in (0, 10):
            world.run(after_ms)
            assert (world.finding, world.asked) == (both, [])

    def test_a_broker_that_takes_one_key_a_request_gets_one_request_for_each(self) -> None:
        world = World(spoken=of_one_key, max_in_flight=3)
        for key in ("s.0", "s.1", "s.2", "s.3"):
            world.ask(key)
        world.run()
        assert world.finding == [apis.FindCoordinatorRequest(TXN, (f"s.{number}",)) for number in range(3)]
        for _ in range(4):
            world.find()
        assert [sent.request.transactional_id for sent in world.asked] == ["s.0", "s.1", "s.2"]

    def test_each_goes_to_its_own_and_is_known_for_the_next_ask(self) -> None:
        world, asks = asking(*(f"s.{i}" for i in range(6)), node_of=lambda key: int(key[2:]) % 3)
        for node_id in range(3):
            sent = [sent.request for sent in world.asked if sent.node_id == node_id]
            assert sent == [ask.request for ask in asks[node_id::3]]
        world.end()
        world.ask("s.0")
        world.run()
        assert (world.finding, world.nodes[-1]) == ([], 0)

    def test_a_group_and_a_transactional_id_of_one_name_are_two(self) -> None:
        world = World()
        world.ask("x", TXN)
        world.ask("x", GROUP, commit("of the group"))
        world.run()
        world.find(1)
        world.find(2)
        sent = {(sent.node_id, sent.request.transactional_id) for sent in world.asked}
        assert sent == {(1, "of the group"), (2, "x")}

    def test_a_broker_nobody_knew_is_learned_first(self) -> None:
        world, _ = asking("s.0", node_of=7)
        assert world.network.learned == {7: apis.Broker(7, "host7", 9099)}
        assert world.nodes == [7]

    @pytest.mark.parametrize("code", [LOADING, UNAVAILABLE])
    def test_not_available_yet_is_asked_again_after_a_growing_backoff(self, code: int) -> None:
        world = World()
        ask = world.ask()
        world.run()
        for exponential in (100, 200, 400, 800, 1_000, 1_000):
            world.find(code=code)
            wait_ms = world.run()
            assert 0.8 * exponential - 1 <= wait_ms <= min(1.2 * exponential, 1_000)
            world.run(wait_ms - 1)
            assert world.network.sent == []
            world.run(1)
            assert len(world.finding) == 1
        assert not ask.done
        assert ask.error.startswith("FindCoordinator was answered with COORDINATOR_")

    def test_only_the_keys_that_have_none_are_asked_again(self) -> None:
        world = World()
        for key in ("s.0", "s.1"):
            world.ask(key)
        world.run()
        found = (at("s.0", 0), apis.FoundCoordinator("s.1", UNAVAILABLE, "why", -1, "", -1))
        world.answer(world.network.take(apis.FindCoordinatorRequest), apis.FindCoordinatorResponse(0, found))
        assert world.until_sent()[0].request == commit("s.0")
        world.run(BACKOFF_MAX_MS)
        assert world.finding == [apis.FindCoordinatorRequest(TXN, ("s.1",))]

    def test_a_refusal_ends_the_asks_of_that_key(self) -> None:
        world = World()
        denied, allowed = [world.ask("denied", GROUP), world.ask("denied", GROUP)], world.ask("allowed", GROUP)
        world.run()
        found = (apis.FoundCoordinator("denied", GROUP_DENIED, "why", -1, "", -1), at("allowed", 1))
        world.answer(world.network.take(apis.FindCoordinatorRequest), apis.FindCoordinatorResponse(0, found))
        assert [(ask.done, ask.response, ask.refused) for ask in denied] == [(True, None, GROUP_DENIED)] * 2
        assert denied[0].error == "FindCoordinator was answered with GROUP_AUTHORIZATION_FAILED (error 30)"
        world.run()
        assert (allowed.done, [sent.request for sent in world.asked]) == (False, [allowed.request])
        # Rights may be granted later.
        world.ask("denied", GROUP)
        world.run()
        assert world.finding == [apis.FindCoordinatorRequest(GROUP, ("denied",))]


class TestAnswer:
    @pytest.mark.parametrize("code", [0, 47, 48, 49, FENCED, 53, 120, -1, 9_999])
    def test_a_definite_one_ends_it(self, code: int) -> None:
        world, ask = one()
        world.end(code)
        assert (ask.done, ask.response, ask.error, ask.refused) == (True, ended(code), "", 0)
        world.run(10)
        assert world.network.sent == []

    def test_the_same_request_goes_again(self) -> None:
        world, ask = one()
        for code in (LOADING, CONCURRENT, UNAVAILABLE, NOT_COORDINATOR, 7, 88, 89, 3):
            world.end(code)
            assert not ask.done
            world.run(BACKOFF_MAX_MS)
            if world.finding:
                world.find()
            (sent,) = world.asked
            assert sent.request is ask.request
        world.end()
        assert ask.response == ended()

    @pytest.mark.parametrize("code", [UNAVAILABLE, NOT_COORDINATOR, None])
    def test_of_one_that_moved_it_is_found_anew_at_once(self, code: int | None) -> None:
        """The same if there is no answer."""
        world, ask = one()
        if code is None:
            world.answer(world.asked[0], None, "broker 0: no answer within 30000 ms")
            assert ask.error == "broker 0: no answer within 30000 ms"
        else:
            world.end(code)
        world.run()
        world.find(2)
        assert world.asked == []
        sent, waited_ms = world.until_sent()
        assert (sent.node_id, sent.request) == (2, ask.request)
        assert 0 < waited_ms <= 1.2 * BACKOFF_MS

    def test_of_one_that_loads_it_is_not_found_anew(self) -> None:
        world, _ = one()
        for exponential in (100, 200, 400, 800, 1_000):
            world.end(LOADING)
            _, wait_ms = world.until_sent()
            assert 0.8 * exponential - 1 <= wait_ms <= min(1.2 * exponential, 1_000)
            assert (world.nodes, world.finding) == ([0], [])

    @pytest.mark.parametrize("code", [CONCURRENT, 88])
    def test_while_markers_are_written_soon_and_then_less_often(self, code: int) -> None:
        world, _ = one()
        waits = []
        for _ in range(QUICK_TRIES + 4):
            world.end(code)
            waits.append(world.until_sent()[1])
        assert set(waits[:QUICK_TRIES]) == {1, 2}
        for wait, exponential in zip(waits[QUICK_TRIES:], (100, 200, 400, 800), strict=True):
            assert 0.8 * exponential - 1 <= wait <= 1.2 * exponential

    def test_a_late_not_me_does_not_undo_what_was_found_since(self) -> None:
        world, (first, second) = asking("s.0", "s.0")
        of_first, of_second = world.asked
        world.answer(of_first, ended(NOT_COORDINATOR))
        world.run()
        world.find(1)
        world.answer(of_second, ended(NOT_COORDINATOR))
        world.run(BACKOFF_MAX_MS)
        assert world.finding == []
        assert [(sent.node_id, sent.token) for sent in world.asked] == [(1, first), (1, second)]

    def test_a_coordinator_that_cannot_be_reached_is_looked_for_again(self) -> None:
        world, _ = one()
        world.end()
        world.kafka.down, world.network.last_error = {0}, REFUSED
        ask = world.ask()
        world.run()
        assert ask.error == REFUSED
        world.find(0)
        # Nobody else has noticed yet: it is not asked for at every turn.
        assert (world.finding, world.asked) == ([], [])
        world.run(BACKOFF_MAX_MS)
        world.find(2)
        assert world.nodes == [2]

    def test_others_answers_are_others(self) -> None:
        for request, token in ((apis.MetadataRequest((), False), None), (apis.InitProducerIdRequest(1), object())):
            assert not World().coordinators.handle(Sent(0, request, token), 0)


class TestPipelining:
    def test_reads_go_apart_to_a_broker_that_takes_one_group_a_request(self) -> None:
        world = World(spoken=of_one_key)
        # The second time both coordinators are known, and both reads are due at once.
        for _ in range(2):
            asks = world.find_for(*((key, GROUP, apis.OffsetFetchRequest((key,), "t", 0)) for key in ("g.0", "g.1")))
            world.run()
            assert [sent.request.group_ids for sent in world.asked] == [("g.0",), ("g.1",)]
            for sent, offset in zip(list(world.asked), (4, 5), strict=True):
                world.answer(sent, offsets((sent.request.group_ids[0], offset, 0)))
            assert [ask.response.groups[0].offset for ask in asks if ask.response] == [4, 5]

    def test_a_hundred_over_one_coordinator_and_a_turn_visits_only_those_that_can_go(self) -> None:
        world, visits = World(max_in_flight=5), 0
        ready = world.network.ready

        def counted(node_id: int, now_ms: int) -> bool:
            nonlocal visits
            visits += 1
            return ready(node_id, now_ms)

        world.network.ready = counted  # type: ignore[method-assign]
        keys = [f"s.{i}" for i in range(100)]
        asks = world.find_for(*keys, node_of=1)
        seen = []
        while world.asked:
            assert len(world.asked) == min(5, 100 - len(seen))
            seen.append(world.asked[0].request.transactional_id)
            world.end()
            world.run()
        assert seen == keys
        assert all(ask.response == ended() for ask in asks)
        assert world.now_ms == 0
        assert visits < 3 * len(asks)

    def test_reads_of_one_coordinator_are_one_request(self) -> None:
        world = World()
        keys = [f"s.{i}" for i in range(4)]
        asks = world.find_for(*((key, GROUP, marker_of(key)) for key in keys), node_of=lambda key: int(key[-1]) % 2)
        even, odd = sorted(world.asked, key=lambda sent: sent.node_id)
        assert (even.request, odd.request) == (marker_of("s.0", "s.2"), marker_of("s.1", "s.3"))
        world.answer(even, offsets(("s.0", 5, 0), ("s.2", 7, 0)))
        assert [ask.response for ask in asks[::2]] == [offsets(("s.0", 5, 0)), offsets(("s.2", 7, 0))]
        assert [ask.done for ask in asks] == [True, False, True, False]

    def test_groups_of_one_coordinator_are_deleted_by_one_request(self) -> None:
        world, asks = asking(*((key, GROUP, apis.DeleteGroupsRequest((key,))) for key in ("s.0", "s.1", "s.2")))
        (sent,) = world.asked
        assert sent.request == apis.DeleteGroupsRequest(("s.0", "s.1", "s.2"))
        codes = {"s.2": 69, "s.0": 0, "s.1": 14}
        world.answer(sent, apis.DeleteGroupsResponse(0, tuple(apis.DeletedGroup(*each) for each in codes.items())))
        assert [ask.done for ask in asks] == [True, False, True]
        assert asks[2].response == apis.DeleteGroupsResponse(0, (apis.DeletedGroup("s.2", 69),))
        assert world.until_sent()[0].request == apis.DeleteGroupsRequest(("s.1",))

    def test_reads_that_are_not_alike_go_apart(self) -> None:
        world = World()
        markers = marker_of("s.0"), marker_of("s.1", require_stable=False)
        world.find_for(
            *((each.group_ids[0], GROUP, each) for each in markers),
            *((key, TXN, describe(key)) for key in ("s.2", "s.3")),
        )
        assert [sent.request for sent in world.asked] == [*markers, describe("s.2", "s.3")]
        # And so many at most.
        world, _ = asking(*((f"s.{i}", TXN, describe(f"s.{i}")) for i in range(READS_TOGETHER + 1)))
        assert [len(sent.request.transactional_ids) for sent in world.asked] == [READS_TOGETHER, 1]

    def test_a_throttled_coordinator_is_left_alone(self) -> None:
        world = World()
        world.network.connecting = {1}
        (ask,) = world.find_for("s.0", node_of=1)
        world.run(500)
        assert (world.asked, world.finding, ask.error) == ([], [], "")
        world.network.connecting.clear()
        world.run()
        assert world.nodes == [1]


class TestDeadline:
    def test_ends_it_with_the_last_reason(self) -> None:
        world, (ask,) = asking(("s.0", TXN, None, 250))
        world.end(LOADING)
        assert world.run(249 - world.now_ms) >= 0
        assert not ask.done
        world.run(1)
        reason = "EndTxn was answered with COORDINATOR_LOAD_IN_PROGRESS (error 14)"
        assert (ask.done, ask.response, ask.error) == (True, None, reason)

    @pytest.mark.parametrize("last_error", ["bootstrap server b:1: Connection refused", ""])
    def test_bounds_the_wait_and_says_what_the_network_says(self, last_error: str) -> None:
        world = World(down={0, 1, 2}, last_error=last_error)
        short, long = world.ask(deadline_ms=100), world.ask(deadline_ms=300)
        assert (world.run(), world.run(100)) == (100, 200)
        assert (short.done, long.done) == (True, False)
        assert short.error == (last_error or "no broker took the request")

    def test_an_answer_that_comes_after_it_changes_nothing(self) -> None:
        world, (ask,) = asking(("s.0", TXN, None, 100))
        world.run(100)
        assert ask.done
        world.end()
        assert (ask.response, ask.error) == (None, "no broker took the request")
        world.run(1_000)
        assert world.network.sent == []

    def test_comes_nearer_by_a_tenth_of_the_time_in_which_a_broker_throttles(self) -> None:
        world = World(throttled=dict.fromkeys(range(3), (0, 2_000)))
        ask = world.ask(deadline_ms=300)
        assert (world.run(), world.run(2_000)) == (300, 100)
        assert not ask.done
        assert world.run(99) == 1
        world.run(1)
        assert ask.done

    @pytest.mark.parametrize("is_down", [False, True])
    def test_ends_one_that_waits_for_room_and_it_does_not_go(self, is_down: bool) -> None:
        """Whatever becomes of its node."""
        world, (first, late, read) = asking(
            "s.0", ("s.1", TXN, None, 100), ("s.2", TXN, describe("s.2"), 100), max_in_flight=1
        )
        world.run(100)
        assert (late.done, read.done) == (True, True)
        reason = late.error
        if is_down:
            world.kafka.down, world.network.last_error = {0}, "broker 0: cut"
        world.end()
        world.run()
        assert (first.done, world.asked, late.error, world.finding) == (True, [], reason, [])


MEANINGS = {
    **dict.fromkeys((3, 7, 14, 89), Next.AGAIN),
    **dict.fromkeys((51, 88), Next.AGAIN_SOON),
    **dict.fromkeys((15, 16), Next.ELSEWHERE),
}


@each("code", [*ErrorCode, 9_999, -32_768])
def test_every_code_is_definite_or_not(code: int) -> None:
    """Those of Java's TransactionManager and OffsetFetch that it sends again; all others are answers."""
    assert next_after(code) is MEANINGS.get(code, Next.DONE)


OF_MOST = [
    ((), 0),
    ((0, 0), 0),
    ((0, 90, 47), 90),
    ((55, 51, 55), 51),
    ((90, 51, 14), 14),
    ((14, 0, 16, 51), 16),
    ((0, 0, 88), 88),
]


class TestTheCodeOfAResponse:
    # A response of many, and one of its parts.
    @pytest.mark.parametrize(("response", "part"), [
        (lambda parts: apis.PartitionsResponse(0, parts), lambda code: apis.PartitionResult("k", 0, code)),
        (lambda parts: apis.ProgressCommitResponse(0, parts), lambda code: apis.PartitionResult("k", 0, code)),
        (lambda parts: apis.OffsetFetchResponse(0, parts), lambda code: apis.GroupOffset("k", code, 1, "")),
        (lambda parts: apis.DescribeProducersResponse(0, parts),
         lambda code: apis.ProducersOfPartition("k", 0, code, None, ())),
        (lambda parts: apis.DescribeTransactionsResponse(0, parts),
         lambda code: apis.TransactionDescription("k", code, "", 1, 1, 1, 1, ())),
    ])  # fmt: skip
    def test_that_has_many_is_the_one_that_asks_for_most(
        self, response: Callable[[Any], Any], part: Callable[[int], Any]
    ) -> None:
        for codes, code in OF_MOST:
            assert error_code_of(response(tuple(map(part, codes)))) == code

    def test_a_topic_that_is_gone_is_not_waited_for_by_a_readers_progress(self) -> None:
        def code_of(*codes: int) -> int:
            results = tuple(apis.PartitionResult("t", 0, code) for code in codes)
            return error_code_of(apis.ProgressCommitResponse(0, results))

        assert (code_of(3, 3), code_of(3, 0), code_of(3, 14), code_of(3, 25)) == (0, 0, 14, 25)
        assert error_code_of(apis.ErrorResponse(0, 3)) == 3


@each("seed", range(200))
def test_every_ask_is_answered_once_faults_end(seed: int) -> None:
    """Coordinators move, load, lose connections and answers, brokers come and go; then that ends."""
    rng = random.Random(seed)
    world = World(max_in_flight=3)
    keys = [f"s.{i}" for i in range(8)]
    where = {key: rng.randrange(3) for key in keys}
    executed: dict[str, int] = dict.fromkeys(keys, 0)
    asks = [world.ask(key) for key in keys for _ in range(2)]
    reads = [world.ask(key, TXN, describe(key)) for key in keys]
    faults_end_ms = 20_000

    def described(key: str, node_id: int, faults: bool) -> apis.TransactionDescription:
        code = NOT_COORDINATOR if where[key] != node_id else LOADING if faults and rng.random() < 0.3 else 0
        return apis.TransactionDescription(key, code, "Ongoing", 0, -1, 1, 0, ())

    def respond(sent: Sent, faults: bool) -> tuple[object | None, str | None]:
        if faults and rng.random() < 0.1:
            return None, "cut"
        if isinstance(sent.request, apis.FindCoordinatorRequest):
            codes = {key: UNAVAILABLE if faults and rng.random() < 0.2 else 0 for key in sent.request.keys}
            found = (apis.FoundCoordinator(k, c, "", -1, "", -1) if c else at(k, where[k]) for k, c in codes.items())
            return apis.FindCoordinatorResponse(0, tuple(found)), None
        if isinstance(sent.request, apis.DescribeTransactionsRequest):
            states = (described(key, sent.node_id, faults) for key in sent.request.transactional_ids)
            return apis.DescribeTransactionsResponse(0, tuple(states)), None
        key = sent.request.transactional_id
        if where[key] != sent.node_id:
            return ended(NOT_COORDINATOR), None
        if faults and rng.random() < 0.5:
            return ended(rng.choice([LOADING, CONCURRENT, UNAVAILABLE, 7])), None
        executed[key] += 1
        return (None, "cut") if faults and rng.random() < 0.3 else (ended(), None)

    while not all(ask.done for ask in (*asks, *reads)):
        assert world.now_ms < faults_end_ms + 5_000, "an ask is stuck"
        faults = world.now_ms < faults_end_ms
        if faults and rng.random() < 0.1:
            where[rng.choice(keys)] = rng.randrange(3)
        world.kafka.down = {rng.randrange(3)} if faults and rng.random() < 0.2 else set()
        wait_ms = world.run()
        assert wait_ms > 0
        under_way = [ask for sent in world.asked for ask in getattr(sent.token, "asks", (sent.token,))]
        assert len(set(map(id, under_way))) == len(under_way), "one ask is under way twice"
        if world.network.sent:
            sent = rng.choice(world.network.sent)
            world.answer(sent, *respond(sent, faults))
            world.now_ms += rng.randint(0, 3)
        else:
            world.now_ms += wait_ms
    assert all(ask.response == ended() for ask in asks)
    assert [error_code_of(ask.response) if ask.response else None for ask in reads] == [0] * len(keys)
    assert [ask.response.transactions[0].transactional_id for ask in reads if ask.response] == keys
    assert all(count >= 1 for count in executed.values())
