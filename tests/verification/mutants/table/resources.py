"""What a worker may keep, and what it does when the system has no more."""

from __future__ import annotations

from mutants.mutant import Mutant

RESOURCES: tuple[Mutant, ...] = (
    Mutant(
        name="kept producers have no upper count",
        rule="memory, connections and waits are bounded",
        pattern="MOST",
        replacement="100",
        within="put",
        killer="tests/unit/kafka/test_client.py::test_a_few_producers_are_kept_and_the_least_recently_used_goes",
    ),
    Mutant(
        name="a forked child writes to the sockets of its parent",
        rule="docs/design/decisions.md: a forked process never uses its parent's producer",
        pattern="os.getpid()",
        replacement="0",
        within="put",
        killer="tests/unit/kafka/test_client.py::test_a_producer_is_kept_by_process_and_configuration",
    ),
    Mutant(
        name="memory of a batch that is out goes back to the system",
        rule="docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
        pattern="self.$UNCUT and not self.$ALLOCATED_BYTES",
        replacement="self.$UNCUT",
        within="give_back",
        killer="tests/unit/kafka/producer/test_buffer_pool.py::test_memory_goes_back_when_nothing_of_it_is_out",
    ),
    Mutant(
        name="exhaustion: a producer whose thread cannot start leaves its sockets",
        rule="memory, connections and waits are bounded",
        pattern="self.$NETWORK.close()",
        replacement="pass",
        within="Producer.__init__",
        killer="tests/unit/kafka/test_client.py::test_a_producer_without_a_thread_or_memory_leaves_no_socket",
    ),
    Mutant(
        name="exhaustion: memory that the sender thread lacks is called a defect",
        rule="docs/errors.md: a lack of memory, threads or files has its own error",
        pattern="exhausted($DEFECT)",
        replacement="None",
        within="Producer",
        killer="tests/unit/kafka/test_client.py::test_a_sender_thread_without_memory_tells_whoever_waits_and_ends_quietly",
    ),
    Mutant(
        name="exhaustion: connections without files are tried again until max.block.ms is over",
        rule="memory, connections and waits are bounded",
        pattern="$FAILURE is not None and $NOW_MS - $BEGAN_MS >= PATIENCE_MS",
        replacement="False",
        killer="tests/unit/kafka/net/test_network_client.py::TestLack::test_is_waited_for_a_few_seconds",
    ),
)
