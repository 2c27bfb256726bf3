"""`make campaigns`: every campaign has its place, ends in time, has failed if it leaves no figures, and finds every
kind of difference; docs/reliability.md has what they printed. Benchmarks move the rows that they say they move."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

import bench_decoder
import broker_admin
import compare
import process_tree
import processes
from bench_core import Case, CorePath, figures
from bench_spark import OURS, PAIRS, figure, ratio_table
from chaos.comparison import Difference, difference, first_whole
from code_blocks import ROOT
from comparison import Comparison
from frame import Application
from kafka_sink.options.config import sink_config
from kafka_sink.records.decoder import RecordSetDecoder
from record_digest import Record
from reliability.__main__ import ORDER, main, page
from reliability.campaign import CHANGED, Campaign, commit_of
from reliability.campaigns import PLAN, Planned, passes
from soak.topics import compared, origin_of, transformed
from spark_sessions import Cost
from waiting import wait_until

SOAK = Planned("soak", "Soak", "soak", 7, ("BATCHES=150",), "--apart 12 20")


def test_each_campaign_of_the_page_is_planned_once_and_has_a_target_with_its_budget() -> None:
    # The page's cases are a list, which no campaign makes.
    assert sorted(planned.name for planned in PLAN) == sorted(set(ORDER) - {"cases"})
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for planned in PLAN:
        rule = re.search(rf"^{planned.target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert rule, planned.target
        for name in ("ARGS", *(variable.partition("=")[0] for variable in planned.budget)):
            assert f"$({name})" in rule.group(1)


# Of each rule that starts a module: its target, its PYTHONPATH, the module.
RULE = re.compile(
    r"^([a-z-]+):[^\n]*\n(?:\t.*\n)*?\tPYTHONPATH=(tests/verification\S*) \$\(BIN\)/python -m ([\w.]+)", re.MULTILINE
)
FOUND = RULE.findall((ROOT / "Makefile").read_text(encoding="utf-8"))
# `make reliability` takes no options: it writes a page.
RULES = [rule for rule in FOUND if rule[0] != "reliability"]


def test_the_rules_of_all_campaigns_but_that_of_pytest_start_a_module() -> None:
    assert {target for target, *_ in RULES} >= {*(each.target for each in PLAN), "campaigns"} - {"chaos"}


@pytest.mark.programs
@pytest.mark.parametrize(("path", "module"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_a_campaign_finds_its_modules_on_the_path_of_its_rule(path: str, module: str) -> None:
    # With the sources under test, conftest.py puts them on the path.
    with_package = os.pathsep.join(filter(None, (path.replace(":", os.pathsep), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, env={**os.environ, "PYTHONPATH": with_package},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("usage: ")


@pytest.mark.parametrize(("status", "figures_say", "verdict"), [
    (0, True, True), (0, False, False), (1, True, False), (None, True, False),
])  # fmt: skip
def test_a_campaign_passes_by_status_and_figures(
    tmp_path: Path, status: int | None, figures_say: bool, verdict: bool
) -> None:
    def run(command: Sequence[str], limit_s: float) -> int | None:
        assert command == ("make", "soak", "BATCHES=150", "ARGS=--results build/campaigns/soak.json --apart 12 20")
        assert limit_s == 7 * 60
        Campaign("soak", "Soak", "make soak", "", {}, passed=figures_say).write(tmp_path / SOAK.results)
        return status

    assert passes(SOAK, tmp_path, run) == verdict


@pytest.mark.parametrize(("status", "why"), [(2, "It ended with status 2."), (None, "It was ended at its limit.")])
def test_a_campaign_without_figures_has_failed_whatever_it_left_once(
    tmp_path: Path, status: int | None, why: str
) -> None:
    Campaign("soak", "Soak", "make soak", "An hour.", {"lost": 0}, passed=True).write(tmp_path / SOAK.results)
    assert not passes(SOAK, tmp_path, lambda command, limit_s: status)
    written = Campaign.read(tmp_path / SOAK.results)
    assert (written.passed, written.explained) == (False, (why,))
    assert "BATCHES=150" in written.command


# Starts a process in a session of its own, as tests start Spark and brokers, and does not heed an interrupt.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
pathlib.Path(sys.argv[1]).write_text(f"{child.pid}\\n")
time.sleep(300)
"""
TIDY = """
import pathlib, sys, time
try:
    pathlib.Path(sys.argv[1]).write_text("began\\n")
    time.sleep(300)
finally:
    pathlib.Path(sys.argv[1]).write_text("tidied up\\n")
"""


def begin(program: str, says_in: Path, grace_s: float = processes.GRACE_S) -> str:
    """Start and end a program, and return the first line that it said in its file."""
    with processes.started([sys.executable, "-c", program, says_in], grace_s=grace_s):
        wait_until(lambda: says_in.exists() and says_in.read_text().endswith("\n"), 60, "the program begins")
        return says_in.read_text()


def test_a_command_that_takes_too_long_is_ended_and_any_other_says_how_it_ended() -> None:
    assert processes.run([sys.executable, "-c", "raise SystemExit(3)"], 60) == 3
    assert processes.run(["sleep", "300"], 0.1) is None


def test_a_command_that_is_ended_may_tidy_up_and_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    assert begin(TIDY, tmp_path / "said") == "began\n"
    assert (tmp_path / "said").read_text() == "tidied up\n"
    child = int(begin(STUBBORN, tmp_path / "child", grace_s=0.1))
    wait_until(lambda: child not in {each.process_id for each in processes.living()}, 10, "the child ends")


FIGURES = {"inputs": 1_234_567, "longest": "0.4 s"}
FUZZ = Campaign(
    "fuzz", "Fuzzing", "make fuzz", "Answers nobody sent.", FIGURES, True, ("None hangs.",), commit="c0ffee"
)


def folder_with(folder: Path, *campaigns: Campaign) -> Path:
    (folder / "opening.md").write_text("# Opening\n")
    (folder / "bugs.md").write_text("## Bugs\n")
    for campaign in campaigns:
        campaign.write(folder / f"{campaign.name}.json")
    return folder


def test_the_committed_page_is_what_its_sources_say() -> None:
    assert (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8") == page(ROOT / "docs" / "reliability")


def test_a_section_says_the_command_its_figures_and_what_explains_them(tmp_path: Path) -> None:
    text = page(folder_with(tmp_path, FUZZ, replace(FUZZ, name="soak")))
    assert text.index("# Opening") < text.index("## Fuzzing") < text.index("## Bugs")
    said = "`make fuzz`: passed.", "| inputs | 1,234,567 |", "| longest | 0.4 s |", "- None hangs."
    for expected in (*said, "All figures are of commit `c0ffee`."):
        assert expected in text


def test_a_campaign_that_failed_or_that_no_section_shows_is_told(tmp_path: Path) -> None:
    assert "`make fuzz`: **failed**." in page(folder_with(tmp_path, replace(FUZZ, passed=False)))
    with pytest.raises(ValueError, match="notes"):
        page(folder_with(tmp_path, replace(FUZZ, name="notes")))


@pytest.mark.parametrize("other", ["", "decade", "c0ffee" + CHANGED])
def test_figures_of_several_commits_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str) -> None:
    folder = folder_with(tmp_path, FUZZ)
    (folder / "soak.json").write_text(json.dumps(asdict(replace(FUZZ, name="soak", commit=other))))
    assert main(folder) == 1
    said = capsys.readouterr()
    assert not said.out and "c0ffee: fuzz.json" in said.err and f"{other or 'no commit'}: soak.json" in said.err


def test_results_say_the_commit_and_whether_other_files_than_results_differ(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert commit_of(tmp_path) == ""
    (tmp_path / "source").write_text("1")
    git("init", "--quiet")
    git("add", "source")
    git("commit", "--quiet", "--message", "first")
    commit = git("rev-parse", "HEAD").strip()
    FUZZ.write(tmp_path / "docs" / "reliability" / "fuzz.json")
    assert commit_of(tmp_path) == commit
    (tmp_path / "new").write_text("1")
    assert commit_of(tmp_path) == commit + CHANGED


A, B, C, D = (Record(key, b"value of " + key, (("h", None),), 1) for key in (b"a", b"b", b"c", b"d"))


WRITTEN_ROWS = [(0, A), (0, B), (0, C), (0, D)]
MISSING, DOUBLE, DIFFER = "1 missing from the topic", "1 in the topic more than once", "checksums differ"
FOREIGN, OTHER_D = "1 in the topic and not in the source", replace(D, value=b"")


@pytest.mark.parametrize(("seen", "differences"), [
    pytest.param(WRITTEN_ROWS, [], id="as written"),
    pytest.param([(0, D), (0, A), (0, B), (0, C)], [], id="sources in another order"),
    pytest.param([(0, A), (0, D), (0, B), (0, C)], [], id="sources interleaved"),
    pytest.param([(1, C), (0, A), (0, B), (2, D)], [], id="partitions read in another order"),
    pytest.param([], ["4 missing from the topic", DIFFER], id="nothing arrived"),
    pytest.param(WRITTEN_ROWS[:3], [MISSING, DIFFER], id="lost"),
    pytest.param([*WRITTEN_ROWS, (0, D)], [DOUBLE, DIFFER], id="doubled"),
    pytest.param([(0, B), (0, A), (0, C), (0, D)], ["1 out of order"], id="swapped in a partition"),
    pytest.param([*WRITTEN_ROWS[:3], (0, OTHER_D)], [MISSING, FOREIGN, DIFFER], id="changed"),
    pytest.param([(0, A), (0, A), (0, B), (0, C)], [MISSING, DOUBLE, DIFFER], id="lost and doubled: right count"),
    pytest.param(
        [*WRITTEN_ROWS, (1, replace(OTHER_D, key=b"a"))],
        [FOREIGN, "1 keys in more than one partition", DIFFER],
        id="a key in two partitions",
    ),
])  # fmt: skip
def test_a_difference_of_the_demos_topic_is_found(seen: list[tuple[int, Record]], differences: list[str]) -> None:
    """Two sources, A B C and D, against `seen` as (partition, record)."""
    comparison = Comparison()
    comparison.expect([A, B, C])
    comparison.expect([D])
    for offset, (partition, record) in enumerate(seen):
        comparison.see(partition, offset, record)
    assert comparison.differences() == differences
    assert (str(comparison.expected_checksum) == str(comparison.seen_checksum)) is (DIFFER not in differences)


def test_rows_that_are_alike_are_refused() -> None:
    with pytest.raises(ValueError, match="row 1 of source 0"):
        Comparison().expect([A, A])


def placed(partition: int, offset: int, value: str, key: str = "k") -> tuple[int, int, Record]:
    return partition, offset, Record(key.encode(), value.encode(), (), 0)


READ = [placed(0, 0, "k:0"), placed(0, 1, "k:7"), placed(0, 4, "k:2"), placed(1, 0, "k:3"), placed(1, 9, "k:4")]
WRITTEN = [placed(0, 0, "0:0:K:0"), placed(0, 1, "1:0:K:3"), placed(0, 2, "0:4:K:2"), placed(1, 0, "1:9:K:4")]


def test_what_the_transformation_makes() -> None:
    assert transformed(READ[:3]) == {(0, 0): (b"k", b"0:0:K:0"), (0, 4): (b"k", b"0:4:K:2")}


@pytest.mark.parametrize(("written", "what"), [
    (WRITTEN, set()),
    ([WRITTEN[3], *WRITTEN[:3]], set()),  # partitions have no order among each other
    (WRITTEN[:-1], {"lost"}), ([*WRITTEN, WRITTEN[0]], {"doubled"}),
    # Aborted in the topic that is read; left out by the transformation; another function; another key; not told.
    ([*WRITTEN, placed(0, 9, "0:3:K:1")], {"wrong"}), ([*WRITTEN, placed(0, 9, "0:1:K:7")], {"wrong"}),
    ([*WRITTEN, placed(0, 9, "0:0:k:0")], {"wrong"}), ([*WRITTEN, placed(0, 9, "0:0:K:0", key="other")], {"wrong"}),
    ([*WRITTEN, placed(0, 9, "K:0")], {"wrong"}), ([WRITTEN[2], WRITTEN[1], WRITTEN[0], WRITTEN[3]], {"out_of_order"}),
])  # fmt: skip
def test_the_soak_counts_all_but_rows_once_in_order(written: list[tuple[int, int, Record]], what: set[str]) -> None:
    found = compared(transformed(READ), written)
    assert {name for name in ("lost", "doubled", "wrong", "out_of_order") if getattr(found, name)} == what
    assert found.none is not bool(what)
    assert found.expected == 4 and (what or found.found == 4)


@pytest.mark.parametrize("value", [b"", b"1", b"1:", b":2:x", b"a:1:x", b"-1:2:x"])
def test_a_value_that_names_no_origin(value: bytes) -> None:
    assert origin_of(value) is None


def test_each_difference_of_a_campaigns_rows_is_counted() -> None:
    for rows, first, committed, found in (
        (range(12), 0, 10, Difference(0, 0, 0)),  # two of a micro-batch that is not committed yet
        ([3, 10, 11, 11, 11, 13], 10, 14, Difference(lost=1, doubled=2, too_early=1)),
        ([0, 1, 2, 2], 0, 2, Difference(lost=0, doubled=1, too_early=0)),
    ):
        assert difference(Counter(rows), first=first, committed=committed) == found


class Log:
    """A consumer of a partition that is written while it is read. `polls`: offsets of records; negative: of an end."""

    def __init__(self, end: int, *polls: int) -> None:
        self.polls = iter(polls)
        self.answers: list[Any] = [KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)), (0, end)]
        self.assigned: list[int] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: None})})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def assign(self, places: list[Any]) -> None:
        self.assigned = [place.offset for place in places]

    def pause(self, places: list[Any]) -> None:
        pass

    def close(self) -> None:
        pass

    def poll(self, timeout: float) -> Any:
        if (offset := next(self.polls, None)) is None:
            return None
        error = KafkaError(KafkaError._PARTITION_EOF) if offset < 0 else None
        return SimpleNamespace(error=lambda: error, partition=lambda: 0, offset=lambda: abs(offset))


@pytest.mark.parametrize(
    ("log", "begin", "read"),
    [
        (Log(3, 0, 1, 2, 3, 4, 5), 0, [0, 1, 2]),
        pytest.param(Log(3, 0, 1, 5, 6), 0, [0, 1, 5], id="a marker is the last before the end, and rows follow"),
        pytest.param(Log(3, 0, 1, -3, 3), 0, [0, 1], id="a marker is the last"),
        pytest.param(Log(3, 0, -1, 1, 2, -3), 0, [0, 1, 2], id="a leader that was just elected hands out less"),
        pytest.param(Log(4, 0, 1, 2, 1, 2, 3), 0, [0, 1, 2, 3], id="records come again"),
        pytest.param(Log(4, 2, 3, -4), 2, [2, 3], id="read on"),
        pytest.param(Log(2), 2, [], id="there are none"),
    ],
)
def test_a_reader_ends_where_the_topic_ended_when_it_began(
    monkeypatch: pytest.MonkeyPatch, log: Log, begin: int, read: list[int]
) -> None:
    monkeypatch.setattr(broker_admin, "Consumer", lambda settings: log)
    positions = {0: begin} if begin else {}
    assert [message.offset() for message in broker_admin.read_on("servers", "t", positions)] == read
    assert log.assigned == [begin]
    assert positions[0] >= max(read, default=begin)


def test_a_reader_that_gets_no_records_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_admin, "Consumer", lambda settings: Log(4, 0, 1))
    with pytest.raises(AssertionError, match="t could not be read to its end"):
        list(broker_admin.read_on("servers", "t", {}))


def test_a_topic_begins_with_a_whole_micro_batch() -> None:
    torn = Counter(range(15, 30))
    first = first_whole(torn, 10)
    assert first == 10
    assert difference(torn, first=first, committed=30).lost == 5
    assert first_whole(Counter(), 10) == 0


@pytest.mark.parametrize(("partition_count", "buffer_memory"), [(4, 64 * 1024), (4, 64 << 20), (50, 1 << 20)])
def test_a_round_encodes_every_row_and_gives_all_memory_back(partition_count: int, buffer_memory: int) -> None:
    config = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    config = dataclasses.replace(config, buffer_memory=buffer_memory, batch_size=16 * 1024)
    path = CorePath(Case(100, partition_count), 1_000, config)
    for _ in range(2):
        rate = path.round(20_000)
        assert path.record_count == 24_000  # three times the eight Arrow batches
        assert rate == path.record_count / path.cpu_s
        # A record: 108 bytes of key and value, 4 of lengths, 2 of attributes and header count, 2 to 6 of deltas.
        assert 24_000 * 116 <= path.wire_bytes - path.batch_count * 61 <= 24_000 * 120
        assert path.batch_count >= 24_000 * 116 // (16 * 1024)
        assert path.held_bytes == 0


@pytest.mark.parametrize("case", bench_decoder.CASES, ids=str)
def test_a_record_set_is_as_large_as_an_answer_and_has_what_is_wanted(case: bench_decoder.Case) -> None:
    made = bench_decoder.record_set(case, 0)
    assert 0.9 * bench_decoder.RECORD_SET_BYTES < len(made.data) <= bench_decoder.RECORD_SET_BYTES
    for batch in RecordSetDecoder(made.data, first_offset=0, end_offset=made.row_count, columns=case.columns):
        assert all(len(value) == case.value_bytes for value in batch.column("value").to_pylist())
        assert ("headers" in case.columns) == case.has_headers
        assert not case.has_headers or batch.column("headers").null_count == 0


def test_an_application_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    application = Application(tmp_path / "log", str, "text")
    assert application.ask("upper") == "TEXT"
    with pytest.raises(SystemExit, match=r"status 1; the log is .*/log"):
        application.ask("no method of a text")
    assert "no method of a text" in (tmp_path / "log").read_text()


def test_the_cpu_time_of_grandchildren_counts_when_they_have_ended() -> None:
    """What Spark's workers used, which a daemon started and waited for."""
    before_s, child_before = process_tree.cpu_s(os.getpid()), time.process_time()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    subprocess.run([sys.executable, "-I", "-c", parent], check=True)
    own_s = time.process_time() - child_before
    assert process_tree.cpu_s(os.getpid()) - before_s - own_s > 0.25


def test_figures_are_medians_and_a_ratio_compares_within_a_round() -> None:
    """The machine was ten times as slow in the second round, for both."""
    ours = [Cost(1.0, 1.0), Cost(10.0, 10.0), Cost(1.0, 1.5)]
    theirs = [Cost(2.0, 4.0), Cost(20.0, 40.0), Cost(3.0, 2.0)]
    found = figure(OURS["none"], ours, rows=2_000_000)
    assert (found.rows_per_s, found.slowest_rows_per_s, found.fastest_rows_per_s) == (2e6, 2e5, 2e6)
    assert found.cpu_s_per_million_rows == 0.75
    table = ratio_table({PAIRS[0].ours: ours, PAIRS[0].theirs: theirs}, 1_000_000)
    assert "2.00 x | >= 1.5 x | 0.25 x    | <= 0.7 x | -3.00" in table


def report(folder: Path, name: str, figures: dict[str, float], processor: str = "p") -> str:
    file = folder / name
    file.write_text(json.dumps({"processor": processor, "figures": figures}))
    return str(file)


@pytest.mark.parametrize(
    ("new", "options", "status", "said"),
    [
        ({"a": 2e6, "b": 1e6}, (), 0, "| a | 2.00 M | 2.00 M | 1.00 |  |"),
        ({"a": 1.81e6, "b": 9e6, "c": 1e6}, (), 0, "| c |  | 1.00 M |  |  |"),
        ({"a": 1.79e6, "b": 1e6}, (), 1, "| a | 2.00 M | 1.79 M | 0.90 | below 0.9 |"),
        ({"a": 1.79e6, "b": 1e6}, ("--limit", "0.8"), 0, "| a | 2.00 M | 1.79 M | 0.90 |  |"),
        ({"a": 2e6}, (), 1, "| b | 1.00 M |  |  | missing |"),
        ({}, (), 2, ""),
    ],
)
def test_a_release_that_is_slower_than_the_limit_fails_the_comparison(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    new: dict[str, float],
    options: Sequence[str],
    status: int,
    said: str,
) -> None:
    old = report(tmp_path, "old.json", {"a": 2e6, "b": 1e6})
    assert compare.main([old, report(tmp_path, "new.json", new), *options]) == status
    assert said in capsys.readouterr().out


def test_a_comparison_tells_of_another_processor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [report(tmp_path, each, {"a": 1.0}, processor=f"processor {each}") for each in ("old", "new")]
    assert compare.main(files) == 0
    assert "two processors: processor old, processor new" in capsys.readouterr().out


def test_the_core_benchmark_reports_a_median_for_each_kernel_and_case() -> None:
    found = figures({("compiled", Case(100, 4)): [1e6, 3e6, 2e6], ("vectorised", Case(100, 4)): [1e6]})
    assert found == {"compiled, 100 bytes, 4 partitions": 2e6, "vectorised, 100 bytes, 4 partitions": 1e6}
