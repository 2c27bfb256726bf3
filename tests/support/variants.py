"""Cases of a test: the gate (`make test`) runs the first one, `make test-all` the others too."""

from typing import Any

import pytest


def variants(first: Any, *others: Any) -> list[Any]:
    """Return the values of one argument for `pytest.mark.parametrize`."""
    return [first, *(pytest.param(each, marks=pytest.mark.long) for each in others)]
