from __future__ import annotations

import pickle

import pytest

from kafka_sink.doctor.report import Finding, Report, Status, Verdict, failed, from_json, ok, skipped, to_json, warning

WELL = Verdict("dns", "kafka-1:9092", ok("10.0.0.1"))
WARNED = Verdict("replication", "topic t", warning("replication factor 1", "raise it"))
BROKEN = Verdict("tcp", "kafka-1:9092", failed("refused", "check the <port>"))
PASSED_OVER = Verdict("tls", "kafka-1:9092", skipped("because of tcp"))


@pytest.mark.parametrize(
    ("verdicts", "is_ok"), [((), True), ((WELL, WARNED, PASSED_OVER), True), ((WELL, BROKEN, PASSED_OVER), False)]
)
def test_only_failures_count(verdicts: tuple[Verdict, ...], is_ok: bool) -> None:
    report = Report(verdicts)
    assert report.ok is is_ok
    assert report.failures == ((BROKEN,) if BROKEN in verdicts else ())


def test_the_table() -> None:
    assert repr(Report((WELL, BROKEN, PASSED_OVER, WARNED))) == (
        "VERDICT  STEP         WHERE         FOUND\n"
        "OK       dns          kafka-1:9092  10.0.0.1\n"
        "FAILED   tcp          kafka-1:9092  refused\n"
        "                                    to fix it: check the <port>\n"
        "SKIPPED  tls          kafka-1:9092  because of tcp\n"
        "WARNING  replication  topic t       replication factor 1\n"
        "                                    to fix it: raise it\n"
        "\n"
        "1 OK, 1 WARNING, 1 FAILED, 1 SKIPPED"
    )


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_table_fits_the_terminal_and_texts_are_wrapped_under_themselves(width: int) -> None:
    found = failed("the certificate is of another host " * 4, "kafka-topics.sh --create --topic orders " * 4)
    verdict = Verdict("transactional id acl", "broker 1, kafka-1.example.com:9092", found)
    assert max(map(len, Report((verdict, BROKEN)).text(width).splitlines())) <= width
    assert max(map(len, Report((verdict, BROKEN)).text().splitlines())) > 120
    first, *rest = repr(Report((Verdict("tcp", "here", failed("found " * 40, "mend " * 40)),))).splitlines()[1:-2]
    assert len(rest) > 3
    assert {len(line) - len(line.lstrip()) for line in rest} == {first.index("found")}


def test_all_of_it_as_a_document() -> None:
    document = Report((WELL, BROKEN)).document()
    assert (document["ok"], document["counts"]) == (False, {"OK": 1, "WARNING": 0, "FAILED": 1, "SKIPPED": 0})
    assert document["verdicts"][1] == {
        "status": "FAILED",
        "step": BROKEN.step,
        "where": BROKEN.where,
        "seen_from": "driver",
        "found": BROKEN.finding.found,
        "remedy": BROKEN.finding.remedy,
    }


def test_whence_is_a_column_only_where_there_is_more_than_one_place() -> None:
    assert "FROM" not in repr(Report((WELL,)))
    from_there = from_json(to_json([BROKEN]), seen_from="worker-7")
    lines = repr(Report((WELL,)) + Report(from_there)).splitlines()
    assert lines[0].split() == ["VERDICT", "FROM", "STEP", "WHERE", "FOUND"]
    assert lines[1].split()[:3] == ["OK", "driver", "dns"]
    assert lines[2].split()[:3] == ["FAILED", "worker-7", "tcp"]


def test_what_executors_saw_comes_back_as_it_was() -> None:
    every = (WELL, WARNED, BROKEN, PASSED_OVER)
    back = from_json(to_json(every), seen_from="driver")
    assert back == pickle.loads(pickle.dumps(back)) == every
    assert all(isinstance(verdict.status, Status) and isinstance(verdict.finding, Finding) for verdict in back)


def test_the_html_is_the_table_escaped() -> None:
    html = Report((WELL, BROKEN))._repr_html_()
    assert html.count("<tr>") == 3
    assert "<td>check the &lt;port&gt;</td>" in html
    assert "1 OK, 1 FAILED" in html
    assert repr(Report(())).splitlines()[0].split() == ["VERDICT", "STEP", "WHERE", "FOUND"]


def test_places_and_findings_are_shown_as_they_print() -> None:
    """Hosts are told by the cluster; an executor's name by its machine."""
    said = "one\n\x1b[2J\u202e" + "x" * 1_000_000
    report = Report((Verdict("dns", said, failed(said, said), said),))
    shown = repr(report)
    assert shown.replace("\n", "").isprintable()
    assert len(shown) < 10_000
    assert "one\n" not in shown
    (again,) = from_json(to_json(report.verdicts), seen_from=said)
    assert again == report.verdicts[0]
