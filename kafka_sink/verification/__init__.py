"""What was written compared with what is there: receipts on one side, a consumer that shares no code with the sink on
the other.

    receipts.py   the runs that receipt files tell of, and the numbers that have none
    encoding.py   records as a consumer shows them -> the checksum that their run had
    checking.py   one partition's runs against its records: what is missing, what is altered, what cannot be told
    cluster.py    the consumer: which records there are, and why others are not

`kafka_sink/cli/verify.py` is the command.
"""
