"""What `ingest status` prints."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from ingest.cli.terminal.status_table import lines_of
from ingest.cli.terminal.times import format_duration
from ingest.domain.deliveries.queue_state import Lane, LaneState, QueueState
from ingest.domain.operating.condition import Condition, condition_of
from ingest.domain.operating.source_state import POSTGRES, UPSTREAM, Reason, State
from ingest.operations.state.notices import notices_of
from ingest.operations.state.status import OrdersStatus, SystemStatus
from ingest.queue.operate.partition_monitor import ConsumerState

LANES = {Lane.MAIN: LaneState(depth=1_990, pending=3, oldest_age=400.0), Lane.EXPRESS: LaneState(10, 0, 2.5)}
QUEUE = QueueState(depth=2_000, pending=3, oldest_age=400.0, consumers=1, dead=1, lanes=LANES)
AT = datetime(2026, 1, 2, 3, 10, tzinfo=UTC)
ORDERS = OrdersStatus(stored=7, last_ingested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def circuit(error: str, open_for: float) -> Reason:
    return Reason(State.CIRCUIT_OPEN, error, AT.timestamp() - open_for, UPSTREAM)


def condition(*consumers: ConsumerState, queue: QueueState | None = QUEUE) -> Condition:
    alive = {each.name: each.reasons for each in consumers if each.state == "alive"}
    return condition_of(queue, alive, AT.timestamp() - 60.0, (), (None, lambda _: None), ())


def consumer(name: str, state: Literal["alive", "stale", "unknown"] = "alive", **changed: Any) -> ConsumerState:
    return replace(ConsumerState(name, pending=0, idle=1.0, state=state), **changed)


def shown(
    *consumers: ConsumerState,
    width: int = 80,
    errors: dict[str, str] | None = None,
    queue: QueueState | None = QUEUE,
) -> list[str]:
    status = SystemStatus(
        AT.isoformat(),
        "",
        "orders",
        "ingest",
        queue,
        list(consumers),
        ORDERS,
        errors or {},
        condition=condition(*consumers, queue=queue),
    )
    return list(lines_of([status], width))


def test_several_sources_are_shown_with_one_line_each_and_their_total() -> None:
    outage = circuit("HTTP 401", 200.0)
    queues = [QUEUE, replace(QUEUE, depth=5, oldest_age=3.0, dead=0), replace(QUEUE, depth=None)]
    consumers = [[consumer("w-0", reasons=[outage]), consumer("w-1")], [consumer("w-0")], []]
    sources = [
        SystemStatus(
            AT.isoformat(),
            name,
            f"orders/{name}",
            "ingest",
            queue,
            alive,
            ORDERS,
            {"postgres": "gone"},
            condition=condition(*alive, queue=queue),
        )
        for name, queue, alive in zip(("shop-de", "b", "c"), queues, consumers, strict=True)
    ]

    assert list(lines_of(sources[:2], 100)) == [
        "source   waiting  pending  retries  dead  stored  oldest         state",
        "shop-de    2,000        3        0     1       7   7 min  circuit open",
        "b              5        3        0     0       7   3.0 s       running",
        "total      2,005        6        0     1      14   7 min",
        "shop-de: external API: HTTP 401 (for 3 min, since 2026-01-02 03:06:40 UTC)",
        "postgres: gone",
    ]
    *_, total, without_worker, _, _ = lines_of(sources, 200)
    assert without_worker == (
        "c: no worker is running (for 60.0 s, since 2026-01-02 03:09:00 UTC): start one with `ingest worker --source c`"
    )
    assert total.split() == ["total", "unknown", "9", "0", "2", "21", "7", "min"]


def test_the_facts_are_shown_in_columns() -> None:
    assert shown() == [
        "stream               orders (group ingest)",
        "waiting                              2,000",
        "pending                                  3",
        "oldest                               7 min",
        "retries scheduled                        0",
        "dead letters                             1",
        "orders stored                            7",
        "last stored        2026-01-02 03:04:05 UTC",
        "state                            no worker",
        "no worker is running (for 60.0 s, since 2026-01-02 03:09:00 UTC): start one with",
        "  `ingest worker`",
        "",
        "lane     waiting  pending  oldest",
        "main       1,990        3   7 min",
        "express       10        0   2.5 s",
    ]


def test_an_empty_lane_has_no_age_and_an_unknown_depth_is_not_zero() -> None:
    lanes = {Lane.MAIN: LaneState(depth=None, pending=3, oldest_age=1.0), Lane.EXPRESS: LaneState()}

    lines = shown(queue=replace(QUEUE, depth=None, lanes=lanes))

    assert lines[-3:] == [
        "lane     waiting  pending  oldest",
        "main     unknown        3   1.0 s",
        "express        0        0       -",
    ]
    assert lines[1] == "waiting                            unknown"


def test_each_consumer_is_shown_with_its_heartbeat() -> None:
    lines = shown(
        consumer("a"),
        consumer("b", reasons=[circuit("HTTP 401", 361.0)], pending=12),
        consumer("c", "stale", stale_for=12.3),
        consumer("d", "stale"),
        consumer("e", "unknown", idle=104.0),
    )

    assert lines[-6:] == [
        "consumer  pending  state",
        "b              12  alive, circuit open",
        "c               0  stale for 12.3 s",
        "d               0  stopped",
        "e               0  no heartbeat, idle for 104.0 s",
        "a               0  alive",
    ]
    assert "external API: HTTP 401 (for 6 min, since 2026-01-02 03:03:59 UTC)" in lines


def test_on_a_narrow_terminal_the_state_of_each_consumer_is_below() -> None:
    name = "ingest-worker-6d4b75cb6d-x7k2p-7f9c41aa-0"

    lines = shown(consumer(name, reasons=[circuit("HTTP 401", 361.0)]), consumer("b"), width=60)

    assert lines[-5:] == [
        f"{'consumer':<{len(name)}}  pending",
        f"{name}        0",
        "  alive, circuit open",
        f"{'b':<{len(name)}}        0",
        "  alive",
    ]


def test_one_cause_is_shown_once_however_many_processes_have_it() -> None:
    lines = shown(*(consumer(f"w{n}", reasons=[circuit("HTTP 503", n)]) for n in range(300)))

    assert [line for line in lines if line.startswith("external API")] == [
        "external API: HTTP 503 (for 5 min, since 2026-01-02 03:05:01 UTC)"
    ]
    assert lines[-1] == "and 280 more: --json shows all"


def test_a_server_of_several_sources_is_named_once_and_a_shop_for_itself() -> None:
    full = Reason(State.STORE_UNAVAILABLE, "No space left on device", AT.timestamp() - 120.0, POSTGRES)
    later = Reason(State.STORE_UNAVAILABLE, "No space left on device", AT.timestamp() - 30.0, POSTGRES)
    workers = [consumer("w", reasons=[full]), consumer("w", reasons=[later, circuit("HTTP 503", 5.0)])]
    sources = [
        SystemStatus(AT.isoformat(), name, name, "ingest", QUEUE, [each], ORDERS, {}, condition=condition(each))
        for name, each in zip(("a", "b"), workers, strict=True)
    ]

    assert list(lines_of(sources, 200))[-2:] == [
        "postgres: No space left on device (for 2 min, since 2026-01-02 03:08:00 UTC)",
        "b: external API: HTTP 503 (for 5.0 s, since 2026-01-02 03:09:55 UTC)",
    ]
    assert [each.condition.state for each in sources] == [State.STORE_UNAVAILABLE] * 2
    assert all(each.condition.cannot_work for each in sources)


@pytest.mark.parametrize("width", [50, 80])
def test_an_error_is_broken_between_words(width: int) -> None:
    lines = shown(
        queue=None, errors={"redis": "Error 111 connecting to 127.0.0.1:1.\nConnect call failed " * 2}, width=width
    )

    assert max(map(len, lines)) <= width
    assert "redis: Error 111 connecting to 127.0.0.1:1. Connect call failed Error" in " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (119.9, "119.9 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 d")]
)
def test_a_duration_is_rounded(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_no_further_worker_is_recommended_for_a_source_whose_configuration_workers_reject() -> None:
    rejected = Reason(State.REJECTED, "own.toml: not TOML (ingest worker on web1)", 50.0, needs_operator=True)
    conditions = {
        "a": condition_of(QUEUE, {}, None, (), (None, lambda _: None), [rejected]),
        "b": condition(consumer("w-0")),
    }

    found = notices_of(conditions)

    assert [(each.sources, each.reason) for each in found] == [(["a"], rejected)]
