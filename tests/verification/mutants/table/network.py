"""Connections, and brokers that throttle or say nothing."""

from __future__ import annotations

from mutants.mutant import Mutant

NETWORK: tuple[Mutant, ...] = (
    Mutant("a broker that says nothing is waited for, for ever",
           "NetworkClient.handleTimedOutRequests: request.timeout.ms",
           'return $BEGIN_MS + $LIMIT_MS, f"no answer within {$LIMIT_MS} ms"',
           'return $BEGIN_MS + 1_000 * $LIMIT_MS, f"no answer within {$LIMIT_MS} ms"',
           "tests/unit/kafka/net/test_network_client.py::TestConnectFails::test_a_broker_that_accepts_and_says_nothing"),
    Mutant("the rest of a write that the socket took in part is lost", "nothing is lost",
           ("if $WRITTEN < $FRONT.nbytes:\n    $OUTGOING[0] = $FRONT[$WRITTEN:]\n    return",
           "$WRITTEN -= $FRONT.nbytes", "$OUTGOING.popleft()", "$SENDS[$POSITION] -= 1"),
           "$WRITTEN = max(0, $WRITTEN - $FRONT.nbytes)\n$OUTGOING.popleft()\n$SENDS[$POSITION] -= 1",
           "tests/unit/kafka/net/test_selector.py::TestSend::test_more_than_the_socket_takes_at_once"),
    Mutant("a broker that throttles is sent requests", "KIP-219: the client waits for throttle_time_ms",
           "$NOW_MS >= $NODE.throttled_until_ms", "True",
           "tests/unit/kafka/net/test_network_client.py::TestThrottle::test_a_node_is_left_alone_as_long_as_it_says"),
    Mutant("the time for which a leader throttles makes rows old",
           "docs/operations.md: time throttled counts for no deadline",
           "$BATCH.throttled_ms += $MORE_MS", "pass",
           140),
    Mutant("rows are taken in without end while a broker throttles",
           "docs/guarantees.md: memory is bounded by kafka.buffer.memory",
           "if not self.$THROTTLING.is_felt:\n    return True", "return True",
           "tests/unit/kafka/producer/test_throttling.py::test_rows_may_come_as_fast_as_they_go"),
    Mutant("that a quota outlasts a transaction is left to its brokers",
           "docs/guarantees.md: a micro-batch must fit the transaction timeout",
           ("for $BATCH in $BATCHES:\n    if $IS_LATE:\n        $BATCH.settle()\n        $$$FAIL",
           "self.$FORESEE($BATCHES, $NOW_MS)"),
           "for $BATCH in $BATCHES:\n    if $IS_LATE:\n        $BATCH.settle()\n        $$$FAIL",
           "tests/unit/kafka/producer/test_throttling.py::"
           "test_a_transaction_that_a_quota_outlasts_fails_before_its_time_is_up"),
    Mutant("a commit does not wait for brokers that throttle",
           "docs/operations.md: time throttled counts for a tenth",
           "without_throttles($NOW_MS, self.$NETWORK.throttled_ms($NOW_MS))", "$NOW_MS",
           "tests/unit/kafka/admin/test_client.py::TestThrottled::"
           "test_brokers_that_throttle_for_longer_than_max_block_ms_are_waited_for", within="Caller"),
)  # fmt: skip
