"""The relay: one process of an executor that has the connections to brokers of all its Python workers.

    worker: Producer, Sender, NetworkClient ──┐
    worker: Producer, Sender, NetworkClient ──┼── Unix socket ──> relay ── TCP, TLS, SASL ──> brokers
    worker: Producer, Sender, NetworkClient ──┘   rows in shared memory

Without it, each Python worker has connections of its own: an executor of 32 cores has 32 to each broker, where Spark's
JVM sink has one. The relay forwards requests and answers as bytes, and knows nothing of rows, producer ids,
transactions or retries. All of that stays in the workers, so a task that fails fails alone.

* `kafka/net/relay_search.py` (in a worker): finds the relay, or starts it
* `kafka/net/relay_transport.py` (in a worker): streams to brokers, over the relay
* `kafka/net/relay_wire.py`: the messages between the two
* `forwarder`: which stream goes over which connection (pure)
* `server`: the sockets of the workers
* `__main__`: `python -m kafka_sink.relay`, as a worker starts it
"""
