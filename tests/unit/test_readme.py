"""The line of facts under the README's title says what setup.cfg and the table of tried versions say."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from kafka_sink.kafka.config import VERSION

ROOT = Path(__file__).resolve().parents[2]


def test_the_facts_are_those_of_setup_cfg_and_of_what_was_tried() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    table = readme.partition("[start:compatibility]")[2].partition("[end:compatibility]")[0]
    sparks = [spark.rpartition(".")[0] for spark in re.findall(r"^\| (\d+\.\d+\.\d+) \|", table, re.MULTILINE)]
    kafkas = [kafka.rpartition(".")[0] for kafka in re.findall(r"Kafka (\d+\.\d+\.\d+) \|", table)]
    assert re.search(
        r"^pyspark >= " + re.escape(sparks[0]) + "$", settings["options"]["install_requires"], re.MULTILINE
    )
    python = settings["options"]["python_requires"].removeprefix(">= ")
    assert settings["metadata"]["version"] == VERSION
    licence = {"Apache-2.0": "Apache License 2.0"}[settings["metadata"]["license"]]
    facts = (f"Python {python} or later", f"Spark {sparks[0]} to {sparks[-1]}", f"Kafka {kafkas[0]} to {kafkas[-1]}")
    assert readme.splitlines()[2] == " · ".join((*facts, "Linux", licence))
