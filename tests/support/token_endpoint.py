"""A token endpoint for tests: gives scripted answers and records the requests."""

import base64
import http.server
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "endpoint.pem").write_text(identity.pem)
            context.load_cert_chain(Path(folder) / "endpoint.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
