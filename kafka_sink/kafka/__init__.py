"""A Kafka client that could stand alone: it contains nothing of Spark, of the sink's options or of the doctor.

    write.py, client.py     the producer as a task uses it: one thread sends, a lock, a wait with a deadline
    reader.py               the consumer as a task uses it
       |  producer/         RecordAccumulator + BufferPool -> Sender: sequences, acks, retries (pure)
       |  consumer/         fetches a range of a partition, or many together (pure)
       |  admin/            every request that is neither produce nor fetch
       v
    coordinators.py         who serves a transactional id or group; metadata.py: who leads a partition (pure)
    protocol/               requests and responses, framing, correlation ids (pure)
       v
    net/                    NetworkClient over a Selector: connections, in-flight limits, timeouts

`config.py` configures it; `auth/` authenticates it. `reader.py` and `consumer/` are the
side that reads, and `coordinators.py` finds who serves a transaction or a group.
"""
