"""The region of a cluster.

    b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com        eu-west-1
    boot-xxxxxxxx.c1.kafka-serverless.us-east-1.amazonaws.com
    vpce-0a1b-us-east-1a.vpce-svc-0a1b.us-east-1.vpce.amazonaws.com
    kafka.example.com                                       none: the environment or the profile names it

A name outside of AWS's domains may have anything in it, so no region is read from such a name.

Source: software.amazon.msk.auth.iam.internals.utils.RegionUtils, which looks for a region in the whole name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from kafka_sink.kafka.aws.files import profile, profile_name
from kafka_sink.kafka.aws.missing import Missing
from kafka_sink.text.quoting import quoted

_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")
_REGION = re.compile(r"[a-z]{2,6}(?:-[a-z]{2,12}){1,2}-[0-9]{1,2}")
VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


def region_of(hosts: Iterable[str], named_profile: str | None, environment: Mapping[str, str]) -> str:
    """Return the region of the first of `hosts` that shows one, else that of the environment, else that of the
    profile. Raises Missing."""
    for host in hosts:
        if (region := region_in(host)) is not None:
            return region
    settings = profile(named_profile or profile_name(environment), environment) or {}
    places = [(variable, environment.get(variable)) for variable in VARIABLES]
    for place, text in (*places, ("the profile's region", settings.get("region"))):
        if text and not _REGION.fullmatch(text):
            raise Missing(f"{place} is {quoted(text)!r}, which is no region", "set it to a region such as eu-west-1")
        if text:
            return text
    raise Missing(
        "kafka.bootstrap.servers does not show the cluster's region, and the environment has no AWS_REGION",
        "use the host names that MSK gives, or set AWS_REGION where the connection is made, on executors with "
        "spark.executorEnv.AWS_REGION",
    )


def region_in(host: str) -> str | None:
    """Return the region in a host name of AWS. A cluster's name may look like a region, so the last one counts."""
    name = host.lower().rstrip(".")
    if not name.endswith(_DOMAINS):
        return None
    return next(filter(_REGION.fullmatch, reversed(name.split("."))), None)
