"""What `ingest top` shows, at several widths and heights."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from ingest.cli.terminal.short_numbers import number, rate
from ingest.cli.terminal.top_screen import SORTS, lines_of
from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.operating.condition import condition_of
from ingest.domain.operating.controls import Controls, Drain, Pause, Tuning
from ingest.domain.operating.source_state import UPSTREAM, Reason, State
from ingest.operations.state.flow_rates import Rates
from ingest.operations.state.snapshot import Servers, Snapshot, SourceSnapshot, snapshot_of
from ingest.queue.operate.partition_monitor import ConsumerState

AT = datetime(2026, 11, 28, 9, 15, 22, 123_000, tzinfo=UTC)
RATES = Rates(
    arrived=120.4,
    stored=118.0,
    retried=0.3,
    dead=0.0,
    requests=121.0,
    median=0.2,
    p95=1.6,
    in_flight=40,
    buckets={"0.2": 60, "1.6": 4},
)


def worker(name: str, pending: int = 20, *reasons: Reason) -> ConsumerState:
    return ConsumerState(name, pending=pending, idle=1.0, state="alive", reasons=reasons)


def source(
    name: str, *reasons: Reason, pause: Pause | None = None, workers: int = 2, depth: int | None = 5
) -> SourceSnapshot:
    queue = QueueState(depth=depth, pending=3, oldest_age=400.0, consumers=1, retries=12, dead=1)
    consumers = [worker(f"host-a-{number}", 20, *(reasons if number == 0 else ())) for number in range(workers)]
    alive = {each.name: each.reasons for each in consumers}
    condition = condition_of(queue, alive, None, (), (pause, lambda _: None), ())
    return SourceSnapshot(name, condition, queue, consumers, RATES, pause)


def snapshot(*sources: SourceSnapshot, controls: Controls | None = None, problem: str = "") -> Snapshot:
    return snapshot_of(AT, sources, controls or Controls(), Servers(problem))


def shown(found: Snapshot, width: int = 80, height: int | None = None, sort: str = "trouble") -> list[str]:
    return [line.plain.rstrip() for line in lines_of(found, width, height, sort)]


def names(lines: Sequence[str]) -> list[str]:
    begin = next(index for index, line in enumerate(lines) if line.startswith("source "))
    return [line.split()[0] for line in lines[begin + 1 :] if line and not line.startswith((" ", "and"))]


def test_the_screen_of_one_source_and_its_workers() -> None:
    assert shown(snapshot(source("")), 80) == [
        "ingest top   2 worker processes                                 09:15:22.123 UTC",
        "arrived 120/s   stored 118/s   retried 0.3/s   dead 0/s   requests 121/s",
        "in flight 40   median 200 ms   p95 1.6 s   dead letters 1",
        "",
        "source    waiting retries  dead oldest  in/s out/s    p95  state",
        "(unnamed)       5      12     1  7 min   120   118  1.6 s  running",
        "",
        "worker process                            pending  state",
        "host-a-0                                       20  alive",
        "host-a-1                                       20  alive",
    ]


def test_what_slows_a_source_down_is_below_the_table() -> None:
    pause = Pause(since=AT, until=AT + timedelta(minutes=10), by="cli:ann", reason="rate \x1b[1m limit")
    now = AT.timestamp()
    outage = Reason(State.CIRCUIT_OPEN, "HTTP 401", now - 200.0, UPSTREAM)
    throttled = Reason(State.THROTTLED, "HTTP 429", now - 5.0, UPSTREAM, now + 12.0)
    found = snapshot(
        source("shop-de", pause=pause),
        source("shop-fr", outage, workers=1),
        replace(source("slow"), rates=replace(RATES, request_seconds=4.2)),
        replace(source("wms", throttled), tuning=Tuning(since=AT, by="cli:ann", rate=2.5)),
        controls=Controls(drains={"host-a-1": Drain(since=AT, by="cli:ann")}),
    )

    lines = shown(found, 200)

    assert (
        " shop-de: paused by cli:ann: rate \\x1b[1m limit"
        " (for 0.0 s, since 2026-11-28 09:15:22 UTC, until 2026-11-28 09:25:22 UTC)"
    ) in lines
    assert " shop-fr: external API: HTTP 401 (for 3 min, since 2026-11-28 09:12:02 UTC)" in lines
    assert " slow: requests to the external API take 4.2 s" in lines
    assert (
        " wms: external API: HTTP 429 (for 5.0 s, since 2026-11-28 09:15:17 UTC, until 2026-11-28 09:15:34 UTC)"
        in lines
    )
    assert " wms: rate 2.5, set by cli:ann" in lines
    assert [line.split() for line in lines[-2:]] == [
        ["host-a-0", "80", "circuit", "open"],
        ["host-a-1", "60", "drained"],
    ]


def test_without_a_worker_it_shows_how_to_start_one_and_without_redis_the_reason() -> None:
    idle = snapshot(source("", workers=0))
    lost = snapshot(SourceSnapshot(""), problem="cannot connect to\n127.0.0.1:1")

    assert " no worker is running: start one with `ingest worker`" in shown(idle)
    assert "Redis is unavailable: cannot connect to 127.0.0.1:1" in shown(lost)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [10, 24, 60])
@pytest.mark.parametrize("count", [1, 3, 60])
def test_the_screen_is_as_high_as_the_window_and_never_wider(width: int, height: int, count: int) -> None:
    sources = [
        source(f"marketplace-with-a-name-{n}", *[Reason(State.CIRCUIT_OPEN, "HTTP 503")] * (n % 5 == 0))
        for n in range(count)
    ]

    lines = list(lines_of(snapshot(*sources), width, height, "trouble"))

    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width
    assert lines[-1].plain.startswith("q quit")


def test_sources_are_sorted_by_trouble_or_by_a_column() -> None:
    found = snapshot(source("b", depth=9), source("a"), source("c", workers=0, depth=0))

    assert names(shown(found))[:3] == ["c", "b", "a"]
    assert names(shown(found, sort="waiting"))[:3] == ["b", "a", "c"]
    assert names(shown(found, sort="name"))[:3] == ["a", "b", "c"]
    assert {name: len(shown(found, sort=name)) for name in SORTS} == dict.fromkeys(SORTS, len(shown(found)))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "?"),
        (0, "0"),
        (99_999, "99,999"),
        (300_000, "300k"),
        (5_000_000, "5.0M"),
        (123_456_789, "123M"),
        (10**10, "10.0G"),
    ],
)
def test_numbers_have_at_most_six_characters(value: int | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (0.34, "0.3"), (9.96, "10.0"), (12.6, "13"), (250_000.0, "250k")]
)
def test_rates_below_ten_have_a_decimal(value: float | None, text: str) -> None:
    assert rate(value) == text
