"""What passes between a thread that asks and the thread that drives the network. The test is the driving thread."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_sink.errors import AuthenticationFailed, ProducerClosed
from kafka_sink.kafka.admin.driver import Guest
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.apis.transaction_state import ListTransactionsRequest
from producer_core import in_background
from scripted_kafka import ScriptedKafka, ScriptedNetwork

NOW_MS = 7
REFUSED = AuthenticationFailed(broker="broker 0", mechanism="PLAIN", user="alice", reason="no")


class SharedNetwork(ScriptedNetwork):
    def __init__(self) -> None:
        super().__init__(ScriptedKafka([1]))
        self.woken = threading.Semaphore(0)

    def wakeup(self) -> None:
        self.woken.release()


@dataclass(eq=False)
class Request:
    """Work that sends one request, and is done with its answer."""

    guest: Guest
    token: str = "of the work"
    answers: list[ClientResponse] = field(default_factory=list)
    sent: bool = False
    turns: int = 0

    def run_once(self, now_ms: int) -> int:
        assert now_ms == NOW_MS
        self.turns += 1
        if not self.sent and self.guest.network.ready(1, now_ms):
            self.sent = True
            self.guest.network.send(1, ListTransactionsRequest(), now_ms, self.token)
        return 40

    def handle(self, answer: ClientResponse, now_ms: int) -> None:
        self.answers.append(answer)

    def is_done(self, now_ms: int) -> bool:
        return any(answer.token == self.token for answer in self.answers)


@pytest.fixture
def network() -> SharedNetwork:
    return SharedNetwork()


@pytest.fixture
def guest(network: SharedNetwork) -> Iterator[Guest]:
    made = Guest(network, lambda: NOW_MS)
    yield made
    made.end(None)


@pytest.fixture
def asking(guest: Guest, network: SharedNetwork) -> Callable[[Any], tuple[threading.Thread, list[object]]]:
    """Hand work over, in a thread that waits for it."""

    def ask(work: Any) -> tuple[threading.Thread, list[object]]:
        thread, outcome = in_background(lambda: guest.drive(work, lambda: 600_000))
        assert network.woken.acquire(timeout=250)
        return thread, outcome

    return ask


def turn(guest: Guest, network: SharedNetwork) -> list[ClientResponse]:
    """As the Sender thread does. Return the answers that are not the guest's."""
    guest.run_once(NOW_MS)
    return guest.take(network.poll(0), NOW_MS)


def outcome_of(asked: tuple[threading.Thread, list[object]]) -> list[object]:
    """What came of work that is over."""
    thread, outcome = asked
    thread.join(250)
    assert not thread.is_alive()
    return outcome


def test_work_is_driven_until_its_answer_is_there_and_no_more(
    guest: Guest, network: SharedNetwork, asking: Any
) -> None:
    network.kafka.silent.add(1)
    asked = asking(work := Request(guest))
    assert (guest.run_once(NOW_MS), guest.network.last_error) == (40, network.last_error)
    assert guest.take(network.poll(0), NOW_MS) == []
    assert asked[1] == []
    network.kafka.silent.clear()
    assert turn(guest, network) == []
    assert outcome_of(asked) == [None]
    assert ([answer.token for answer in work.answers], work.turns) == (["of the work"], 2)
    assert guest.run_once(NOW_MS) == LONGEST_POLL_MS
    assert work.turns == 2


def test_answers_to_requests_of_others_stay_theirs(guest: Guest, network: SharedNetwork, asking: Any) -> None:
    """Two clients use the same tokens: FindCoordinator has one, and either asks for coordinators."""
    asked = asking(work := Request(guest))
    network.send(1, ListTransactionsRequest(), NOW_MS, work.token)
    guest.run_once(NOW_MS)
    (theirs,) = guest.take(network.poll(0), NOW_MS)
    assert theirs.token == work.token
    assert (outcome_of(asked), len(work.answers)) == ([None], 1)


def test_a_wait_ends_in_time_and_its_answer_goes_to_the_next_work(
    guest: Guest, network: SharedNetwork, asking: Any
) -> None:
    network.kafka.silent.add(1)
    late, is_over = Request(guest, "late"), threading.Event()
    asked = in_background(lambda: guest.drive(late, lambda: 0 if is_over.is_set() else 1))
    assert network.woken.acquire(timeout=250)
    guest.run_once(NOW_MS)
    is_over.set()
    assert outcome_of(asked) == [None]
    network.kafka.silent.clear()
    assert turn(guest, network) == []
    assert (late.answers, late.turns) == ([], 1)
    asked = asking(work := Request(guest))
    turn(guest, network)
    assert outcome_of(asked) == [None]
    assert [answer.token for answer in work.answers] == ["late", "of the work"]


def test_an_interrupted_wait_withdraws_its_work(guest: Guest) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    work = Request(guest)
    with pytest.raises(KeyboardInterrupt):
        guest.drive(work, interrupted)
    assert guest.run_once(NOW_MS) == LONGEST_POLL_MS
    assert work.turns == 0


@pytest.mark.parametrize("step", ["run_once", "handle", "is_done"])
def test_an_exception_of_the_work_reaches_who_asks_and_nobody_else(
    guest: Guest, network: SharedNetwork, asking: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def broken(*given: object) -> Any:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Request, step, broken)
        asked = asking(Request(guest))
        turn(guest, network)
        assert [type(each) for each in outcome_of(asked)] == [ZeroDivisionError]
    asked = asking(Request(guest))
    turn(guest, network)
    assert outcome_of(asked) == [None]


@pytest.mark.parametrize("failure", [REFUSED, None])
def test_the_end_of_the_driving_thread_ends_the_wait(guest: Guest, asking: Any, failure: Any) -> None:
    asked = asking(Request(guest))
    guest.end(failure)
    (error,) = outcome_of(asked)
    assert error is failure if failure else isinstance(error, ProducerClosed)
    with pytest.raises(type(error)):
        guest.drive(Request(guest), lambda: 600_000)


def test_work_that_is_done_when_the_driving_thread_ends_is_done(
    guest: Guest, network: SharedNetwork, asking: Any
) -> None:
    asked = asking(Request(guest))
    turn(guest, network)
    guest.end(REFUSED)
    assert outcome_of(asked) == [None]
