"""How to convert a Java keystore or truststore to PEM, which this sink reads."""

from __future__ import annotations

from kafka_sink.text.quoting import shell_command
from kafka_sink.text.redaction import redacted


def java_store(option: str, location: str, store_type: str) -> str:
    """Return what to do with the Java keystore or truststore that `option` names."""
    return f"it is a {store_type} store, and this sink reads PEM. {conversion(option, location, store_type)}"


def conversion(option: str, location: str, store_type: str) -> str:
    """Return the commands that convert it to PEM, and the options to set then."""
    location = redacted(location)
    pem = f"{location.rsplit('.', 1)[0]}.pem"
    pkcs12, steps = location, ""
    if store_type == "JKS":
        pkcs12 = f"{location}.p12"
        stores = {"-srckeystore": location, "-destkeystore": pkcs12, "-deststoretype": "PKCS12"}
        steps = f"{shell_command('keytool -importkeystore', stores)} && "
    files: dict[str, str | None] = {"-in": pkcs12, "-out": pem}
    no_keys: dict[str, str | None] = {"-nokeys": None} if "truststore" in option else {}
    store = option.rpartition(".")[0]
    return (
        f"Convert it: {steps}{shell_command('openssl pkcs12', files | no_keys)}, then set {option}={pem} and "
        f"{store}.type=PEM, and remove {store}.password."
    )
