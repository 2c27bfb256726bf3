"""Connections to bootstrap servers, once the brokers are known."""

from __future__ import annotations

from mutants.mutant import Mutant

_TESTS = "tests/unit/kafka/net/test_bootstrap_servers.py"

BOOTSTRAP: tuple[Mutant, ...] = (
    Mutant(
        name="bootstrap: a broker at a bootstrap server's address gets a connection of its own",
        rule="docs/design/rows.md: one connection to each broker",
        pattern="$BOOTSTRAP_ID is None or ($HOLDER is not None and self.$IS_KNOWN($HOLDER))",
        replacement="True",
        killer=f"{_TESTS}::TestAdopted::test_its_connection_is_the_brokers",
    ),
    Mutant(
        name="bootstrap: a broker with another id takes over the connection of the broker before it",
        rule="docs/design/rows.md: one connection to each broker",
        pattern="self.$BY_ID.pop($BOOTSTRAP_ID, None)",
        replacement="self.$BY_ID.pop($BOOTSTRAP_ID, None) or self.$BY_ID.get($HOLDER)",
        within="Nodes",
        given=("$HOLDER = None if $ID is None else self.$BROKER_AT.get($ID)",),
        killer=f"{_TESTS}::TestNoLongerABroker::test_a_broker_with_another_id_at_the_same_address_is_connected_to_anew",
    ),
    Mutant(
        name="bootstrap: a load balancer's connection stays beside those to the brokers",
        rule="docs/design/rows.md: one connection to each broker",
        pattern="if not $NODE.in_flight_count:\n    self.$DROP($NODE, $NOW_MS)",
        replacement="pass",
        killer=f"{_TESTS}::TestLeft::test_when_a_brokers_connection_is_open",
    ),
    Mutant(
        name="bootstrap: a connection is closed before it has answered",
        rule="every request comes back once",
        pattern="if not $NODE.in_flight_count:\n    self.$DROP($NODE, $NOW_MS)",
        replacement="self.$DROP($NODE, $NOW_MS)",
        killer=f"{_TESTS}::TestLeft::test_not_before_it_has_answered",
    ),
    Mutant(
        name="bootstrap: a server is left for a coordinator, and connected to again for the next request",
        rule="docs/design/rows.md: one connection to each broker",
        pattern="$NODE.node_id < 0 and any($BROKER.state is NodeState.READY for $BROKER in self.$NODES.brokers)",
        replacement="$NODE.node_id < 0 and any($BROKER.state is NodeState.READY for $BROKER in self.$NODES "
        "if $BROKER is not $NODE)",
        killer=f"{_TESTS}::TestLeft::test_not_for_a_coordinator_that_no_list_names",
    ),
    Mutant(
        name="bootstrap: brokers that do not answer are tried for ever",
        rule="KIP-899: bootstrap servers are asked again if no broker can be reached",
        pattern="not all($NODE.failures for $NODE in $BROKERS)",
        replacement="True",
        killer=f"{_TESTS}::TestBrokersThatDoNotAnswer::test_are_not_tried_for_ever_instead_of_bootstrap_servers",
    ),
)
