"""The commit of a micro-batch: Spark's tasks write it in transactions, and another process commits them.

    two_phase                      the steps, without I/O; runner carries them out
    requests, markers, handover    their requests, the state in Kafka, and what the processes pass on
    replay, went_back, hanging     checks: rows that may follow, lost state of brokers, hanging transactions
    commit_topic, stream_name, first_name    what a sink needs before its first step or decision
    open_transactions              `pykafka transactions`

docs/design/exactly-once.md explains the protocol.
"""
