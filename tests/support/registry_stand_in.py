"""A schema registry's REST answers, as far as a test scripts them, over real HTTP: the in-memory client neither checks
compatibility nor refuses anybody."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# What Confluent's registry says, to the letter, but for the schema that it quotes.
INCOMPATIBLE = (
    'Schema being registered is incompatible with an earlier schema for subject "orders-value", details: '
    "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'price' at path '/fields/1' in the new "
    "schema has no default value and is missing in the old schema', additionalInfo:'price'}, {oldSchemaVersion: 7}, "
    "{oldSchema: '{...}'}, {validateFields: 'false', compatibility: 'BACKWARD'}]"
)
# How long its end takes; half a second if nothing is said.
POLL_INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A raw body, for answers that are not JSON."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StandIn:
    """`answers`: status and body by method and path (without query). `asked`: the requests in order, with bodies."""

    url: str
    answers: Mapping[tuple[str, str], tuple[int, Any]]
    asked: list[tuple[str, str, Any]] = field(default_factory=list)


@contextmanager
def registry_stand_in(answers: Mapping[tuple[str, str], tuple[int, Any]]) -> Iterator[StandIn]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size_bytes = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size_bytes)) if size_bytes else None
            path = self.path.partition("?")[0]
            stand_in.asked.append((self.command, path, body))
            not_found = (404, {"error_code": 40401, "message": f"nothing at {path}"})
            status, said = stand_in.answers.get((self.command, path), not_found)
            raw = said if isinstance(said, RawAnswer) else RawAnswer(json.dumps(said).encode())
            data = raw.data
            self.send_response(status)
            for name, value in raw.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stand_in = StandIn(f"http://127.0.0.1:{server.server_port}", answers)
        thread = threading.Thread(target=server.serve_forever, args=(POLL_INTERVAL_S,), daemon=True)
        thread.start()
        try:
            yield stand_in
        finally:
            server.shutdown()
            thread.join()
