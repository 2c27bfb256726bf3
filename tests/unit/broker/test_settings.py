"""kafka_sink.broker.settings: what a node is told, read back as java.util.Properties would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.broker.settings import COMPUTED_SETTINGS, Node, render_properties, server_settings

ONE = [Node(1, 21001, 21002)]
THREE = [Node(1, 21001, 21002), Node(2, 21003, 21004), Node(3, 21005, 21006)]


def test_a_node_of_three() -> None:
    settings = server_settings(THREE[1], THREE, Path("/data/2"), {})
    assert settings["process.roles"] == "broker,controller"
    assert settings["node.id"] == "2"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21002,2@127.0.0.1:21004,3@127.0.0.1:21006"
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:21003,CONTROLLER://127.0.0.1:21004"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:21003"
    assert settings["log.dirs"] == "/data/2"
    assert settings["auto.create.topics.enable"] == "false"


@pytest.mark.parametrize(("cluster", "replicas", "min_isr"), [(ONE, "1", "1"), (THREE, "3", "2")])
def test_internal_topics_fit_the_cluster(cluster: list[Node], replicas: str, min_isr: str) -> None:
    settings = server_settings(cluster[0], cluster, Path("/data"), {})
    assert settings["offsets.topic.replication.factor"] == replicas
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        assert settings[f"{topic}.replication.factor"] == replicas
        assert settings[f"{topic}.min.isr"] == min_isr


@pytest.mark.parametrize("name", sorted(COMPUTED_SETTINGS))
def test_what_the_cluster_computes_is_not_overridden(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape(name)):
        server_settings(ONE[0], ONE, Path("/data"), {name: "1"})


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_every_text_survives(settings: dict[str, str]) -> None:
    rendered = render_properties(settings)
    rendered.encode("ascii")
    assert java_properties(rendered) == settings


def java_properties(text: str) -> dict[str, str]:
    """java.util.Properties.load, as its documentation has it, without continuation lines."""
    found = {}
    for line in text.split("\n"):
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        key = re.match(r"(?:\\.|[^\\=: \t\f])*", line)
        assert key is not None
        rest = re.sub(r"^[ \t\f]*[=:]?[ \t\f]*", "", line[key.end() :])
        found[unescape(key[0])] = unescape(rest)
    return found


def unescape(text: str) -> str:
    units = re.sub(
        r"\\(u[0-9a-f]{4}|.)", lambda m: chr(int(m[1][1:], 16)) if m[1][0] == "u" and len(m[1]) == 5 else m[1], text
    )
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
