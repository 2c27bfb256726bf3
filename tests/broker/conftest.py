"""What the tests of security share: a cluster that lets some in and turns others away, of each version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from secure_kafka import VERSIONS, SecureKafka, secure_kafka


@pytest.fixture(scope="module", params=VERSIONS)
def secure(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    with secure_kafka(request.param) as cluster:
        yield cluster
