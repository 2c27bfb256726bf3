"""The "pykafka" data source, which Spark's driver and executors call.

source, writes, writer, reading/    what Spark calls: the format, its writers and readers
exactly_once/                       the guarantee exactly-once; at-least-once is in writer
task, rows, task_results, limits    a task: its rows, its message, limits for bad rows and for the rate
interceptors, interceptor_chain     users' code that sees the rows
receipt_writer, tally, session      the driver: the receipt file, sums of finished tasks, the session
validation, interpreters            checks before a write: `kafka_sink.validate`, `pykafka check`
created_topic, duplicates, daemon   createTopics, `kafka_sink.dedupe`, the fork server
"""
