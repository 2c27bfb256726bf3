"""The commands of `pykafka`, one module for each: check, explain, read, transactions, verify, versions, warm.

`stuck.py` is what `check --checkpoint` adds. `checkpoint.py` says how far a query's checkpoint and its sources are.
`verification/` has what `verify` compares and the client that reads, which shares no code with the sink.
`transactions_text.py` and `transactions_json.py` are what `transactions` prints.
"""
