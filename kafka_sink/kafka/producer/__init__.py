"""The producer: rows that have a partition become acknowledged record batches.

    RoutedRows -> RecordAccumulator (BufferPool, a queue of ProducerBatch a partition)
                      -> Sender (sequences, retries, metadata) -> a network that is handed in

Pure: no sockets, no threads, no clock. Time and randomness are arguments, the lock that the writer's thread and the
Sender's thread share is handed in, and waiting is the business of `kafka_sink.kafka.client`.
"""
