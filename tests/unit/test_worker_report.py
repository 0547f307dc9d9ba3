"""The log of `ingest worker`: when it is ready, and its counts in each minute."""

from fakes.set_clock import Clock
from structlog.testing import capture_logs

from ingest.services.workers.worker_report import WorkerReport
from ingest.telemetry.metrics import ProcessMetrics, WorkerMetrics, worker_shared_metrics

COUNTS = ("stored", "retried", "dead")


def test_a_command_is_ready_when_all_its_processes_are() -> None:
    shared_metrics = worker_shared_metrics(2)
    report = WorkerReport(shared_metrics, has_sources=False)

    with capture_logs() as none:
        report.check()
        ProcessMetrics.on(shared_metrics, 0).ready.set(1.0)
        pause = report.check()
    with capture_logs() as logged:
        ProcessMetrics.on(shared_metrics, 1).ready.set(1.0)
        report.check()
        report.check()

    assert none == []
    assert pause < 1
    assert [(each["event"], each["processes"]) for each in logged] == [("ready", 2)]


def test_each_minute_a_line_for_each_source_counts_the_orders_that_all_processes_have_settled() -> None:
    shared_metrics, clock = worker_shared_metrics(2, ["shop-de", "shop-fr", "idle"]), Clock()
    report = WorkerReport(shared_metrics, has_sources=True, clock=clock)
    metrics = [WorkerMetrics.on(shared_metrics, slot, source) for slot in (0, 1) for source in ("shop-de", "shop-fr")]
    for each in metrics:
        each.ready.set(1.0)
        each.orders["stored"].inc(1_000)  # before the command is ready, or by a process that has died since
    report.check()

    metrics[0].orders["stored"].inc(5)
    metrics[2].orders["stored"].inc(6)
    metrics[2].orders["dead"].inc()
    metrics[3].orders["retried"].inc(2)
    metrics[3].orders["unchanged"].inc(3)
    clock.now += 59
    with capture_logs() as early:
        pause = report.check()
    clock.now += 1
    with capture_logs() as first:
        report.check()
    clock.now += 60
    with capture_logs() as second:
        report.check()

    assert (early, pause) == ([], 1)
    assert [(each["event"], each["source"], *(each[name] for name in COUNTS)) for each in first] == [
        ("summary", "shop-de", 11, 0, 1),
        ("summary", "shop-fr", 0, 2, 0),
    ]
    assert ("unchanged" in first[0], first[1]["unchanged"], first[1]["seconds"]) == (False, 3, 60)
    assert [[each.get(name) for name in ("event", "source", *COUNTS)] for each in second] == [
        ["summary", None, 0, 0, 0]
    ], "an idle command shows that it is running"
