from __future__ import annotations

import pickle

from kafka_sink.doctor.report import Finding, Report, Status, Verdict, failed, from_json, ok, skipped, to_json, warning

WELL = Verdict("dns", "kafka-1:9092", ok("10.0.0.1"))
WARNED = Verdict("replication", "topic t", warning("replication factor 1", "raise it"))
BROKEN = Verdict("tcp", "kafka-1:9092", failed("refused", "check the <port>"))
PASSED_OVER = Verdict("tls", "kafka-1:9092", skipped("because of tcp"))


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
