"""soak.usage and soak.chart: what processes hold, and when it is said to grow."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

import processes
from soak import usage
from soak.chart import svg
from soak.usage import DRIVER, JVM, PLANNER, WORKER, Held, Sample


def life(number: int, held: Sequence[Held], role: str = WORKER) -> list[Sample]:
    return [Sample(2.0 * at, number, {role: each}) for at, each in enumerate(held)]


def test_what_this_process_holds() -> None:
    with open(os.devnull), open(os.devnull):
        more = usage.held_by(os.getpid())
    less = usage.held_by(os.getpid())
    assert more is not None and less is not None
    assert more.descriptors - less.descriptors == 2
    assert less.memory_mb > 5 and less.threads >= 1


def test_nothing_is_held_by_a_process_that_has_ended() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert usage.held_by(ended.pid) is None


def test_a_sample_has_the_most_that_any_worker_holds() -> None:
    this = os.getpid()
    daemon, worker = "python -m pyspark.daemon", "python -m pyspark.daemon"
    living = [processes.Process(-1, 0, daemon), processes.Process(this, -1, worker)]
    sample = usage.take(3.0, 2, living)
    assert (sample.at_s, sample.life, set(sample.held)) == (3.0, 2, {WORKER})


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell", JVM),
        ("python app.py", DRIVER),
        ("python -m pyspark.sql.streaming.python_streaming_source_runner", PLANNER),
        ("python -m pyspark.daemon", None),
    ],
)
def test_the_role_of_a_process_of_the_driver(command: str, role: str | None) -> None:
    assert usage.role_of_driver(processes.Process(1, 0, command)) == role


def test_what_stays_is_flat_however_it_began() -> None:
    warming_up = [Held(10 * at, at, 1) for at in range(10)]
    found = usage.growths(life(1, [*warming_up, *[Held(100, 20, 8)] * 30]))
    assert [(each.before, each.after) for each in found] == [(100, 100), (20, 20), (8, 8)]
    assert all(each.flat for each in found)


@pytest.mark.parametrize("resource", usage.RESOURCES)
def test_what_grows_slowly_grows(resource: str) -> None:
    start = {"memory_mb": 100.0, "descriptors": 20, "threads": 8}
    held = [Held(**start | {resource: start[resource] * (1 + at / 100)}) for at in range(200)]  # type: ignore[arg-type]
    grown = [each.resource for each in usage.growths(life(1, held)) if not each.flat]
    assert grown == [resource]


def test_the_jvm_takes_its_heap_but_keeps_no_descriptors() -> None:
    held = [Held(500 + at, 200 + at, 50) for at in range(400)]
    assert [each.resource for each in usage.growths(life(1, held, JVM)) if not each.flat] == ["descriptors"]


def test_only_the_longest_life_is_judged() -> None:
    short = life(1, [Held(at * 100, 1, 1) for at in range(50)])
    assert all(each.flat for each in usage.growths([*short, *life(2, [Held(5, 1, 1)] * 60)]))


def test_a_life_too_short_to_tell_has_no_verdict() -> None:
    assert usage.growths(life(1, [Held(1, 1, 1)] * (usage.FEWEST_SAMPLES - 1))) == []
    assert usage.growths([]) == []


def test_the_chart_has_a_line_for_each_life_in_each_panel_and_dashes_for_each_fault() -> None:
    samples = [*life(1, [Held(1, 1, 1)] * 3), *life(2, [Held(2, 2, 2)] * 3)]
    drawn = ElementTree.fromstring(svg(samples, [1.0, 5.0]))
    name = "{http://www.w3.org/2000/svg}"
    assert len(drawn.findall(f"{name}polyline")) == 2 * len(usage.RESOURCES)
    faults = [line for line in drawn.findall(f"{name}line") if line.get("class") == "fault"]
    assert len(faults) == 2 * len(usage.RESOURCES)


def test_a_chart_of_nothing_can_be_drawn() -> None:
    ElementTree.fromstring(svg([], []))
