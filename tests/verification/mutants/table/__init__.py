"""The mutants: mistakes that a Kafka producer can be made with, each of which breaks a rule that is written down.

`make mutation` makes mistakes by rule where nobody thought of one; these are the ones that must never come back.
"""

from mutants.mutant import Mutant
from mutants.table.commit import COMMIT
from mutants.table.decoding import DECODING
from mutants.table.fetching import FETCHING
from mutants.table.history import FROM_HISTORY
from mutants.table.hostile import HOSTILE
from mutants.table.network import NETWORK
from mutants.table.producer import PRODUCER
from mutants.table.reading import READING
from mutants.table.security import SECURITY
from mutants.table.streaming import STREAMING

__all__ = ["FROM_HISTORY", "MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (
    *FROM_HISTORY, *PRODUCER, *DECODING, *FETCHING, *READING, *STREAMING, *NETWORK, *SECURITY, *HOSTILE, *COMMIT,
)  # fmt: skip
