"""Write docs/design/protocol.md: `python tools/protocol_page.py > docs/design/protocol.md`.

Compares the versions of requests in `kafka_sink/kafka/protocol/apis` with the schemas in the jars of the newest broker
that the local broker knows. A newer broker is one more row of `kafka_sink.broker.resolve.KAFKA_VERSIONS`; `make
protocol` then shows what is new in the page's difference. A test compares the committed page with the output.

Source: common/message/*.json in kafka-clients.jar, whose format is described in
clients/src/main/resources/common/message/README.md of Kafka.
"""

from __future__ import annotations

import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_sink.broker import resolve
from kafka_sink.broker.resolve import find_java
from kafka_sink.kafka.protocol.apis import all_apis

NEWEST = list(resolve.KAFKA_VERSIONS)[-1]
_INTRODUCTION = """\
Generated from `kafka_sink/kafka/protocol/apis/` and the schemas of Kafka {version} by `make protocol`. The client sends
each request in the highest version that it and the broker know. The last column has what newer versions of Kafka add
and the client does not use: fields of requests (`->`) and of responses (`<-`)."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A request and its response. `last`: the highest version that is stable. `fields`: the first version of each field
    of a later version than 0, as `-> name` or `<- name`."""

    name: str
    first: int
    last: int
    fields: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Ours:
    """The versions of an API that the client can send."""

    key: int
    name: str
    first: int
    last: int


def ours() -> list[Ours]:
    """Return the client's APIs by key. Several of them may share a key."""
    found: dict[int, Ours] = {}
    for api in sorted(all_apis(), key=lambda api: api.key):
        known = found.get(api.key, Ours(api.key, api.name, api.min_version, api.max_version))
        first, last = min(known.first, api.min_version), max(known.last, api.max_version)
        found[api.key] = Ours(api.key, known.name, first, last)
    return list(found.values())


def schemas(jar: Path) -> dict[int, Schema]:
    """Return the schemas of kafka-clients.jar by API key."""
    requests: dict[int, Mapping[str, Any]] = {}
    responses: dict[int, Mapping[str, Any]] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                message = _parsed(archive.read(name).decode())
                (requests if message["type"] == "request" else responses)[message["apiKey"]] = message
    return {key: _schema(request, responses[key]) for key, request in requests.items()}


def _parsed(text: str) -> Mapping[str, Any]:
    """Kafka's JSON has comments: whole lines, and ends of lines."""
    message: Mapping[str, Any] = json.loads(re.sub(r"(?m)(^|[\s,{\[])//.*$", r"\1", text))
    return message


def _schema(request: Mapping[str, Any], response: Mapping[str, Any]) -> Schema:
    first, last = _versions(request["validVersions"])
    fields = [(version, f"-> {name}") for version, name in _fields(request.get("fields", ()))]
    fields += [(version, f"<- {name}") for version, name in _fields(response.get("fields", ()))]
    unstable = request.get("latestVersionUnstable", False)
    return Schema(request["name"].removesuffix("Request"), first, last - unstable, fields)


def _versions(text: str) -> tuple[int, int]:
    """Of "3", "0-5" or "none"."""
    if text == "none":
        return 0, -1
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _fields(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        yield int(field["versions"].rstrip("+").partition("-")[0]), prefix + field["name"]
        yield from _fields(field.get("fields", ()), f"{prefix}{field['name']}.")


def row(api: Ours, schema: Schema | None) -> str:
    if schema is None or schema.last < schema.first:
        return f"| {api.name} | {api.key} | {_range(api.first, api.last)} | none | **Kafka has it no longer** |"
    added = "; ".join(_added(version, schema) for version in range(api.last + 1, schema.last + 1))
    if api.last < schema.first:
        added = f"**no common version**; {added}"
    kafka = _range(schema.first, schema.last)
    return f"| {api.name} | {api.key} | {_range(api.first, api.last)} | {kafka} | {added} |"


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _added(version: int, schema: Schema) -> str:
    fields = ", ".join(f"`{name}`" for first, name in schema.fields if first == version)
    return f"{version}: {fields or 'no field'}"


def page(of_kafka: Mapping[int, Schema], version: str = NEWEST) -> str:
    """Return the whole page in Markdown."""
    head = ["| API | Key | pykafka | Kafka | Newer, not used |", "|---|---|---|---|---|"]
    rows = [row(api, of_kafka.get(api.key)) for api in ours()]
    return "\n".join(["# Versions of requests", "", _INTRODUCTION.format(version=version), "", *head, *rows]) + "\n"


def clients_jar(version: str = NEWEST) -> Path:
    """Return kafka-clients.jar of a broker. The jars are fetched if they are missing."""
    java = find_java(os.environ)
    jars = resolve.resolve_jars(
        resolve.KAFKA_VERSIONS[version],
        resolve.default_cache_dir(os.environ),
        lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())],
    )
    return jars / f"org.apache.kafka_kafka-clients-{version}.jar"


if __name__ == "__main__":
    sys.stdout.write(page(schemas(clients_jar())))
