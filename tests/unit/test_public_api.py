"""The page of the Python API has every public name, and no other. Each that people call has an example, which
test_api_examples.py runs."""

import importlib
import re

import pytest

from code_blocks import ROOT
from effort import each
from public_api import MODULES, public, with_examples

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^::: ([\w.]+)$", PAGE, re.MULTILINE)
# Their helpers are shared, so they have no underscore. Only what is in `__all__` is public there.
SHARED = "kafka_sink.monitoring.", "kafka_sink.spark.", "kafka_sink.errors"


def test_the_page_has_every_public_name_once_and_no_other() -> None:
    assert len(SHOWN) == len(set(SHOWN))
    assert set(SHOWN) <= public().keys()
    missing = [name for name in public().keys() - set(SHOWN) if not is_told_of_in_words(name)]
    assert missing == []


def is_told_of_in_words(name: str) -> bool:
    """Errors have a page of their own. What is only for their texts is named."""
    module, _, short = name.rpartition(".")
    return module == "kafka_sink.errors" and any(f"`{short}`" in page for page in (ERRORS, PAGE))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith(SHARED)])
def test_what_a_public_module_defines_is_public_or_has_an_underscore(name: str) -> None:
    module = importlib.import_module(name)
    defined = {
        short for short, what in vars(module).items()
        if callable(what) and getattr(what, "__module__", None) == name and not short.startswith("_")
    }  # fmt: skip
    assert defined - set(module.__all__) == set()


@each("name", with_examples())
def test_what_people_call_has_an_example(name: str) -> None:
    assert ">>> " in with_examples()[name]
