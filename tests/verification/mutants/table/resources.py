"""What a worker may keep, and what it does when the system has no more."""

from __future__ import annotations

from mutants.mutant import Mutant

RESOURCES: tuple[Mutant, ...] = (
    Mutant("daemon: a process with threads forks workers", "docs/deploying.md: a process with threads must not fork",
           'len(os.listdir("/proc/self/task")) == 1', "True",
           "tests/unit/spark/test_driver_python.py::test_with_a_thread_it_becomes_sparks_own_server", within="prepare"),
    Mutant("daemon: the allocator of Arrow starts a thread before the fork",
           "docs/deploying.md: a process with threads must not fork",
           'os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")', "None",
           "tests/unit/spark/test_driver_python.py::"
           "test_it_forks_without_threads_connections_locks_and_generators_in_common", within="prepare"),
    Mutant("kept producers have no upper count", "memory, connections and waits are bounded",
           "MOST", "100",
           "tests/unit/kafka/test_client.py::test_a_few_producers_are_kept_and_the_least_recently_used_goes",
           within="put"),
    Mutant("a forked child writes to the sockets of its parent",
           "docs/design/decisions.md: a forked process never uses its parent's producer",
           "os.getpid()", "0",
           "tests/unit/kafka/test_client.py::test_a_producer_is_kept_by_process_and_configuration", within="put"),
    Mutant("memory of a batch that is out goes back to the system",
           "docs/design/rows.md: a buffer returns to the pool after the last request that carried it",
           "self.$UNCUT and not self.$ALLOCATED_BYTES", "self.$UNCUT",
           "tests/unit/kafka/producer/test_buffer_pool.py::test_memory_goes_back_when_nothing_of_it_is_out",
           within="give_back"),
    Mutant("exhaustion: a producer whose thread cannot start leaves its sockets",
           "memory, connections and waits are bounded",
           "self.$NETWORK.close()", "pass",
           "tests/unit/kafka/test_client.py::test_a_producer_without_a_thread_or_memory_leaves_no_socket",
           within="Producer.__init__"),
    Mutant("exhaustion: memory that the sender thread lacks is called a defect",
           "docs/errors.md: a lack of memory, threads or files has its own error",
           "exhausted($DEFECT)", "None",
           "tests/unit/kafka/test_client.py::test_a_sender_thread_without_memory_tells_whoever_waits_and_ends_quietly",
           within="Producer"),
    Mutant("exhaustion: connections without files are tried again until max.block.ms is over",
           "memory, connections and waits are bounded",
           "$FAILURE is not None and $NOW_MS - $BEGAN_MS >= PATIENCE_MS", "False",
           "tests/unit/kafka/net/test_network_client.py::TestLack::test_is_waited_for_a_few_seconds"),
)  # fmt: skip
