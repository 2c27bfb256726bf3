"""What a reader sees of a topic whose ACLs are taken away and given back."""

from __future__ import annotations

from model.broker import Operation
from model.clients import ByteClient, ReadClient, client_of_topic, read_client, record_batch
from model.read_apis import LATEST

NO_RIGHT_TO_TOPIC = 29


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
