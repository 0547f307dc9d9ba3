"""The shared board: rows add up, counters outlive their process, gauges do not."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ingest.telemetry.collectors import SharedMetricsCollector
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

EVENTS = Spec("test_events_total", "counter", "Events.", "kind", ("good", "bad"))
HELD = Spec("test_held", "gauge", "Held.")
SECONDS = Spec("test_seconds", "histogram", "Seconds.", bounds=(0.1, 1.0))
SIZES = Spec("test_sizes", "histogram", "Sizes.", "of", ("x", "y"), (1.0,))
SPECS = (EVENTS, HELD, SECONDS, SIZES)


def shown(shared_metrics: SharedMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """What a scrape says: samples by name and label values."""
    registry = CollectorRegistry()
    registry.register(SharedMetricsCollector(shared_metrics))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


@pytest.fixture
def shared_metrics() -> SharedMetrics:
    return SharedMetrics(SPECS, slots=3)


def test_new_shared_metrics_show_every_series_as_zero(shared_metrics: SharedMetrics) -> None:
    samples = shown(shared_metrics)

    assert set(samples.values()) == {0.0}
    assert {("test_events_total", ("good",)), ("test_held", ()), ("test_seconds_bucket", ("+Inf",))} <= samples.keys()


def test_the_counts_of_several_processes_are_summed(shared_metrics: SharedMetrics) -> None:
    for slot in range(3):
        shared_metrics.series(slot, EVENTS)["good"].inc()
        shared_metrics.series(slot, EVENTS)["bad"].inc(slot)
        shared_metrics.series(slot, HELD).set(10 + slot)

    samples = shown(shared_metrics)

    assert samples["test_events_total", ("good",)] == 3
    assert samples["test_events_total", ("bad",)] == 3
    assert samples["test_held", ()] == 33


def test_the_gauges_of_an_ended_process_are_cleared_and_its_counts_stay(shared_metrics: SharedMetrics) -> None:
    for slot in range(2):
        shared_metrics.series(slot, EVENTS)["good"].inc(5)
        shared_metrics.series(slot, SECONDS).observe(0.5)
        shared_metrics.series(slot, HELD).set(7)

    shared_metrics.clear_gauges(0)

    samples = shown(shared_metrics)
    assert samples["test_held", ()] == 7
    assert samples["test_events_total", ("good",)] == 10
    assert samples["test_seconds_count", ()] == 2


def test_buckets_are_cumulative_and_include_their_bound(shared_metrics: SharedMetrics) -> None:
    for slot, value in enumerate((0.05, 0.1, 0.11)):
        shared_metrics.series(slot, SECONDS).observe(value)
    for value in (1.0, 1.5, 100.0):
        shared_metrics.series(0, SECONDS).observe(value)

    samples = shown(shared_metrics)

    buckets = [samples["test_seconds_bucket", (bound,)] for bound in ("0.1", "1.0", "+Inf")]
    assert buckets == [2, 4, 6]
    assert samples["test_seconds_count", ()] == 6
    assert samples["test_seconds_sum", ()] == pytest.approx(102.76)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"]), st.floats(0, 10))))
def test_no_observation_reaches_another_series(observations: list[tuple[int, str, float]]) -> None:
    shared_metrics = SharedMetrics(SPECS, slots=3)

    for slot, of, value in observations:
        shared_metrics.series(slot, SIZES)[of].observe(value)

    samples = shown(shared_metrics)
    for of in ("x", "y"):
        assert samples["test_sizes_count", (of,)] == sum(seen == of for _, seen, _ in observations)
    assert samples["test_held", ()] == samples["test_seconds_count", ()] == samples["test_events_total", ("bad",)] == 0


# A process of its own: the test process has threads, and a fork would take them half along.
FORKING = """
import json, os, signal
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

spec, held = Spec("events_total", "counter", "", "kind", ("good",)), Spec("held", "gauge", "")
board = SharedMetrics((spec, held), 2)
board.series(1, spec)["good"].inc()

def child():
    board.series(0, spec)["good"].inc(41)
    board.series(0, held).set(3)
    os.kill(os.getpid(), signal.SIGKILL)

if (pid := os.fork()) == 0:
    child()
_, status = os.waitpid(pid, 0)
before = board.total(spec)[0], board.total(held)[0]
board.clear_gauges(0)
board.series(0, spec)["good"].inc()  # its successor in the slot goes on
print(json.dumps([os.waitstatus_to_exitcode(status), *before, board.total(spec)[0], board.total(held)[0]]))
"""


def test_the_counts_of_a_killed_process_are_kept() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, timeout=60)

    assert json.loads(done.stdout) == [-9, 42.0, 3.0, 43.0, 0.0]
