"""Makes a plan from one seed: the cluster, the writers, their rows, and all faults.

A plan is data, made before the run and printed when it fails. Faults have a time, a kind and numbers; `injector.py`
executes them. They stop at `faults_end_ms`: then brokers are back, the network works, and every write that was begun
must end.
"""

import random
from dataclasses import dataclass, replace

from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.options.config import sink_config
from model.settings import RELEASES
from simulation.outcome import RowShape


@dataclass(frozen=True, slots=True)
class Fault:
    """`lasts_ms` counts from `at_ms`; 0 for what happens in a moment. `node`, `writer`, `topic`: whom it concerns."""

    at_ms: int
    kind: str
    lasts_ms: int = 0
    node: int = 0
    writer: int = 0
    topic: str = ""
    partition: int = 0
    number: float = 0
    times: int = 0
    release: str = ""

    def __str__(self) -> str:
        shown = [
            f"{name}={value!r}"
            for name in ("lasts_ms", "node", "writer", "topic", "partition", "number", "times", "release")
            if (value := getattr(self, name))
        ]
        return f"{self.at_ms:>6} ms  {self.kind} {' '.join(shown)}".rstrip()


@dataclass(frozen=True, slots=True)
class TopicPlan:
    name: str
    partitions: int
    replication_factor: int
    min_insync_replicas: int
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write: Arrow batches of so many rows, with a pause before each."""

    shape: RowShape
    partitioner: str
    batches: tuple[tuple[int, int], ...]  # pause in ms, rows


@dataclass(frozen=True, slots=True)
class WriterPlan:
    config: ProducerConfig
    writes: tuple[WritePlan, ...]
    last_write: WritePlan
    turn_rate: float
    first_sequence: int


@dataclass(frozen=True, slots=True)
class Plan:
    """`topic_ids`: the brokers know Produce 13, which names topics by id. `release`: the Kafka that they begin as."""

    seed: int
    nodes: tuple[int, ...]
    topic_ids: bool
    release: str
    topics: tuple[TopicPlan, ...]
    writers: tuple[WriterPlan, ...]
    replica_lag_time_max_ms: int
    replica_fetch_ms: tuple[int, int]
    metadata_lag_ms: tuple[int, int]
    failure_detection_ms: tuple[int, int]
    latency_ms: float
    pieces_rate: float
    partial_write_rate: float
    faults: tuple[Fault, ...]
    faults_end_ms: int

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {len(self.nodes)} brokers of {self.release}, "
            f"{'topic ids' if self.topic_ids else 'topic names'}, latency {self.latency_ms} ms, "
            f"faults until {self.faults_end_ms} ms",
            f"replicas fetch every {self.replica_fetch_ms} ms and lag after {self.replica_lag_time_max_ms} ms, images "
            f"take {self.metadata_lag_ms} ms, a crash is noticed in {self.failure_detection_ms} ms",
        ]
        lines += [
            f"topic {topic.name}: {topic.partitions} partitions, replication factor {topic.replication_factor}, "
            f"min.insync.replicas {topic.min_insync_replicas}, max.message.bytes {topic.max_message_bytes}"
            for topic in self.topics
        ]
        for number, writer in enumerate(self.writers):
            lines.append(f"writer {number}: {len(writer.writes)} writes, {_differences(writer.config)}")
        return "\n".join([*lines, *map(str, self.faults)])


# From the end of the old cluster to the new one. No real one is as fast.
REPLACEMENT_MS = 1_500
REPLACED_RATE = 0.15

# The releases whose brokers take Produce 13, and how often others are chosen. The newest compares ids (KIP-1242).
BY_ID, COMPARES_IDS = "4.3.1", "4.4.0"
RELEASE_WEIGHTS = {"3.3": 30, "2.1.1": 30, "2.8.2": 15, "3.0.2": 10, "3.9.2": 15}
UPGRADES = {"2.1.1": ("2.8.2", "3.0.2"), "2.8.2": ("3.0.2", "3.9.2"), "3.9.2": (BY_ID,)}
UPGRADED_RATE = 0.5

# The least `max.block.ms` of a writer.
SHORTEST_BLOCK_MS = 3_000

# How often a writer knows a load balancer instead of brokers, and how often a broker's address is given away.
BALANCED_RATE = 0.2
STRANGER_RATE = 0.15
BALANCER = ("balancer", 9092)

NODES = ((1,), (1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3, 4))
BASE_CONFIG = sink_config({"kafka.bootstrap.servers": "bootstrap:9092"}).producer


def address_of(node_id: int) -> tuple[str, int]:
    return f"broker-{node_id}", 9092


def make_plan(seed: int) -> Plan:
    rng = random.Random(f"{seed}/plan")
    nodes = rng.choice(NODES)
    topics = tuple(_topic(rng, f"topic-{i}", len(nodes)) for i in range(rng.randint(1, 3)))
    faults_end_ms = rng.choice((1_000, 3_000, 8_000, 20_000, 40_000))
    writers = tuple(_writer(rng, topics, nodes, faults_end_ms) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    plan = Plan(
        seed=seed, nodes=nodes, topic_ids=rng.random() < 0.6, release="", topics=topics, writers=writers,
        replica_lag_time_max_ms=rng.choice((1_000, 5_000, 30_000)), replica_fetch_ms=rng.choice(((1, 5), (1, 50))),
        metadata_lag_ms=rng.choice(((1, 20), (1, 20), (10, 800))),
        failure_detection_ms=rng.choice(((200, 1_000), (2_000, 6_000))),
        latency_ms=rng.choice((0.0, 1.0, 1.0, 5.0, 30.0)), pieces_rate=rng.choice((0.0, 0.2, 0.8)),
        partial_write_rate=rng.choice((0.0, 0.1, 0.5)), faults=_faults(rng, nodes, topics, len(writers), faults_end_ms),
        faults_end_ms=faults_end_ms,
    )  # fmt: skip
    if len(nodes) > 1 and rng.random() < 0.05:
        plan = _of_stopping_leaders(plan, rng)
    plan = _with_quotas(plan, random.Random(f"{seed}/of-quotas"))
    plan = replace(plan, writers=tuple(_given_time(writer, plan) for writer in plan.writers))
    plan = _replaced(plan, random.Random(f"{seed}/replaced"))
    plan = _balanced(plan, random.Random(f"{seed}/balanced"))
    plan = _with_strangers(plan, random.Random(f"{seed}/strangers"))
    return _of_releases(plan, random.Random(f"{seed}/versions"))


def _of_releases(plan: Plan, rng: random.Random) -> Plan:
    """Use a separate random generator, so that other seeds keep their plans."""
    if plan.topic_ids:
        return replace(plan, release=BY_ID if plan.seed % 4 else COMPARES_IDS)
    release = rng.choices(*zip(*RELEASE_WEIGHTS.items(), strict=True))[0]
    plan = replace(plan, release=release)
    # Plans of one kind meet no other.
    is_of_one_kind = {fault.kind for fault in plan.faults} in ({"quota"}, {"stop_leader"})
    if release in UPGRADES and rng.random() < UPGRADED_RATE and not is_of_one_kind:
        plan = _upgraded(plan, rng.choice(UPGRADES[release]), rng)
    if RELEASES[release].takes_unknown_producers:
        return plan
    # Its leaders take no first sequence but 0.
    return replace(plan, writers=tuple(replace(writer, first_sequence=0) for writer in plan.writers))


def _upgraded(plan: Plan, release: str, rng: random.Random) -> Plan:
    """One broker after the other is another release when it is back. If the run is too short for some, they stay as
    they are. Topics get their ids at any time, which brokers of an old release never name."""
    upgrades: list[Fault] = []
    at_ms = int(rng.random() * plan.faults_end_ms / 2)
    for node in rng.sample(plan.nodes, len(plan.nodes)):
        lasts_ms = min(rng.choice((100, 1_000, 4_000)), plan.faults_end_ms - at_ms)
        if lasts_ms <= 0:
            break
        upgrades.append(Fault(at_ms, "upgrade", lasts_ms, node=node, release=release))
        at_ms += lasts_ms + rng.choice((10, 500, 3_000))
    if not RELEASES[plan.release].has_topic_ids:
        upgrades.append(Fault(rng.randrange(plan.faults_end_ms), "assign_topic_ids"))
    return replace(plan, faults=tuple(sorted([*plan.faults, *upgrades], key=_time)))


def _replaced(plan: Plan, rng: random.Random) -> Plan:
    """In some plans another cluster takes the place of the first one, once or twice: an empty one, or the same one as
    it was when it was made. Topics are not changed beside that."""
    kinds = rng.choices(("wipe", "restore"), k=rng.choice((1, 1, 2)))
    last_ms = plan.faults_end_ms - REPLACEMENT_MS
    if last_ms <= 0 or rng.random() >= REPLACED_RATE:
        return plan
    new = [Fault(rng.randrange(last_ms), kind, lasts_ms=REPLACEMENT_MS) for kind in kinds]
    kept = [fault for fault in plan.faults if fault.kind not in ("recreate", "grow")]
    return replace(plan, faults=tuple(sorted([*kept, *new], key=_time)))


def _balanced(plan: Plan, rng: random.Random) -> Plan:
    """Some writers know a name that leads to any broker, and that no broker has."""

    def given(config: ProducerConfig) -> ProducerConfig:
        return replace(config, bootstrap_servers=(BALANCER,)) if rng.random() < BALANCED_RATE else config

    return replace(plan, writers=tuple(replace(writer, config=given(writer.config)) for writer in plan.writers))


def _with_strangers(plan: Plan, rng: random.Random) -> Plan:
    """In some plans the address of a broker that is down leads to another cluster. No writer knows that address as a
    bootstrap server's, and the cluster is not replaced. So no write may end for that."""
    node, away_ms = rng.choice(plan.nodes), rng.choice((1_000, 4_000, 15_000))
    at_ms = int(rng.random() * plan.faults_end_ms)
    kinds = {fault.kind for fault in plan.faults}
    of_one_kind = kinds in ({"quota"}, {"stop_leader"})
    balanced = any(writer.config.bootstrap_servers == (BALANCER,) for writer in plan.writers)
    unfit = len(plan.nodes) == 1 or of_one_kind or balanced or kinds & {"wipe", "restore"}
    if unfit or rng.random() >= STRANGER_RATE:
        return plan
    elsewhere = [address_of(other) for other in plan.nodes if other != node]

    def without(config: ProducerConfig) -> ProducerConfig:
        left = tuple(server for server in config.bootstrap_servers if server in elsewhere)
        return replace(config, bootstrap_servers=left or (rng.choice(elsewhere),))

    stranger = Fault(at_ms, "stranger", min(away_ms, plan.faults_end_ms - at_ms), node=node)
    return replace(
        plan,
        writers=tuple(replace(writer, config=without(writer.config)) for writer in plan.writers),
        faults=tuple(sorted([*plan.faults, stranger], key=_time)),
    )


def _given_time(writer: WriterPlan, plan: Plan) -> WriterPlan:
    """All of a producer's memory may be batches that a small `max.message.bytes` makes many of, sent one after the
    other: on the healthiest cluster that takes longer than a short `delivery.timeout.ms`."""
    config = writer.config
    parts = config.buffer_memory / min(topic.max_message_bytes for topic in plan.topics)
    # There and back, and over to the replicas.
    part_ms = 4 * plan.latency_ms + 2 * plan.replica_fetch_ms[1]
    lingers_ms = 0 if config.linger_ms > config.delivery_timeout_ms else config.linger_ms
    if config.delivery_timeout_ms >= parts * part_ms + lingers_ms + 2 * config.request_timeout_ms:
        return writer
    return replace(writer, config=replace(config, delivery_timeout_ms=120_000))


def _of_stopping_leaders(plan: Plan, rng: random.Random) -> Plan:
    """Make a plan in which a late answer of a former leader matters, which random plans seldom do. The writer writes
    little at a time, learns the new leader soon, waits long for the answer, and meets no other fault."""
    max_in_flight, request_timeout_ms = rng.choice((2, 5)), rng.choice((2_000, 10_000))

    def patient(config: ProducerConfig) -> ProducerConfig:
        return replace(
            config, acks="all", enable_idempotence=True, linger_ms=0, buffer_memory=131_072, metadata_max_age_ms=100,
            max_in_flight_requests_per_connection=max_in_flight, request_timeout_ms=request_timeout_ms,
            delivery_timeout_ms=40_000,
        )  # fmt: skip

    def stream(write: WritePlan) -> WritePlan:
        pause_ms = rng.choice((20, 50, 150))
        return replace(write, batches=tuple((pause_ms, rng.randint(1, 5)) for _ in range(rng.randint(20, 60))))

    faults_end_ms = rng.choice((8_000, 20_000))
    stops = [_fault(rng, "stop_leader", plan.nodes, plan.topics, 1, faults_end_ms) for _ in range(rng.randint(1, 4))]
    return replace(
        plan,
        writers=tuple(
            replace(writer, config=patient(writer.config), writes=tuple(map(stream, writer.writes[:2])))
            for writer in plan.writers[:1]
        ),
        metadata_lag_ms=(1, 20), failure_detection_ms=(200, 1_000), faults=tuple(sorted(stops, key=_time)),
        faults_end_ms=faults_end_ms,
    )  # fmt: skip


def _with_quotas(plan: Plan, rng: random.Random) -> Plan:
    """Use a separate random generator, so that other seeds keep their plans."""
    chance = rng.random()
    if chance < 0.05:
        return _of_quotas(plan, rng)
    if chance < 0.15:
        return replace(plan, faults=tuple(sorted([*plan.faults, *_quotas_beside(plan, rng)], key=_time)))
    return plan


def _quotas_beside(plan: Plan, rng: random.Random) -> list[Fault]:
    """Beside whatever else goes wrong."""
    begins_ms = [int(rng.random() ** 2 * plan.faults_end_ms) for _ in range(rng.choice((1, 2)))]
    return [
        Fault(
            at_ms, "quota", lasts_ms=min(rng.choice((4_000, 15_000, 40_000)), plan.faults_end_ms - at_ms),
            node=rng.choice(plan.nodes), number=_little(plan.writers, rng),
        )
        for at_ms in begins_ms
    ]  # fmt: skip


def _little(writers: tuple[WriterPlan, ...], rng: random.Random) -> int:
    """Bytes a second, such that all that writers have in memory takes so many seconds: no throttle lasts much longer
    than the quota."""
    memory_bytes = sum(writer.config.buffer_memory for writer in writers)
    return max(100, memory_bytes // rng.choice((5, 15, 30)))


def _of_quotas(plan: Plan, rng: random.Random) -> Plan:
    """Nothing goes wrong, but for long brokers take no more than a little at a time: each write takes many delivery
    timeouts. Some brokers are faster than others, and a quota may be lowered or given up in mid-write."""
    delivery_timeout_ms = rng.choice((5_000, 12_000))

    def hurried(config: ProducerConfig) -> ProducerConfig:
        return replace(
            config, acks="all", enable_idempotence=rng.random() < 0.9, linger_ms=rng.choice((0, 100, 2_000)),
            max_block_ms=SHORTEST_BLOCK_MS, request_timeout_ms=rng.choice((500, 2_000)),
            delivery_timeout_ms=delivery_timeout_ms, compression_type=rng.choice(("none", "lz4")),
        )  # fmt: skip

    def large(write: WritePlan) -> WritePlan:
        batches = tuple((rng.choice((0, 0, 1_000)), rng.randint(20, 60)) for _ in range(rng.randint(2, 6)))
        return replace(write, shape=replace(write.shape, value_bytes=(200, 900, 3_000)), batches=batches)

    writers = tuple(
        replace(writer, config=hurried(writer.config), writes=tuple(map(large, writer.writes)))
        for writer in plan.writers
    )
    faults_end_ms = rng.choice((60_000, 150_000))
    faults = [
        Fault(
            begin_ms, "quota", lasts_ms=rng.choice((20_000, faults_end_ms)), node=node,
            number=_little(writers, rng),
        )
        for node in rng.sample(plan.nodes, rng.randint(1, len(plan.nodes)))
        for begin_ms in sorted({0, rng.choice((0, 5_000, 30_000))})
    ]  # fmt: skip
    return replace(
        plan, topics=tuple(replace(topic, max_message_bytes=1_048_588) for topic in plan.topics), writers=writers,
        replica_fetch_ms=(1, 5), latency_ms=min(plan.latency_ms, 5.0), faults=tuple(sorted(faults, key=_time)),
        faults_end_ms=faults_end_ms,
    )  # fmt: skip


def _topic(rng: random.Random, name: str, nodes: int) -> TopicPlan:
    replicas = min(nodes, 3)
    limit_bytes = rng.choice((1_048_588, 1_048_588, 1_048_588, 600, 1_500))
    return TopicPlan(name, rng.randint(1, 4), replicas, min(replicas, 2), limit_bytes)


# --- writers ----------------------------------------------------------------------------------------------------------


def _writer(
    rng: random.Random, topics: tuple[TopicPlan, ...], nodes: tuple[int, ...], faults_end_ms: int
) -> WriterPlan:
    # With the pauses between Arrow batches, the writes take about as long as the faults.
    pauses_ms = (0, 0, 5, faults_end_ms // 40, faults_end_ms // 10)
    return WriterPlan(
        config=_config(rng, nodes), writes=tuple(_write(rng, topics, pauses_ms) for _ in range(rng.randint(2, 7))),
        last_write=_write(rng, topics, (0, 50), (10, 300)), turn_rate=rng.choice((0.0, 0.1, 0.5)),
        first_sequence=rng.choice((0, 0, 0, 2**31 - rng.randint(1, 60))),
    )  # fmt: skip


def _config(rng: random.Random, nodes: tuple[int, ...]) -> ProducerConfig:
    batch_size = rng.choice((1_024, 2_048, 4_096))
    bootstrap = [address_of(node) for node in rng.sample(nodes, rng.randint(1, len(nodes)))]
    if rng.random() < 0.2:
        bootstrap.insert(0, ("no-such-host", 9092))
    acks = rng.choice(("all",) * 6 + ("1", "0"))
    return replace(
        BASE_CONFIG, acks=acks, enable_idempotence=acks == "all" and rng.random() < 0.9,
        bootstrap_servers=tuple(bootstrap), batch_size=batch_size,
        buffer_memory=max(4_096, batch_size * rng.choice((2, 3, 4, 8, 32))),
        linger_ms=rng.choice((0, 0, 5, 100, 1_000, 300_000)), max_request_size=rng.choice((4_096, 16_384, 65_536)),
        max_block_ms=rng.choice((SHORTEST_BLOCK_MS, 10_000, 40_000)),
        request_timeout_ms=rng.choice((500, 2_000, 10_000)),
        delivery_timeout_ms=rng.choice((5_000, 12_000, 40_000, 120_000)), retry_backoff_ms=rng.choice((100, 100, 20)),
        max_in_flight_requests_per_connection=rng.choice((1, 2, 5, 5)),
        retries=rng.choice((2**31 - 1, 2**31 - 1, 2**31 - 1, 5)),
        connections_max_idle_ms=rng.choice((540_000, 540_000, 2_000)),
        socket_connection_setup_timeout_ms=rng.choice((1_000, 10_000)),
        metadata_max_age_ms=rng.choice((500, 5_000, 300_000)),
        compression_type=rng.choice(("none", "none", "zstd", "zstd", "lz4", "snappy", "gzip")),
    )  # fmt: skip


def _differences(config: ProducerConfig) -> str:
    names = type(config).__slots__
    return ", ".join(
        f"{name}={getattr(config, name)!r}" for name in names if getattr(config, name) != getattr(BASE_CONFIG, name)
    )


def _write(
    rng: random.Random, topics: tuple[TopicPlan, ...], pauses_ms: tuple[int, ...], value_bytes: tuple[int, ...] = ()
) -> WritePlan:
    chosen = rng.sample(topics, rng.randint(1, len(topics)))
    if min(topic.max_message_bytes for topic in chosen) < 4_096 and rng.random() < 0.95:
        # Else nearly every write to such a topic would end with RecordTooLarge.
        value_bytes = (10, 100, 300)
    return WritePlan(
        shape=RowShape(
            topics=tuple(topic.name for topic in chosen),
            value_bytes=value_bytes or rng.choice(((10,), (10, 100, 300), (200, 900, 3_000))),
            keyed=rng.choice((0.0, 0.5, 1.0)),
            explicit_partitions=rng.choice((0, 0, min(topic.partitions for topic in chosen))),
            with_headers=rng.random() < 0.3,
            with_timestamps=rng.random() < 0.3,
            with_tombstones=rng.random() < 0.3,
        ),
        partitioner=rng.choice(("murmur2", "murmur2", "murmur2", "roundrobin", "sticky")),
        batches=tuple((rng.choice(pauses_ms), rng.randint(1, 30)) for _ in range(rng.randint(1, 6))),
    )


# --- faults -----------------------------------------------------------------------------------------------------------

# Codes that a broker may answer with now and not the next time, and one or two that end a write.
PRODUCE_CODES = (
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)  # fmt: skip
METADATA_CODES = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)  # fmt: skip
PRODUCER_ID_CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
)  # fmt: skip
CODES = {
    "refuse_produce": PRODUCE_CODES, "refuse_metadata": METADATA_CODES, "refuse_producer_id": PRODUCER_ID_CODES
}  # fmt: skip

# How often each kind is chosen; a kind that needs several brokers is left out where there is one.
WEIGHTS = {
    "slow": 3, "cuts": 3, "cut_broker": 3, "cut_writer": 2, "mute": 3, "deafen": 2, "partition": 3, "garble": 1,
    "refuse_connects": 2, "lose_on_close": 1, "crash": 5, "stop_leader": 3, "elect": 4, "isolate": 3, "throttle": 2,
    "refuse_produce": 4, "refuse_metadata": 2, "refuse_producer_id": 1, "grow": 1, "recreate": 1, "pause": 2,
}  # fmt: skip
NEEDS_SEVERAL_BROKERS = frozenset({"elect", "isolate", "stop_leader"})


def _faults(
    rng: random.Random, nodes: tuple[int, ...], topics: tuple[TopicPlan, ...], writers: int, end_ms: int
) -> tuple[Fault, ...]:
    kinds = [kind for kind in WEIGHTS if len(nodes) > 1 or kind not in NEEDS_SEVERAL_BROKERS]
    weights = [WEIGHTS[kind] for kind in kinds]
    chosen = rng.choices(kinds, weights, k=rng.choice((1, 3, 8, 15, 25)))
    return tuple(sorted((_fault(rng, kind, nodes, topics, writers, end_ms) for kind in chosen), key=_time))


def _time(fault: Fault) -> int:
    return fault.at_ms


def _fault(
    rng: random.Random, kind: str, nodes: tuple[int, ...], topics: tuple[TopicPlan, ...], writers: int, end_ms: int
) -> Fault:
    topic = rng.choice(topics)
    at_ms = int(rng.random() ** 2 * end_ms)
    fault = Fault(at_ms, kind, node=rng.choice(nodes))
    lasts_ms = min(rng.choice((10, 200, 1_000, 4_000, 15_000)), end_ms - at_ms)
    match kind:
        case "slow":
            return replace(fault, node=0, lasts_ms=lasts_ms, number=rng.choice((20.0, 100.0, 600.0)))
        case "cuts":
            return replace(fault, node=0, lasts_ms=lasts_ms, number=rng.choice((0.05, 0.3)))
        case "refuse_connects":
            return replace(fault, node=0, lasts_ms=lasts_ms, number=rng.choice((0.3, 1.0)))
        case "lose_on_close":
            return replace(fault, node=0, lasts_ms=lasts_ms, number=rng.choice((0.0, 1.0)))
        case "cut_writer":
            return Fault(at_ms, kind, writer=rng.randrange(writers))
        case "pause":
            return Fault(at_ms, kind, lasts_ms=lasts_ms, writer=rng.randrange(writers))
        case "elect":
            return replace(fault, topic=topic.name, partition=rng.randrange(topic.partitions))
        case "stop_leader":
            away_ms = min(rng.choice((1_000, 4_000, 15_000)), end_ms - at_ms)
            return Fault(at_ms, kind, away_ms, topic=topic.name, partition=rng.randrange(topic.partitions))
        case "refuse_produce" | "refuse_metadata" | "refuse_producer_id":
            return replace(fault, number=int(rng.choice(CODES[kind])), times=rng.choice((1, 1, 2, 5)))
        case "grow":
            return Fault(at_ms, kind, topic=topic.name, number=topic.partitions + rng.randint(1, 3))
        case "recreate":
            return Fault(at_ms, kind, lasts_ms=lasts_ms, topic=topic.name)
        case "throttle":
            return replace(fault, number=rng.choice((50, 500, 3_000)), times=rng.choice((1, 3)))
        case "cut_broker" | "mute" | "deafen" | "garble":
            return fault
        case _:
            return replace(fault, lasts_ms=lasts_ms)
