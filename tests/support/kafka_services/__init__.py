"""Strict doubles of services that speak Kafka's protocol and are no Apache Kafka.

    Service                     what a service offers, and the source of each line
    EVENT_HUBS_STANDARD, ...    the services
    ServiceDouble               a service as a real server: TCP, TLS, SASL, and Kafka's bytes

A double offers what the documents say, and nothing else: a version outside of the range, an API that the service does
not list, a codec, or a request above the limit is refused as the service refuses it. Behind that is the model of
brokers (`tests/verification/model`), which stores rows and executes transactions. Its table has only the APIs that a
writer sends: no double can be read by a consumer. `ServiceDouble.records` reads what was stored, by kafka-python.
"""

from kafka_services.server import Record, ServiceDouble
from kafka_services.service import EVENT_HUBS_PREMIUM, EVENT_HUBS_STANDARD, REDPANDA, WARPSTREAM, Service

__all__ = ["EVENT_HUBS_PREMIUM", "EVENT_HUBS_STANDARD", "REDPANDA", "WARPSTREAM", "Record", "Service", "ServiceDouble"]
