"""The one scripted fake of Kafka: brokers that answer by a script, and the seams at which code meets them.

    ScriptedKafka    what the cluster is, what it was asked, and what it answers, API by API
    ScriptedNetwork  the seam of `NetworkClient`, in virtual time: requests and answers are objects
    LiveNetwork      the same for code with threads, in real time

`connect_clients` and `connect_producers` have the shipped clients talk to them. A test that needs Kafka's own rules
runs over a model (`tests/verification/model`), or gives the scripted brokers one to answer for their transactions.
"""

from scripted_kafka.clients import connect_clients, connect_producers
from scripted_kafka.kafka import HANG_UP, ScriptedKafka
from scripted_kafka.live import LiveNetwork
from scripted_kafka.network import ScriptedNetwork, Sent

__all__ = ["HANG_UP", "LiveNetwork", "ScriptedKafka", "ScriptedNetwork", "Sent", "connect_clients", "connect_producers"]
