"""A Kafka client that could stand alone: it contains nothing of Spark, of the sink's options or of the doctor.

    client.py, write.py     the producer as a task uses it: one thread sends, a lock, a wait with a deadline
       |  producer/         RecordAccumulator + BufferPool -> Sender: sequences, acks, retries (pure)
       |  admin/            every request that is not producing
       v
    protocol/               requests and responses, framing, correlation ids (pure)
       v
    net/                    NetworkClient over a Selector: connections, in-flight limits, timeouts

`config.py` configures it; `auth/` authenticates it. `reader.py` and `consumer/` are the
side that reads, and `coordinators.py` finds who serves a transaction or a group.
"""
