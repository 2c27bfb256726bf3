"""Exactly-once streams whose checkpoints are on another file system than the host's: one name, however the location is
spelled. The file system is Hadoop's viewfs, which has a folder of this host under a name of its own."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import kafka_sink
from broker_admin import read
from exactly_once_runs import ROWS_A_FILE, add_file, run_in
from kafka_sink.commit.stream_name import plain_name, query_name, spelled_name
from kafka_sink.errors import AnotherName
from spark_writes import Here, with_conf

pytestmark = pytest.mark.long

MOUNTED = "viewfs://cluster/data"
FIRST, BOTH = Counter(range(ROWS_A_FILE)), Counter(range(2 * ROWS_A_FILE))


@pytest.fixture
def work(here: Here) -> Iterator[Path]:
    """A folder with the first file of a stream's, and `data`, which Spark has as MOUNTED."""
    (here.folder / "incoming").mkdir()
    (here.folder / "data").mkdir()
    add_file(here.folder / "incoming", 0)
    with with_conf(here.spark, "fs.viewfs.mounttable.cluster.link./data", (here.folder / "data").as_uri()):
        yield here.folder


def run(here: Here, topic: str, checkpoint: str, *options: str) -> None:
    """The stream until all files are written, named by its checkpoint."""
    run_in(here.spark, here.kafka, topic, here.folder / "incoming", checkpoint, *options, "--derived-name")


def forget_commits(work: Path, checkpoint: str) -> None:
    """As after a driver that was killed between the sink's commit of micro-batch 0 and Spark's."""
    shutil.rmtree(work / "data" / checkpoint / "commits")


@pytest.mark.parametrize("folder", ["plain", "ein Pfad mit %20, [1] und ü"])
def test_a_stream_goes_on_however_its_location_is_spelled(here: Here, work: Path, folder: str) -> None:
    """With micro-batch 0 unrecorded each time: it would be written again under another name."""
    topic = here.topic(1)
    run(here, topic, f"{MOUNTED}/{folder}/")
    for spelled in (f"{MOUNTED}/{folder}", f"{MOUNTED}//./x/..//{folder}/"):
        forget_commits(work, folder)
        run(here, topic, spelled)
        assert read(here.kafka, topic) == FIRST
    add_file(work / "incoming", 1)
    run(here, topic, f"{MOUNTED}/{folder}/.")
    assert read(here.kafka, topic) == BOTH


def test_a_spelling_that_only_hadoop_understands_stops_the_stream(here: Here, work: Path) -> None:
    topic, elsewhere, local = here.topic(1), f"{MOUNTED}/checkpoint", str(work / "data" / "checkpoint")
    run(here, topic, elsewhere)
    forget_commits(work, "checkpoint")
    for _ in range(2):
        with pytest.raises(StreamingQueryException) as raised:
            run(here, topic, local)
        error = kafka_sink.error_of(raised.value)
        assert isinstance(error, AnotherName)
        assert (error.sink, error.found_sink) == (query_name(error.query_id), plain_name(elsewhere))
        assert read(here.kafka, topic) == FIRST
    # As it says.
    run(here, topic, local, f"transactionalIdPrefix={error.found_sink}")
    add_file(work / "incoming", 1)
    run(here, topic, elsewhere)
    assert read(here.kafka, topic) == BOTH


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_stream_of_an_earlier_build_keeps_the_name_of_its_spelling(here: Here, work: Path, is_recorded: bool) -> None:
    topic, location = here.topic(1), f"{MOUNTED}//checkpoint/"
    run(here, topic, location, f"transactionalIdPrefix={spelled_name(location)}")
    if not is_recorded:
        forget_commits(work, "checkpoint")
        run(here, topic, location)
        assert read(here.kafka, topic) == FIRST
    add_file(work / "incoming", 1)
    run(here, topic, location)
    assert read(here.kafka, topic) == BOTH


def test_a_local_path_with_a_colon_is_local(here: Here, work: Path) -> None:
    topic, checkpoint = here.topic(1), work / "10:00" / "checkpoint"
    run(here, topic, str(checkpoint))
    shutil.rmtree(checkpoint / "commits")
    run(here, topic, f"file:{checkpoint}/")
    assert read(here.kafka, topic) == FIRST
