"""A micro-batch of which there is something to tell of everything."""

from kafka_sink.monitoring.micro_batch import BadRows, MicroBatch, Read, ReadTotals, Totals, Written

A_MICRO_BATCH = MicroBatch(
    query="orders", batch_id=3, input_row_count=40, duration_ms=1_500, write_ms=1_000, ended_s=1_700_000_000.0,
    written=Written(
        {"t": Totals(20, 2, 500, 7), "u": Totals(10, 1, 100)},
        {BadRows("dropped", "KeyNull"): 3, BadRows("dead_lettered", "TopicNull"): 2},
        throttled_ms=250,
    ),
    read=Read({"in": ReadTotals(40, 900, 6)}), lag={"0": 5_000}, broken_logs={"0": 2},
    source_metrics={"0": {"avgOffsetsBehindLatest": "2500.5", "maxOffsetsBehindLatest": "5000"}},
)  # fmt: skip
