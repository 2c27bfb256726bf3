"""The region of a cluster, from names of hosts, the environment and the profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_sink.kafka.aws.missing import Missing
from kafka_sink.kafka.aws.region import region_in, region_of

CUSTOM = ("kafka.eu-west-1.example.com", "10.0.0.1", "localhost")


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("B-1.DEMO.xxxxxx.c2.kafka.EU-WEST-1.amazonaws.com.", "eu-west-1"),
        ("b-1-public.demo.xxxxxx.c2.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("boot-abcdef.c1.kafka-serverless.us-east-1.amazonaws.com", "us-east-1"),
        ("b-1.iam.demo.xxxxxx.c2.kafka.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.demo.xxxxxx.c2.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("vpce-0a1b-us-east-1a.vpce-svc-0a1b.us-east-1.vpce.amazonaws.com", "us-east-1"),
        # A cluster that is called like a region.
        ("b-1.us-west-2.xxxxxx.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("b-1.my-cluster-1.xxxxxx.c2.kafka.eu-west-1.amazonaws.com", "eu-west-1"),
        ("amazonaws.com", None),
        ("b-1.eu-west-1.notamazonaws.com", None),
        *((host, None) for host in CUSTOM),
    ],
)
def test_a_host_of_aws_shows_its_region(host: str, region: str | None) -> None:
    assert region_in(host) == region


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n[profile other]\nregion=sa-east-1\n")
    return {"AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none")}


def test_the_host_is_right_whatever_the_environment_says(environment: Mapping[str, str]) -> None:
    """The region of an application is often another one than that of its cluster."""
    hosts = (*CUSTOM, "b-1.demo.x.c2.kafka.eu-west-1.amazonaws.com")
    assert region_of(hosts, None, {**environment, "AWS_REGION": "us-east-1"}) == "eu-west-1"


def test_a_name_of_ones_own_leaves_it_to_the_environment_and_the_profile(environment: dict[str, str]) -> None:
    assert region_of(CUSTOM, None, environment) == "eu-north-1"
    assert region_of(CUSTOM, "other", environment) == "sa-east-1"
    environment["AWS_PROFILE"] = "other"
    assert region_of(CUSTOM, None, environment) == "sa-east-1"
    environment["AWS_DEFAULT_REGION"] = "us-west-1"
    assert region_of(CUSTOM, None, environment) == "us-west-1"
    environment["AWS_REGION"] = "us-west-2"
    assert region_of(CUSTOM, None, environment) == "us-west-2"


def test_no_region(environment: dict[str, str]) -> None:
    del environment["AWS_CONFIG_FILE"]
    environment["HOME"] = "/nonexistent"
    with pytest.raises(Missing, match="does not show the cluster's region") as missing:
        region_of(CUSTOM, None, environment)
    assert "spark.executorEnv.AWS_REGION" in missing.value.advice


@pytest.mark.parametrize("text", ["evil.example/?", "eu-west-1.evil.example", "EU-WEST-1", "eu-west-1\n", "Ireland"])
def test_what_is_no_region_reaches_no_url(environment: dict[str, str], text: str) -> None:
    with pytest.raises(Missing, match=r"AWS_REGION is .*, which is no region"):
        region_of(CUSTOM, None, {**environment, "AWS_REGION": text})
