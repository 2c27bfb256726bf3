"""Every request and answer of the protocol under one name, for tests that need many of them."""

# ruff: noqa: F403
from kafka_sink.kafka.protocol.api import *
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import *
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import *
from kafka_sink.kafka.protocol.apis.api_versions import *
from kafka_sink.kafka.protocol.apis.create_topics import *
from kafka_sink.kafka.protocol.apis.delete_groups import *
from kafka_sink.kafka.protocol.apis.describe_configs import *
from kafka_sink.kafka.protocol.apis.describe_groups import *
from kafka_sink.kafka.protocol.apis.describe_producers import *
from kafka_sink.kafka.protocol.apis.describe_transactions import *
from kafka_sink.kafka.protocol.apis.end_txn import *
from kafka_sink.kafka.protocol.apis.fetch import *
from kafka_sink.kafka.protocol.apis.find_coordinator import *
from kafka_sink.kafka.protocol.apis.init_producer_id import *
from kafka_sink.kafka.protocol.apis.list_offsets import *
from kafka_sink.kafka.protocol.apis.list_transactions import *
from kafka_sink.kafka.protocol.apis.metadata import *
from kafka_sink.kafka.protocol.apis.offset_commit import *
from kafka_sink.kafka.protocol.apis.offset_fetch import *
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import *
from kafka_sink.kafka.protocol.apis.produce import *
from kafka_sink.kafka.protocol.apis.sasl_authenticate import *
from kafka_sink.kafka.protocol.apis.sasl_handshake import *
from kafka_sink.kafka.protocol.apis.txn_offset_commit import *
from kafka_sink.kafka.protocol.apis.write_txn_markers import *
