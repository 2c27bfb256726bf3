"""Every request and answer of the protocol under one name, for tests that need many of them."""

# ruff: noqa: F403
from kafka_sink.kafka.protocol.api import *
from kafka_sink.kafka.protocol.apis.fetch import *
from kafka_sink.kafka.protocol.apis.groups import *
from kafka_sink.kafka.protocol.apis.handshake import *
from kafka_sink.kafka.protocol.apis.metadata import *
from kafka_sink.kafka.protocol.apis.offsets import *
from kafka_sink.kafka.protocol.apis.produce import *
from kafka_sink.kafka.protocol.apis.topics import *
from kafka_sink.kafka.protocol.apis.transaction_state import *
from kafka_sink.kafka.protocol.apis.transactions import *
