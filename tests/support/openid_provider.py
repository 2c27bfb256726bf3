"""An OpenID provider for tests: discovery, its key, and RS256 tokens for clients that have a secret.

It stands for Keycloak. The registry that checks its tokens is real.
"""

import base64
import http.server
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

from joserfc import jwt
from joserfc.jwk import RSAKey

from http_endpoints import http_server, send_json

LIFETIME_S = 300


def new_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})


@dataclass(slots=True)
class Provider:
    """`clients`: the secret and the role of each client. `given`: the clients that got a token, in order. `told_s`: the
    lifetime that clients are told."""

    clients: dict[str, tuple[str, str]]
    told_s: int = LIFETIME_S
    url: str = ""
    key: RSAKey = field(default_factory=new_key)
    given: list[str] = field(default_factory=list)

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def token(self, client: str, *, key: RSAKey | None = None, lifetime_s: int = LIFETIME_S) -> str:
        """A token for `client`. With another `key` its signature is wrong."""
        now_s = int(time.time())
        claims = {
            "iss": self.url, "sub": client, "preferred_username": client, "groups": [self.clients[client][1]],
            "iat": now_s - 600, "exp": now_s + lifetime_s,
        }  # fmt: skip
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, key or self.key)

    def answer(self, path: str, authorization: str, form: dict[str, str]) -> tuple[int, Any]:
        match path.rstrip("/"):
            case "/.well-known/openid-configuration":
                return 200, {"issuer": self.url, "jwks_uri": f"{self.url}/keys", "token_endpoint": self.token_url}
            case "/keys":
                return 200, {"keys": [self.key.as_dict(private=False)]}
            case "/token":
                client, secret = form.get("client_id", ""), form.get("client_secret", "")
                if authorization.startswith("Basic "):
                    pair = base64.b64decode(authorization.removeprefix("Basic ")).decode()
                    client, secret = map(unquote, pair.split(":", 1))
                if form.get("grant_type") != "client_credentials" or self.clients.get(client, ("",))[0] != secret:
                    return 401, {"error": "invalid_client", "error_description": "Invalid client or credentials"}
                self.given.append(client)
                return 200, {"access_token": self.token(client), "token_type": "Bearer", "expires_in": self.told_s}
        return 404, {"error": "not_found"}


@contextmanager
def openid_provider(clients: dict[str, tuple[str, str]]) -> Iterator[Provider]:
    provider = Provider(clients)

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            size_bytes = int(self.headers.get("Content-Length", 0))
            form = {name: one for name, (one, *_) in parse_qs(self.rfile.read(size_bytes).decode()).items()}
            status, said = provider.answer(self.path.partition("?")[0], self.headers.get("Authorization", ""), form)
            send_json(self, status, said)

        do_GET = do_POST = answer

    with http_server(Handler) as port:
        provider.url = f"http://127.0.0.1:{port}"
        yield provider
