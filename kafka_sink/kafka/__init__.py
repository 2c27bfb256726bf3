"""A Kafka client that could stand alone: nothing of Spark, of the sink's options or of the doctor is in it.

    client.py, write.py     the producer as a task uses it: one thread sends, a lock, a wait with a deadline
       |  producer/         RecordAccumulator + BufferPool -> Sender: sequences, acks, retries (pure)
       |  admin/            every request that is not producing
       v
    protocol/               requests and responses, framing, correlation ids (pure)
       v
    net/                    NetworkClient over a Selector: connections, in-flight limits, timeouts

`config.py` is what it is made from; `security.py`, `oauth.py` and `jaas.py` are how it authenticates; `metrics.py` is
what it counts. A consumer's fetch side would stand beside `producer/`, as `fetch/`.
"""
