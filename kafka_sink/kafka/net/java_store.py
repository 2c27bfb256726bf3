"""How to convert a keystore or truststore that this sink does not read into one that it reads."""

from __future__ import annotations

from kafka_sink.errors.quoting import shell_command
from kafka_sink.errors.redaction import redacted

EXTRA = "pip install 'pyspark-pykafka[keystores]'"


def as_pem(option: str, location: str) -> str:
    """Return the command that converts a PKCS12 store to PEM, and the options to set then."""
    location = redacted(location)
    pem = f"{location.rsplit('.', 1)[0]}.pem"
    files: dict[str, str | None] = {"-in": location, "-out": pem}
    no_keys: dict[str, str | None] = {"-nokeys": None} if "truststore" in option else {}
    store = option.rpartition(".")[0]
    return (
        f"{shell_command('openssl pkcs12', files | no_keys)}, then set {option}={pem} and remove {store}.type and "
        f"{store}.password"
    )


def as_pkcs12(option: str, location: str, store_type: str) -> str:
    """Return the command that converts any Java store to PKCS12, and the options to set then."""
    location = redacted(location)
    pkcs12 = f"{location}.p12"
    stores = {"-srckeystore": location, "-srcstoretype": store_type, "-destkeystore": pkcs12}
    command = shell_command("keytool -importkeystore", {**stores, "-deststoretype": "PKCS12"})
    provider = "" if store_type == "JCEKS" else ", with -providerpath and -providerclass of BouncyCastle"
    return f"{command}{provider}, then set {option}={pkcs12} and {option.rpartition('.')[0]}.type=PKCS12"
