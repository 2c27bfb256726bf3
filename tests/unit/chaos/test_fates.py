"""chaos.fates: what befalls messages is drawn from a seed, as often as the schedule says."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from chaos.fates import Direction, Fate, Kind, Schedule

HALF_CUT = Schedule(7, {(Direction.ANSWER, Kind.CUT): 500, (Direction.REQUEST, Kind.HALF): 20})


def test_a_seed_gives_a_connection_the_same_fates_again_and_another_one_others() -> None:
    def first(schedule: Schedule, connection: str) -> list[Fate]:
        return list(islice(schedule.fates(connection, Direction.ANSWER), 50))

    assert first(HALF_CUT, "1 0") == first(Schedule(7, HALF_CUT.per_thousand), "1 0")
    assert first(HALF_CUT, "1 0") != first(HALF_CUT, "1 1")
    assert first(HALF_CUT, "1 0") != first(Schedule(8, HALF_CUT.per_thousand), "1 0")


def test_each_direction_has_its_own_share() -> None:
    answers = Counter(fate.kind for fate in islice(HALF_CUT.fates("1 0", Direction.ANSWER), 10_000))
    assert answers.keys() == {None, Kind.CUT}
    assert 4_500 < answers[Kind.CUT] < 5_500
    requests = Counter(fate.kind for fate in islice(HALF_CUT.fates("1 0", Direction.REQUEST), 10_000))
    assert requests.keys() == {None, Kind.HALF}
    assert 100 < requests[Kind.HALF] < 300
