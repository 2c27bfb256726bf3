"""Limits what botocore reads of a metadata service, of an instance or of a container. It reads answers of any size.

Source: botocore.utils.IMDSFetcher and ContainerMetadataFetcher, botocore.httpsession.URLLib3Session.send.
"""

from __future__ import annotations

import importlib
from typing import Any

from kafka_sink.kafka.aws.missing import Missing

# Credentials and their token take about 2 KB.
MOST_BYTES = 64 * 1024


def limit_answers(session: Any) -> None:
    """Limit the answers to the credential providers of botocore's `session`."""
    for provider in session.get_component("credential_provider").providers:
        fetcher: Any = getattr(provider, "_role_fetcher", None) or getattr(provider, "_fetcher", None)
        if hasattr(fetcher, "_session"):
            fetcher._session = _Limited(fetcher._session)


class _Limited:
    """Sends requests as botocore's `http` does. Raises its errors, or Missing for an answer that is too large."""

    def __init__(self, http: Any) -> None:
        self._http = http

    def send(self, request: Any) -> Any:
        request.stream_output = True
        answer = self._http.send(request)
        content = _read(answer.raw, request)
        return type(answer)(answer.url, answer.status_code, answer.headers, _Content(content))


class _Content:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> list[bytes]:
        return [self._content]


def _read(raw: Any, request: Any) -> bytes:
    theirs, botocores = (importlib.import_module(f"{name}.exceptions") for name in ("urllib3", "botocore"))
    content = bytearray()
    try:
        for piece in raw.stream(MOST_BYTES):
            content += piece
            if len(content) > MOST_BYTES:
                raw.close()
                raise Missing(
                    f"the metadata service answered with more than {MOST_BYTES // 1024} KiB",
                    "look what answers there instead of the cloud's own service",
                )
    except theirs.ReadTimeoutError as error:
        raise botocores.ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except theirs.HTTPError as error:
        raise botocores.ConnectionClosedError(endpoint_url=request.url, error=error, request=request) from error
    return bytes(content)
