"""Compiles the modules of the pyspark that this Python imports, once, so that Spark's Python workers start faster.

Spark starts each worker with an archive of pyspark's sources, and each worker compiles them anew, for 0.4 s of CPU. The
compiled modules come to their sources in the archive. Only this environment's Python takes them. After `pip install` of
another pyspark run the command again. A second call changes nothing.

examples:
    pykafka warm
    RUN pip install 'pyspark-pykafka[spark]' && pykafka warm
    pykafka warm --undo

exit status: 0 done; 1 there is no archive, or it cannot be written; 2 wrong usage
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from kafka_sink.command_line import parser_of, say, tell
from kafka_sink.doctor.interpreter import compile_archive, own_archives, strip_archive

OK, NOT_DONE = 0, 1


def main(arguments: Sequence[str] | None = None) -> int:
    made = parser_of(__doc__, "pykafka warm")
    made.add_argument("--undo", action="store_true", help="remove the compiled modules, while no Spark runs")
    undo = made.parse_args(arguments).undo
    archives = own_archives()
    if not archives:
        return say("this Python finds no pyspark that has archives in python/lib: nothing to do.", NOT_DONE)
    foreign = _foreign_home(archives[0])
    if foreign is not None:
        return say(
            f"SPARK_HOME is {foreign}, which is not the pyspark of this Python: its workers would not take these "
            "modules. Nothing was changed. Unset SPARK_HOME, if pip's pyspark is what you run.",
            NOT_DONE,
        )
    for archive in archives:
        try:
            count = (strip_archive if undo else compile_archive)(archive)
        except (OSError, zipfile.BadZipFile) as failure:
            return say(f"{archive} was not changed: {failure}", NOT_DONE)
        tell(f"{archive}: {_result(count, undo)}")
    return OK


def _result(count: int, undo: bool) -> str:
    if undo:
        return f"{count} compiled modules removed"
    return f"{count} modules compiled" if count else "compiled already"


def _foreign_home(archive: Path) -> str | None:
    """Return SPARK_HOME, if `archive` is not of it."""
    home = os.environ.get("SPARK_HOME")
    if not home or Path(home).resolve() == archive.resolve().parents[2]:
        return None
    return home
