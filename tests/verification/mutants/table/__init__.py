"""The mutants: mistakes that a Kafka producer can be made with, each of which breaks a rule that is written down.

`make mutation` makes mistakes by rule where nobody thought of one; these are the ones that must never come back.
"""

from __future__ import annotations

from mutants.mutant import Mutant
from mutants.table.bootstrap import BOOTSTRAP
from mutants.table.clusters import CLUSTERS
from mutants.table.commit import COMMIT
from mutants.table.decoding import DECODING
from mutants.table.fetching import FETCHING
from mutants.table.history import FROM_HISTORY
from mutants.table.hostile import HOSTILE
from mutants.table.network import NETWORK
from mutants.table.operators import OPERATORS
from mutants.table.outages import OUTAGES
from mutants.table.peers import PEERS
from mutants.table.plan import PLAN
from mutants.table.producer import PRODUCER
from mutants.table.reading import READING
from mutants.table.records import RECORDS
from mutants.table.releases import RELEASES
from mutants.table.resources import RESOURCES
from mutants.table.rows import ROWS
from mutants.table.security import SECURITY
from mutants.table.streaming import STREAMING
from mutants.table.task import TASK
from mutants.table.versions import VERSIONS
from mutants.table.went_back import WENT_BACK

__all__ = ["FROM_HISTORY", "MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (
    *FROM_HISTORY,
    *PRODUCER,
    *RECORDS,
    *DECODING,
    *FETCHING,
    *READING,
    *OUTAGES,
    *STREAMING,
    *NETWORK,
    *BOOTSTRAP,
    *CLUSTERS,
    *RESOURCES,
    *SECURITY,
    *PEERS,
    *HOSTILE,
    *PLAN,
    *TASK,
    *COMMIT,
    *RELEASES,
    *VERSIONS,
    *WENT_BACK,
    *OPERATORS,
    *ROWS,
)
