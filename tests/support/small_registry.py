"""A schema registry over HTTP that keeps what clients register: executors cannot see the in-memory one. It checks no
compatibility, and can be shut, ask for a password, and count requests."""

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

from http_endpoints import http_server

Answer = tuple[int, Any]


@dataclass(slots=True)
class SmallRegistry:
    """`asked`: method and path of each request. `schemas`: by id, from 1. `is_open`: else the answer is a 503."""

    url: str = ""
    user_info: str | None = None
    is_open: bool = True
    schemas: list[dict[str, Any]] = field(default_factory=list)
    versions: dict[str, list[int]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def add(self, subject: str, text: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Register a schema, and return its id."""
        schema = {"schema": text, "schemaType": schema_type, "references": list(references)}
        return int(self._register(subject, schema)[1]["id"])

    def guid(self, schema_id: int) -> uuid.UUID:
        return uuid.UUID(int=schema_id)

    def answer(self, method: str, path: str, body: Any) -> Answer:
        routes: list[tuple[str, str, Callable[..., Answer]]] = [
            ("POST", "/subjects/([^/]+)/versions", lambda subject: self._register(subject, body)),
            ("POST", "/subjects/([^/]+)", lambda subject: self._look_up(subject, body)),
            ("GET", "/subjects/([^/]+)/versions/([^/]+)", self._version),
            ("GET", "/schemas/ids/(\\d+)", lambda number: self._by_id(int(number))),
            ("GET", "/schemas/guids/([^/]+)", lambda guid: self._by_id(uuid.UUID(guid).int)),
        ]
        for its_method, pattern, call in routes:
            found = re.fullmatch(pattern, path)
            if method == its_method and found:
                return call(*map(unquote, found.groups()))
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _register(self, subject: str, body: Any) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.versions.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return self._version(subject, str(versions.index(schema_id) + 1))

    def _look_up(self, subject: str, body: Any) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        if schema in self.schemas and self.schemas.index(schema) + 1 in self.versions.get(subject, ()):
            return self._register(subject, body)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Answer:
        versions = self.versions.get(subject, [])
        number = len(versions) if version == "latest" else int(version)
        if not 0 < number <= len(versions):
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        schema_id = versions[number - 1]
        return 200, {"subject": subject, "version": number, **self._by_id(schema_id)[1]}

    def _by_id(self, schema_id: int) -> Answer:
        if not 0 < schema_id <= len(self.schemas):
            return 404, {"error_code": 40403, "message": f"Schema {schema_id} not found"}
        return 200, {"id": schema_id, "guid": str(self.guid(schema_id)), **self.schemas[schema_id - 1]}


@contextmanager
def small_registry(user_info: str | None = None) -> Iterator[SmallRegistry]:
    registry = SmallRegistry(user_info=user_info)
    wanted = None if user_info is None else f"Basic {base64.b64encode(user_info.encode()).decode()}"

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size_bytes = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size_bytes)) if size_bytes else None
            path = self.path.partition("?")[0]
            registry.asked.append((self.command, path))
            if not registry.is_open:
                status, said = 503, {"error_code": 503, "message": "shut"}
            elif wanted is not None and self.headers.get("Authorization") != wanted:
                status, said = 401, {"error_code": 401, "message": "Unauthorized"}
            else:
                status, said = registry.answer(self.command, path, body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

    with http_server(Handler) as port:
        registry.url = f"http://127.0.0.1:{port}"
        yield registry
