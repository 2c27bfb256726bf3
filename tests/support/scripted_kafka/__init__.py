"""The only scripted fake of Kafka: brokers that answer by a script, and the seams at which code meets them.

    ScriptedKafka    the cluster's state, the requests it received, and its answers by API
    ScriptedNetwork  the seam of `NetworkClient`, in virtual time: requests and answers are objects
    LiveNetwork      the same for code with threads, in real time
    ByteScript       what a broker answers on one connection, in kio's bytes: behind a `scripted` socket
    ScriptedTransport  the seam of `Transport`: connections that do what a test says

`connect_clients` and `connect_producers` have the shipped clients talk to them. A test that needs Kafka's own rules
runs over a model (`tests/verification/model`), or gives the scripted brokers one to answer for their transactions.
"""

from scripted_kafka.kafka import HANG_UP, ScriptedKafka
from scripted_kafka.live import LiveNetwork, connect_clients, connect_producers
from scripted_kafka.network import ScriptedNetwork, Sent
from scripted_kafka.sockets import ByteScript, advertises, scripted
from scripted_kafka.transport import ScriptedTransport

__all__ = [
    "HANG_UP", "ByteScript", "LiveNetwork", "ScriptedKafka", "ScriptedNetwork", "ScriptedTransport", "Sent",
    "advertises", "connect_clients", "connect_producers", "scripted",
]  # fmt: skip
