"""Connections to bootstrap servers, once the brokers are known."""

from __future__ import annotations

from mutants.mutant import Mutant

_TESTS = "tests/unit/kafka/net/test_bootstrap_servers.py"

BOOTSTRAP: tuple[Mutant, ...] = (
    Mutant("bootstrap: a broker at a bootstrap server's address gets a connection of its own",
           "docs/design/rows.md: one connection to each broker",
           "$BOOTSTRAP_ID is None or ($HOLDER is not None and self.$IS_KNOWN($HOLDER))", "True",
           f"{_TESTS}::TestAdopted::test_its_connection_is_the_brokers"),
    Mutant("bootstrap: a broker with another id takes over the connection of the broker before it",
           "docs/design/rows.md: one connection to each broker",
           "self.$BY_ID.pop($BOOTSTRAP_ID, None)", "self.$BY_ID.pop($BOOTSTRAP_ID, None) or self.$BY_ID.get($HOLDER)",
           f"{_TESTS}::TestNoLongerABroker::test_a_broker_with_another_id_at_the_same_address_is_connected_to_anew",
           within="Nodes", given=("$HOLDER = None if $ID is None else self.$BROKER_AT.get($ID)",)),
    Mutant("bootstrap: a load balancer's connection stays beside those to the brokers",
           "docs/design/rows.md: one connection to each broker",
           "if not $NODE.in_flight_count:\n    self.$DROP($NODE, $NOW_MS)", "pass",
           f"{_TESTS}::TestLeft::test_when_a_brokers_connection_is_open"),
    Mutant("bootstrap: a connection is closed before it has answered", "every request comes back once",
           "if not $NODE.in_flight_count:\n    self.$DROP($NODE, $NOW_MS)", "self.$DROP($NODE, $NOW_MS)",
           f"{_TESTS}::TestLeft::test_when_a_brokers_connection_is_open"),
    Mutant("bootstrap: a server is left for a coordinator, and connected to again for the next request",
           "docs/design/rows.md: one connection to each broker",
           "$NODE.node_id < 0 and any($BROKER.state is NodeState.READY for $BROKER in self.$NODES.brokers)",
           "$NODE.node_id < 0 and any($BROKER.state is NodeState.READY for $BROKER in self.$NODES "
           "if $BROKER is not $NODE)",
           f"{_TESTS}::TestLeft::test_not_for_a_coordinator_that_no_list_names"),
    Mutant("bootstrap: brokers that do not answer are tried for ever",
           "KIP-899: bootstrap servers are asked again if no broker can be reached",
           "not all($NODE.failures for $NODE in $BROKERS)", "True",
           f"{_TESTS}::TestLeft::test_brokers_that_do_not_answer_are_not_tried_for_ever_instead"),
)  # fmt: skip
