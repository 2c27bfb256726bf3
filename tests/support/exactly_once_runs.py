"""Run `exactly_once_app.py`, and kill, stop or hold it at named steps of the two-phase commit."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar
from unittest.mock import patch

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import exactly_once_app
import processes
from kafka_sink.broker import LocalKafka
from kafka_sink.spark import kept_clients
from kafka_sink.spark.task_results import TaskCommitMessage
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from waiting import wait_until

SUPPORT = Path(__file__).parent
APP = "exactly_once_app.py"
HOOKS = Path(__file__).with_name("hooks")
DEADLINE_S = 280
FILES = 6
ROWS_A_FILE = 40
# Two files each.
MICRO_BATCHES = 3
ALL_ONCE = Counter(range(FILES * ROWS_A_FILE))
KILLED = -9


def incoming(folder: Path) -> Path:
    """Create FILES files, oldest first."""
    folder.mkdir()
    for file in range(FILES):
        add_file(folder, file)
    return folder


def add_file(folder: Path, file: int) -> None:
    arrived = folder / f"{file}.json"
    rows = range(file * ROWS_A_FILE, (file + 1) * ROWS_A_FILE)
    arrived.write_text("".join(f'{{"value": "{row}"}}\n' for row in rows))
    os.utime(arrived, (file, file))


def is_unrecorded(folder: Path, checkpoint: str = "checkpoint") -> None:
    """As after a driver that died between the sink's commit and Spark's."""
    commits = folder / checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / f"{last}").unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


class Run:
    """One run of the application, in its own process session. The end of `with` kills all its processes.

    `tmp_path` contains the folder `incoming`. The run writes the checkpoint (unless it is a URI) and the hook's files
    there; the names of the hook's files begin with `name`. `kill`: the processes to kill at `step`
    (`hooks/sitecustomize.py`). `holds`: steps at which the process waits for `go_on`. Without `hooked` there is no
    hook, and requests may go out together.
    `package`: a folder with another build of the package, which all processes of the run import.
    """

    def __init__(
        self, kafka: LocalKafka, topic: str, tmp_path: Path, *arguments: str, step: str = "", kill: str = "",
        holds: Sequence[str] = (), checkpoint: str = "checkpoint", name: str = "run", hooked: bool = True,
        package: Path | None = None, app: str = APP,
    ) -> None:  # fmt: skip
        self._said = tmp_path / f"{name}.out"
        self._gates = {step: tmp_path / f"{name}-hold-{number}" for number, step in enumerate(holds)}
        for gate in self._gates.values():
            os.mkfifo(gate)
        files = {"once": str(tmp_path / f"{name}-happened"), "log": str(tmp_path / f"{name}-requests")}
        hook = {"step": step, "kill": kill, **files, "holds": {step: str(gate) for step, gate in self._gates.items()}}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        environment |= {"PYKAFKA_HOOK": json.dumps(hook)} if hooked else {}
        paths = str(package) if package else None, str(HOOKS) if hooked else None, environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        location = checkpoint if "://" in checkpoint else str(tmp_path / checkpoint)
        folders = (str(tmp_path / "incoming"), location) if app == APP else ()
        command = [sys.executable, str(SUPPORT / app), kafka.bootstrap_servers, topic, *folders, *arguments]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                command, cwd=tmp_path, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.send_signal(signal.SIGKILL)
        self._process.wait()

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def end(self) -> tuple[int, str]:
        """Wait for the end; return the exit status and the output."""
        wait_until(lambda: self._process.poll() is not None, DEADLINE_S, "the application ends")
        assert self._process.returncode is not None
        return self._process.returncode, self.said

    def end_well(self) -> None:
        status, said = self.end()
        assert status == 0, said

    def send_signal(self, number: int) -> None:
        """Send the signal to all processes of the run."""
        processes.send_signal(processes.of_session(self._process.pid), number)

    def wait_until_held(self, step: str) -> None:
        reached = Path(f"{self._gates[step]}.reached")

        def there() -> bool:
            assert self._process.poll() is None, f"it ended before {step!r}\n{self.said}"
            return reached.exists()

        wait_until(there, DEADLINE_S, f"{step!r} is reached")

    def go_on(self, step: str) -> None:
        def opened() -> bool:
            try:
                os.close(os.open(self._gates[step], os.O_WRONLY | os.O_NONBLOCK))
            except OSError as error:
                assert error.errno == errno.ENXIO  # nobody reads yet
                return False
            return True

        wait_until(opened, DEADLINE_S, f"the process that is held at {step!r}")


def run(
    kafka: LocalKafka, topic: str, tmp_path: Path, step: str | None, *arguments: str, kill: str = "application",
    package: Path | None = None, app: str = APP,
) -> tuple[int, str]:  # fmt: skip
    """Run the application to its end; return its exit status and its output. `step`: where to kill it, "": nowhere, but
    with the hook; None: without."""
    hook = {"step": step or "", "kill": kill if step else ""}
    application = Run(kafka, topic, tmp_path, *arguments, **hook, hooked=step is not None, package=package, app=app)
    with application:
        return application.end()


def kill_at(
    step: str, kafka: LocalKafka, topic: str, tmp_path: Path, *arguments: str, package: Path | None = None,
    app: str = APP,
) -> None:  # fmt: skip
    """Run the application, over files that are made here, until it is killed at `step`, in which {sink} stands for the
    topic."""
    if app == APP:
        incoming(tmp_path / "incoming")
    status, said = run(kafka, topic, tmp_path, step.format(sink=topic), *arguments, package=package, app=app)
    assert status == KILLED, said


def go_on(
    spark: SparkSession, kafka: LocalKafka, topic: str, tmp_path: Path, *arguments: str, checkpoint: str = "checkpoint"
) -> None:
    """As `finish_run`, which must succeed."""
    status, said = finish_run(spark, kafka, topic, tmp_path, *arguments, checkpoint=checkpoint)
    assert status == 0, said


def finish_run(
    spark: SparkSession, kafka: LocalKafka, topic: str, tmp_path: Path, *arguments: str, checkpoint: str = "checkpoint"
) -> tuple[int, str]:
    """As `run` without a hook, in a running Spark: this is another driver too, and takes a tenth of the time."""
    try:
        run_in(spark, kafka, topic, tmp_path / "incoming", tmp_path / checkpoint, *arguments)
    except StreamingQueryException as error:
        return 1, str(error)
    return 0, ""


def run_in(
    spark: SparkSession, kafka: LocalKafka, topic: str, incoming: Path, checkpoint: object, *arguments: str
) -> None:
    """Run the stream to its end in a running Spark. Raises its error."""
    parsed = exactly_once_app.parse([kafka.bootstrap_servers, topic, str(incoming), str(checkpoint), *arguments])
    query = exactly_once_app.start(spark, parsed)
    try:
        assert query.awaitTermination(DEADLINE_S), "the query did not end in time"
    finally:
        query.stop()


QUERY_ID = "5a0d0a5e-98a3-4f5c-9d3a-2a5d2fb0a8f1"


@contextmanager
def in_task(slot: int, micro_batch_id: int) -> Iterator[None]:
    """Make `TaskContext.get()` return the context of a stream's task."""
    conf = {"sql.streaming.queryId": QUERY_ID, "streaming.sql.batchId": str(micro_batch_id)}
    context = SimpleNamespace(partitionId=lambda: slot, stageId=int, attemptNumber=int, _localProperties=conf)
    with patch.object(TaskContext, "get", lambda: context):
        yield


@contextmanager
def own_workers() -> Iterator[None]:
    """Processes that keep no client of others, and end."""
    with patch.object(kept_clients, "KEPT", kept_clients.Kept()):
        try:
            yield
        finally:
            kept_clients.KEPT.close()


def run_tasks(
    planned: KafkaBatchWriter | KafkaStreamWriter, rows: Sequence[Sequence[str]], micro_batch_id: int = 0
) -> list[TaskCommitMessage]:
    """Run a task for each of `rows`. One without rows gets no Arrow batch, as in Spark."""
    receipts = []
    for slot, values in enumerate(rows):
        with in_task(slot, micro_batch_id):
            arrow_batches = [pa.record_batch({"value": pa.array(values)})] if values else []
            receipts.append(planned.write(iter(arrow_batches)))
    return receipts


Writer = TypeVar("Writer", KafkaBatchWriter, KafkaStreamWriter)


def plan(writer: Writer) -> Writer:
    """As tasks get it."""
    made: Writer = pickle.loads(pickle.dumps(writer))
    return made


def write_batch(given: dict[str, Any], rows: Sequence[Sequence[str]]) -> None:
    with own_workers():
        planned = plan(KafkaBatchWriter(given))
        planned.commit(run_tasks(planned, rows))


def write_micro_batch(given: dict[str, Any], rows: Sequence[Sequence[str]], micro_batch_id: int) -> None:
    with own_workers():
        planned = plan(KafkaStreamWriter(given))
        # Spark makes another writer in the process that commits.
        KafkaStreamWriter(given).commit(run_tasks(planned, rows, micro_batch_id), micro_batch_id)
