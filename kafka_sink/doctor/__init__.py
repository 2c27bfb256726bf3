"""The doctor checks step by step, from DNS to ACLs, why a write would fail. It writes no row, and proposes fixes.

examinations.py          the steps of a write and of a read
engine.py                the hosts, the requests to them, and what they take
dialogue.py              one connection to one host
connection_failures.py   the findings of a connection
findings.py              the findings of the cluster, the topic and the permissions
interpreter.py           the Python processes of a write
report.py                all verdicts as a table, and the steps
"""
