"""The commit of a micro-batch that Spark's tasks have written in transactions, by another process than theirs."""
