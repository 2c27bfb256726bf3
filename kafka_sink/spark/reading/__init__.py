"""Reads Kafka for Spark: which ranges of offsets, in how many tasks, and the rows of each.

reads          options ─> columns, and the reader that Spark gets
batch_reader   a batch: Spark plans it once. `executions`: what a later action reads by the same plan
plan           topics and partitions (`topics`) ─> offsets (`positions`) ─> filters ─> ranges
divide         ranges ─> tasks
range_reader   a task: ranges ─> Arrow batches

stream_reader  a stream: Spark plans each micro-batch
stream_plan    where the stream begins ─> where the micro-batch ends ─> ranges
stream_logs    what is known of the logs from one look to the next
continuity     do the logs go on where the stream has read to? What is lost?
"""
