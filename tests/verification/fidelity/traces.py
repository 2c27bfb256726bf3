"""A trace: requests and the model's answers for one seed, and a comparison with a real broker's answers.

    seed ──> Generator <──> the model ──> Trace ──> replay ──> a real broker ──> None, or the first Difference

The steps do not depend on a real broker, so a seed gives the same trace everywhere. After a difference the two
are in different states: the trace ends there.
"""

import contextlib
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient, ConfigResource

from fidelity import player as play
from fidelity.generator import TOPICS, Generator
from fidelity.player import BrokerConnection, OneBroker, Player
from fidelity.steps import READING, Answer, Step
from kafka_sink.broker import LocalKafka
from kafka_sink.broker.errors import LocalClusterUnusable
from model.clients import COMES_TO_PASS
from model.cluster import Cluster

STEPS = 75
# Kafka version -> what of KINDS its traces are played as, and by which transaction version most of their requests are.
PROTOCOLS = {
    "4.3.1": (("4.3.1, version 2", 2), ("4.3.1, version 2", 2), ("4.3.1, version 1", 1), ("4.3.1, version 2", None)),
    "3.9.2": (("3.9.2, version 1", 1),),
    "3.0.2": (("3.0.2, version 1", 1),),
    "2.8.2": (("2.8.2", 1),),
    "2.1.1": (("2.1.1", 1),),
}
# Of the model: a look at a busy coordinator costs as much as a request.
_PAUSE_MS = 20
_FOR_EVER_MS = 2**62
# Five seconds of a real broker, at 5 ms each, in which what may still come to pass has to.
_MOST_LOOKS = 1_000


@dataclass(frozen=True, slots=True)
class Trace:
    """`name` begins the names of its topics, ids and groups."""

    name: str
    seed: int
    kind: play.Kind
    steps: tuple[Step, ...]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """`place`: of the step that a broker answered otherwise than the model."""

    trace: Trace
    place: int
    answer: Answer

    def __str__(self) -> str:
        steps = zip(self.trace.steps, self.trace.answers, strict=True)
        before = [f"    {number:>2} {step}\n       {answer}" for number, (step, answer) in enumerate(steps)]
        version = self.trace.kind.kafka_version
        return (
            f"Kafka {version}, seed {self.trace.seed}: the broker answers step {self.place} otherwise\n"
            + "\n".join(before[: self.place + 1])
            + f"\n    broker {self.answer}\n"
            f"again: make fidelity TRACES=1 ARGS='--kafka-version {version} --seed {self.trace.seed}'"
        )


@dataclass(frozen=True, slots=True)
class ModelTopics:
    cluster: Cluster

    def create(self, name: str, partitions: int) -> None:
        self.cluster.create_topic(
            name, partitions, 1, max_message_bytes=play.MAX_MESSAGE_BYTES,
            index_interval_bytes=play.INDEX_INTERVAL_BYTES,
        )  # fmt: skip

    def delete(self, name: str) -> None:
        self.cluster.controller.delete_topic(name)


def model_player(kind: play.Kind, name: str) -> Player:
    client, cluster = play.model_client(kind)
    one_broker = OneBroker(client.call, client.leader_of, lambda: cluster.run(_PAUSE_MS), client.produce_version)
    return Player(kind.generation, one_broker, ModelTopics(cluster.cluster), name, lambda: cluster.cluster.now_ms)


def make_trace(seed: int, kafka_version: str, steps: int = STEPS) -> Trace:
    rng = random.Random(f"{kafka_version} {seed}")
    kind_name, protocol = rng.choice(PROTOCOLS[kafka_version])
    kind, name = play.KINDS[kind_name], f"trace-{seed}"
    player = model_player(kind, name)
    player.begin(TOPICS)
    generator = Generator(rng, kind.generation, protocol)
    played: list[tuple[Step, Answer]] = []
    while len(played) < steps:
        step = generator.next_step()
        answer = step.play(player)
        generator.notebook.note(step, answer)
        played.append((step, answer))
    chosen, answers = zip(*played, strict=True)
    return Trace(name, seed, kind, chosen, answers)


@dataclass(frozen=True, slots=True)
class BrokerTopics:
    kafka: LocalKafka
    admin: AdminClient

    def create(self, name: str, partitions: int) -> None:
        # Records of 1970, with which leaders are tried, are kept, and in one segment with those of today: the model
        # deletes nothing by itself, and its logs have one segment.
        config = {
            "max.message.bytes": play.MAX_MESSAGE_BYTES, "index.interval.bytes": play.INDEX_INTERVAL_BYTES,
            "retention.ms": -1, "segment.ms": _FOR_EVER_MS,
        }  # fmt: skip
        deadline = time.monotonic() + play.DEADLINE_S
        while not self._is_created(name, partitions, config):
            assert time.monotonic() < deadline, f"{name} cannot be created"
            time.sleep(play.POLL_S)

    def _is_created(self, name: str, partitions: int, config: Mapping[str, object]) -> bool:
        """With ZooKeeper a topic is deleted in steps, which nobody can see: the name is taken for a while, and then the
        settings of a new topic may be deleted with those of the old one."""
        try:
            self.kafka.create_topic(name, partitions, config=config)
        except LocalClusterUnusable as error:
            if "already exists" not in error.problem:
                raise
            return False
        (described,) = self.admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name)]).values()
        if described.result()["max.message.bytes"].value == str(play.MAX_MESSAGE_BYTES):
            return True
        self.delete(name)
        return False

    def delete(self, name: str) -> None:
        self.admin.delete_topics([name], operation_timeout=play.DEADLINE_S)[name].result()


def replay(trace: Trace, kafka: LocalKafka, admin: AdminClient) -> Difference | None:
    with contextlib.closing(BrokerConnection(play.address_of(kafka))) as connection:
        client = play.real_client(connection, trace.kind.produce_version)
        one_broker = OneBroker(client.call, client.leader_of, client.pause, client.produce_version)
        topics = BrokerTopics(kafka, admin)
        player = Player(trace.kind.generation, one_broker, topics, trace.name, lambda: round(time.time() * 1_000))
        return compare(trace, player)


def compare(trace: Trace, player: Player) -> Difference | None:
    player.begin(TOPICS)
    for place, (step, expected) in enumerate(zip(trace.steps, trace.answers, strict=True)):
        try:
            answer = settled_answer(step, player, expected)
        except AssertionError as error:
            return Difference(trace, place, Answer((), (str(error),)))
        if answer != expected:
            return Difference(trace, place, answer)
    return None


def settled_answer(step: Step, player: Player, expected: Answer) -> Answer:
    """What comes of a step, once waiting changes nothing about it. Raises AssertionError for what never came."""
    answer = step.play(player)
    for _ in range(_MOST_LOOKS):
        if answer == expected or not (isinstance(step, READING) or COMES_TO_PASS.intersection(answer.codes)):
            break
        # Neither a coordinator nor the offsets of a group tell when they have caught up.
        player.client.pause()
        answer = step.play(player)
    return answer
