"""`pykafka transactions` on real brokers: it ends the transactions that a real two-phase commit left open. librdkafka
reads the result.

The tests make a hanging transaction (KAFKA-20734) by an error that clients before KIP-890 had. They write to a
partition without AddPartitionsToTxn. Brokers allow this with `transaction.partition.verification.enable=false`.
"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from kafka.record.default_records import DefaultRecordBatchBuilder

import broker_admin
from broker_admin import read_values
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.cli import transactions
from kafka_sink.commit import attempt, deciding, hanging, planning
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.commit.handover import Facts, Sink, SlotPrepared
from kafka_sink.commit.markers import Marker, Names
from kafka_sink.commit.requests import Effect, Steps, ToCoordinator, write_offset
from kafka_sink.commit.runner import run
from kafka_sink.doctor.dialogue import dial
from kafka_sink.errors import AbortedRowsOpen, CoordinatorUnavailable, DriverFenced, InvalidOption
from kafka_sink.kafka.admin.client import AdminClient as SinkClient
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.api import Request, Response
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest, ProduceResponse
from kafka_sink.kafka.protocol.apis.transactions import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import SinkConfig, given_options, sink_config
from kafka_sink.spark.exactly_once.plan import plan_stream
from kafka_sink.spark.kept_clients import lease_producer
from waiting import wait_until

# A topic that was made a moment ago; the markers of the transaction before.
_FOR_NOW = frozenset({3, 6, 51})
_DEADLINE_S = 60


def ask_broker(config: ProducerConfig, request: Request, number: int = 0) -> Response:
    """Return the answer of the bootstrap server with this number, modulo the number of servers."""
    servers = config.bootstrap_servers
    attempt, dialogue = dial(*servers[number % len(servers)], config)
    assert dialogue is not None, attempt
    try:
        return dialogue.ask(request)
    finally:
        dialogue.close()


def produce_record(
    config: ProducerConfig, topic: str, partition: int, value: bytes, transactional_id: str, producer_id: int,
    producer_epoch: int, transaction_version: int = 2,
) -> None:  # fmt: skip
    """Write one record in a transaction by another client's encoder, to a cluster of one broker. With version 1 the
    request adds no partition to the transaction."""
    batch = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=1, producer_id=producer_id, producer_epoch=producer_epoch,
        base_sequence=0, batch_size=16_384,
    )  # fmt: skip
    # Of now: brokers look every five minutes for what is older than a week, and delete it.
    batch.append(0, timestamp=time.time_ns() // 1_000_000, key=None, value=value, headers=[])
    rows = ProducePartition(topic, partition, None, bytes(batch.build()))
    request = ProduceRequest(-1, 30_000, (rows,), transactional_id, transaction_version=transaction_version)
    codes: list[int] = []

    def is_answered() -> bool:
        response = ask_broker(config, request, len(codes))
        assert isinstance(response, ProduceResponse)
        codes.append(response.partitions[0].error_code)
        return codes[-1] not in _FOR_NOW

    wait_until(is_answered, _DEADLINE_S, "Produce is answered")
    assert codes[-1] == 0


OLD = "3.9.2"
SLOTS = 2
# Slot n writes to partition n; the hanging transaction is on the last partition.
PARTITIONS = SLOTS + 1
DONE, FAILED, WRONG_USAGE, REFUSED = 0, 1, 2, 3
numbers = itertools.count(1)


@pytest.fixture(scope="module", params=[DEFAULT_KAFKA_VERSION, pytest.param(OLD, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    unverified = {"transaction.partition.verification.enable": False}
    with LocalKafka(kafka_version=request.param, config=unverified) as kafka:
        yield kafka


@dataclass
class Query:
    """A sink's driver and tasks, as far as they come."""

    kafka: LocalKafka
    name: str = field(default_factory=lambda: f"orders-{next(numbers)}")

    def __post_init__(self) -> None:
        self.kafka.create_topic(self.name, PARTITIONS)
        self.config: SinkConfig = sink_config(
            {"kafka.bootstrap.servers": self.kafka.bootstrap_servers, "kafka.max.block.ms": "30000"}
        )
        self.client = SinkClient(self.config.producer)
        ensure_commit_topic(self.client, self.config.commit_topic)
        names = Names(self.name, self.config.commit_topic)
        self.sink = Sink(names, timeout_ms=60_000, transaction_version=self.client.transaction_version())

    def prepare(self, micro_batch_id: int = 0) -> tuple[Facts, list[SlotPrepared]]:
        """Plans a micro-batch and writes its slots' rows, `<micro-batch>/<slot>` each."""
        facts = run(self.client, planning.plan(self.sink))
        return facts, [self.task(facts, micro_batch_id, slot) for slot in range(SLOTS)]

    def task(self, facts: Facts, micro_batch_id: int, slot: int) -> SlotPrepared:
        begin = attempt.begin(self.sink, facts, slot=slot, micro_batch_id=micro_batch_id, query_id="q")
        begun = run(self.client, begin)
        if begun.visible is None:
            ids = begun.ids.producer_id, begun.ids.producer_epoch
            transaction = Transaction(self.sink.names.slot(slot), *ids, self.sink.transaction_version)
            rows = pa.record_batch({"value": [f"{micro_batch_id}/{slot}"], "partition": pa.array([slot], pa.int32())})
            with lease_producer(self.config.producer) as producer:
                write = Write(producer, topic=self.name, transaction=transaction)
                write.append(rows)
                (receipt,) = write.finish()
            first_offsets = {(self.name, slot): receipt.first_offset}
            run(self.client, attempt.prepare(self.sink, begun, Marker(micro_batch_id, "q", str(slot))))
        else:
            first_offsets = {}
        return SlotPrepared(slot, begun.ids, "q", str(slot), begun.visible, ((self.name, slot),), first_offsets)

    def commit(self, facts: Facts, done: Sequence[SlotPrepared], micro_batch_id: int = 0) -> None:
        run(self.client, self._commit(facts, done, micro_batch_id))

    def _commit(self, facts: Facts, done: Sequence[SlotPrepared], micro_batch_id: int) -> Steps[None]:
        now_ms = wall_clock_ms()
        return deciding.commit(self.sink, facts, done, micro_batch_id=micro_batch_id, now_ms=now_ms)

    def decide(self, facts: Facts, done: Sequence[SlotPrepared], micro_batch_id: int = 0, slots: int = 0) -> None:
        """Commits as far as the decision, and then so many slots; there the driver dies."""

        def until_it_dies() -> Steps[None]:
            steps = self._commit(facts, done, micro_batch_id)
            effects = next(steps)
            while not (len(effects) == SLOTS and all(map(is_end_txn, effects))):
                effects = steps.send((yield effects))
            if slots:
                yield effects[:slots]

        run(self.client, until_it_dies())

    def write_unseen(self, slot: SlotPrepared, value: bytes, number: int = SLOTS) -> SlotPrepared:
        """A row that the slot's coordinator does not know of, on partition `number`: the leader will have it open for
        ever."""
        name = self.sink.names.slot(slot.slot)
        ids = slot.ids.producer_id, slot.ids.producer_epoch
        produce_record(self.client.config, self.name, number, value, name, *ids, transaction_version=1)
        return replace(slot, partitions=(*slot.partitions, (self.name, number)))

    def mark_unseen(self, slot: SlotPrepared) -> None:
        """The slot's marker once more, to a group that the coordinator does not know of."""
        name, version = self.sink.names.slot(slot.slot), 1
        request = TxnOffsetCommitRequest(
            name, name, slot.ids.producer_id, slot.ids.producer_epoch, self.config.commit_topic, 0, 0,
            Marker(0, "q", slot.fingerprint).text, version,
        )  # fmt: skip
        (response,) = self.client.ask_all([(CoordinatorKind.GROUP, name, request)])
        assert response.error_code == 0  # type: ignore[union-attr]

    def visible(self, isolation: str = "read_committed") -> list[str]:
        """The rows of all partitions, sorted, as librdkafka reads them."""
        return sorted(value.decode() for value in read_values(self.kafka, self.name, isolation).elements())


def is_end_txn(effect: Effect) -> bool:
    return isinstance(effect, ToCoordinator) and isinstance(effect.request, EndTxnRequest)


@pytest.fixture
def query(cluster: LocalKafka) -> Iterator[Query]:
    made = Query(cluster)
    with closing(made.client):
        yield made


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "PAUSES_MS", (1, 2, 4))


class Command:
    """The command, in this process: its status, and the lines it said since."""

    def __init__(self, query: Query, capsys: pytest.CaptureFixture[str]) -> None:
        self.query = query
        self.capsys = capsys
        self.said = ""
        self.error = ""

    def __call__(self, subcommand: str, *arguments: str) -> int:
        self.capsys.readouterr()
        name, servers = self.query.name, self.query.kafka.bootstrap_servers
        status = transactions.main([subcommand, "--bootstrap-servers", servers, "--prefix", name, *arguments])
        self.said, self.error = self.capsys.readouterr()
        return status

    def row(self, transactional_id: str) -> list[str]:
        """The cells of its line in the table."""
        (line,) = [line for line in self.said.splitlines() if line.startswith(f"{transactional_id} ")]
        return [cell for cell in line.split("  ") if cell]


@pytest.fixture
def command(query: Query, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(query, capsys)


# --- looking ----------------------------------------------------------------------------------------------------------


def test_what_is_open_is_listed_and_looking_disturbs_nobody(query: Query, command: Command) -> None:
    name = query.name
    facts, done = query.prepare()
    for subcommand in ("list", "describe"):
        assert command(subcommand) == DONE
        for slot in range(SLOTS):
            transactional_id, state, _since, lasted, decided, held = map(str.strip, command.row(f"{name}.{slot}"))
            assert (transactional_id, state, decided) == (f"{name}.{slot}", "Ongoing, prepared", "no")
            assert lasted.endswith((" s", "min"))
            assert held == f"{name}-{slot} from offset 0"
        assert f"abort --bootstrap-servers {query.kafka.bootstrap_servers} --prefix {name}" in command.said
        assert "repair" not in command.said
    assert "Decision: none" in command.said
    # Its driver was not fenced, and goes on.
    query.commit(facts, done)
    assert query.visible() == ["0/0", "0/1"]
    assert command("list") == DONE
    sink, query_id, micro_batch_id, _decided, slots, visible = map(str.strip, command.row(name))
    assert (sink, query_id, micro_batch_id, slots, visible) == (name, "q", "0", "2", "yes")
    assert command.said.endswith("No transaction is open.\n")
    assert command("describe") == DONE
    assert "Decision: micro-batch 0 of query q, 2 slots" in command.said
    assert "carried out: every slot is visible" in command.said


def test_list_finds_sinks_by_the_beginning_of_their_names(query: Query, command: Command) -> None:
    other = Query(query.kafka, f"{query.name}-eu")
    with closing(other.client):
        query.prepare()
        other.prepare()
        assert command("list") == DONE
        assert command.row(f"{query.name}.0")
        assert command.row(f"{other.name}.0")
        # A sink alone has what is its own, though another's name begins with its.
        assert command("describe") == DONE
        assert f"{other.name}.0" not in command.said


def test_a_prefix_that_nobody_used(query: Query, command: Command) -> None:
    command.query = Query(query.kafka)
    with closing(command.query.client):
        assert command("list") == DONE
        assert command.said == "No transaction is open.\n"
        assert command("describe", "--topic", query.name, "--commit-topic", "never-made") == DONE
        assert "Decision: none" in command.said
        assert command("repair") == DONE
        assert command("abort") == DONE


def test_ids_of_others_run_nothing_and_draw_nothing(query: Query, command: Command, tmp_path: Path) -> None:
    """A user with WRITE access chooses the transactional id. The sink's name in it became part of a shell command."""
    ran = tmp_path / "ran"
    forged = f"{query.name}\nNo transaction is open.\x1b[2J\u202e"
    ids = [f"{query.name}-$(touch {ran}).1", f"{query.name}`touch {ran}`.driver", f"{forged}.1", f"{query.name}.0"]
    producers = [broker_admin.producer(query.kafka, **{"transactional.id": each, "log_level": 0}) for each in ids]
    for producer in producers:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(query.name, b"row", partition=0)
        assert producer.flush(30) == 0
    try:
        assert command("list") == DONE
        lines = [line for line in command.said.split("\n") if line.startswith("    ")]
        for line in lines:
            subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=False)
        assert not list(tmp_path.iterdir())
        assert len(lines) == 1
        assert command.said.replace("\n", "").isprintable()
        for each in ids:
            assert command.row(repr(each)[1:-1])[1].strip() == "Ongoing", command.said
        assert command.said.count("another program's") == len(ids) - 1
        assert command("describe") == DONE
        assert forged not in command.said
    finally:
        for producer in producers:
            producer.abort_transaction(30)


@pytest.mark.long
def test_it_is_a_program(query: Query) -> None:
    query.prepare()
    program = [sys.executable, "-m", "kafka_sink", "transactions"]
    arguments = ["--prefix", query.name, "--option", f"kafka.bootstrap.servers={query.kafka.bootstrap_servers}"]
    listed = subprocess.run([*program, "list", *arguments], capture_output=True, text=True, timeout=120, check=True)
    assert f"\n{query.name}.1 " in listed.stdout
    as_json = [*program, "list", *arguments, "--json"]
    (line,) = subprocess.run(as_json, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    (sink,) = json.loads(line)["sinks"]
    assert [each["transactional_id"] for each in sink["open"]] == [f"{query.name}.0", f"{query.name}.1"]
    refused = subprocess.run([*program, "abort", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert (refused.returncode, "--take-over" in refused.stderr) == (REFUSED, True)


# --- abort ------------------------------------------------------------------------------------------------------------


def test_abort_wants_to_hear_that_it_may_stop_a_query(query: Query, command: Command) -> None:
    facts, done = query.prepare()
    assert command("abort") == REFUSED
    assert f"A running query with prefix {query.name} would stop with DriverFenced" in command.error
    assert command.row(f"{query.name}.0")
    query.commit(facts, done)
    assert query.visible() == ["0/0", "0/1"]


def test_abort_fences_the_driver_and_ends_what_nobody_decided(query: Query, command: Command) -> None:
    facts, done = query.prepare()
    assert command("abort", "--take-over") == DONE
    for slot in done:
        assert f"Aborted {query.name}.{slot.slot} ({slot.ids}), open since" in command.said
    with pytest.raises(DriverFenced):
        query.commit(facts, done)
    with pytest.raises(DriverFenced):
        query.task(facts, 0, 0)
    assert (query.visible(), query.visible("read_uncommitted")) == ([], ["0/0", "0/1"])
    assert command("abort") == DONE
    assert "no open transaction" in command.said
    query.commit(*query.prepare())
    assert query.visible() == ["0/0", "0/1"]


# --- repair -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [0, 1])
def test_repair_commits_what_is_decided(query: Query, command: Command, committed: int) -> None:
    """And `abort` leaves it."""
    query.commit(*query.prepare())
    query.decide(*query.prepare(1), micro_batch_id=1, slots=committed)
    advice = f"repair --bootstrap-servers {query.kafka.bootstrap_servers} --prefix {query.name}"
    assert command("abort", "--take-over") == REFUSED
    assert "its micro-batch 1 is decided" in command.error and advice in command.error
    assert command("describe") == DONE
    missing = "slot 1 not visible" if committed else "slot 0, slot 1 not visible"
    assert f"not carried out: {missing}" in command.said
    assert command.row(f"{query.name}.1")[4].strip() == "micro-batch 1"
    assert advice in command.said
    assert command("repair", "--dry-run") == DONE
    assert f"Would commit {query.name}.1 (" in command.said
    assert len(query.visible()) == 2 + committed
    assert command("repair") == DONE
    assert f"{query.name}.1 (" in command.said
    assert command.said.endswith("All decided slots are visible.\n")
    assert query.visible() == ["0/0", "0/1", "1/0", "1/1"]
    assert command("repair") == DONE
    # And the query goes on where it was.
    query.commit(*query.prepare(1), micro_batch_id=1)
    query.commit(*query.prepare(2), micro_batch_id=2)
    assert len(query.visible()) == 6


def test_repair_disturbs_no_query_that_runs(query: Query, command: Command) -> None:
    query.commit(*query.prepare())
    facts, done = query.prepare(1)
    assert command("repair") == DONE
    assert "Open and not decided: 2." in command.said
    query.commit(facts, done, 1)
    assert query.visible() == ["0/0", "0/1", "1/0", "1/1"]


def test_repair_tells_of_what_it_cannot_commit_any_more(query: Query, command: Command) -> None:
    query.decide(*query.prepare(), slots=1)
    # Somebody ends it from outside.
    init = InitProducerIdRequest(60_000, f"{query.name}.1")
    query.client.ask_all([(CoordinatorKind.TRANSACTION, f"{query.name}.1", init)])
    assert command("repair") == FAILED
    assert "Not visible, and can no longer be committed: slot 1." in command.said
    assert query.visible() == ["0/0"]
    query.commit(*query.prepare())
    assert query.visible() == ["0/0", "0/1"]


# --- hanging transactions ---------------------------------------------------------------------------------------------


def test_what_hangs_is_told_and_ended_by_repair(query: Query, command: Command) -> None:
    facts, done = query.prepare()
    done[1] = query.write_unseen(done[1], b"0/1 too")
    query.decide(facts, done, slots=SLOTS)
    wait_until(lambda: query.visible() == ["0/0", "0/1"], 30, "the coordinators' markers are written")
    for subcommand in ("list", "describe"):
        assert command(subcommand) == DONE
        _, state, *_, decided, held = map(str.strip, command.row(f"{query.name}.1"))
        assert (state, decided, held) == ("hangs", "committed", f"{query.name}-{SLOTS} from offset 0")
        assert "repair" in command.said
    assert command("repair", "--dry-run") == DONE
    assert f"Would end with COMMIT {query.name}.1 ({done[1].ids})" in command.said
    assert command("repair", "--topic", query.name) == DONE
    assert f"Ended with COMMIT: {query.name}.1 ({done[1].ids}) on {query.name}-{SLOTS} from offset 0." in command.said
    assert query.visible() == ["0/0", "0/1", "0/1 too"]
    assert command("list") == DONE
    assert command.said.splitlines()[-1] == "No transaction is open."


def test_what_hangs_and_was_not_committed_is_left_alone(query: Query, command: Command) -> None:
    facts, done = query.prepare()
    query.write_unseen(done[1], b"of an attempt that failed")
    run(query.client, planning.abort(query.sink, facts.generation))
    assert command("repair") == FAILED
    assert "Not changed, because Kafka does not show if it was committed" in command.said
    assert query.visible() == []
    assert command("list") == DONE
    assert command.row(f"{query.name}.1")[1].strip() == "hangs"


def test_a_marker_that_hangs_is_ended_by_repair(query: Query, command: Command) -> None:
    """Each start would wait for it in vain."""
    facts = run(query.client, planning.plan(query.sink))
    first = query.task(facts, 0, 0)
    begun = run(query.client, attempt.begin(query.sink, facts, slot=1, micro_batch_id=0, query_id="q"))
    second = SlotPrepared(1, begun.ids, "q", "1", None)
    # It is in a transaction by another group's offset.
    groups = replace(query.sink, names=replace(query.sink.names, sink=f"{query.name}-x"))
    write = write_offset(groups, query.sink.names.slot(1), begun.ids, f"{query.name}-x.1", 0, "m")
    run(query.client, write)
    query.mark_unseen(second)
    query.decide(facts, [first, second], slots=SLOTS)
    impatient = SinkClient(replace(query.config.producer, max_block_ms=1_500))
    with closing(impatient), pytest.raises(CoordinatorUnavailable, match=r"pykafka transactions describe"):
        run(impatient, planning.plan(query.sink))
    assert command("describe") == DONE
    assert command.row(f"{query.name}.1")[1].strip() == "hangs"
    assert "__consumer_offsets-" in command.row(f"{query.name}.1")[-1]
    assert command("repair") == DONE
    assert "Ended with COMMIT: " in command.said
    query.commit(*query.prepare())
    assert query.visible() == ["0/0"]


def test_a_commit_ends_what_hangs(query: Query) -> None:
    facts, done = query.prepare()
    done[0] = query.write_unseen(done[0], b"0/0 too")
    query.commit(facts, done)
    assert query.visible() == ["0/0", "0/0 too", "0/1"]


def test_a_replay_ends_what_hangs_since_before(query: Query) -> None:
    facts, done = query.prepare()
    done[0] = query.write_unseen(done[0], b"0/0 too")
    query.decide(facts, done, slots=1)
    facts, again = query.prepare()
    # As a task tells whose rows are visible: wherever they may be.
    everywhere = tuple((query.name, partition) for partition in range(PARTITIONS))
    query.commit(facts, [replace(each, partitions=everywhere) for each in again])
    assert query.visible() == ["0/0", "0/0 too", "0/1"]


def test_a_run_that_goes_on_to_other_rows_ends_what_hangs_first(query: Query) -> None:
    """Its own rows would share the end of those that are committed, even if that is an abort. In which topics those
    are the decision says, also if rows say where they go."""
    facts, done = query.prepare()
    done[1] = query.write_unseen(done[1], b"0/1 too")
    query.decide(facts, done, slots=SLOTS)
    wait_until(lambda: query.visible() == ["0/0", "0/1"], 30, "the coordinators' markers are written")
    options = {"kafka.bootstrap.servers": query.kafka.bootstrap_servers, "transactionalIdPrefix": query.name}
    plan_stream(given_options(options), None)
    assert query.visible() == ["0/0", "0/1", "0/1 too"]


def test_a_leader_that_missed_an_abort_does_not_commit_the_aborted_rows(query: Query) -> None:
    facts = run(query.client, planning.plan(query.sink))
    begun = run(query.client, attempt.begin(query.sink, facts, slot=1, micro_batch_id=0, query_id="q"))
    query.write_unseen(SlotPrepared(1, begun.ids, "q", "1", None), b"of an attempt that was aborted", number=1)
    facts, done = query.prepare()
    with pytest.raises(AbortedRowsOpen) as raised:
        query.commit(facts, done)
    assert (raised.value.partition, raised.value.open_since_offset, raised.value.first_offset) == (1, 0, 1)
    run(query.client, planning.abort(query.sink, facts.generation))
    query.commit(*query.prepare())
    assert query.visible() == ["0/0", "0/1"]


# --- the brokers' ceiling ---------------------------------------------------------------------------------------------


def test_a_transaction_timeout_above_the_brokers_is_refused_with_both_numbers() -> None:
    config = {
        "transaction.max.timeout.ms": 300_000,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    with LocalKafka(config=config) as kafka:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t", "transactionalIdPrefix": "orders"}
        given = given_options(options)
        with pytest.raises(InvalidOption, match=r"'900000'; expected at most .*transaction.max.timeout.ms, 300000\."):
            plan_stream(given, None)
        admin = broker_admin.admin(kafka)
        # The ALLOW rule is needed: a user with only a DENY rule has no rights at all.
        rules = [(AclOperation.ALL, AclPermissionType.ALLOW), (AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)]
        bindings = [
            AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", *rule)
            for rule in rules
        ]
        for created in admin.create_acls(bindings).values():
            created.result(60)

        def is_untold() -> bool:
            with pytest.raises(InvalidOption) as raised:
                plan_stream(given, None)
            return "brokers show its value only with the ACL CLUSTER DESCRIBE_CONFIGS" in str(raised.value)

        wait_until(is_untold, 60, "the rule is known to the broker")
