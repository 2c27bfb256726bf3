"""Names of subjects and of derived records."""

from __future__ import annotations

import pytest

from kafka_sink.registry.subjects import record_name, subject_name


@pytest.mark.parametrize(
    ("strategy", "is_key", "expected"),
    [
        ("topic", False, "orders-value"),
        ("topic", True, "orders-key"),
        ("record", False, "shop.Order"),
        ("topic-record", True, "orders-shop.Order"),
    ],
)
def test_subjects_are_named_as_the_official_strategies_do(strategy: str, is_key: bool, expected: str) -> None:
    assert subject_name(strategy, "orders", "shop.Order", is_key) == expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("orders", "orders_value"), ("shop.orders-eu", "shop_orders_eu_value"), ("1st", "_1st_value")],
)
def test_a_derived_record_has_a_name_that_every_form_allows(topic: str, expected: str) -> None:
    assert record_name(topic, is_key=False) == expected
    assert record_name(topic, is_key=True) == expected.replace("value", "key")
