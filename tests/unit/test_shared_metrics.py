"""The shared board: rows add up, counters outlive their process, gauges do not."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.errors import ConfigError
from ingest.telemetry.collectors import ObservedQueue, QueueCollector, SharedMetricsCollector
from ingest.telemetry.metrics import WORKER_METRICS, WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SPARE_SOURCES, SharedMetrics, Spec

EVENTS = Spec("test_events_total", "counter", "Events.", "kind", ("good", "bad"))
HELD = Spec("test_held", "gauge", "Held.")
SECONDS = Spec("test_seconds", "histogram", "Seconds.", bounds=(0.1, 1.0))
SIZES = Spec("test_sizes", "histogram", "Sizes.", "of", ("x", "y"), (1.0,))
SPECS = (EVENTS, HELD, SECONDS, SIZES)
STORED = Spec("test_stored_total", "counter", "Stored.", "outcome", ("new", "old"), by_source=True)
OPEN = Spec("test_open", "gauge", "Open.", by_source=True)
WAITS = Spec("test_wait_seconds", "histogram", "Waits.", bounds=(1.0,), by_source=True)
OF_SOURCES = (EVENTS, STORED, OPEN, WAITS)


def shown(shared_metrics: SharedMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """The samples of a scrape by name and label values, in the order of the label names."""
    registry = CollectorRegistry()
    registry.register(SharedMetricsCollector(shared_metrics))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, tuple(sample.labels.values())): sample.value for family in families for sample in family.samples
    }


@pytest.fixture
def shared_metrics() -> SharedMetrics:
    return SharedMetrics(SPECS, slots=3)


def test_new_shared_metrics_show_every_counter_and_gauge_as_zero(shared_metrics: SharedMetrics) -> None:
    samples = shown(shared_metrics)

    assert samples == {("test_events_total", ("good",)): 0, ("test_events_total", ("bad",)): 0, ("test_held", ()): 0}


def test_a_histogram_is_shown_after_its_first_observation(shared_metrics: SharedMetrics) -> None:
    shared_metrics.series(1, SIZES)["y"].observe(0.0)

    of_sizes = {labels for name, labels in shown(shared_metrics) if name.startswith("test_sizes")}

    assert of_sizes == {("y",), ("1.0", "y"), ("+Inf", "y")}


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


def test_the_page_of_two_hundred_sources_with_orders_has_at_most_one_and_a_half_megabytes() -> None:
    names = [f"shop-{number:03}" for number in range(200)]
    shared_metrics = worker_shared_metrics(1, names)
    for name in names:
        metrics = WorkerMetrics.on(shared_metrics, 0, name)
        metrics.orders["stored"].inc()
        for histogram in (metrics.order_latency, metrics.upstream_request["2xx"], metrics.store, metrics.store_rows):
            histogram.observe(0.15)
    registry = CollectorRegistry()
    registry.register(SharedMetricsCollector(shared_metrics))
    queues = [ObservedQueue(name, f"orders/{name}", QueueState(), is_paused=False) for name in names]
    registry.register(QueueCollector(queues))

    assert len(generate_latest(registry)) <= 1_500_000


def test_a_counter_that_appears_later_is_shown_after_its_first_count() -> None:
    later = Spec("test_rare_total", "counter", "Rare.", "kind", ("good", "bad"), from_start=False)
    shared_metrics = SharedMetrics((later,), slots=2)
    shared_metrics.series(1, later)["bad"].inc()

    assert shown(shared_metrics) == {("test_rare_total", ("bad",)): 1}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["x", "y"]), st.floats(0, 10))))
def test_no_observation_reaches_another_series(observations: list[tuple[int, str, float]]) -> None:
    shared_metrics = SharedMetrics(SPECS, slots=3)

    for slot, of, value in observations:
        shared_metrics.series(slot, SIZES)[of].observe(value)

    samples = shown(shared_metrics)
    for of in ("x", "y"):
        assert samples.get(("test_sizes_count", (of,)), 0) == sum(seen == of for _, seen, _ in observations)
    assert samples["test_held", ()] == samples["test_events_total", ("bad",)] == 0
    assert ("test_seconds_count", ()) not in samples


def test_each_source_has_series_of_its_own_from_the_start() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 2, ["shop-de", "shop-fr"])

    for slot in range(2):
        shared_metrics.series(slot, STORED, "shop-fr")["old"].inc(3)
        shared_metrics.series(slot, WAITS, "shop-fr").observe(0.5)
        shared_metrics.series(slot, EVENTS)["good"].inc()

    samples = shown(shared_metrics)
    assert {labels for name, labels in samples if name == "test_stored_total"} >= {
        ("new", "shop-de"),
        ("old", "shop-de"),
    }
    assert samples["test_stored_total", ("old", "shop-fr")] == 6
    assert samples["test_wait_seconds_count", ("shop-fr",)] == 2
    assert samples["test_events_total", ("good",)] == 2
    assert {value for (_, labels), value in samples.items() if "shop-de" in labels} == {0.0}


def test_the_unnamed_source_has_an_empty_label() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 1)

    shared_metrics.series(0, STORED)["new"].inc()

    assert shown(shared_metrics)["test_stored_total", ("new", "")] == 1


def test_processes_may_add_sources_in_different_orders() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 2, ["shop"])

    for slot, names in enumerate((["a", "b"], ["b", "c", "a"])):
        for name in names:
            shared_metrics.series(slot, STORED, name)["new"].inc(slot + 1)

    samples = shown(shared_metrics)
    assert [samples["test_stored_total", ("new", name)] for name in ("shop", "a", "b", "c")] == [0, 3, 3, 2]


def test_a_removed_source_is_not_exported_and_continues_from_its_counts_if_it_returns() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 1, ["a", "b"])
    for name in ("a", "b"):
        shared_metrics.series(0, STORED, name)["new"].inc()
        shared_metrics.series(0, OPEN, name).set(1)

    shared_metrics.remove_source(0, "a")

    removed = shown(shared_metrics)
    assert {name for name in ("a", "b") if ("test_open", (name,)) in removed} == {"b"}
    shared_metrics.series(0, STORED, "a")["new"].inc()
    returned = shown(shared_metrics)
    assert [returned["test_open", (name,)] for name in ("a", "b")] == [0, 1]
    assert returned["test_stored_total", ("new", "a")] == 2


def test_a_source_that_has_stopped_is_exported_without_what_it_held() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 1, ["a", "b"])
    for name in ("a", "b"):
        shared_metrics.series(0, OPEN, name).set(1)

    shared_metrics.clear_source(0, "a")

    samples = shown(shared_metrics)
    assert [samples["test_open", (name,)] for name in ("a", "b")] == [0, 1]


def test_a_source_that_one_process_has_removed_stays_while_another_has_it() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 2, ["a"])
    for slot in range(2):
        shared_metrics.series(slot, OPEN, "a").set(1)

    shared_metrics.remove_source(0, "a")

    assert shown(shared_metrics)["test_open", ("a",)] == 1


def test_the_gauges_of_all_sources_of_an_ended_process_are_cleared() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 2, ["a"])
    for slot in range(2):
        for name in ("a", "added"):
            shared_metrics.series(slot, OPEN, name).set(1)

    shared_metrics.clear_gauges(0)

    samples = shown(shared_metrics)
    assert [samples["test_open", (name,)] for name in ("a", "added")] == [1, 1]


def test_a_source_above_the_reserve_is_refused_and_changes_no_other_series() -> None:
    shared_metrics = SharedMetrics(OF_SOURCES, 2, ["a"])
    for number in range(SPARE_SOURCES):
        shared_metrics.series(0, OPEN, f"added-{number}").set(1)

    with pytest.raises(ConfigError):
        shared_metrics.series(0, OPEN, "one-more")

    assert len(shared_metrics.sources()) == SPARE_SOURCES + 1
    assert shared_metrics.total(OPEN, source="a") == [0]
    assert shared_metrics.cells(EVENTS, 0, 1) == [0]


def test_fifty_sources_in_four_processes_take_less_than_a_megabyte() -> None:
    specs = tuple(WORKER_METRICS.values())

    cells = sum(spec.width * len(spec.values) for spec in specs if spec.by_source)

    assert 4 * 50 * cells * 8 < 1024 * 1024


# A separate process, because the test process has threads, which do not survive a fork.
FORKING = """
import json, os, signal
from ingest.telemetry.shared_metrics import SharedMetrics, Spec

spec, held = Spec("events_total", "counter", "", "kind", ("good",)), Spec("held", "gauge", "")
stored = Spec("stored_total", "counter", "", by_source=True)
board = SharedMetrics((spec, held, stored), 2)
board.series(1, spec)["good"].inc()

def child():
    board.series(0, spec)["good"].inc(41)
    board.series(0, held).set(3)
    board.series(0, stored, "added").inc(5)
    os.kill(os.getpid(), signal.SIGKILL)

if (pid := os.fork()) == 0:
    child()
_, status = os.waitpid(pid, 0)
before = board.total(spec)[0], board.total(held)[0]
board.clear_gauges(0)
board.series(0, spec)["good"].inc()  # its successor in the slot goes on
board.series(0, stored, "added").inc()
after = board.total(spec)[0], board.total(held)[0], board.total(stored, source="added")[0]
print(json.dumps([os.waitstatus_to_exitcode(status), *before, *after]))
"""


def test_the_counts_of_a_killed_process_are_kept_and_those_of_a_source_that_it_has_added() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, timeout=60)

    assert json.loads(done.stdout) == [-9, 42.0, 3.0, 43.0, 0.0, 6.0]
