"""What waits for an outage of all brokers, and what fails early."""

from __future__ import annotations

from mutants.mutant import Mutant

_POLICY = "tests/unit/kafka/test_outage.py"
_STEPS = "tests/unit/spark/test_outages.py"

OUTAGES: tuple[Mutant, ...] = (
    Mutant("outages: what has worked fails as early as a first try", "what has worked once is waited for",
           "has_worked or contact.is_reached", "contact.is_reached",
           f"{_POLICY}::test_what_has_worked_is_waited_for_and_what_never_has_fails_early"),
    Mutant("outages: a first try that is refused waits as for an outage", "what has never worked fails early",
           "contact.is_refused or $SILENT", "False",
           f"{_POLICY}::test_what_has_worked_is_waited_for_and_what_never_has_fails_early"),
    Mutant("outages: tasks that wait for their connection give up", "KIP-612: brokers let new connections wait",
           "asks_alone and contact.is_unanswered", "contact.is_unanswered",
           f"{_POLICY}::test_what_has_worked_is_waited_for_and_what_never_has_fails_early"),
    Mutant("outages: one server that refuses counts for all", "every server of the list must have been tried",
           "all(each is Ending.REFUSED for each in endings)", "any(each is Ending.REFUSED for each in endings)",
           "tests/unit/kafka/net/test_bootstrap_servers.py::test_every_server_must_have_been_tried"),
    Mutant("outages: a broker that let the client in counts only while it is there", "a broker may restart at once",
           "self._was_reached |= $NOW", "self._was_reached = False",
           "tests/unit/kafka/net/test_bootstrap_servers.py::test_a_broker_that_answered_once_stays_reached"),
    Mutant("outages: a stream that goes on counts as new", "a stream with a checkpoint has worked before",
           "lease_admin_client($CONFIG, self.$CLUSTER, has_worked=has_worked)",
           "lease_admin_client($CONFIG, self.$CLUSTER, has_worked=False)",
           f"{_STEPS}::TestReads::test_a_stream_that_goes_on_from_a_checkpoint"),
    Mutant("outages: a new stream counts as one that goes on", "streams fail early in their first plan",
           "self.$CLIENT(has_worked=False)", "self.$CLIENT(has_worked=True)",
           f"{_STEPS}::TestReads::test_a_new_stream", within="initialOffset"),
    Mutant("outages: a task of a later micro-batch counts as the first", "a query that has committed has worked before",
           'int(self.conf.get("streaming.sql.batchId", 0)) > 0', "False",
           f"{_STEPS}::test_a_task_of_a_later_micro_batch_waits"),
    Mutant("outages: a process does not know what an earlier one was answered", "each plan is a process of its own",
           "$NOTE.touch()", "pass",
           f"{_STEPS}::TestProcesses::test_that_was_answered"),
    Mutant("outages: the limits are shorter than a restart of a cluster", "queries outlast five minutes",
           "OUTAGE_MS = 360_000", "OUTAGE_MS = 120_000",
           "tests/unit/options/test_config.py::test_defaults_are_the_documented_ones"),
)  # fmt: skip
