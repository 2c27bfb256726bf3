"""The mutants: mistakes that a Kafka producer can be made with, each of which breaks a rule that is written down.

`make mutation` makes mistakes by rule where nobody thought of one; these are the ones that must never come back.
"""

from mutants.mutant import Mutant
from mutants.table.commit import COMMIT
from mutants.table.producer import FROM_HISTORY, PRODUCER
from mutants.table.reading import READING
from mutants.table.security import SECURITY
from mutants.table.starts import STARTS

__all__ = ["FROM_HISTORY", "MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (*FROM_HISTORY, *PRODUCER, *READING, *STARTS, *SECURITY, *COMMIT)
