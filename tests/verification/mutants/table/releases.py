"""Brokers of earlier releases of Kafka, and clusters that are being upgraded."""

from __future__ import annotations

from mutants.mutant import Mutant

RELEASES: tuple[Mutant, ...] = (
    Mutant(
        name="sequences restart when a topic gets its id: leaders take new rows for the first ones, and drop them",
        rule="KIP-516: topics get their ids in an upgrade to Kafka 2.8",
        pattern="$BATCH.topic_id if ids_differ($FIRST, $BATCH.topic_id) else $FIRST",
        replacement="$BATCH.topic_id",
        killer="tests/unit/kafka/producer/test_sequences.py::"
        "test_a_topic_whose_id_becomes_known_or_is_not_told_goes_on",
    ),
    Mutant(
        name="a topic that gets its id is another topic",
        rule="KIP-516: topics get their ids in an upgrade to Kafka 2.8",
        pattern="if ids_differ($FIRST_ID, $STATE.topic_id):\n    raise TopicRecreated($$$FACTS)",
        replacement="if $FIRST_ID != $STATE.topic_id:\n    raise TopicRecreated($$$FACTS)",
        killer="tests/unit/kafka/test_client.py::test_a_topic_that_was_idle_for_long_in_mid_write_is_asked_for_again",
    ),
    Mutant(
        name="an unknown topic id is one more topic (simulated)",
        rule="KIP-516: topics get their ids in an upgrade to Kafka 2.8",
        pattern="$FIRST is not None and $SECOND is not None and $FIRST != $SECOND",
        replacement="$FIRST != $SECOND",
        killer=300,
    ),
    Mutant(
        name="tasks that saw a topic before and after it got its id are not committed",
        rule="KIP-516: topics get their ids in an upgrade to Kafka 2.8",
        pattern="$TOPIC_ID is not None and ($FIRST_ID := $SEEN.setdefault($TOPIC, $TOPIC_ID)) != $TOPIC_ID",
        replacement="($FIRST_ID := $SEEN.setdefault($TOPIC, $TOPIC_ID)) != $TOPIC_ID",
        killer="tests/unit/spark/test_commit_message.py::"
        "test_tasks_that_saw_a_topic_without_its_id_wrote_to_the_same_topic",
    ),
    Mutant(
        name="a topic loses its id to a broker that does not know it, and is another when it has it again",
        rule="KIP-516: a broker that is not upgraded yet names no topic id",
        pattern="replace($NEW, topic_id=$OLD.topic_id)",
        replacement="$NEW",
        killer="tests/unit/kafka/test_metadata.py::test_of_another_topic_the_answer_counts_whatever_its_leader_epochs",
    ),
    Mutant(
        name="a broker that takes one key a request is asked for all coordinators at once",
        rule="KIP-699: several keys from FindCoordinator 4 on",
        pattern="[$EVERYTHING] if self.$TAKES($NODE_ID, $EVERYTHING) else $ONE_EACH",
        replacement="[$EVERYTHING]",
        killer="tests/unit/kafka/producer/test_coordinators.py::TestFind::"
        "test_a_broker_that_takes_one_key_a_request_gets_one_request_for_each",
    ),
    Mutant(
        name="a broker that takes one group a request is asked for the offsets of many",
        rule="KIP-709: several groups from OffsetFetch 8 on",
        pattern="READS_TOGETHER if self.$TAKES($NODE_ID, $TOGETHER) else 1",
        replacement="READS_TOGETHER",
        killer="tests/unit/kafka/producer/test_coordinators.py::TestPipelining::"
        "test_reads_go_apart_to_a_broker_that_takes_one_group_a_request",
    ),
    Mutant(
        name="a client waits once more for the time that a broker has waited before it answered",
        rule="KIP-219: from these versions on the client waits",
        pattern='if $VERSION < $API.client_throttles_from:\n    $MESSAGE["throttle_time"] = 0',
        replacement="pass",
        killer="tests/unit/kafka/protocol/test_requests.py::TestOldVersions::test_a_broker_without_topic_ids",
    ),
    Mutant(
        name="a broker that names no version of ApiVersions is given up",
        rule="KIP-511: brokers before Kafka 2.4 answer with an error alone",
        pattern="$NAMED.ranges.get(api_of(self.$SOFTWARE).key, (0, 0))",
        replacement="$NAMED.ranges[api_of(self.$SOFTWARE).key]",
        killer="tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
        "test_an_older_broker_is_asked_in_a_version_that_it_takes",
    ),
    Mutant(
        name="a broker is asked again and again in a version of ApiVersions that it has refused",
        rule="KIP-511: the range in the answer",
        pattern="max(0, min($HIGHEST, self.$NEGOTIATE_IN - 1))",
        replacement="max(0, $HIGHEST)",
        killer="tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
        "test_an_older_broker_is_asked_in_a_version_that_it_takes",
    ),
    Mutant(
        name="rows go to a broker that lacks what the guarantee needs",
        rule="kafka_sink/kafka/protocol/needs.py",
        pattern="if $MISSING := lacking(self.ranges, $GUARANTEE):\n    raise ApisMissing($$$FACTS)",
        replacement="pass",
        killer="tests/unit/kafka/protocol/test_connection.py::TestNegotiation::"
        "test_a_broker_that_lacks_what_a_guarantee_needs",
    ),
)
