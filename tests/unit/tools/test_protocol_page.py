"""The page names the newest broker, our versions, and what of that broker's versions is not used."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from protocol_page import NEWEST, Ours, Schema, ours, row, schemas

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "design" / "protocol.md").read_text(encoding="utf-8")
END_TXN = Ours(26, "EndTxn", 0, 5)


def message(kind: str, versions: str, fields: list[dict[str, Any]], **more: Any) -> str:
    text = {"apiKey": 26, "type": kind, "name": f"EndTxn{kind.title()}", "validVersions": versions, "fields": fields}
    return "// Licensed\n" + json.dumps(text | more, indent=1).replace('"fields"', '// see // KIP-890\n "fields"', 1)


def jar(folder: Path, request: str, response: str) -> Path:
    path = folder / "kafka-clients.jar"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("common/message/EndTxnRequest.json", request)
        archive.writestr("common/message/EndTxnResponse.json", response)
        archive.writestr("common/message/TransactionLogValue.json", "no request")
    return path


def test_fields_of_newer_versions_are_named(tmp_path: Path) -> None:
    inner = [{"name": "Old", "versions": "0+"}, {"name": "Flag", "versions": "7+"}]
    request = message("request", "0-8", [{"name": "Topics", "versions": "0+", "fields": inner}])
    response = message("response", "0-8", [{"name": "Text", "versions": "6-7"}])
    found = schemas(jar(tmp_path, request, response))
    cells = row(END_TXN, found[26]).strip("| ").split(" | ")
    assert cells == ["EndTxn", "26", "0 to 5", "0 to 8", "6: `<- Text`; 7: `-> Topics.Flag`; 8: no field"]


def test_an_unstable_version_does_not_count(tmp_path: Path) -> None:
    request = message("request", "0-6", [], latestVersionUnstable=True)
    assert schemas(jar(tmp_path, request, message("response", "0-6", [])))[26].last == 5


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (None, "Kafka has it no longer"),
        (Schema("EndTxn", 0, -1, ()), "Kafka has it no longer"),
        (Schema("EndTxn", 6, 7, ()), "no common version"),
    ],
)
def test_an_api_that_brokers_do_not_understand_is_marked(schema: Schema | None, said: str) -> None:
    assert f"**{said}**" in row(END_TXN, schema)


def test_the_committed_page_is_of_the_newest_broker_and_of_our_versions() -> None:
    assert f"Kafka {NEWEST} " in PAGE, "run `make protocol`"
    for api in ours():
        mine = row(api, None).split(" | ")[:3]
        assert any(line.split(" | ")[:3] == mine for line in PAGE.splitlines()), f"run `make protocol` for {api}"
    assert "**" not in PAGE


@pytest.mark.long
def test_the_committed_page_is_generated() -> None:
    command = [sys.executable, str(ROOT / "tools" / "protocol_page.py")]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == PAGE, "run `make protocol`"
