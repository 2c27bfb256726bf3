"""The command's line, statuses and words. What it does to a Kafka: `unit/commit` and `integration`."""

import json
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_sink.cli import transactions, transactions_text
from kafka_sink.cli.transactions import configuration, main, parser
from kafka_sink.cli.transactions_text import at, lasted
from kafka_sink.commit import open_transactions
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.hanging import Hanging
from kafka_sink.commit.markers import Decision, Ids, Marker, Names
from kafka_sink.commit.open_transactions import Held, OpenTransaction, SinkTransactions
from kafka_sink.commit.requests import Steps, init_producer_id
from kafka_sink.commit.stream_name import LocalCheckpoint, spelled_name
from kafka_sink.errors import BrokersUnreachable, UnreadableState
from kafka_sink.errors.quoting import several
from kafka_sink.kafka.protocol.apis.transaction_state import TransactionDescription
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.records import receipt_file
from model.logical_kafka import LogicalKafka
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients
from scripted_reads import ScriptedLog, serve

Ran, Run, Document = dict[str, Any], Callable[..., str], Callable[..., Any]
DONE, FAILED, WRONG_USAGE, REFUSED = 0, 1, 2, 3
SINK = Sink(Names("orders", "commits"), 60_000, 2, bootstrap_servers="b:9092")
AT_MS = 1_760_000_000_000
SERVERS = ("--bootstrap-servers", "b:9092")
SAME = "--bootstrap-servers b:9092 --prefix orders --commit-topic commits"
DENIED = "WriteTxnMarkers was refused: CLUSTER_AUTHORIZATION_FAILED"
WHOLE = {0: Marker(4, "q", "f"), 1: Marker(4, "q", "g")}
HANGING = Hanging("t", 2, "orders.1", Ids(101, 3), 17, 0)
FORGED = "ord$(touch x)\norders: \x1b[2J\u202e"
OPEN_JSON = {
    "transactional_id": "orders.0", "slot": 0, "producer_id": 100, "producer_epoch": 7, "state": "Ongoing",
    "prepared": True, "decided": True, "start_time_ms": AT_MS, "timeout_ms": 60_000,
    "holds": [
        {"topic": "t", "partition": 0, "start_offset": 40}, {"topic": "u", "partition": 0, "start_offset": None},
    ],
}  # fmt: skip
HANGING_JSON = {
    "transactional_id": "orders.1", "producer_id": 101, "producer_epoch": 3, "topic": "t", "partition": 2,
    "start_offset": 17, "committed": True,
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), [
    ([], ""), (["list", "--take-over"], ""), (["abort", "--topic", "t"], ""), (["list", "--option", "x"], ""),
    (["list", "--preset", "none"], ""), (["list", "--prefix", "p"], "kafka.bootstrap.servers"),
    (["describe", *SERVERS], "name the sink with --prefix or --checkpoint"),
    (["abort", *SERVERS, "--prefix", "p q"], "transactionalIdPrefix"),
    (["list", *SERVERS, "--prefix", "p", "--option", "kafka.ackz=all"], "'kafka.ackz'"),
])  # fmt: skip
def test_a_wrong_line_or_option_is_told(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: Any = main(arguments)
    except SystemExit as ended:
        status = None if words else ended.code
    assert status == WRONG_USAGE
    assert words in capsys.readouterr().err


def test_a_checkpoint_tells_the_sinks_name(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')

    def name(*arguments: str) -> str | None:
        return configuration(parser().parse_args(["describe", *SERVERS, *arguments])).transactional_id_prefix

    location = str(tmp_path)
    # Of a query that an earlier build ran last, or whose checkpoint is elsewhere.
    assert name("--checkpoint", location) == spelled_name(location)
    assert name("--checkpoint", "s3://bucket/checkpoint") == spelled_name("s3://bucket/checkpoint")
    LocalCheckpoint(tmp_path, "q").give("orders")
    assert name("--checkpoint", f"file:{location}") == "orders"
    assert name("--checkpoint", location, "--prefix", "another") == "another"


@pytest.mark.parametrize("is_known", [True, False])
def test_a_checkpoint_elsewhere_tells_the_name_that_kafka_knows(
    kafka: ScriptedKafka, network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    described: list[str] = []

    def describe(session: transactions.Session, sink: Sink, partitions: object) -> None:
        described.append(sink.names.sink)
        raise UnreadableState(group="g", found="")

    monkeypatch.setattr(transactions.Session, "describe_sink", describe)
    location = "s3://bucket/checkpoint/"
    if is_known:
        sink = Sink(Names(spelled_name(location), "pykafka-commits"), 60_000, 2)
        kafka.transactions.execute(init_producer_id(sink, sink.names.driver))
    main(["describe", *SERVERS, "--checkpoint", location])
    assert described == [spelled_name(location if is_known else "s3a://bucket/checkpoint")]


@pytest.fixture
def kafka() -> ScriptedKafka:
    """It has topic t with a partition that has no leader, topic u, the commit topic, and nothing else."""
    made = ScriptedKafka(transactions=LogicalKafka(2))
    made.leaders = {("t", 0): 1, ("t", 1): -1, ("u", 0): 1, ("pykafka-commits", 0): 1, ("pykafka-commits", 1): 1}
    made.topic_ids = {"t": uuid.UUID(int=2), "u": uuid.UUID(int=1)}
    return made


@pytest.fixture
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_clients(ScriptedNetwork(kafka), monkeypatch)


@pytest.fixture
def ran(network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """What looking, describing, finishing and aborting come to; of a deque the next. Exceptions are raised. `sinks`:
    those that are seen, `busy_sinks`: those of them with an open transaction."""
    answers: Ran = {"look": transactions.Seen({}, (), {}), "busy_sinks": ["orders"], "sinks": []}

    def answering(name: str) -> Callable[..., Steps[Any]]:
        def steps(*arguments: object) -> Steps[Any]:
            yield from ()
            answer = answers[name]
            if isinstance(answer, deque):
                answer = answer.popleft()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return steps

    for name in ("look", "describe_sink", "finish_manually", "abort_manually"):
        monkeypatch.setattr(open_transactions, name, answering(name))
    for name in ("busy_sinks", "sinks"):
        monkeypatch.setattr(transactions.Seen, name, lambda seen, name=name: answers[name])
    return answers


@pytest.fixture
def run(ran: Ran, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a subcommand for sink orders and topic t; what it says."""

    def run(subcommand: str, *arguments: str, status: int = DONE) -> str:
        of_topic = ["--topic", "t"] if subcommand in ("list", "describe", "status") else []
        assert main([subcommand, *SERVERS, "--prefix", "orders", *of_topic, *arguments]) == status
        said = capsys.readouterr()
        return said.out + said.err

    return run


def opened(slot: int | None, *, is_decided: bool, state: str = "Ongoing") -> OpenTransaction:
    name = "orders.driver" if slot is None else f"orders.{slot}"
    holds = (Held("__consumer_offsets", 3, None), Held("t", slot or 0, 40 + (slot or 0)), Held("u", 0, None))
    return OpenTransaction(name, slot, Ids(100, 7), state, AT_MS, 60_000, holds, is_decided)


def found(
    *open_ones: OpenTransaction, hanging: tuple[Hanging, ...] = (), unknown: tuple[Hanging, ...] = (),
    markers: Mapping[int, Marker] = {}, decided: bool = True,
) -> SinkTransactions:  # fmt: skip
    decision = Decision(4, "q", Ids(9, 1), 2, AT_MS, (Ids(100, 7), None)) if decided else None
    return SinkTransactions(SINK, {}, decision, markers, open_ones, hanging, unknown, {})


def test_an_error_of_the_cluster_is_told_and_the_connections_closed(
    ran: Ran, kafka: ScriptedKafka, network: ScriptedNetwork, run: Run
) -> None:
    ran["look"] = BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=5, last_error="refused")
    assert "\nerror: no broker of b:9092 answered" in run("list", status=FAILED)
    assert network.closed
    kafka.lacking = ("ListTransactions 0 to 2 (Kafka 3.0): it has none",)
    assert "lacks what exactly-once needs: ListTransactions" in run("list", status=FAILED)


def test_a_table_for_who_is_on_call(ran: Ran, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions_text, "wall_clock_ms", lambda: AT_MS + 8 * 60_000)
    ran["describe_sink"] = found(opened(0, is_decided=True), opened(12, is_decided=False), hanging=(HANGING,))
    assert run("list").splitlines() == [
        "Not looked at, because they have no leader now: t-1.",
        "SINK    QUERY  MICRO-BATCH  DECIDED (UTC)        SLOTS  VISIBLE",
        "orders  q      4            2025-10-09 08:53:20  2      no",
        "",
        "TRANSACTION  STATE              SINCE (UTC)          FOR    DECIDED        READERS SEE NOTHING OF",
        "orders.0     Ongoing, prepared  2025-10-09 08:53:20  8 min  micro-batch 4  t-0 from offset 40, u-0",
        "orders.12    Ongoing, prepared  2025-10-09 08:53:20  8 min  no             t-12 from offset 52, u-0",
        "orders.1     hangs                                          committed      t-2 from offset 17",
        "",
        "orders: the decided micro-batch is not completely visible yet. A running query or its next start completes "
        "it. To complete it now:",
        f"    pykafka transactions repair {SAME}",
        "",
        "orders: open and not decided. This is normal while a query writes a micro-batch. If no query runs, its next "
        "start aborts them, or the brokers do, 60 s after they began. To abort them now:",
        f"    pykafka transactions abort {SAME}",
    ]


def test_sinks_that_are_well_are_listed(ran: Ran, run: Run) -> None:
    ran["busy_sinks"], ran["sinks"] = [], ["orders"]
    ran["describe_sink"] = found(markers=WHOLE)
    assert run("list").splitlines()[-4:] == [
        "SINK    QUERY  MICRO-BATCH  DECIDED (UTC)        SLOTS  VISIBLE",
        "orders  q      4            2025-10-09 08:53:20  2      yes",
        "",
        "No transaction is open.",
    ]
    # A batch write that is over, or another program's.
    ran["describe_sink"] = found(decided=False)
    assert run("list").splitlines()[-1:] == ["No transaction is open."]


def test_names_of_others_are_shown_as_they_print_and_get_no_command(ran: Ran, run: Run) -> None:
    ran["busy_sinks"] = [FORGED]
    theirs = replace(opened(0, is_decided=True), transactional_id=f"{FORGED}.0")
    hanging = replace(HANGING, transactional_id=f"{FORGED}.1", topic="t\r")
    sink = replace(SINK, names=Names(FORGED, "commits"))
    ran["describe_sink"] = replace(found(theirs, unknown=(hanging,)), sink=sink)
    said = run("list")
    assert said.replace("\n", "").isprintable()
    shown = r"ord$(touch x)\norders: \x1b[2J\u202e"
    assert [line.split("  ")[0] for line in said.split("\n")[5:7]] == [f"{shown}.0", f"{shown}.1"]
    assert said.endswith(
        f"\n{shown}: another program's, because this is no valid transactionalIdPrefix. No command here ends it.\n"
    )
    assert "pykafka" not in said
    # In JSON they stay in one line.
    (line,) = run("list", "--json").splitlines()
    assert line.isprintable()
    assert json.loads(line)["sinks"][0]["sink"] == FORGED


def test_a_sink_that_cannot_be_read_does_not_hide_the_others(ran: Ran, run: Run) -> None:
    """A user who may commit offsets for a group can write unreadable metadata into it."""
    ran["busy_sinks"] = ["orders", "ore"]
    unreadable = UnreadableState(group="orders.decision", found="?")
    ran["describe_sink"] = deque([unreadable, found(opened(0, is_decided=False))] * 2)
    said = run("list", status=FAILED)
    assert "orders.0  " in said
    assert "'orders.decision' holds '?'" in said
    listed = json.loads(run("list", "--json", status=FAILED).splitlines()[0])
    assert [sink["open"][0]["transactional_id"] for sink in listed["sinks"]] == ["orders.0"]
    assert "'orders.decision' holds '?'" in listed["unreadable"][0]


def test_what_was_decided_is_described_slot_by_slot(ran: Ran, run: Run) -> None:
    ran["describe_sink"] = found(markers={1: Marker(4, "q", "f"), 0: Marker(3, "q", "f")})
    assert run("describe").splitlines()[1:] == [
        "Sink orders, commit topic commits, transactions of version 2",
        "Decision: micro-batch 4 of query q, 2 slots, made 2025-10-09 08:53:20 UTC by generation 9:1",
        "          not carried out: slot 0 not visible",
        "",
        "SLOT  PINNED          VISIBLE  MARKER         TRANSACTION NOW",
        "0     100:7           no       micro-batch 3  forgotten",
        "1     visible before  yes      micro-batch 4  forgotten",
        "",
        "No transaction is open.",
    ]


@pytest.mark.parametrize(("states", "line"), [
    (("CompleteCommit", "CompleteCommit"), "committed transactions of slots: 2 of 2"),
    (("CompleteCommit", "CompleteAbort"), "committed transactions of slots: 1 of 2; not orders.1 (CompleteAbort)"),
])  # fmt: skip
def test_a_write_without_groups_is_told_by_transactions(ran: Ran, run: Run, states: tuple[str, str], line: str) -> None:
    names = ("orders.driver", "orders.0", "orders.1")
    described = {
        name: TransactionDescription(name, 0, state, 60_000, -1, 100, 8, ())
        for name, state in zip(names, ("CompleteCommit", *states), strict=True)
    }
    ran["describe_sink"] = replace(found(decided=False), transactions=described)
    ran["finish_manually"] = (ran["describe_sink"], {})
    for subcommand in ("describe", "repair"):
        said = run(subcommand, "--topic", "t")
        assert "Decision: made, and no longer stored" in said
        assert line in said.splitlines()[3]
        assert "none; nothing" not in said and "Nothing was decided" not in said


def test_topics_that_took_rows_of_the_decision_with_them_are_told(ran: Ran, run: Run) -> None:
    described = found(markers=WHOLE)
    assert described.decision is not None
    old = str(uuid.UUID(int=1))
    decision = replace(described.decision, topics=("t", "u", "v"), topic_ids=dict.fromkeys(("t", "u", "v"), old))
    ran["describe_sink"] = replace(described, decision=decision)
    assert run("describe").splitlines()[4:6] == [
        f"Topic t was deleted and created again after the decision (topic id {old} is now {uuid.UUID(int=2)}). The "
        "rows of the old topic are lost. A restart does not write slots again that it finds visible.",
        f"Topic v (topic id {old}) was deleted, with its rows.",
    ]


def test_status_compares_decision_and_checkpoint(ran: Ran, run: Run, tmp_path: Path) -> None:
    ran["describe_sink"] = found(markers=WHOLE)
    line = ["status", "--checkpoint", str(tmp_path)]
    assert f"{tmp_path} is not a readable checkpoint" in run(*line, status=FAILED)
    (tmp_path / "metadata").write_text('{"id":"q"}')
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "5").write_text("v1")
    said = run(*line).splitlines()
    assert said[4:6] == [
        "Checkpoint of query q: micro-batch 5 planned, none recorded; being written, or the query ended while it was "
        "written. A start writes it",
        "",
    ]
    assert said[6].startswith("SLOT") and said[-1] == "No transaction is open."


def write_receipt(folder: Path, batch_id: int) -> Path:
    path = folder / receipt_file.relative_path("q", batch_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    constants = {"batch_id": batch_id, "rows": 1_234, "started_at": AT_MS * 1_000, "duration_ms": 5_000}
    places = (("t", 2_000), (None, None))
    runs = [{**constants, "record_count": 617, "topic": topic, "batch_bytes": size} for topic, size in places]
    pq.write_table(receipt_file.columns_of(runs), path)
    return path


def test_status_tells_of_the_last_receipt(ran: Ran, run: Run, document: Document, tmp_path: Path) -> None:
    ran["describe_sink"] = found(markers=WHOLE)
    (tmp_path / "metadata").write_text('{"id":"q"}')
    line = ["status", "--checkpoint", str(tmp_path), "--receipts", f"{tmp_path}/receipts"]
    assert f"Receipts: none of this query in {tmp_path}/receipts" in run(*line)
    _, told = document(*line)
    assert told["checkpoint"] == {
        "query_id": "q", "planned": None, "recorded": None, "compared": "no micro-batch was planned yet",
    }  # fmt: skip
    assert (told["decision"]["carried_out"], told["receipt"]) == (True, None)
    for batch_id in (9, 10):
        path = write_receipt(tmp_path / "receipts", batch_id)
    assert (
        "Receipts: the last is for micro-batch 10, 1,234 rows in 1 record batches of 2,000 bytes, acknowledged "
        "2025-10-09 08:53:25 UTC" in run(*line)
    )
    assert document(*line)[1]["receipt"] == {
        "micro_batch_id": 10, "rows": 1_234, "record_batches": 1, "bytes": 2_000, "acknowledged_ms": AT_MS + 5_000,
    }  # fmt: skip
    path.write_bytes(b"no parquet")
    assert f"Receipts: {tmp_path}/receipts cannot be read" in run(*line)
    assert "error" in document(*line)[1]["receipt"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Make a checkpoint with a log of offsets: for each micro-batch those of its sources. All but the last are
    recorded, if there are several."""

    def make(*micro_batches: Sequence[str]) -> Path:
        for log in ("offsets", "commits"):
            (tmp_path / log).mkdir()
        (tmp_path / "metadata").write_text('{"id":"q"}')
        for number, sources in enumerate(micro_batches):
            (tmp_path / "offsets" / str(number)).write_text("\n".join(("v1", "{}", *sources)))
            if number < len(micro_batches) - 1:
                (tmp_path / "commits" / str(number)).write_text("v1\n{}")
        return tmp_path

    return make


def test_status_shows_how_far_sources_are(
    ran: Ran, kafka: ScriptedKafka, checkpoint: Callable[..., Path], run: Run, document: Document
) -> None:
    ran["describe_sink"] = found(decided=False)
    of_u = {("u", 0): ScriptedLog(40, 90), ("u", 2): ScriptedLog(0, 1)}
    serve(kafka, {("t", 0): ScriptedLog(0, 1_500, stable=1_200), **of_u})
    kafka.leaders["u", 1] = -1
    kafka.partitions = 0
    folder = checkpoint(
        ('{"t":{"0":100,"1":7},"u":{"0":10,"2":5}}', '{"logOffset":3}'),
        ('{"t":{"0":300,"1":7},"u":{"0":10,"2":5},"gone":{"0":1}}', '{"logOffset":4}'),
    )
    said = run("status", "--checkpoint", str(folder)).splitlines()
    begin = said.index("Source 0, up to micro-batch 0, which is recorded:")
    assert said[begin + 1 : said.index("No transaction is open.") - 1] == [
        "TOPIC  PARTITIONS  BEHIND  PLANNED  FURTHEST BEHIND",
        "gone   0           0       0",
        "t      1           1,400   200      t-0: 1,400",
        "u      2           80      0        u-0: 80",
        "gone is not on this cluster. It was deleted, or the source reads another cluster: name that one with "
        "--bootstrap-servers.",
        "Not looked at, because no leader answers for them: t-1.",
        "300 of the offsets are behind open transactions, in t-0. A source with read_committed waits for their end: "
        "`pykafka transactions list` names them.",
        "Not looked at, because no leader answers for them: u-1.",
        "DATA LOSS: 30 offsets that were not read are deleted, in u-0. With failOnDataLoss=true the query stops there, "
        "with false it leaves them out.",
        "DATA LOSS: the log ends before the position, by 4 offsets in u-2. The topic was deleted and created again, or "
        "an unclean election truncated it.",
        "",
        "Source 1 is not Kafka. Only Spark knows how far it is.",
    ]
    status, told = document("status", "--checkpoint", str(folder))
    assert (status, told["sources_error"]) == (DONE, None)
    of_kafka, of_another = told["sources"]
    assert of_another == {"source": "1", "micro_batch_id": None, "recorded": False, "topics": None}
    assert of_kafka["topics"][1] == {
        "topic": "t", "behind": 1_400, "planned": 200, "not_looked_at": [1], "gone": [],
        "partitions": [{"partition": 0, "position": 100, "behind": 1_400, "planned": 200,
                        "behind_open_transactions": 300, "deleted": 0, "ahead": 0}],
    }  # fmt: skip


def test_status_shows_the_sink_if_the_sources_are_not_known(
    ran: Ran, kafka: ScriptedKafka, checkpoint: Callable[..., Path], document: Document,
    run: Run,
) -> None:  # fmt: skip
    ran["describe_sink"] = found(markers=WHOLE)
    folder = checkpoint(('{"hidden":{"0":100}}',))
    line = "status", "--checkpoint", str(folder)
    kafka.topic_codes["hidden"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    said = run(*line)
    assert "Sources: " in said and "'hidden'" in said and said.splitlines()[-1] == "No transaction is open."
    _, told = document(*line)
    assert told["sources"] is None and "'hidden'" in told["sources_error"]
    (folder / "offsets" / "0").write_text("v9")
    assert "Sources: the checkpoint's offsets cannot be read: " in run(*line)


@pytest.fixture
def document(ran: Ran, capsys: pytest.CaptureFixture[str]) -> Document:
    """The one line that a command prints, and its status."""

    def run(subcommand: str, *arguments: str) -> Any:
        status = main([subcommand, *SERVERS, "--prefix", "orders", "--json", *arguments])
        (line,) = capsys.readouterr().out.splitlines()
        return status, json.loads(line)

    return run


def test_describe_as_a_document(ran: Ran, document: Document) -> None:
    described = found(markers={1: Marker(4, "q", "f")})
    assert described.decision is not None
    old = str(uuid.UUID(int=1))
    decision = replace(described.decision, topics=("t", "v"), topic_ids=dict.fromkeys(("t", "v"), old))
    now = {"orders.0": TransactionDescription("orders.0", 0, "CompleteCommit", 60_000, -1, 100, 8, ())}
    ran["describe_sink"] = replace(described, decision=decision, transactions=now, refused={("u", 3): "DENIED"})
    assert document("describe") == (
        DONE,
        {
            "sink": "orders", "commit_topic": "commits", "transaction_version": 2,
            "decision": {
                "micro_batch_id": 4, "query_id": "q", "decided_ms": AT_MS, "slots": 2, "carried_out": False,
                "generation": {"producer_id": 9, "producer_epoch": 1},
            },
            "decision_forgotten": False,
            "slots": [
                {
                    "slot": 0, "pinned": {"producer_id": 100, "producer_epoch": 7}, "visible": None,
                    "marker_micro_batch_id": None,
                    "transaction": {"state": "CompleteCommit", "producer_id": 100, "producer_epoch": 8},
                },
                {"slot": 1, "pinned": None, "visible": True, "marker_micro_batch_id": 4, "transaction": None},
            ],
            "open": [], "hanging": [], "topics_gone": ["v"],
            "topics_created_again": [{"topic": "t", "old_id": old, "new_id": str(uuid.UUID(int=2))}],
            "not_looked_at": [
                {"topic": "t", "partition": 1, "why": "NO_LEADER"}, {"topic": "u", "partition": 3, "why": "DENIED"},
            ],
        },
    )  # fmt: skip


def test_repair_as_a_document_and_a_dry_run_only_tells(ran: Ran, run: Run, document: Document) -> None:
    ran["describe_sink"] = found(opened(0, is_decided=True), hanging=(HANGING,))
    would_do = "Would commit orders.0 (100:7).\nWould end with COMMIT orders.1 (101:3) on t-2 from offset 17.\n"
    assert would_do in run("repair", "--dry-run")
    status, would = document("repair", "--dry-run")
    assert (status, would["dry_run"], would["commit"], would["end"]) == (DONE, True, [OPEN_JSON], [HANGING_JSON])
    ran["finish_manually"] = found(markers=WHOLE), {}
    status, done = document("repair")
    assert (status, done["dry_run"], done["commit"], done["end"]) == (DONE, False, [OPEN_JSON], [HANGING_JSON])
    assert (done["after"]["decision"]["carried_out"], done["after"]["open"]) == (True, [])
    ran["finish_manually"] = found(markers={}, hanging=(HANGING,)), {HANGING: DENIED}
    status, left = document("repair")
    assert (status, left["commit"], left["end"]) == (FAILED, [], [])
    assert left["refused"] == [HANGING_JSON | {"why": DENIED}]
    ran["describe_sink"] = found(markers=WHOLE)
    assert run("repair", "--dry-run").endswith("Nothing to do.\n")


def test_abort_as_a_document_and_where_something_is_decided(ran: Ran, run: Run, document: Document) -> None:
    ran["describe_sink"] = found()
    assert document("abort") == (DONE, {"sink": "orders", "took_over": False, "aborted": []})
    ran["describe_sink"] = found(opened(0, is_decided=False))
    status, refused = document("abort")
    assert (status, refused["refused"], refused["open"]) == (REFUSED, True, [OPEN_JSON | {"decided": False}])
    ran["abort_manually"] = [TransactionDescription("orders.0", 0, "Ongoing", 60_000, AT_MS, 100, 7, ())]
    ids = {"transactional_id": "orders.0", "producer_id": 100, "producer_epoch": 7, "start_time_ms": AT_MS}
    assert document("abort", "--take-over") == (DONE, {"sink": "orders", "took_over": True, "aborted": [ids]})
    ran["describe_sink"] = found(opened(0, is_decided=True), opened(1, is_decided=False))
    said = run("abort", "--take-over", status=REFUSED)
    assert "repair --bootstrap-servers b:9092 --prefix orders" in said


@pytest.mark.parametrize(("after", "refused", "status", "words"), [
    (found(markers=WHOLE), {}, DONE, "All decided slots are visible."),
    (found(decided=False), {}, DONE, "Nothing was decided."),
    (found(opened(3, is_decided=False), markers=WHOLE), {}, DONE, "Open and not decided: 1. See\n    pykafka"),
    (found(markers={0: Marker(3, "q", "e")}), {}, FAILED, "can no longer be committed: slot 0."),
    (found(markers={}), {}, FAILED, "Unknown if visible: slot 0."),
    (found(markers=WHOLE, unknown=(HANGING,)), {}, FAILED, "Not changed, because"),
    (found(markers=WHOLE, hanging=(HANGING,)), {}, FAILED, "Still hangs, although its leader accepted a marker"),
    (
        found(markers=WHOLE, hanging=(HANGING,)), {HANGING: DENIED}, FAILED,
        f"orders.1 (101:3) on t-2 from offset 17: {DENIED}. This needs the ACL CLUSTER ALTER.",
    ),
])  # fmt: skip
def test_repair_tells_what_is_left(
    ran: Ran, run: Run, after: SinkTransactions, refused: dict[Hanging, str], status: int,
    words: str,
) -> None:  # fmt: skip
    ran["describe_sink"] = found(opened(0, is_decided=True))
    ran["finish_manually"] = after, refused
    assert words in run("repair", status=status)


def test_how_long_when_and_how_many() -> None:
    spans = {996: "0 s", 2_999: "1 s", 120_000: "119 s", 121_000: "2 min", 7_201_000: "2 h", 172_801_000: "2 d"}
    assert {ended_ms: lasted(1_000, ended_ms) for ended_ms in spans} == spans
    # Found by fuzzing: a coordinator may tell a time that no calendar has.
    whens = {AT_MS + 123: "2025-10-09 08:53:20", 2**63 - 1: f"{2**63 - 1} ms", -(2**63): f"{-(2**63)} ms"}
    assert {time_ms: at(time_ms) for time_ms in whens} == whens
    assert several(map(str, range(8))) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert several(map(str, range(10))) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
