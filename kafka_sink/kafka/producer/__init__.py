"""The producer: turns rows that have a partition into acknowledged record batches.

    RoutedRows -> RecordAccumulator (BufferPool, a queue of ProducerBatch a partition)
                      -> Sender (sequences, retries, metadata) -> a network that is passed in

Pure: no sockets, no threads, no clock. Time, randomness, and the lock that the writer's thread and the Sender's thread
share are passed in. `kafka_sink.kafka.client` does the waiting.
"""
