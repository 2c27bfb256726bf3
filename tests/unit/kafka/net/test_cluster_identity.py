from __future__ import annotations

import pytest

from kafka_sink.errors import ClusterChanged
from kafka_sink.kafka.net.cluster_identity import ClusterIdentity

BOOT, OTHER, BROKER = (("boot", 9092), ("other", 9092), ("b1", 9092))


def elsewhere(broker: str = "boot") -> ClusterChanged:
    return ClusterChanged(broker=broker, expected="ours", found="theirs")


def failed(identity: ClusterIdentity, server: tuple[str, int], changed: ClusterChanged | None = None) -> object:
    return identity.failed(server, changed, is_last=True)


class TestId:
    def test_is_that_of_the_first_broker_that_names_one(self) -> None:
        identity = ClusterIdentity(None, [BOOT])
        assert identity.is_ours(None)
        assert identity.is_ours("ours")
        assert identity.cluster_id == "ours"
        assert not identity.is_ours("theirs")
        assert identity.is_ours(None)

    def test_may_be_known_from_the_start(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        assert not identity.is_ours("theirs")
        assert identity.cluster_id == "ours"


class TestReplaced:
    def test_when_the_bootstrap_server_leads_elsewhere(self) -> None:
        changed = elsewhere()
        assert failed(ClusterIdentity("ours", [BOOT]), BOOT, changed) is changed

    def test_not_by_the_word_of_another_address(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        assert failed(identity, BROKER, elsewhere()) is None
        assert failed(identity, BOOT) is None
        assert failed(identity, BROKER, elsewhere()) is None

    @pytest.mark.parametrize("answers", [True, False])
    def test_when_the_other_bootstrap_servers_were_tried_after_that(self, answers: bool) -> None:
        """`answers`: the other one leads elsewhere too, or cannot be reached."""
        identity = ClusterIdentity("ours", [BOOT, OTHER, BOOT])
        changed = elsewhere()
        assert failed(identity, BOOT, changed) is None
        assert failed(identity, OTHER, elsewhere("other") if answers else None) is changed

    def test_not_if_another_bootstrap_server_was_tried_before(self) -> None:
        """It may have been down, and is asked again."""
        identity = ClusterIdentity("ours", [BOOT, OTHER])
        changed = elsewhere()
        failed(identity, BROKER, elsewhere())
        assert failed(identity, OTHER) is None
        assert failed(identity, BOOT, changed) is None
        assert identity.is_to_be_asked(OTHER)
        assert failed(identity, OTHER) is changed

    def test_not_before_each_address_of_a_name_was_tried(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        changed = elsewhere()
        assert identity.failed(BOOT, changed, is_last=False) is None
        assert identity.is_to_be_asked(BOOT)
        assert failed(identity, BOOT) is changed

    def test_not_by_what_was_before_a_connection(self) -> None:
        identity = ClusterIdentity("ours", [BOOT, OTHER])
        failed(identity, BOOT, elsewhere())
        identity.connected(BROKER)
        assert failed(identity, OTHER) is None
        assert failed(identity, BOOT) is None

    def test_not_if_nothing_can_be_reached(self) -> None:
        identity = ClusterIdentity("ours", [BOOT, OTHER])
        assert [failed(identity, server) for server in (BOOT, OTHER, BROKER, BOOT, OTHER)] == [None] * 5


class TestToBeAsked:
    def test_are_bootstrap_servers_once_an_address_leads_elsewhere(self) -> None:
        identity = ClusterIdentity("ours", [BOOT, OTHER])
        failed(identity, BROKER)
        assert not identity.is_to_be_asked(BOOT)
        failed(identity, BROKER, elsewhere())
        assert identity.is_to_be_asked(BOOT)
        assert identity.is_to_be_asked(OTHER)

    def test_are_those_that_were_down_before(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        failed(identity, BOOT)
        failed(identity, BROKER, elsewhere())
        assert identity.is_to_be_asked(BOOT)

    def test_are_not_those_that_were_tried(self) -> None:
        identity = ClusterIdentity("ours", [BOOT, OTHER])
        failed(identity, BOOT, elsewhere())
        assert not identity.is_to_be_asked(BOOT)
        assert identity.is_to_be_asked(OTHER)

    def test_are_none_once_a_broker_is_connected(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        failed(identity, BROKER, elsewhere())
        identity.connected(BROKER)
        assert not identity.is_to_be_asked(BOOT)

    def test_are_none_once_one_of_them_has_listed_the_brokers(self) -> None:
        identity = ClusterIdentity("ours", [BOOT])
        failed(identity, BROKER, elsewhere())
        failed(identity, BOOT)
        identity.connected(BOOT)
        assert identity.is_to_be_asked(BOOT)
        identity.brokers_listed()
        assert not identity.is_to_be_asked(BOOT)
