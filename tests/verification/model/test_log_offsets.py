"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: where logs begin and end."""

from __future__ import annotations

from model.byte_client import ByteClient, client_of_topic, record_batch
from model.consumer_reads import EARLIEST, LATEST, FoundOffset
from model.read_client import ReadClient, read_client

OUT_OF_RANGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, TIMED_OUT = 1, 3, 5, 6, 7
FENCED_EPOCH, UNKNOWN_EPOCH, OFFSET_NOT_AVAILABLE = 74, 75, 78


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


def test_what_was_deleted_had_been_committed_even_after_a_crash() -> None:
    client, _ = led_in_two_epochs()
    client.cluster.delete_before("t", 0, 4)
    client.cluster.crash(1)
    client.cluster.restart(1)
    assert client.cluster.high_watermark("t", 0, 1) == 4


def test_deletion_waits_for_the_followers() -> None:
    client, reader = led_in_two_epochs()
    client.cluster.isolate(2)
    assert reader.delete_records(1, "t", 1) == (TIMED_OUT, -1)
    client.cluster.isolate(2, False)
    client.run(100)
    starts = [client.cluster.replica("t", 0, node_id).log.start_offset for node_id in range(3)]  # type: ignore[union-attr]
    assert starts == [1, 1, 1]
    assert reader.delete_records(1, "t", 2) == (0, 2)
