"""The commands of `pykafka`, one module for each: check, explain, read, transactions, verify, versions, warm.

`stuck.py` is what `check --checkpoint` adds. `checkpoint.py` says how far a query's checkpoint and its sources are.
`transactions_text.py` and `transactions_json.py` are what `transactions` prints.
"""
