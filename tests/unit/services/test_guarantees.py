"""Which guarantee each service can carry, by its table; and `pykafka check` says so."""

from pathlib import Path

import pytest

from certificates import Authority
from code_blocks import ROOT
from kafka_services import EVENT_HUBS_PREMIUM, EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM, Service, ServiceDouble
from kafka_sink.cli.check import main
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE, lacking
from kafka_sink.kafka.protocol.transaction_needs import EXACTLY_ONCE, REPAIR

EXACTLY_ONCE_OPTIONS = (
    "--option", "deliveryGuarantee=exactly-once", "--option", "txnAppId=orders", "--option", "txnVersion=0"
)  # fmt: skip
OF_TRANSACTIONS = [
    "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "ListTransactions",
    "DescribeTransactions", "DescribeProducers",
]  # fmt: skip
MISSING = [
    (EVENT_HUBS_STANDARD, OF_TRANSACTIONS),
    (EVENT_HUBS_PREMIUM, ["ListTransactions", "DescribeTransactions", "DescribeProducers"]),
    (WARPSTREAM, ["DescribeProducers"]),
    (REDPANDA, []),
]


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, Service) else None


@pytest.mark.parametrize(("service", "missing"), MISSING, ids=name_of)
def test_every_service_can_carry_at_least_once_and_lacks_this_for_exactly_once(
    service: Service, missing: list[str]
) -> None:
    assert lacking(service.api_versions, AT_LEAST_ONCE) == lacking(service.api_versions, IDEMPOTENCE) == ()
    assert len(lacking(service.api_versions, REPAIR)) == 1
    assert [words.split()[0] for words in lacking(service.api_versions, EXACTLY_ONCE)] == missing


def checked(service: Service, folder: Path, *more: str) -> int:
    """Run `pykafka check` with what docs/compatibility.md names for the service; return its exit status."""
    ca = Authority()
    secured = {"identity": ca.issue("broker"), "password": "secret"} if service.username else {}
    (folder / "ca.pem").write_text(ca.certificate)
    (folder / "preset.conf").write_text(
        (ROOT / "conf" / "event-hubs.conf").read_text() + "kafka.sasl.password = secret"
    )
    with ServiceDouble(service, **secured) as double:
        double.create_topic("orders", 2)
        words = ["--bootstrap-servers", double.bootstrap_servers, "--topic", "orders", *more]
        if service.username:
            words += ["--preset", str(folder / "preset.conf")]
            words += ["--option", f"kafka.ssl.truststore.location={folder / 'ca.pem'}"]
        return main(words)


@pytest.mark.parametrize(("service", "missing"), MISSING, ids=name_of)
def test_check_lets_at_least_once_pass_and_names_what_exactly_once_lacks(
    service: Service, missing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(service, tmp_path) == 0
    assert "FAILED" not in capsys.readouterr().out
    assert checked(service, tmp_path, *EXACTLY_ONCE_OPTIONS) == (1 if missing else 0)
    out = capsys.readouterr().out
    assert all(name in out for name in missing)
    assert ("deliveryGuarantee=at-least-once" in " ".join(out.split())) == bool(missing)
