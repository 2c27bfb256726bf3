"""Brokers of earlier releases of Kafka, and clusters that are being upgraded."""

from __future__ import annotations

from mutants.mutant import Mutant

RELEASES: tuple[Mutant, ...] = (
    Mutant(
        "sequences restart when a topic gets its id: leaders take new rows for the first ones, and drop them",
        "KIP-516: topics get their ids in an upgrade to Kafka 2.8",
        "$BATCH.topic_id if ids_differ($FIRST, $BATCH.topic_id) else $FIRST", "$BATCH.topic_id",
        "tests/unit/kafka/producer/test_sequences.py::" "test_a_topic_whose_id_becomes_known_or_is_not_told_goes_on"),
    Mutant("a topic that gets its id is another topic", "KIP-516: topics get their ids in an upgrade to Kafka 2.8",
           "if ids_differ($FIRST_ID, $STATE.topic_id):\n    raise TopicRecreated($$$FACTS)",
           "if $FIRST_ID != $STATE.topic_id:\n    raise TopicRecreated($$$FACTS)",
           "tests/unit/kafka/test_client.py::"
           "test_a_topic_that_was_idle_for_long_in_mid_write_is_asked_for_again"),
    Mutant("an unknown topic id is one more topic (simulated)",
           "KIP-516: topics get their ids in an upgrade to Kafka 2.8",
           "$FIRST is not None and $SECOND is not None and $FIRST != $SECOND", "$FIRST != $SECOND",
           300),
    Mutant("tasks that saw a topic before and after it got its id are not committed",
           "KIP-516: topics get their ids in an upgrade to Kafka 2.8",
           "$TOPIC_ID is not None and ($FIRST_ID := $SEEN.setdefault($TOPIC, $TOPIC_ID)) != $TOPIC_ID",
           "($FIRST_ID := $SEEN.setdefault($TOPIC, $TOPIC_ID)) != $TOPIC_ID",
           "tests/unit/spark/test_commit_message.py::"
           "test_tasks_that_saw_a_topic_without_its_id_wrote_to_the_same_topic"),
    Mutant("a topic loses its id to a broker that does not know it, and is another when it has it again",
           "KIP-516: a broker that is not upgraded yet names no topic id",
           "replace($NEW, topic_id=$OLD.topic_id)", "$NEW",
           "tests/unit/kafka/test_metadata.py::test_of_another_topic_the_answer_counts_whatever_its_leader_epochs"),
    Mutant("a broker that takes one key a request is asked for all coordinators at once",
           "KIP-699: several keys from FindCoordinator 4 on",
           "[$EVERYTHING] if self.$TAKES($NODE_ID, $EVERYTHING) else $ONE_EACH", "[$EVERYTHING]",
           "tests/unit/kafka/producer/test_coordinators.py::TestFind::"
           "test_a_broker_that_takes_one_key_a_request_gets_one_request_for_each"),
    Mutant("a broker that takes one group a request is asked for the offsets of many",
           "KIP-709: several groups from OffsetFetch 8 on",
           "READS_TOGETHER if self.$TAKES($NODE_ID, $TOGETHER) else 1", "READS_TOGETHER",
           "tests/unit/kafka/producer/test_coordinators.py::TestPipelining::"
           "test_reads_go_apart_to_a_broker_that_takes_one_group_a_request"),
    Mutant("a client waits once more for the time that a broker has waited before it answered",
           "KIP-219: from these versions on the client waits",
           'if $VERSION < $API.client_throttles_from:\n    $MESSAGE["throttle_time"] = 0', "pass",
           "tests/unit/kafka/protocol/test_requests.py::TestOldVersions::test_a_broker_without_topic_ids"),
    Mutant("a broker that names no version of ApiVersions is given up",
           "KIP-511: brokers before Kafka 2.4 answer with an error alone",
           "$NAMED.ranges.get(api_of(self.$SOFTWARE).key, (0, 0))", "$NAMED.ranges[api_of(self.$SOFTWARE).key]",
           "tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
           "test_an_older_broker_is_asked_in_a_version_that_it_takes"),
    Mutant("a broker is asked again and again in a version of ApiVersions that it has refused",
           "KIP-511: the range in the answer",
           "max(0, min($HIGHEST, self.$NEGOTIATE_IN - 1))", "max(0, $HIGHEST)",
           "tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
           "test_an_older_broker_is_asked_in_a_version_that_it_takes"),
    Mutant("rows go to a broker that lacks what the guarantee needs", "kafka_sink/kafka/protocol/needs.py",
           "if $MISSING := lacking(self.ranges, $GUARANTEE):\n    raise ApisMissing($$$FACTS)", "pass",
           "tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
           "test_a_broker_that_lacks_what_a_guarantee_needs"),
)  # fmt: skip
