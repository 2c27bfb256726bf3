"""A producer belongs to one cluster, which may be replaced or restored under its address."""

from __future__ import annotations

from mutants.mutant import Mutant

_AT_BOOTSTRAP = "tests/unit/kafka/net/test_bootstrap_servers.py::TestAnotherCluster::"

CLUSTERS: tuple[Mutant, ...] = (
    Mutant(
        name="a request goes to another cluster behind the same address",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="$FOUND is None or $FOUND == self.cluster_id",
        replacement="True",
        killer="tests/unit/kafka/net/test_network_client.py::TestCluster::test_that_was_replaced_ends_the_client",
    ),
    Mutant(
        name="a connection carries requests before it has named its cluster",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="not self.$IDENTIFY or self.$WAS_OPEN",
        replacement="True",
        within="Connection",
        killer="tests/unit/kafka/net/test_network_client.py::TestReady::test_after_connecting_and_negotiating",
    ),
    Mutant(
        name="rows go to a cluster that took the place of the write's (simulated)",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="$FOUND is None or $FOUND == self.cluster_id",
        replacement="$FOUND != 0",
        killer=300,
    ),
    Mutant(
        name="a cluster that was replaced is waited for",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="return self.$ELSEWHERE if self.$TRIED == self.$BOOTSTRAP_SERVERS else None",
        replacement="return None",
        killer="tests/unit/kafka/net/test_network_client.py::TestCluster::test_that_was_replaced_ends_the_client",
    ),
    Mutant(
        name="a broker's address that was given to another cluster ends the write",
        rule="docs/design/decisions.md: a producer belongs to one cluster",
        pattern="$IS_BOOTSTRAP = $SERVER in self.$BOOTSTRAP_SERVERS",
        replacement="$IS_BOOTSTRAP = $SERVER in self.$BOOTSTRAP_SERVERS\nif $CHANGED is not None:\n    return $CHANGED",
        within="ClusterIdentity",
        given=("if $CHANGED is not None and not self.$IN_DOUBT:\n    $$$THEN",),
        killer=f"{_AT_BOOTSTRAP}test_at_a_brokers_address_makes_the_bootstrap_server_the_next_to_be_asked",
    ),
    Mutant(
        name="a broker's address that was given to another cluster ends the write (simulated)",
        rule="docs/design/decisions.md: a producer belongs to one cluster",
        pattern="$IS_BOOTSTRAP = $SERVER in self.$BOOTSTRAP_SERVERS",
        replacement="$IS_BOOTSTRAP = $SERVER in self.$BOOTSTRAP_SERVERS\nif $CHANGED is not None:\n    return $CHANGED",
        within="ClusterIdentity",
        given=("if $CHANGED is not None and not self.$IN_DOUBT:\n    $$$THEN",),
        killer=200,
    ),
    Mutant(
        name="one of two bootstrap servers that leads to another cluster ends the write",
        rule="docs/design/decisions.md: a producer belongs to one cluster",
        pattern="return self.$ELSEWHERE if self.$TRIED == self.$BOOTSTRAP_SERVERS else None",
        replacement="return self.$ELSEWHERE",
        killer=f"{_AT_BOOTSTRAP}test_at_one_bootstrap_server_is_believed_unless_the_other_leads_to_ours",
    ),
    Mutant(
        name="one of two addresses of a bootstrap server that leads to another cluster ends the write",
        rule="docs/design/decisions.md: a producer belongs to one cluster",
        pattern="self.$IDENTITY.failed($NODE.server, $ELSEWHERE, is_last=$NODE.needs_resolving)",
        replacement="self.$IDENTITY.failed($NODE.server, $ELSEWHERE, is_last=True)",
        killer=f"{_AT_BOOTSTRAP}test_at_one_address_of_a_server_is_not_believed_before_the_others_were_tried",
    ),
    Mutant(
        name="other brokers are asked first where an address leads to another cluster",
        rule="docs/design/decisions.md: a producer belongs to one cluster",
        pattern="self.$IS_IN_DOUBT and $SERVER not in self.$TRIED",
        replacement="False",
        within="ClusterIdentity",
        killer=f"{_AT_BOOTSTRAP}test_at_a_brokers_address_makes_the_bootstrap_server_the_next_to_be_asked",
    ),
    Mutant(
        name="tasks that wrote to two clusters are committed",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="$ITS_ID != $FIRST_ID",
        replacement="False",
        within="if $ITS_ID != $FIRST_ID:\n    $$$BROKER\n    raise ClusterChanged($$$FACTS)",
        killer="tests/unit/spark/test_commit_message.py::"
        "test_a_cluster_replaced_between_two_tasks_takes_the_rows_of_the_first_with_it",
    ),
    Mutant(
        name="a commit goes on in another cluster than its plan",
        rule="docs/guarantees.md: a write belongs to one cluster",
        pattern="$NETWORK.failure is None and not $NETWORK.interruptions and $CLUSTER_ID in (None, self.cluster_id)",
        replacement="$NETWORK.failure is None and not $NETWORK.interruptions",
        killer="tests/unit/kafka/admin/test_client.py::TestLease::"
        "test_one_of_another_cluster_is_not_the_one_that_is_asked_for",
    ),
    Mutant(
        name="a producer in mid-write goes on under an id that a restored cluster may have given to another",
        rule="docs/guarantees.md: a restored cluster gives producer ids out again",
        pattern="self.$NETWORK.interruptions != self.$INTERRUPTIONS",
        replacement="False",
        killer=300,
    ),
    Mutant(
        name="a kept producer goes on after a moment without connections, in which its cluster may have been restored",
        rule="docs/guarantees.md: a restored cluster gives producer ids out again",
        pattern="not $NETWORK.interruptions and $NETWORK.connects == $CONNECTS",
        replacement="$NETWORK.connects == $CONNECTS",
        killer="tests/unit/kafka/test_client.py::test_a_kept_producer_that_lost_all_connections_is_not_used_again",
    ),
    Mutant(
        name="batches that may be written get another producer id after an interruption",
        rule="KIP-360: a new id only where nothing may be written",
        pattern="self.$SEQUENCES.used_up = True",
        replacement="self.$ASK_AGAIN()",
        given=("def $ASK_AGAIN(self) -> None:\n    $$$DOC\n    self.$PRODUCER = None\n    $$$SINCE",),
        killer="tests/unit/kafka/producer/test_sender.py::TestInterruptions::"
        "test_rows_that_have_a_number_keep_it_and_the_id_until_they_are_answered",
    ),
)
