"""The simulation itself: some seeds, the same bytes for the same seed, and oracles that can fail."""

import functools
import os
import random
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from effort import examples
from kafka_sink import errors
from kafka_sink.kafka import connections
from kafka_sink.kafka.net.transport import Address, Connected
from kafka_sink.kafka.producer import sequences
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.cluster import Cluster
from model.explorations import of_seed
from model.settings import RELEASES, ClusterSettings
from model.timeline import Timeline
from model.worlds import Crash, Late, Schedule
from reliability.campaign import Campaign
from simulation import __main__ as command
from simulation import reached, seeds
from simulation.faults import BASE_CONFIG, make_plan
from simulation.network import BufferChanged, Network, SimulatedTransport
from simulation.oracles import ORACLES, PROGRESS_MS, judge
from simulation.outcome import EPOCH_MS, LogKey, Outcome, PoolState, Record, Row, RowId, WriteOutcome
from simulation.producer import SimulatedProducer, Violation, WatchedPool
from simulation.reached import run_commit
from simulation.seeds import Report, SeedResult, run_seed
from simulation.simulation import Simulation

TESTS = Path(__file__).resolve().parents[1]
KEPT_SEEDS = [
    int(line.split()[0])
    for line in (TESTS / "simulation" / "kept_seeds.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
SEEDS = range(examples(30))


@functools.cache
def run(seed: int) -> SeedResult:
    return run_seed(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed(seed: int) -> None:
    result = run(seed)
    assert not result.problems, f"{result.plan}\n{result.problems}"


@pytest.mark.parametrize("seed", KEPT_SEEDS)
def test_a_kept_seed(seed: int) -> None:
    """All of them are about producers or the two-phase commit."""
    result = Simulation(make_plan(seed)).run()
    assert not result.problems, f"{result.plan}\n{result.problems}"
    assert not run_commit(of_seed(seed)).problem


def test_the_faults_are_real() -> None:
    """Without real faults a passing seed would prove nothing."""
    counts: Counter[str] = Counter()
    for seed in range(4):
        counts.update(run(seed).counts)
    assert counts["batches sent again"] > 10
    assert counts["requests executed after the client gave up"] > 0
    assert counts["appends without memory"] > 100
    assert counts["turns taken at a lock"] > 100
    assert counts["batch IN_FLIGHT x retry"] > 10
    assert counts["fault crash"] > 3
    assert counts["write ok"] > 20


def test_brokers_are_of_every_release_and_are_upgraded() -> None:
    plans = [make_plan(seed) for seed in range(300)]
    assert {plan.release for plan in plans} == RELEASES.keys()
    kinds = Counter(fault.kind for plan in plans for fault in plan.faults)
    assert kinds["upgrade"] > 50
    assert kinds["assign_topic_ids"] > 10


def test_a_batch_left_behind_further_than_its_leader_remembers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader had stopped between replication and answer."""
    monkeypatch.setattr(sequences, "LEADER_REMEMBERS", 2**31)
    (problem,) = run_seed(643).problems
    assert problem.startswith("refusals_are_the_brokers_doing: ")
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in problem


def test_a_seed_is_a_run_to_the_byte_in_any_process() -> None:
    """Sets and dicts of texts have another order in each process unless somebody sorts them."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "simulation", "--seed", "3"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == f"digest {run(3).digest}"
    assert run(3).digest != run(5).digest


def test_a_trace_changes_nothing_nor_does_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, lines = run(5).digest, list[str]()
    monkeypatch.setattr(connections, "VERSION", "10.20.30.dev40")
    assert run_seed(5, trace=lines.append).digest == digest
    assert all(any(what in line for line in lines) for what in ("request Produce", "EndTxnRequest", "FAULT"))


# --- the command ------------------------------------------------------------------------------------------------------


def simulate(
    monkeypatch: pytest.MonkeyPatch, *results: SeedResult, again: str | None = None, options: Sequence[str] = ()
) -> int:
    """What `main` returns for `results`, the first of which is run `again` to that digest."""
    monkeypatch.setattr(command, "run_seeds", lambda seeds, jobs: iter(results))
    monkeypatch.setattr(command, "digests_again", lambda seeds, jobs: iter([again or results[0].digest]))
    first = str(results[0].seed)
    monkeypatch.setattr(sys, "argv", ["simulation", "--first", first, "--seeds", str(len(results)), *options])
    return command.main()


def test_a_failing_seed_prints_its_plan_and_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = replace(run(3), problems=("nothing_twice: a row is in the log twice",))
    assert simulate(monkeypatch, result) == 1
    printed = capsys.readouterr().out
    assert "nothing_twice" in printed
    assert str(make_plan(3).faults[0]) in printed
    assert repr(of_seed(3)) in printed
    assert "make simulate ARGS='--seed 3 --trace'" in printed


def test_a_commit_that_fails_is_a_seed_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Schedule(version=2, events=((5, Crash()), (9, Late(10))))
    monkeypatch.setattr(seeds, "of_seed", lambda seed: broken)
    (problem,) = run_seed(3).problems
    assert problem.startswith("two-phase commit: IndexError")


def test_a_second_run_to_other_bytes_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(monkeypatch, run(3), again="other") == 1
    assert "seed 3 FAILED\n    two runs differ" in capsys.readouterr().out


def test_the_results_are_a_campaign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    simulate(monkeypatch, run(3), replace(run(4), problems=("a defect",)), options=["--results", str(tmp_path / "s")])
    campaign = Campaign.read(tmp_path / "s")
    assert (campaign.name, campaign.command, campaign.passed) == (
        "simulation", "make simulate SEEDS=2 ARGS='--first 3'", False
    )  # fmt: skip
    assert campaign.figures["seeds that failed"] == campaign.figures["seeds run again"] == 1
    assert campaign.figures["rows"] == run(3).counts["rows"] + run(4).counts["rows"]


# --- what is reached --------------------------------------------------------------------------------------------------


def all_that_is_not_explained() -> Counter[str]:
    return Counter(dict.fromkeys(reached.all_pairs() - reached.UNREACHED.keys(), 1))


def test_every_explained_pair_exists() -> None:
    assert reached.UNREACHED.keys() <= reached.all_pairs()


def test_a_pair_that_is_missing_or_explained_and_reached_is_wrong() -> None:
    counts = all_that_is_not_explained()
    assert reached.wrong(counts) == []
    del counts["batch OPEN x close"]
    counts["connection IDLE x RECEIVE"] = 1
    missing, reachable = reached.wrong(counts)
    assert missing.startswith("batch OPEN x close was never reached")
    assert reachable.startswith("connection IDLE x RECEIVE was reached")


@pytest.mark.parametrize(("count", "passed"), [(reached.ENOUGH_SEEDS - 1, True), (reached.ENOUGH_SEEDS, False)])
def test_only_many_seeds_must_reach_everything(count: int, passed: bool) -> None:
    report = Report(seeds=count, counts=all_that_is_not_explained())
    assert report.passed
    del report.counts["batch OPEN x close"]
    assert report.passed == passed
    assert ("batch OPEN x close was never reached" in str(report.campaign().explained)) == (not passed)


# --- each oracle on a doctored outcome --------------------------------------------------------------------------------

TOPIC_PARTITION = TopicPartition("t", 0)
TOPIC_ID = uuid.UUID(int=1)
KEY = LogKey("t", TOPIC_ID, 0)


def row(number: int) -> Row:
    return Row(
        RowId(0, 0, number), "t", 0, b"k", b"0/0/%d|" % number, (("h", None),), timestamp_ms=None if number else 5
    )


def record(number: int, offset: int) -> Record:
    written = row(number)
    timestamp_ms = EPOCH_MS if written.timestamp_ms is None else written.timestamp_ms
    return Record(
        written.row_id, offset, written.key, written.value, timestamp_ms, written.headers, offset // 2 * 2, 100
    )


def good() -> Outcome:
    """Four rows in two batches of one partition, acknowledged."""
    rows = {RowId(0, 0, number): row(number) for number in range(4)}
    write = WriteOutcome(
        writer=0, write=0, acks="all", idempotent=True, max_in_flight=5, partitioner="murmur2", producer="w0.0",
        started_ms=0, delivery_timeout_ms=1_000, max_block_ms=1_000, topic_ids={"t": TOPIC_ID}, rows=rows,
        routed=dict.fromkeys(rows, TOPIC_PARTITION), now_ms=dict.fromkeys(rows, EPOCH_MS),
        key_partitions={"t": 1},
        flushed_ms=50, ended_ms=100, acknowledgements=(PartitionOffsets("t", 0, 4, 0, 3, 2, 200),),
    )  # fmt: skip
    log = [record(number, offset=number) for number in range(4)]
    pool = PoolState("w0.0", total_bytes=100, available_bytes=100, out_bytes=0, peak_bytes=100, in_flight=False)
    return Outcome([write], {KEY: log}, [pool], faults_end_ms=1_000)


Doctor = Callable[[Outcome], None]
LATE_MS = good().faults_end_ms + PROGRESS_MS


def write_with(error: errors.KafkaSinkError | None = None, **changes: object) -> Doctor:
    """The write is another; with an error it has no acknowledgements."""

    def doctor(outcome: Outcome) -> None:
        if error is not None:
            changes.update(acknowledgements=None, error=error)
        outcome.writes = [replace(outcome.writes[0], **changes)]  # type: ignore[arg-type]

    return doctor


def failed(**changes: object) -> Doctor:
    return write_with(errors.ProducerClosed(reason="test"), **changes)


def log_with(*numbers: int, **changes: object) -> Doctor:
    """These records of the log, in this order; the second of them with `changes`."""

    def doctor(outcome: Outcome) -> None:
        log = [outcome.logs[KEY][number] for number in numbers]
        outcome.logs = {KEY: [*log[:1], *(replace(each, **changes) for each in log[1:2]), *log[2:]]}  # type: ignore[arg-type]

    return doctor


def outcome_with(**changes: object) -> Doctor:
    def doctor(outcome: Outcome) -> None:
        for name, value in changes.items():
            setattr(outcome, name, value)

    return doctor


def pool_with(**changes: object) -> Doctor:
    def doctor(outcome: Outcome) -> None:
        outcome.pools = [replace(outcome.pools[0], **changes)]  # type: ignore[arg-type]

    return doctor


A_DOUBLED_ROW = outcome_with(logs={KEY: [*good().logs[KEY], record(3, offset=4)]})
A_SEQUENCE_THAT_NO_LEADER_EXPECTS = write_with(errors.ProduceRejected(
    topic="t", partition=0, code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, name="OUT_OF_ORDER_SEQUENCE_NUMBER",
    records=1, size_bytes=100, detail="", advice="",
))  # fmt: skip
# It ends late, which is all that it can do where topics have no ids.
A_WRITE_FOR_A_PARTITION_THAT_IS_GONE = (
    write_with(
        errors.DeliveryTimeout(
            topic="t", partition=1, records=1, elapsed_ms=120_000, attempts=1, was_sent=True, last_error=""
        ),
        flushed_ms=LATE_MS + 1, ended_ms=LATE_MS + 1,
    ),
    outcome_with(names_topics_only=True, recreated={"t": [0]}, partition_counts={"t": 1}),
)  # fmt: skip

# What an outcome is made to be, the oracle that sees it, and how.
DOCTORED: tuple[tuple[str, str, tuple[Doctor, ...]], ...] = (
    ("a lost row", "acknowledged_is_there", (log_with(0, 1, 2),)),
    ("a row in a topic made again", "one_topic_a_write", (outcome_with(
        recreated={"t": [0]}, logs={KEY: good().logs[KEY][:3], KEY._replace(topic_id="another"): good().logs[KEY][3:]}
    ),)),
    ("a doubled row", "nothing_twice", (A_DOUBLED_ROW,)),
    ("a doubled row of a failed write", "nothing_twice", (failed(), A_DOUBLED_ROW)),
    ("a swapped pair", "in_order", (log_with(0, 2, 1, 3),)),
    ("a swapped pair, one request at a time", "in_order",
     (write_with(idempotent=False, max_in_flight=1), log_with(0, 2, 1, 3))),
    ("a hole in a failed write", "without_holes", (failed(), log_with(0, 2))),
    ("another value", "bytes_are_equal", (log_with(0, 1, 2, 3, value=b"0/0/1|x"),)),
    ("a null key written as empty", "bytes_are_equal", (log_with(0, 1, 2, 3, key=b""),)),
    ("another header", "bytes_are_equal", (log_with(0, 1, 2, 3, headers=(("h", b""),)),)),
    ("another timestamp", "bytes_are_equal", (log_with(0, 1, 2, 3, timestamp_ms=6),)),
    ("a record of nobody", "bytes_are_equal", (log_with(0, 1, 2, 3, row_id=None),)),
    ("another partition", "partition_is_right", (outcome_with(logs={KEY._replace(partition=1): good().logs[KEY]}),)),
    ("a receipt that counts too few", "receipts_are_complete",
     (write_with(acknowledgements=(PartitionOffsets("t", 0, 3, 0, 3, 2, 200),)),)),
    ("a receipt of another offset", "receipts_match_the_log",
     (write_with(acknowledgements=(PartitionOffsets("t", 0, 4, 1, 3, 2, 200),)),)),
    ("a write that does not end", "nothing_silent", (write_with(ended_ms=None, acknowledgements=None),)),
    ("a write that ends without a word", "nothing_silent", (write_with(acknowledgements=None),)),
    ("a write that ends late", "progress", (write_with(flushed_ms=LATE_MS + 1, ended_ms=LATE_MS + 1),)),
    ("a write that ends late for a partition that is there", "progress",
     (*A_WRITE_FOR_A_PARTITION_THAT_IS_GONE, outcome_with(partition_counts={"t": 2}))),
    ("a write that fails when all is well", "progress",
     (failed(started_ms=LATE_MS, flushed_ms=LATE_MS, ended_ms=LATE_MS),)),
    ("a sequence that no leader expects", "refusals_are_the_brokers_doing", (A_SEQUENCE_THAT_NO_LEADER_EXPECTS,)),
    ("a topic that was not made again", "another_topic_is_one",
     (write_with(errors.TopicRecreated(topic="t", old_topic_id="None", new_topic_id="1")),)),
    ("a cluster that was not replaced", "another_cluster_is_one",
     (write_with(errors.ClusterChanged(broker="broker 1", expected="ours", found="theirs")),)),
    ("a write that a quota ends", "quotas_end_nothing", (failed(), outcome_with(only_quotas=True))),
    ("a flush over its deadline", "flush_is_bounded", (write_with(ended_ms=10_000),)),
    ("a leaked buffer", "memory_is_bounded_and_returned", (pool_with(out_bytes=10, available_bytes=90),)),
    ("too much memory", "memory_is_bounded_and_returned", (pool_with(peak_bytes=101),)),
    ("a request left in flight", "memory_is_bounded_and_returned", (pool_with(in_flight=True),)),
)  # fmt: skip


def doctored(*doctors: Doctor) -> Outcome:
    outcome = good()
    for doctor in doctors:
        doctor(outcome)
    return outcome


def test_a_batch_for_a_partition_that_is_gone_may_wait_for_its_delivery_timeout() -> None:
    problems = judge(doctored(*A_WRITE_FOR_A_PARTITION_THAT_IS_GONE))
    assert [problem for problem in problems if problem.startswith("progress")] == []


@pytest.mark.parametrize(("what", "oracle", "doctors"), DOCTORED, ids=[what for what, _, _ in DOCTORED])
def test_an_oracle_sees(what: str, oracle: str, doctors: tuple[Doctor, ...]) -> None:
    problems = judge(doctored(*doctors))
    assert any(problem.startswith(f"{oracle}: ") for problem in problems), problems


def test_every_oracle_is_seen_to_fail() -> None:
    assert {oracle.__name__ for oracle in ORACLES} == {oracle for _, oracle, _ in DOCTORED}


@pytest.mark.parametrize(("what", "doctors"), [
    ("all went well", ()), ("a failed write leaves its first rows", (failed(), log_with(0, 1))),
    ("a write ends with what a broker was made to answer",
     (A_SEQUENCE_THAT_NO_LEADER_EXPECTS,
      outcome_with(refusals=frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})))),
    ("a flush takes as much longer as brokers throttle", (write_with(ended_ms=10_000, throttled_ms=9_000),)),
    ("without sequences rows come twice and behind later ones",
     (write_with(idempotent=False, max_in_flight=1),
      outcome_with(logs={KEY: [*good().logs[KEY], record(1, offset=4)]}))),
])  # fmt: skip
def test_no_oracle_minds(what: str, doctors: tuple[Doctor, ...]) -> None:
    assert judge(doctored(*doctors)) == []


# --- what is watched for during a run ---------------------------------------------------------------------------------


def test_a_buffer_that_changes_on_the_wire_is_seen() -> None:
    scheduler, network = _network()
    transport = SimulatedTransport(network, "w", lambda: None)
    transport.connect(0, Address(2, ("broker-1", 9092)))
    while transport.poll(0) != [Connected(0)]:
        scheduler.step()
    buffer = bytearray(100)
    transport.send(0, [memoryview(buffer)])
    buffer[50] = 1
    with pytest.raises(BufferChanged):
        scheduler.step()


def _network() -> tuple[Timeline, Network]:
    scheduler = Timeline()
    cluster = Cluster(node_ids=(1,), rng=random.Random(1), settings=ClusterSettings())
    return scheduler, Network(cluster, scheduler, random.Random(1), {("broker-1", 9092): 1})


def _producer() -> SimulatedProducer:
    scheduler, network = _network()
    return SimulatedProducer(
        "w", replace(BASE_CONFIG, bootstrap_servers=(("broker-1", 9092),), retries=1, max_request_size=1_024),
        scheduler=scheduler, network=network, rng=random.Random(1), notify=lambda: None, turn_rate=0.0,
        first_sequence=0,
    )  # fmt: skip


def produce(*records: bytes) -> ProduceRequest:
    partitions = tuple(ProducePartition("t", number, None, data) for number, data in enumerate(records))
    return ProduceRequest(acks=-1, timeout_ms=1, partitions=partitions)


def send(request: ProduceRequest, now_ms: int, watched: SimulatedProducer) -> None:
    """As far as the watching goes: there is no connection."""
    with pytest.raises(RuntimeError, match="takes no request now"):
        watched.network.send(-1, request, now_ms)


def test_other_bytes_under_the_same_number_are_seen() -> None:
    watched = _producer()
    send(produce(bytes(70)), 0, watched)
    with pytest.raises(Violation, match="other bytes"):
        watched.network.send(-1, produce(bytes(69) + b"\1"), 1_000)


def test_a_batch_sent_again_too_soon_or_too_often_is_seen() -> None:
    watched = _producer()
    send(produce(bytes(70)), 0, watched)
    with pytest.raises(Violation, match="after 79 ms"):
        watched.network.send(-1, produce(bytes(70)), 79)
    send(produce(bytes(70)), 1_000, watched)
    with pytest.raises(Violation, match="after 2 attempts"):
        watched.network.send(-1, produce(bytes(70)), 2_000)


def test_a_request_that_is_too_large_is_seen() -> None:
    watched = _producer()
    send(produce(bytes(2_000)), 0, watched)
    with pytest.raises(Violation, match="1140 bytes"):
        watched.network.send(-1, produce(bytes(70), bytes(1_070)), 0)


def test_a_buffer_that_comes_back_twice_is_seen_and_what_came_back_is_spoiled() -> None:
    pool = WatchedPool(total_bytes=100, buffer_bytes=50)
    buffer = pool.try_allocate(50)
    assert buffer is not None
    buffer.view[:] = bytes(50)
    pool.deallocate(buffer)
    assert set(buffer.view) == {0xDD}
    assert (pool.peak_bytes, pool.out_bytes) == (50, 0)
    with pytest.raises(Violation):
        pool.deallocate(buffer)


def test_memory_that_is_given_out_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = (WatchedPool(total_bytes=100, buffer_bytes=50) for _ in range(2))
    pool = WatchedPool(total_bytes=100, buffer_bytes=50)
    given = iter([one.try_allocate(50), other.try_allocate(50)])
    monkeypatch.setattr(BufferPool, "try_allocate", lambda pool, size_bytes: next(given))
    assert pool.try_allocate(50) is not None
    with pytest.raises(Violation, match="twice"):
        pool.try_allocate(50)


def test_a_sender_thread_that_spins_is_seen() -> None:
    watched = _producer()
    with pytest.raises(Violation, match="spins"):
        for _ in range(1_000):
            watched._run()


# --- quotas -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_seeds_of_quotas_throttle_for_many_delivery_timeouts() -> None:
    throttled = [
        run(seed).counts for seed in range(80) if {fault.kind for fault in make_plan(seed).faults} == {"quota"}
    ]
    assert sum(counts["seconds throttled"] for counts in throttled) > 10 * 12
    assert sum(counts["waits for room"] for counts in throttled) > 0
