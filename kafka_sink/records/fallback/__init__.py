"""The work per row without a compiler, in Python and numpy. kernel.py imports it where the compiled kernel is missing.

    encoder.py     order of rows, sizes, and records
    decoder.py     record batches to Arrow columns
    row_hashes.py  what a fingerprint adds up

The same bytes, rows and faults as those of `_kernel.c` and `_decoder.c`; compiled.py and kernel.py describe functions
that have no docstring here.
"""
