"""The pure parts of the benchmark of many slots: the model, what is counted, and what is shown."""

from __future__ import annotations

from collections import Counter

import slot_model
from code_blocks import ROOT
from slot_model import COMMIT, CONSUMER_OFFSETS, LOGS, PLAN, SLOTS, TOPIC, TRANSACTION_STATE, Count, Layout, Measured

# 1,000 slots of 8 rows to 4 partitions that 3 brokers lead. The decision has 6 groups on 2 partitions of its topic.
LAYOUT = Layout(
    transaction_version=2, slots=1_000, rows=8, partitions=4, brokers=3, leaders=3, transactions_at=(201, 400, 399),
    groups_at=(500, 500), parts_before=5, parts=6, later_parts_at=(3, 1), new_parts=1, parts_logs=2,
)  # fmt: skip


def model_of(layout: Layout) -> dict[tuple[str, str], Count]:
    return {(each.stage, each.what): each.model for each in slot_model.compare(layout, Measured())}


def cells(table: str) -> list[list[str]]:
    """The rows of a markdown table."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_model_of_a_micro_batch() -> None:
    exact = {key: count.least for key, count in model_of(LAYOUT).items() if count.least == count.most and count.most}
    assert exact == {
        (PLAN, "InitProducerId"): 1, (PLAN, "ListTransactions"): 3, (PLAN, "DescribeProducers"): 3,
        # The decision's first group twice, two coordinators of the others, 3 reads of each coordinator's slots.
        (PLAN, "OffsetFetch"): 2 + 2 + 6,
        (SLOTS, "DescribeTransactions"): 1_000, (SLOTS, "InitProducerId"): 1_000,
        (SLOTS, "TxnOffsetCommit"): 1_000,
        (COMMIT, "FindCoordinator"): 1, (COMMIT, "TxnOffsetCommit"): 6, (COMMIT, "DescribeTransactions"): 2 + 2 + 2,
        (COMMIT, "DescribeProducers"): 6, (COMMIT, "EndTxn"): 1_001, (COMMIT, "OffsetFetch"): 6,
        (LOGS, TOPIC): 8_000 + 4_000, (LOGS, CONSUMER_OFFSETS): 1_006 + 1_002,
    }  # fmt: skip
    assert model_of(LAYOUT)[SLOTS, "Produce"] == Count(3_000, 4_000)
    # A slot: Init, its group, and an addition for each Produce. Then two to end each transaction. The driver: Init, and
    # one for each partition of its groups.
    assert model_of(LAYOUT)[LOGS, TRANSACTION_STATE] == Count(5_000 + 2_002 + 1 + 2, 6_000 + 2_002 + 1 + 2)


def test_a_count_that_is_not_the_models_differs() -> None:
    first = Counter({key: count.most for key, count in model_of(LAYOUT).items()})
    assert all(each.is_right for each in slot_model.compare(LAYOUT, Measured(first)))
    first[COMMIT, "EndTxn"] += 1
    first[COMMIT, "WriteTxnMarkers"] = 2
    lines = slot_model.compare(LAYOUT, Measured(first, again=Counter({(COMMIT, "OffsetFetch"): 7})))
    wrong = [(each.what, each.model.most, each.measured) for each in lines if not each.is_right]
    assert wrong == [("EndTxn", 1_001, 1_002), ("WriteTxnMarkers", 0, 2)]
    shown = {row[1]: row for row in cells(slot_model.comparison(lines))}
    assert [what for what, row in shown.items() if row[-1] == "DIFFERS"] == ["EndTxn", "WriteTxnMarkers"]
    assert shown["EndTxn"] == ["commit", "EndTxn", "S + 1", "1,001", "1,002", "", "DIFFERS"]
    assert shown["OffsetFetch"] == ["commit", "OffsetFetch", "G", "6", "6", "7", ""]
    assert "AddOffsetsToTxn" not in shown


def test_the_page_has_the_formulas_and_their_symbols() -> None:
    page = (ROOT / "docs" / "design" / "performance.md").read_text(encoding="utf-8")
    formulas, symbols = slot_model.tables()
    assert formulas in page
    assert symbols in page
    letters = {word for each in slot_model.FORMULAS for word in each.text.replace("(", " ").split() if len(word) == 1}
    assert {each for each in letters if each.isalpha()} <= slot_model.SYMBOLS.keys()
