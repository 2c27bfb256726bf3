"""A schema registry over HTTP that keeps what clients register: executors cannot see the in-memory one. It checks no
compatibility, and can be shut, ask for a password, and count requests. `test_apicurio.py` compares its answers with
those of a real one, which knows no GUIDs."""

import base64
import http.server
import json
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from http_endpoints import http_server, send_json

Answer = tuple[int, Any]


@dataclass(slots=True)
class SmallRegistry:
    """`asked`: method and path of each request. `schemas`: by id, from 1. `versions`: the ids of a subject's versions,
    from 1. `deleted`: softly, subjects and versions. `is_open`: else the answer is a 503. `shut_for`: so many more
    answers are."""

    url: str = ""
    user_info: str | None = None
    is_open: bool = True
    shut_for: int = 0
    has_guids: bool = True
    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    deleted: set[tuple[str, int]] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def add(self, subject: str, text: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, and return its id."""
        schema = {"schema": text, "schemaType": schema_type, "references": list(references)}
        return self._registered(subject, schema)

    def guid(self, schema_id: int) -> uuid.UUID:
        return uuid.UUID(int=schema_id)

    def answer(self, method: str, path: str, query: str, body: Any) -> Answer:
        with_deleted = "deleted=true" in query.lower()
        routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("POST", "/subjects/([^/]+)/versions", lambda subject: self._register(subject, body)),
            ("POST", "/subjects/([^/]+)", lambda subject: self._look_up(subject, body)),
            (
                "GET",
                "/subjects/([^/]+)/versions/([^/]+)",
                lambda subject, version: self._version(subject, version, with_deleted),
            ),
            ("DELETE", "/subjects/([^/]+)/versions/([^/]+)", self._delete),
            ("GET", "/schemas/ids/(\\d+)", lambda number: self._by_id(int(number))),
        ]
        if self.has_guids:
            routes.append(("GET", "/schemas/guids/([^/]+)", lambda guid: self._by_id(uuid.UUID(guid).int)))
        for its_method, pattern, call in routes:
            found = re.fullmatch(pattern, path)
            if method == its_method and found:
                return call(*map(unquote, found.groups()))
        return 404, {"error_code": 404 if self.has_guids else 0, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, body: Any) -> Answer:
        for each in body.get("references", ()):
            if each["version"] not in self._living(each["subject"]):
                return 422, {"error_code": 42201, "message": "Unresolved reference"}
        schema_id = self._registered(subject, body)
        return 200, {"id": schema_id, **self._guid(schema_id)}

    def _registered(self, subject: str, body: Any) -> int:
        schema = {"schemaType": "AVRO", "references": [], **body}
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        if schema_id not in self._living(subject).values():
            self.versions.setdefault(subject, []).append(schema_id)
        return schema_id

    def _living(self, subject: str) -> dict[int, int]:
        """The ids of the subject's versions that are not deleted, by version."""
        versions = enumerate(self.versions.get(subject, ()), 1)
        return {version: schema_id for version, schema_id in versions if (subject, version) not in self.deleted}

    def _look_up(self, subject: str, body: Any) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        living = self._living(subject)
        for version, schema_id in living.items():
            if self.schemas[schema_id - 1] == schema:
                return self._version(subject, str(version))
        if not living:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str, with_deleted: bool = False) -> Answer:
        living = self._living(subject)
        versions = dict(enumerate(self.versions.get(subject, ()), 1)) if living and with_deleted else living
        if not versions:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = max(living) if version in ("latest", "-1") else int(version)
        if number not in versions:
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, {"subject": subject, "version": number, **self._by_id(versions[number])[1]}

    def _delete(self, subject: str, version: str) -> Answer:
        """Delete a version softly."""
        this = subject, int(version)
        refers = (each for schema in self.schemas for each in schema.get("references", ()))
        if any((each["subject"], each["version"]) == this for each in refers):
            return 422, {"error_code": 42206, "message": "One or more references exist to the schema."}
        if this[1] not in self._living(subject):
            return self._version(subject, version)
        self.deleted.add(this)
        return 200, this[1]

    def _by_id(self, schema_id: int) -> Answer:
        if not 0 < schema_id <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
        schema = self.schemas[schema_id - 1]
        shown = {name: one for name, one in schema.items() if (name, one) != ("schemaType", "AVRO")}
        return 200, {"id": schema_id, **self._guid(schema_id), **shown}

    def _guid(self, schema_id: int) -> dict[str, str]:
        return {"guid": str(self.guid(schema_id))} if self.has_guids else {}


@contextmanager
def small_registry(user_info: str | None = None) -> Iterator[SmallRegistry]:
    registry = SmallRegistry(user_info=user_info)
    wanted = None if user_info is None else f"Basic {base64.b64encode(user_info.encode()).decode()}"

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size_bytes = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size_bytes)) if size_bytes else None
            path, _, query = self.path.partition("?")
            registry.asked.append((self.command, path))
            if not registry.is_open or registry.shut_for > 0:
                registry.shut_for -= 1
                status, said = 503, {"error_code": 503, "message": "shut"}
            elif wanted is not None and self.headers.get("Authorization") != wanted:
                status, said = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, said = registry.answer(self.command, path, query, body)
            send_json(self, status, said)

        do_GET = do_POST = do_DELETE = answer

    with http_server(Handler) as port:
        registry.url = f"http://127.0.0.1:{port}"
        yield registry
