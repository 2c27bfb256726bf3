"""Real-world `client.properties`, as vendors' and Kafka's own documentation print them, with passwords made up.

Each file has an expected result when its lines are used as `kafka.` options. None: it works unchanged. Otherwise, line
by line: the option that the error message must name. The test then changes that line to `instead` (None: removes it)
and tries again until all lines work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SECRET = "canary-77b1"


@dataclass(frozen=True, slots=True)
class ClientProperties:
    name: str
    text: str
    instead: Mapping[str, str | None] = field(default_factory=dict)


def read_properties(text: str) -> dict[str, str]:
    """Keys and values of a .properties file, its continued lines joined. Escapes stay as they are."""
    lines = text.replace("\\\n", "").splitlines()
    pairs = (line.partition("=") for line in map(str.strip, lines) if line and line[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


CONFLUENT_CLOUD = ClientProperties(
    "Confluent Cloud",
    f"""\
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-4nym6.us-east-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='ABCDEF' password='{SECRET}';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
# Best practice for Kafka producer to prevent data loss
acks=all
""",
)
SCRAM_WITH_JKS = ClientProperties(
    "SCRAM over TLS with a Java truststore",
    f"""\
bootstrap.servers=broker1.example.com:9094,broker2.example.com:9094
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="alice" \\
  password="{SECRET}";
ssl.truststore.location=/var/private/ssl/kafka.client.truststore.jks
ssl.truststore.password={SECRET}
""",
)
MUTUAL_TLS_WITH_JKS = ClientProperties(
    "mutual TLS as in Kafka's documentation",
    f"""\
bootstrap.servers=kafka:9093
security.protocol=SSL
ssl.truststore.location=/var/private/ssl/client.truststore.jks
ssl.truststore.password={SECRET}
ssl.keystore.location=/var/private/ssl/client.keystore.p12
ssl.keystore.type=PKCS12
ssl.keystore.password={SECRET}
ssl.key.password={SECRET}
ssl.enabled.protocols=TLSv1.2,TLSv1.1,TLSv1
ssl.cipher.suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
""",
    {"kafka.ssl.enabled.protocols": "TLSv1.2", "kafka.ssl.cipher.suites": None},
)
MUTUAL_TLS_WITH_PEM = ClientProperties(
    "mutual TLS with PEM in the file (KIP-651)",
    f"""\
bootstrap.servers=kafka:9093
security.protocol=SSL
ssl.protocol=TLSv1.3
ssl.truststore.type=PEM
ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\\n\\
MIIBmTCCAUCgAwIBAgIUQfPp\\n\\
-----END CERTIFICATE-----
ssl.keystore.type=PEM
ssl.keystore.certificate.chain=-----BEGIN CERTIFICATE-----\\nMIIBmTCCAUCgAwIBAgIUQfPp\\n-----END CERTIFICATE-----
ssl.keystore.key=-----BEGIN ENCRYPTED PRIVATE KEY-----\\n{SECRET}\\n-----END ENCRYPTED PRIVATE KEY-----
ssl.key.password={SECRET}
ssl.endpoint.identification.algorithm=
""",
)
STRIMZI_SCRAM = ClientProperties(
    "a Strimzi user with a PEM truststore",
    f"""\
bootstrap.servers = my-cluster-kafka-bootstrap:9093
security.protocol = SASL_SSL
sasl.mechanism = SCRAM-SHA-512
sasl.jaas.config = org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="{SECRET}";
ssl.truststore.type = PEM
ssl.truststore.location = /opt/kafka/ca.crt
""",
)
EVENT_HUBS = ClientProperties(
    "Azure Event Hubs",
    f"""\
bootstrap.servers=mynamespace.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \
password="Endpoint=sb://mynamespace.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey={SECRET}=";
""",
)
DATABRICKS = ClientProperties(
    "Kafka options on Databricks, whose Kafka is shaded",
    f"""\
bootstrap.servers=kafka:9093
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required \
username="alice" password="{SECRET}";
""",
    {"kafka.security.protocol": "SASL_SSL"},
)
OAUTH = ClientProperties(
    "client credentials as in Kafka's documentation (KIP-768)",
    f"""\
bootstrap.servers=kafka:9093
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler
sasl.login.connect.timeout.ms=15000
sasl.oauthbearer.token.endpoint.url=https://example.okta.com/oauth2/default/v1/token
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
  clientId="jdoe" \\
  clientSecret="{SECRET}" \\
  scope="my-application-scope" ;
""",
    {"kafka.sasl.login.callback.handler.class": None, "kafka.sasl.login.connect.timeout.ms": None},
)
OAUTH_OF_4_1 = ClientProperties(
    "client credentials as options (KIP-1139)",
    f"""\
bootstrap.servers=kafka:9093
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever
sasl.oauthbearer.client.credentials.client.id=jdoe
sasl.oauthbearer.client.credentials.client.secret={SECRET}
sasl.oauthbearer.scope=my-application-scope
sasl.oauthbearer.token.endpoint.url=http://idp.internal/token
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;
""",
    {"kafka.sasl.oauthbearer.jwt.retriever.class": None, "kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/"},
)
MSK_IAM = ClientProperties(
    "AWS MSK with IAM",
    """\
bootstrap.servers=b-1.mycluster.abcde.c2.kafka.us-east-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
)
MSK_IAM_BY_ROLE = ClientProperties(
    "AWS MSK with IAM, a role, and the classes of Databricks",
    f"""\
bootstrap.servers=boot-abcde.c1.kafka-serverless.us-east-1.amazonaws.com:9098
security.protocol=SASL_SSL
sasl.mechanism=AWS_MSK_IAM
sasl.jaas.config=shadedmskiam.software.amazon.msk.auth.iam.IAMLoginModule required \\
  awsRoleArn="arn:aws:iam::123456789012:role/msk" awsRoleSessionName="producer" awsStsRegion="us-east-1" \\
  awsRoleExternalId="{SECRET}" awsAddDefaultProviders="false" awsDebugCreds=true awsMaxRetries="7";
sasl.client.callback.handler.class=shadedmskiam.software.amazon.msk.auth.iam.IAMClientCallbackHandler
""",
)
KERBEROS = ClientProperties(
    "Kerberos as in Kafka's documentation",
    """\
bootstrap.servers=kafka:9093
security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \\
    useKeyTab=true \\
    storeKey=true  \\
    keyTab="/etc/security/keytabs/kafka_client.keytab" \\
    principal="kafka-client-1@EXAMPLE.COM";
""",
)

FILES = (
    CONFLUENT_CLOUD, SCRAM_WITH_JKS, MUTUAL_TLS_WITH_JKS, MUTUAL_TLS_WITH_PEM, STRIMZI_SCRAM, EVENT_HUBS, DATABRICKS,
    OAUTH, OAUTH_OF_4_1, MSK_IAM, MSK_IAM_BY_ROLE, KERBEROS,
)  # fmt: skip
