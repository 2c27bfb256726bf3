from __future__ import annotations

import pytest

from network_world import World


@pytest.fixture
def world() -> World:
    return World()
