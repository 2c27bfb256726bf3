"""The commit of a micro-batch: Spark's tasks write it in transactions, and another process commits them."""
