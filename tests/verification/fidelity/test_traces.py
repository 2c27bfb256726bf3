"""A replay reports a different answer. Here a second model replaces the broker."""

from __future__ import annotations

from fidelity.player import OneBroker
from fidelity.traces import Difference, Trace, compare, make_trace, model_player


def replayed(trace: Trace, client_type: type[OneBroker] = OneBroker) -> Difference | None:
    player = model_player(trace.kind, trace.name)
    client = player.client
    player.client = client_type(client.call, client.leader_of, client.pause, client.versions)
    return compare(trace, player)


def test_the_model_is_like_itself() -> None:
    for seed in range(5):
        assert replayed(make_trace(seed, "4.3.1")) is None
