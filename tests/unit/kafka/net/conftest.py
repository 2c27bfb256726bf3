import pytest

from network_world import World


@pytest.fixture
def world() -> World:
    return World()
