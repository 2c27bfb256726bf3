"""HTTP servers that give scripted answers and record the requests: a token endpoint, and a schema registry, as its
in-memory client neither checks compatibility nor refuses anybody."""

import base64
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from certificates import Identity

Answer = tuple[int, bytes]


def jwt(**claims: object) -> str:
    """Make an unsecured token (RFC 7519, section 6). Brokers for development accept it."""

    def encoded(part: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")

    return f"{encoded({'alg': 'none'})}.{encoded(claims)}."


def token_for(subject: str, lifetime_s: float) -> str:
    now_s = time.time()
    return jwt(sub=subject, iat=int(now_s) - 60, exp=now_s + lifetime_s)


def body(**message: object) -> bytes:
    return json.dumps(message).encode()


@dataclass
class Idp:
    """Answers each POST with the next of `answers`, or calls it for the answer. The last one repeats."""

    answers: list[Answer | Callable[[], Answer]] = field(default_factory=list)
    told: list[tuple[str, dict[str, str], dict[str, list[str]]]] = field(default_factory=list)
    url: str = ""

    def gives(self, subject: str, lifetime_s: float) -> None:
        """Give a token with this lifetime to every client."""
        self.answers = [lambda: (200, body(access_token=token_for(subject, lifetime_s), expires_in=lifetime_s))]


@contextmanager
def token_endpoint(identity: Identity | None = None) -> Iterator[Idp]:
    """Serve https with `identity`, else http."""
    idp = Idp()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            idp.told.append((self.path, dict(self.headers), form))
            answer = idp.answers.pop(0) if len(idp.answers) > 1 else idp.answers[0]
            status, said = answer() if callable(answer) else answer
            self.send_response(status)
            if status == http.HTTPStatus.FOUND:
                self.send_header("Location", f"{idp.url}/elsewhere")
            self.end_headers()
            self.wfile.write(said)

    with http_server(Handler, identity) as port:
        idp.url = f"{'http' if identity is None else 'https'}://127.0.0.1:{port}/token?tenant=1"
        yield idp


@contextmanager
def http_server(handler: type[http.server.BaseHTTPRequestHandler], identity: Identity | None = None) -> Iterator[int]:
    """Its port; https with an `identity`."""
    handler.log_message = lambda *_: None  # type: ignore[method-assign]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if identity is not None:
        server.socket = identity.server_context().wrap_socket(server.socket, server_side=True)
    # Its end takes as long as a poll; half a second if nothing is said.
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def send_json(handler: http.server.BaseHTTPRequestHandler, status: int, said: object) -> None:
    data = json.dumps(said).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


# What Confluent's registry says, to the letter, but for the schema that it quotes.
INCOMPATIBLE = (
    'Schema being registered is incompatible with an earlier schema for subject "orders-value", details: '
    "[{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'price' at path '/fields/1' in the new "
    "schema has no default value and is missing in the old schema', additionalInfo:'price'}, {oldSchemaVersion: 7}, "
    "{oldSchema: '{...}'}, {validateFields: 'false', compatibility: 'BACKWARD'}]"
)


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A raw body, for answers that are not JSON."""

    data: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class StandIn:
    """`answers`: status and body by method and path (without query). `asked`: the requests in order, with bodies.
    `queries`: those that are not empty."""

    url: str
    answers: Mapping[tuple[str, str], tuple[int, Any]]
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)


@contextmanager
def registry_stand_in(answers: Mapping[tuple[str, str], tuple[int, Any]]) -> Iterator[StandIn]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size_bytes = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(size_bytes)) if size_bytes else None
            path, _, query = self.path.partition("?")
            stand_in.asked.append((self.command, path, body))
            stand_in.queries += filter(None, [query])
            not_found = (404, {"error_code": 40401, "message": f"nothing at {path}"})
            status, said = stand_in.answers.get((self.command, path), not_found)
            raw = said if isinstance(said, RawAnswer) else RawAnswer(json.dumps(said).encode())
            self.send_response(status)
            for name, value in raw.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw.data)))
            self.end_headers()
            self.wfile.write(raw.data)

        do_GET = do_POST = answer

    with http_server(Handler) as port:
        stand_in = StandIn(f"http://127.0.0.1:{port}", answers)
        yield stand_in
