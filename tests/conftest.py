"""What every test shares: which kafka_sink is under test, one Spark session, one broker.

Three traps are closed here, before any test module is imported:

* Spark starts its workers as `python3` unless PYSPARK_PYTHON says otherwise, read when the JVM starts.
* Spark starts its workers with `python -m`, which puts the working directory first on `sys.path`: in the
  repository's root the sources would shadow the wheel, in the workers only. PYTHONSAFEPATH prevents it.
* A run that takes the sources for the wheel proves nothing about the wheel. So it says which one it uses and
  refuses a mixture: `make test` tests the installed wheel; PYKAFKA_TEST_SOURCES=1, for a quick look, sources.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import itertools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_sink.broker import LocalKafka

pytest_plugins = ("failed_tests", "kafka_sink.broker.fixtures")

ROOT = Path(__file__).resolve().parent.parent
TEST_SOURCES = os.environ.get("PYKAFKA_TEST_SOURCES") == "1"

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYTHONSAFEPATH"] = "1"
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ.pop("SPARK_HOME", None)  # another Spark than the one that is installed here
# A JVM that lives for seconds compiles and parses more than it runs: a Spark of five small jobs takes 20 s of CPU, 10 s
# with one compiler, 5 s with the classes that `make` archived.
os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1"
SPARK_JVM = [f"-Dlog4j2.configurationFile={ROOT / 'conf' / 'log4j2.properties'}"]
SPARK_CLASSES = Path(sys.prefix, "spark-classes.jsa")
if SPARK_CLASSES.exists():
    SPARK_JVM += [f"-XX:SharedArchiveFile={SPARK_CLASSES}", "-Xlog:cds*=off"]
os.environ["SPARK_SUBMIT_OPTS"] = " ".join(SPARK_JVM)
# An archive fits no class path with a folder that has files, as the one of Spark's configuration would be.
os.environ["SPARK_CONF_DIR"] = "none"

if TEST_SOURCES:
    sys.path.insert(0, str(ROOT))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))

# A deadline on one example, or on making some, measures the machine's load, not the code.
UNHURRIED: dict[str, Any] = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
# `make test` tries the same examples in each run, so that a run that fails fails again.
hypothesis.settings.register_profile("gate", **UNHURRIED, max_examples=20, derandomize=True)
# For `make unit`, the loop of who changes a line.
hypothesis.settings.register_profile("quick", **UNHURRIED, max_examples=10)
# For `make test-all`: others in each run, and five times as many. (Where CI is set, Hypothesis derandomizes unasked.)
hypothesis.settings.register_profile("thorough", **UNHURRIED, derandomize=False)
# For `make flakes`: as many as in the gate, but chosen by the run's seed, and by no earlier run.
hypothesis.settings.register_profile("flakes", **UNHURRIED, max_examples=20, derandomize=False, database=None)
# For `make sanitize`, which looks at little and has to look well, and is slow.
hypothesis.settings.register_profile("sanitize", **UNHURRIED, max_examples=200)
hypothesis.settings.load_profile("gate")

EXPECTED = (ROOT if TEST_SOURCES else Path(sysconfig.get_path("purelib")).resolve()) / "kafka_sink"


def folder_of(package: str) -> Path | None:
    """Where `import package` would find it, or None."""
    spec = importlib.util.find_spec(package)
    locations = (spec and spec.submodule_search_locations) or ()
    return next((Path(location).resolve() for location in locations), None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--results", type=Path, metavar="FILE", help="gets the chaos tests' figures (make chaos)")


def pytest_collection_finish() -> None:
    """The garbage collector leaves out what was collected, which stays until the end."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    if folder_of("kafka_sink") != EXPECTED:
        raise pytest.UsageError(
            f"kafka_sink is found in {folder_of('kafka_sink')}, expected in {EXPECTED}. "
            "`make test` tests the installed wheel, PYKAFKA_TEST_SOURCES=1 makes pytest test the sources."
        )
    results = config.getoption("--results")
    # With pytest-xdist only the first process collects: it receives the reports of all tests.
    if results is not None and not hasattr(config, "workerinput"):
        from chaos.results import Collector

        config.pluginmanager.register(Collector(results, config.getoption("keyword")))


def pytest_report_header(config: pytest.Config) -> str:
    from kafka_sink.records.kernel import KERNEL

    which = "SOURCES" if TEST_SOURCES else f"installed {importlib.metadata.version('pyspark-pykafka')}"
    return f"kafka_sink under test: the {which} in {EXPECTED}, {KERNEL.name} kernel"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores, whose workers run this interpreter and this kafka_sink."""
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pykafka tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        # Where a query that names no checkpoint of its own puts it.
        .config("spark.sql.streaming.checkpointLocation", str(scratch / "checkpoints"))
        .getOrCreate()
    )
    try:
        assert_workers_run_the_same(session)
        yield session
    finally:
        session.stop()


def assert_workers_run_the_same(session: SparkSession) -> None:
    # Nested, so that it travels by value: a worker cannot import this file.
    def whereabouts(_: int) -> tuple[str, str]:
        import kafka_sink

        return sys.executable, kafka_sink.__path__[0]

    ((executable, folder),) = session.sparkContext.parallelize([0], 1).map(whereabouts).collect()
    assert (executable, Path(folder).resolve()) == (sys.executable, EXPECTED), "Spark's workers run another"


@pytest.fixture(scope="session")
def kafka(kafka_broker: LocalKafka) -> LocalKafka:
    """One broker for the whole run. Tests share it: each takes topics of its own."""
    return kafka_broker


@pytest.fixture
def topic(kafka: LocalKafka, request: pytest.FixtureRequest) -> Callable[..., str]:
    """`topic(partitions=1, config=None)` creates a topic nobody has used yet and returns its name."""

    def create(partitions: int = 1, config: Mapping[str, object] | None = None) -> str:
        readable = "".join(c if c.isalnum() else "-" for c in request.node.name)[:100]
        name = f"{readable}-{next(topic_numbers)}"
        kafka.create_topic(name, partitions, config=config)
        return name

    return create


topic_numbers = itertools.count(1)
