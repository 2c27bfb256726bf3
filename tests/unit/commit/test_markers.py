"""What a commit keeps: markers, decisions, facts on their way to tasks, and the name of a stream's sink."""

import json
import pickle
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.commit import handover, stream_name
from kafka_sink.commit.handover import Facts
from kafka_sink.commit.markers import (
    FORGOTTEN,
    METADATA_MAX_CHARACTERS,
    NO_OFFSET,
    NOTHING_COMMITTED,
    Decision,
    Ids,
    Marker,
    Names,
    digest_of,
)
from kafka_sink.errors import CheckpointUnusable, UnreadableState

NAMES = Names("orders", "pykafka-commits")
# What brokers take for a topic's name (Topic.LEGAL_CHARS), up to 249 of them.
TOPICS = st.text("azAZ09._-", min_size=1, max_size=249)
QUERY = "9f1c6a2e-6a53-4a0b-8a4e-3c1d4f0f2c11"
IDS = st.builds(Ids, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))


def decision(*pinned: Ids | None, topics: tuple[str, ...] = (), topic_ids: Mapping[str, str] = {}) -> Decision:
    return Decision(7, QUERY, Ids(4000, 3), 2, 1_760_000_000_000, pinned, topics, topic_ids)


def groups(texts: list[str], offset: int = 7) -> list[tuple[str, int, str]]:
    return [(NAMES.decision(part), offset, text) for part, text in enumerate(texts)]


def test_names_of_a_sink_and_no_group_of_one_is_a_slot_of_another() -> None:
    assert (NAMES.driver, NAMES.slot(3), NAMES.decision(0), NAMES.decision(2)) == (
        "orders.driver", "orders.3", "orders.decision", "orders.decision-2",
    )  # fmt: skip
    groups = [NAMES.decision(0), NAMES.decision(1), NAMES.driver]
    others = [Names(sink, "t") for sink in ("orders", "orders.decision", "orders.driver")]
    assert not any(other.is_slot(group) for other in others for group in groups)
    # A dot in a prefix stands for itself.
    assert not Names("a.b", "t").is_slot("axb.1")


@pytest.mark.parametrize(("transactional_id", "is_slot"), [
    ("orders.0", True), ("orders.417", True), ("orders.driver", False), ("orders.", False), ("orders", False),
    ("orders.1.0", False), ("my.orders.1", False), ("ordersX1", False), ("orders.-1", False), ("orders.1 ", False),
    ("orders." + "1" * 5_000, False), ("orders.\u0663", False),
])  # fmt: skip
def test_the_slots_of_a_sink_are_told_from_those_of_another(transactional_id: str, is_slot: bool) -> None:
    assert NAMES.is_slot(transactional_id) == is_slot


@given(st.integers(0, 2**62), st.text("0123456789abcdef:", min_size=1))
def test_a_marker_reads_back(micro_batch_id: int, fingerprint: str) -> None:
    marker = Marker(micro_batch_id, QUERY, fingerprint)
    assert Marker.read("orders.0", micro_batch_id, marker.text) == marker


@pytest.mark.parametrize("text", ["", "1|q", "2|q|f", "1|q|f|more", "anything"])
def test_a_marker_of_somebody_else_is_not_guessed_at(text: str) -> None:
    with pytest.raises(UnreadableState, match=r"orders\.0"):
        Marker.read("orders.0", 5, text)


@given(
    st.lists(st.none() | IDS, min_size=1, max_size=600),
    st.dictionaries(TOPICS, st.none() | st.uuids(), max_size=100),
    st.booleans(),
)
def test_a_decision_reads_back_from_as_many_groups_as_it_takes(
    pinned: list[Ids | None], topics: dict[str, uuid.UUID | None], has_digests: bool
) -> None:
    topic_ids = {topic: str(topic_id) for topic, topic_id in topics.items() if topic_id is not None}
    decided = decision(*pinned, topics=tuple(topics), topic_ids=topic_ids)
    if has_digests:
        decided = replace(decided, digests=tuple(digest_of(f"{slot}") for slot in range(len(pinned))))
    texts = decided.texts()
    assert all(len(text) <= METADATA_MAX_CHARACTERS for text in texts)
    assert Decision.parts(NAMES.decision(0), 7, texts[0]) == len(texts)
    assert Decision.read(groups(texts)) == decided


ID, ID_TEXT = "cc48e446-b679-45fc-8813-6a1897626f02", "zEjkRrZ5RfyIE2oYl2JvAg"


def test_topic_ids_print_as_in_kafkas_tools_and_code_without_ids_reads_them() -> None:
    """As it was released: what begins with the sign is a topic, and all before it are pins."""
    (text,) = decision(Ids(1, 2), None, topics=("a", "b"), topic_ids={"b": ID}).texts()
    assert text.endswith("|0/1|1:2,-,@a,@b,@@" + ID_TEXT)
    (text,) = decision(Ids(1, 2), None, topics=("a", "b")).texts()
    assert text.endswith("|0/1|1:2,-,@a,@b")
    (text,) = decision(Ids(1, 2), None, topics=("a", "b"), topic_ids={"a": ID, "b": ID}).texts()
    items = text.split("|")[6].split(",")
    topics = [item.removeprefix("@") for item in items if item.startswith("@")]
    assert items[: len(items) - len(topics)] == ["1:2", "-"]
    # No broker has a topic of this name (Topic.LEGAL_CHARS), so that nobody is asked what it has open.
    assert topics == ["a", f"@{ID_TEXT}", "b", f"@{ID_TEXT}"]


def test_a_topic_was_created_again_where_both_ids_are_known_and_differ() -> None:
    decided = decision(Ids(1, 2), topics=("a", "b", "c", "d"), topic_ids={"a": "1", "b": "2", "c": "3"})
    assert decided.created_again({"a": "1", "b": "9", "c": None, "d": "4"}) == {"b": ("2", "9")}
    assert decided.created_again({}) == {}


def test_in_place_of_a_first_decision_and_a_first_marker_or_without_any() -> None:
    assert Marker.read("orders.0", NO_OFFSET, "") is None
    assert Decision.parts("orders.decision", NO_OFFSET, "") == 0
    (text,) = Decision.nothing(Ids(4000, 3), 2).texts()
    found = Decision.read([("orders.decision", 0, text)])
    assert (found.is_nothing, found.generation, found.pinned) == (True, Ids(4000, 3), ())
    assert not decision(Ids(1, 2)).is_nothing
    assert Marker.read("orders.0", 0, NOTHING_COMMITTED.text) == NOTHING_COMMITTED


def test_a_lost_fingerprint_is_told_by_its_digest_or_not_at_all() -> None:
    assert digest_of("17:ab:events") == "~23304082"
    for fingerprint, others in (("a", False), (digest_of("a"), False), (FORGOTTEN, True)):
        marker = Marker(7, QUERY, fingerprint)
        assert (marker.may_be_of("a"), marker.may_be_of("b")) == (True, others)
        assert marker.is_restored == (fingerprint != "a")
    found = Decision.read([("orders.decision", 7, f"1|{QUERY}|4000:3|2|1760000000000|0/1|1:2,-,@t")])
    assert found == decision(Ids(1, 2), None, topics=("t",))
    restored = Marker(7, QUERY, FORGOTTEN)
    assert Marker.read("orders.0", 7, restored.text) == restored


@pytest.mark.parametrize("text", [
    "", "nonsense", "2|q|1:0|2|3|0/1|1:0", "1|q|1:0|2|3|1/2|1:0", "1|q|1:0|2|3|0/x|1:0",
    # Found by fuzzing: a text of 24 characters had a billion groups asked for.
    *(f"1|q|1:0|2|3|0/{parts}|1:0" for parts in (0, -1, 100_000, 9_999_999_999)),
])  # fmt: skip
def test_a_first_part_of_somebody_else_is_not_guessed_at(text: str) -> None:
    with pytest.raises(UnreadableState, match=r"orders\.decision"):
        Decision.parts("orders.decision", 1, text)


def test_parts_of_two_decisions_are_no_decision() -> None:
    one = decision(*[Ids(2**63 - 1, n) for n in range(300)]).texts()
    other = decision(*[Ids(2**62, n) for n in range(300)])
    later = Decision(8, QUERY, other.generation, 2, other.decided_ms, other.pinned).texts()
    assert len(one) == len(later) == 2
    for offset, text in ((8, later[1]), (7, one[0])):
        with pytest.raises(UnreadableState):
            Decision.read([*groups(one)[:1], ("orders.decision-1", offset, text)])


@pytest.mark.parametrize("pins", [
    "x", "1:2,", "1:2,--", "12", "@t,1:2", "1:2,@t,1:3", f"1:2,@@{ID_TEXT}", "1:2,@t,@@", "1:2,@t,@@short",
    f"1:2,@t,@@\u00e4{ID_TEXT[1:]}", f"1:2,@t,@@{ID_TEXT[:-1]}h", f"1:2,@t,@@{ID_TEXT},@@{ID_TEXT}",
    "1:2,@~0123456", "1:2,@~0123456g", "1:2,@~01234567,@~01234567", "1:2,@t,@~01234567", "1:2~01234567",
])  # fmt: skip
def test_pins_that_nobody_wrote(pins: str) -> None:
    with pytest.raises(UnreadableState):
        Decision.read([("orders.decision", 7, f"1|q|1:0|2|3|0/1|{pins}")])


@pytest.mark.parametrize("ids", [f"{2**63}:0", "-1:0", "1:32768", "1:-1"])
def test_ids_that_no_request_holds(ids: str) -> None:
    """Found by fuzzing: they would be sent, and struct does not pack them."""
    for text in (f"1|q|1:0|2|3|0/1|{ids}", f"1|q|{ids}|2|3|0/1|1:0"):
        with pytest.raises(UnreadableState):
            Decision.read([("orders.decision", 7, text)])


# An id of the user's may have any character.
MARKERS = st.builds(Marker, st.integers(0, 2**63 - 1), st.text(max_size=3), st.text(max_size=3))


def facts(pinned: Any, markers: dict[int, Marker]) -> Facts:
    decided = Decision(7, "q", Ids(1, 2), 2, 0, pinned, ("t",), digests=("~0", "~1"))
    return Facts(Ids(1, 3), decided, markers, unproved=(4,), is_forgotten=True)


def carried(sent: Facts) -> Facts:
    received: Facts = pickle.loads(pickle.dumps(sent))
    return received


@given(st.lists(st.none() | IDS).map(tuple), st.dictionaries(st.integers(0, 9_999), MARKERS))
def test_facts_arrive_as_they_were_sent_however_often(
    pinned: tuple[Ids | None, ...], markers: dict[int, Marker]
) -> None:
    sent = facts(pinned, markers)
    for received in (carried(sent), carried(carried(sent))):
        assert received == sent
        assert sent == received
        assert received.decision is not None
        assert (tuple(received.decision.pinned), dict(received.markers)) == (pinned, markers)
        assert (received.visible, received.missing) == (sent.visible, sent.missing)


def test_a_slot_that_has_no_marker_or_is_not_pinned_has_none_after_it_was_carried() -> None:
    received = carried(facts((Ids(5, 1), None), {0: Marker(1, "q", "a"), 3: Marker(2, "q", "b")}))
    assert [received.markers.get(slot) for slot in (1, 2, 4)] == [None] * 3
    assert received.decision is not None
    assert received.decision.pinned[1] is None
    assert received.decision.pinned[:1] == (Ids(5, 1),)
    with pytest.raises(IndexError):
        received.decision.pinned[2]


def test_a_task_makes_the_ids_and_the_marker_of_its_own_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = tuple(Ids(1_000 + slot, 0) for slot in range(1_000))
    sent = pickle.dumps(facts(ids, {slot: Marker(7, "q", f"rows of {slot}") for slot in range(1_000)}))
    made: list[object] = []

    def counted(of: Any) -> Any:
        def make(*args: Any) -> Any:
            made.append(of(*args))
            return made[-1]

        return make

    monkeypatch.setattr(handover, "Marker", counted(Marker))
    monkeypatch.setattr(handover, "Ids", type("Counted", (), {"read": staticmethod(counted(Ids.read))}))
    received: Facts = pickle.loads(sent)
    assert received.decision is not None
    assert (received.markers.get(7), received.decision.pinned[7]) == (made[0], made[1])
    assert made == [Marker(7, "q", "rows of 7"), Ids(1_007, 0)]
    # The class of an object, and the names of its fields, are in the pickle once at most.
    assert len(sent) < 1_000 * (len("rows of 999") + len("1999:0") + 12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint, as Spark begins one."""
    made = tmp_path / "checkpoint"
    made.mkdir()
    begin(made, QUERY)
    return made


def begin(folder: Path, query_id: str) -> None:
    (folder / "metadata").write_text(json.dumps({"id": query_id}))


def at(location: object) -> stream_name.LocalCheckpoint:
    found = stream_name.LocalCheckpoint.at(str(location))
    assert found is not None
    return found


def test_names_are_kept_for_ever() -> None:
    """A release that derives another name loses the state of every stream."""
    assert stream_name.query_name(QUERY) == f"pykafka-{QUERY}"
    assert stream_name.spelled_name("s3://bucket/checkpoint") == "pykafka-fed0669422493087"
    assert stream_name.spelled_name("s3://bucket/another") != stream_name.spelled_name("s3://bucket/checkpoint")
    assert stream_name.plain_name("s3a://bucket/checkpoint") == "pykafka-a8c9bbc6728d6d71"


@pytest.mark.parametrize("spellings", [
    ("s3a://bucket/a", "s3://bucket/a/", "s3n://bucket//a", "s3a://bucket/./a", "s3a://bucket/b/../a"),
    ("hdfs://nn/a", "hdfs://NN:8020/a", "hdfs://nn:8020//a/"), ("hdfs://nn:9000/a", "hdfs://nn:9000/a/"),
    ("hdfs:/a", "hdfs:///a", "hdfs:///a/"), ("dbfs:/a", "dbfs:///a/."), ("/a", "//a", "/a/", "/./a"),
    ("abfss://c@d.dfs.core.windows.net/a", "abfs://c@d.dfs.core.windows.net/a/"), ("a", "./a", "a/", "b/../a"),
    ("s3a://bucket/", "s3://bucket", "s3a://bucket//"), ("s3a://bucket/a b/ü", "s3a://bucket/a b//ü/"),
    # Hadoop takes these as they are.
    ("s3a://bucket/a%20b",), ("s3a://bucket/a+b",), ("s3a://bucket/A",), ("s3a://other/a",), ("gs://bucket/a",),
    ("s3a://bucket/u\u0308",), ("s3a://bucket/a?b#c",), ("s3a://bucket/a\nb",), ("/a:b",), ("hdfs://other/a",),
])  # fmt: skip
def test_all_plain_spellings_of_a_location_are_one_name(spellings: tuple[str, ...]) -> None:
    assert {stream_name.plainly(each) for each in spellings} == {spellings[0]}
    assert stream_name.plain_name(spellings[-1]) == stream_name.spelled_name(spellings[0])


@pytest.mark.parametrize(("location", "folder"), [
    ("/data/checkpoint", "/data/checkpoint"), ("checkpoint", "checkpoint"),
    ("file:/data/checkpoint", "/data/checkpoint"), ("file:///data/checkpoint", "/data/checkpoint"),
    ("/data/10:00/a", "/data/10:00/a"), ("data/10:00", "data/10:00"), ("file:/data/10:00", "/data/10:00"),
    ("s3a://bucket/checkpoint", None), ("hdfs:///checkpoint", None), ("dbfs:/checkpoint", None),
])  # fmt: skip
def test_a_location_without_another_scheme_is_a_folder_of_this_host(location: str, folder: str | None) -> None:
    assert stream_name.local_folder(location) == (None if folder is None else Path(folder))


def test_a_name_moves_with_its_checkpoint_however_it_is_spelled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    at("checkpoint").give("orders")
    for spelling in ("checkpoint", "./checkpoint/", folder, f"file:{folder}", f"file://{folder}"):
        assert (at(spelling).query_id, at(spelling).name()) == (QUERY, "orders")
    at(folder).give("orders")
    shutil.copytree(folder, folder.parent / "copy")
    folder.rename(folder.parent / "moved")
    assert at(folder.parent / "copy").name() == at(folder.parent / "moved").name() == "orders"


def test_a_name_can_be_given_again_and_is_not_inherited_by_another_query(folder: Path) -> None:
    assert at(folder).name() is None
    at(folder).give("one")
    at(folder).give("other")
    assert at(folder).name() == "other"
    assert sorted(file.name for file in folder.iterdir()) == ["metadata", stream_name.FILE_NAME]
    begin(folder, "another")
    assert at(folder).name() is None


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", "7"])
@pytest.mark.parametrize("file", ["metadata", stream_name.FILE_NAME])
def test_a_file_that_is_not_what_was_written_is_no_missing_one(folder: Path, file: str, text: str) -> None:
    """Taken for one, the stream would get another name, and write again what it has written."""
    (folder / file).write_text(text)
    with pytest.raises(CheckpointUnusable, match="not what was written there") as raised:
        at(folder).name()
    assert raised.value.file == str(folder / file)


def test_a_name_that_cannot_be_read_or_written_is_an_error(folder: Path) -> None:
    (folder / stream_name.FILE_NAME).write_text(
        json.dumps({"version": 2, "queryId": QUERY, "transactionalIdPrefix": "x"})
    )
    with pytest.raises(CheckpointUnusable, match="its version is 2"):
        at(folder).name()
    checkpoint = at(folder)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointUnusable, match="No such file or directory"):
        checkpoint.give("orders")
