"""What a service does with a connection's requests before a broker executes them: ApiVersions and SASL. No I/O.

Source: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL).
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from kafka_services.service import Service, TooNew
from model.settings import API_VERSIONS, FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE
from model.wire import NotARequest, Request, build, decode_request, encode_response, kio_module

# API key, version and correlation id: the same in every version of the header.
_HEADER_START = struct.Struct(">hhi")
_MECHANISMS = ("PLAIN",)


class HangUp(Exception):
    """Why the service closes the connection."""


class Front:
    """Of one connection. `password`: of the service's user; None: the service asks for no login."""

    def __init__(self, service: Service, password: str | None) -> None:
        self._service = service
        self._login = None if password is None else f"\0{service.username}\0{password}".encode()
        self._is_open = password is None
        # After a SaslHandshake of version 0 a token comes without a header.
        self._awaits_bare_token = self._awaits_token = False

    def take(self, frame: bytes) -> bytes | None:
        """Return the answer to one request without its size; None for a request that the broker is to execute. Raises
        HangUp."""
        if self._awaits_bare_token:
            return self._take_bare_token(frame)
        if len(frame) < _HEADER_START.size:
            raise HangUp(f"{len(frame)} bytes")
        api_key, version, _ = _HEADER_START.unpack_from(frame)
        lowest, highest = self._service.api_versions.get(api_key, (0, -1))
        if not lowest <= version <= highest and api_key != API_VERSIONS:
            raise HangUp(f"API {api_key} version {version} is not offered")
        match api_key:
            case _ if api_key == API_VERSIONS:
                return self._versions(_decoded(frame, self._service))
            case _ if api_key == SASL_HANDSHAKE:
                return self._handshake(_decoded(frame, self._service))
            case _ if api_key == SASL_AUTHENTICATE:
                return self._authenticate(_decoded(frame, self._service))
        if not self._is_open:
            raise HangUp(f"API {api_key} before the login")
        if api_key == FETCH:
            raise HangUp("the double has no Fetch")
        return None

    def _versions(self, request: Request) -> bytes:
        ranges, code = self._service.api_versions, ErrorCode.none
        if request.message is None:
            if self._service.too_new is TooNew.HANG_UP:
                raise HangUp(f"ApiVersions version {request.version} is not offered")
            code = ErrorCode.unsupported_version
            if self._service.too_new is TooNew.OWN_RANGE:
                ranges = {API_VERSIONS: ranges[API_VERSIONS]}
            request = Request(API_VERSIONS, 0, request.correlation_id, None)
        kio_version = kio_module(API_VERSIONS, request.version, "response")
        api_keys = tuple(
            kio_version.ApiVersion(api_key=key, min_version=lowest, max_version=highest)
            for key, (lowest, highest) in sorted(ranges.items())
        )
        return _answer(request, "ApiVersionsResponse", error_code=code, api_keys=api_keys)

    def _handshake(self, request: Request) -> bytes:
        code = ErrorCode.none
        if self._is_open:
            code = ErrorCode.illegal_sasl_state
        elif request.message.mechanism not in _MECHANISMS:
            code = ErrorCode.unsupported_sasl_mechanism
        else:
            self._awaits_bare_token, self._awaits_token = request.version == 0, request.version > 0
        return _answer(request, "SaslHandshakeResponse", error_code=code, mechanisms=_MECHANISMS)

    def _authenticate(self, request: Request) -> bytes:
        if not self._awaits_token:
            code, message = ErrorCode.illegal_sasl_state, "no handshake"
        elif request.message.auth_bytes == self._login:
            self._is_open, code, message = True, ErrorCode.none, None
        else:
            code, message = ErrorCode.sasl_authentication_failed, "wrong user or password"
        self._awaits_token = False
        return _answer(
            request, "SaslAuthenticateResponse", error_code=code, error_message=message, auth_bytes=b"",
            session_lifetime=timedelta(0),
        )  # fmt: skip

    def _take_bare_token(self, token: bytes) -> bytes:
        if token != self._login:
            raise HangUp("wrong user or password")
        self._awaits_bare_token, self._is_open = False, True
        return b""


def _decoded(frame: bytes, service: Service) -> Request:
    try:
        return decode_request(frame, service.api_versions)
    except NotARequest as error:
        raise HangUp(str(error)) from error


def _answer(request: Request, entity: str, **fields: Any) -> bytes:
    kio_version = kio_module(request.api_key, request.version, "response")
    return encode_response(request, build(getattr(kio_version, entity), throttle_time=timedelta(0), **fields))
