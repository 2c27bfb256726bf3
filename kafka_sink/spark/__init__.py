"""The "pykafka" data source, which Spark's driver and executors call.

    source, writes, writer, reading/    what Spark calls: the format, its writers and readers
    exactly_once/                       the steps of exactly-once; those of at-least-once are in writer and rows
    task, rows, task_results, limits    a task: its rows, its message, limits for bad rows and for the rate
    interceptors, interceptor_chain     users' code that sees the rows
    kept_clients                        the clients that a worker process keeps from task to task
    receipt_writer, tally, session      the driver: the receipt file, sums of finished tasks, the session
    validation, interpreters            checks before a write: `kafka_sink.validate`, `pykafka check`
    created_topic, duplicates, daemon   createTopics, `kafka_sink.dedupe`, the fork server

Each process of a query imports what it needs: an import inside a function is one that other processes do without.
"""
