"""Makes tokens of the AWS credentials that this host has, for the cluster's region."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from kafka_sink.errors import TokenUnavailable
from kafka_sink.kafka.auth import aws_credentials
from kafka_sink.kafka.auth.aws_credentials import Chain, IamLogin, Missing, find, region_of
from kafka_sink.kafka.auth.botocore_chain import installed

# The longest that brokers accept.
MAX_LIFETIME_S = 900
MECHANISM = "AWS_MSK_IAM"
IF_REFUSED = (
    "check that the policy of these credentials allows kafka-cluster:Connect, that the region is the cluster's, and "
    "that the clock of this host is right (the time of signing is UTC); on too many connects, start fewer tasks at once"
)
_EXPIRED = "renew them, and check that this host's clock is right (UTC)"


class MskIamSigner:
    """`hosts`: those of the bootstrap servers. `environment`: os.environ, read again for each token."""

    def __init__(
        self,
        login: IamLogin,
        hosts: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        wall_clock_s: Callable[[], float],
        user_agent: str,
        chain: Callable[[], Chain | None] = installed,
    ) -> None:
        self._login = login
        self._hosts = hosts
        self._environment = environment
        self._wall_clock_s = wall_clock_s
        self._user_agent = user_agent
        self._find_chain = chain
        self._chain: Chain | None = None
        # The words by which messages name the client. They show no credential, but what a refusal may be due to.
        self.described = ""

    def fetch(self) -> tuple[str, float]:
        """Return a token and its lifetime in seconds: 900, or less if the credentials expire earlier. Raises
        TokenUnavailable."""
        try:
            return self._signed()
        except Missing as missing:
            reason, advice = missing.reason, missing.advice
        raise TokenUnavailable(source="AWS credentials", reason=reason, mechanism=MECHANISM, advice=advice)

    def _signed(self) -> tuple[str, float]:
        region = region_of(self._hosts, self._login.profile, self._environment)
        found = find(self._login, region, self._environment, self._wall_clock_s(), self._kept_chain)
        now_s = self._wall_clock_s()
        # The URL's time has whole seconds.
        signed_at_s = math.floor(now_s)
        expires_s = math.floor(min(MAX_LIFETIME_S, MAX_LIFETIME_S if found.remaining_s is None else found.remaining_s))
        if expires_s - (now_s - signed_at_s) <= 0:
            raise Missing(f"those of {found.source} have expired", _EXPIRED)
        token = aws_credentials.token(
            found.keys, region, signed_at_s=signed_at_s, expires_s=expires_s, user_agent=self._user_agent
        )
        self.described = f"{found.source}, signed for {region} at {aws_credentials.moment(signed_at_s)}"
        return token, signed_at_s + expires_s - now_s

    def _kept_chain(self) -> Chain | None:
        if self._chain is None:
            self._chain = self._find_chain()
        return self._chain
