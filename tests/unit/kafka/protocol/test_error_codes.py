import pickle

import kafka.errors
import pytest

from effort import each
from kafka_sink.kafka.protocol.error_codes import NOTHING, ErrorCode, error_name, meaning

# kafka-python's exception of each code that it has.
OTHERS = {
    error.errno: error
    for error in vars(kafka.errors).values()
    if isinstance(error, type) and isinstance(getattr(error, "errno", None), int)
}
# Where kafka-python differs from Java's classes, which ours are.
# CorruptRecordException is a RetriableException: a batch may be damaged on its way.
# UnknownLeaderEpochException is only retriable: the broker's metadata is the older one.
DIFFERENCES = {"is_retriable": {2}, "needs_new_metadata": {75}, "denied": set()}


def test_codes_are_those_of_another_client() -> None:
    """kafka-python names exceptions, not all in Kafka's words: most must agree, a shift by one would agree in none."""
    others = {code: error.__name__.removesuffix("Error").lower() for code, error in OTHERS.items()}
    assert len([code for code in ErrorCode if others.get(code) == code.name.replace("_", "").lower()]) > 60

    names = {0: "NONE", 133: "SHARE_SESSION_LIMIT_REACHED", -2: "UNKNOWN_ERROR_CODE_-2"}
    assert {code: error_name(code) for code in names} == names


def test_codes_mean_what_another_client_takes_them_for() -> None:
    found: dict[str, set[int]] = {each: set() for each in DIFFERENCES}
    for code, error in OTHERS.items():
        theirs = {
            "is_retriable": error.retriable,
            "needs_new_metadata": error.invalid_metadata,
            "denied": issubclass(error, kafka.errors.AuthorizationError),
        }
        for attribute, differing in found.items():
            if getattr(meaning(code), attribute) != theirs[attribute]:
                differing.add(code)
    assert len(OTHERS) > 120
    assert found == DIFFERENCES
    # What is newer than kafka-python is as in Java.
    newer = set(ErrorCode) - OTHERS.keys()
    assert {code for code in newer if meaning(code).is_retriable} == {ErrorCode.SHARE_SESSION_LIMIT_REACHED}
    assert all(meaning(unknown) == NOTHING for unknown in (-32_768, -2, 0, -1, 157, 9_999))


# By number, as brokers send them. kafka-python has no attributes for these.
@pytest.mark.parametrize(("attribute", "codes"), [
    ("broker_busy", {7, 89}),
    ("coordinator_not_ready", {14, 15, 16}),
    ("coordinator_moved", {15, 16}),
    ("fenced", {47, 48, 49, 90}),
])  # fmt: skip
def test_an_attribute_holds_for_these_codes_alone(attribute: str, codes: set[int]) -> None:
    assert {code for code in range(-200, 200) if getattr(meaning(code), attribute)} == codes


@each("code", ErrorCode)
def test_attributes_of_one_code_agree_with_each_other(code: ErrorCode) -> None:
    means = meaning(code)
    asks_again = means.needs_new_metadata or means.broker_busy or means.coordinator_not_ready
    assert means.is_retriable or not asks_again
    assert not (means.is_retriable and (means.fenced or means.denied))
    assert means.coordinator_not_ready or not means.coordinator_moved
    assert code.meaning is meaning(int(code)) and pickle.loads(pickle.dumps(code)) is code
