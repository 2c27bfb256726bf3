"""The model of the benchmark of many slots is on its page."""

from __future__ import annotations

import slot_model
from code_blocks import ROOT


def test_the_page_has_the_formulas_and_their_symbols() -> None:
    page = (ROOT / "docs" / "design" / "performance.md").read_text(encoding="utf-8")
    formulas, symbols = slot_model.tables()
    assert formulas in page
    assert symbols in page
    letters = {word for each in slot_model.FORMULAS for word in each.text.replace("(", " ").split() if len(word) == 1}
    assert {each for each in letters if each.isalpha()} <= slot_model.SYMBOLS.keys()
