"""The options of a write and of a read: their tables, the parsing of their texts, and the configuration made of them.

`table.py` has the options of a write and `reading.py` those of a read. `kinds.py` has the texts that options take, and
`bounds.py` and `java_pattern.py` those of reads. `config.py` makes the configuration of a write and has the values that
exclude each other. `cautions.py` warns of valid options that protect less than others.
"""
