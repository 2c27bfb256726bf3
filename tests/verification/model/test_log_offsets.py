"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where logs begin and end."""

from __future__ import annotations

import pytest

from model.broker import Operation
from model.byte_client import ByteClient, client_of_topic, record_batch
from model.consumer_reads import EARLIEST, LATEST, NOT_FOUND, FoundOffset
from model.partition_log import EpochAndOffset, PartitionLog
from model.read_client import READ_COMMITTED, ReadClient, read_client
from model.record_batches import parse_batch
from model.settings import DELETE_RECORDS, KAFKA_3_9, KAFKA_4, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, Generation
from model.transaction_client import send_only, transaction_client

OUT_OF_RANGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT = 1, 3, 5, 6, 7
INVALID_TOPIC, NO_RIGHT_TO_TOPIC, UNSUPPORTED_VERSION = 17, 29, 35
FENCED_EPOCH, UNKNOWN_EPOCH, OFFSET_NOT_AVAILABLE = 74, 75, 78
NOWHERE = EpochAndOffset(-1, -1)


def led_in_two_epochs() -> tuple[ByteClient, ReadClient]:
    """Offsets 0 to 2 at 100, 300 and 200 ms in epoch 0, which broker 0 led; 3 and 4 at 400 ms in epoch 1."""
    client = client_of_topic(3, 2)
    for timestamp_ms in (100, 300, 200):
        client.produce(0, {("t", 0): record_batch(b"v", timestamp_ms=timestamp_ms)})
    client.run(100)
    client.cluster.elect("t", 0, 1)
    client.run(100)
    client.produce(1, {("t", 0): record_batch(b"v", b"v", timestamp_ms=400)})
    client.run(100)
    return client, read_client(client)


@pytest.mark.parametrize("version", range(4, 12))
@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (EARLIEST, FoundOffset(-1, 0, 0)), (LATEST, FoundOffset(-1, 5, 1)), (0, FoundOffset(100, 0, 0)),
        (101, FoundOffset(300, 1, 0)), (200, FoundOffset(300, 1, 0)), (301, FoundOffset(400, 3, 1)), (401, NOT_FOUND),
    ],
)  # fmt: skip
def test_offsets_by_timestamp(timestamp: int, found: FoundOffset, version: int) -> None:
    _, reader = led_in_two_epochs()
    assert reader.list_offset(1, "t", timestamp, version=version) == (0, found)


def test_only_the_leader_of_the_epoch_answers() -> None:
    client, reader = led_in_two_epochs()
    assert reader.list_offset(0, "t", LATEST)[0] == NOT_LEADER
    assert reader.list_offset(1, "t", LATEST, current_leader_epoch=0)[0] == FENCED_EPOCH
    assert reader.list_offset(1, "t", LATEST, current_leader_epoch=2)[0] == UNKNOWN_EPOCH
    assert reader.list_offset(1, "t", LATEST, 9)[0] == UNKNOWN_TOPIC
    assert reader.list_offset(1, "absent", LATEST)[0] == UNKNOWN_TOPIC
    client.cluster.refuse(1, LIST_OFFSETS, NO_RIGHT_TO_TOPIC)
    assert reader.list_offset(1, "t", LATEST) == (NO_RIGHT_TO_TOPIC, NOT_FOUND)


def test_an_acl_is_taken_away_and_given_back() -> None:
    client, reader = led_in_two_epochs()

    def seen() -> tuple[list[str], int, int, int]:
        """The topics of a list, and the codes of the topic by name, of its end, and of its records."""
        listed = [topic.name for topic in client.metadata(1, None).topics]
        code = int(client.metadata(1, ["t"]).topics[0].error_code)
        return listed, code, reader.list_offset(1, "t", LATEST)[0], int(reader.fetch_one(1, "t").code)

    client.cluster.forbid("t", Operation.READ)
    client.run(100)
    assert seen() == (["t"], 0, 0, NO_RIGHT_TO_TOPIC)
    client.cluster.forbid("t", Operation.DESCRIBE)
    client.run(100)
    assert seen() == ([], NO_RIGHT_TO_TOPIC, NO_RIGHT_TO_TOPIC, NO_RIGHT_TO_TOPIC)
    client.cluster.allow("t")
    client.run(100)
    assert seen() == (["t"], 0, 0, 0)


def test_a_new_leader_does_not_tell_an_offset_before_it_knows_what_is_committed() -> None:
    client = client_of_topic(3, 1, replica_fetch_ms=(50, 50))
    client.produce(0, {("t", 0): record_batch(b"v", timestamp_ms=100)})
    client.run(60)
    assert client.cluster.log_end_offset("t", 0, 1) == 1
    client.cluster.crash(0)
    client.run_until(lambda: client.cluster.leader("t", 0) == 1)
    client.run_until(lambda: read_client(client).list_offset(1, "t", EARLIEST)[0] == 0)
    reader = read_client(client)
    assert client.cluster.high_watermark("t", 0, 1) == 0
    assert reader.list_offset(1, "t", LATEST)[0] == OFFSET_NOT_AVAILABLE
    assert reader.list_offset(1, "t", LATEST, version=4)[0] == LEADER_NOT_AVAILABLE
    assert reader.list_offset(1, "t", 101)[0] == OFFSET_NOT_AVAILABLE
    client.run(500)
    assert reader.list_offset(1, "t", LATEST) == (0, FoundOffset(-1, 1, 1))


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    ("epoch", "end"), [(0, EpochAndOffset(0, 3)), (1, EpochAndOffset(1, 5)), (2, NOWHERE), (-1, NOWHERE)]
)
def test_the_end_of_an_epoch(epoch: int, end: EpochAndOffset, version: int) -> None:
    _, reader = led_in_two_epochs()
    assert reader.end_of_epoch(1, "t", epoch, version=version) == (0, end)


def test_the_epochs_of_deleted_records_are_forgotten() -> None:
    client, reader = led_in_two_epochs()
    client.cluster.delete_before("t", 0, 4)
    assert reader.end_of_epoch(1, "t", 0) == (0, EpochAndOffset(0, 4))
    assert reader.list_offset(1, "t", EARLIEST) == (0, FoundOffset(-1, 4, 1))


def test_the_end_of_an_epoch_is_told_by_its_leader() -> None:
    client, reader = led_in_two_epochs()
    assert reader.end_of_epoch(0, "t", 0) == (NOT_LEADER, NOWHERE)
    assert reader.end_of_epoch(1, "t", 0, current_leader_epoch=0) == (FENCED_EPOCH, NOWHERE)
    assert reader.end_of_epoch(1, "t", 0, current_leader_epoch=2) == (UNKNOWN_EPOCH, NOWHERE)
    assert reader.end_of_epoch(1, "absent", 0) == (UNKNOWN_TOPIC, NOWHERE)
    client.cluster.refuse(1, OFFSET_FOR_LEADER_EPOCH, NO_RIGHT_TO_TOPIC)
    assert reader.end_of_epoch(1, "t", 0) == (NO_RIGHT_TO_TOPIC, NOWHERE)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_log_starts_where_its_records_were_deleted(version: int) -> None:
    client, reader = led_in_two_epochs()
    assert reader.delete_records(1, "t", 4, version=version) == (0, 4)
    assert reader.list_offset(1, "t", EARLIEST)[1].offset == 4
    assert reader.fetch_one(1, "t", offset=3).code == OUT_OF_RANGE
    # The batch of 3 and 4 is still there, and comes whole.
    got = reader.fetch_one(1, "t", offset=4)
    assert (got.code, got.log_start_offset, got.records[:8]) == (0, 4, (3).to_bytes(8))
    sent = client.produce(1, {("t", 0): record_batch(b"v")})
    client.run(100)
    assert client.answers[sent].responses[0].partition_responses[0].log_start_offset == 4


def test_a_log_that_is_truncated_before_its_start_starts_at_its_end() -> None:
    log = PartitionLog()
    for offset in range(5):
        log.append(parse_batch(record_batch(b"v")).placed(offset, 0))
    log.delete_before(4)
    log.truncate_to(2)
    assert (log.start_offset, log.end_offset) == (2, 2)


def test_what_was_deleted_had_been_committed_even_after_a_crash() -> None:
    client, _ = led_in_two_epochs()
    client.cluster.delete_before("t", 0, 4)
    client.cluster.crash(1)
    client.cluster.restart(1)
    assert client.cluster.high_watermark("t", 0, 1) == 4


def test_only_the_leader_deletes() -> None:
    client, reader = led_in_two_epochs()
    assert reader.delete_records(0, "t", 1) == (NOT_LEADER, -1)
    assert reader.delete_records(1, "absent", 1) == (UNKNOWN_TOPIC, -1)
    assert reader.delete_records(1, "__consumer_offsets", 1) == (INVALID_TOPIC, -1)
    client.cluster.refuse(1, DELETE_RECORDS, NO_RIGHT_TO_TOPIC)
    assert reader.delete_records(1, "t", 1) == (NO_RIGHT_TO_TOPIC, -1)


def test_deletion_waits_for_the_followers() -> None:
    client, reader = led_in_two_epochs()
    client.cluster.isolate(2)
    assert reader.delete_records(1, "t", 1) == (TIMED_OUT, -1)
    client.cluster.isolate(2, False)
    client.run(100)
    starts = [client.cluster.replica("t", 0, node_id).log.start_offset for node_id in range(3)]  # type: ignore[union-attr]
    assert starts == [1, 1, 1]
    assert reader.delete_records(1, "t", 2) == (0, 2)


def test_deletion_is_over_when_the_leader_is_another() -> None:
    client, reader = led_in_two_epochs()
    client.cluster.isolate(2)
    transactions = transaction_client(client)
    reader.call = lambda *message: transactions.call(*message)
    sent = send_only(client, transactions, lambda: reader.delete_records(1, "t", 1))
    client.cluster.elect("t", 0, 0)
    client.run(100)
    assert client.answers[sent].topics[0].partitions[0].error_code == NOT_LEADER


@pytest.mark.parametrize(("generation", "stable"), [(KAFKA_3_9, 2), (KAFKA_4, 1)])
def test_the_last_stable_offset_of_a_transaction_whose_first_rows_were_deleted(
    generation: Generation, stable: int
) -> None:
    client = client_of_topic(1, 1, nodes=1, generation=generation)
    transactions, reader = transaction_client(client), read_client(client)
    producer = transactions.init("x")
    client.produce_version = 11
    client.produce(0, {("t", 0): record_batch(b"v")})
    assert transactions.add_partitions("x", producer, {"t": [0]}) == {("t", 0): 0}
    transactions.produce("x", producer, "t", values=[b"v", b"v"], version=11)
    client.cluster.delete_before("t", 0, 2)
    version = generation.api_versions[LIST_OFFSETS][1]
    assert reader.list_offset(0, "t", LATEST, isolation=READ_COMMITTED, version=version)[1].offset == stable
    assert reader.list_offset(0, "t", EARLIEST, version=version)[1].offset == 2
