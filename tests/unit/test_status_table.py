"""What `ingest status` prints."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from ingest.cli.terminal.status_table import lines_of
from ingest.cli.terminal.times import format_duration
from ingest.domain.deliveries.queue_state import Lane, LaneState, QueueState
from ingest.operations.state.status import OrdersStatus, SystemStatus
from ingest.queue.operate.partition_monitor import CircuitState, ConsumerState

LANES = {Lane.MAIN: LaneState(depth=1_990, pending=3, oldest_age=400.0), Lane.EXPRESS: LaneState(10, 0, 2.5)}
QUEUE = QueueState(depth=2_000, pending=3, oldest_age=400.0, consumers=1, dead=1, lanes=LANES)
ORDERS = OrdersStatus(stored=7, last_ingested_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def consumer(name: str, state: Literal["alive", "stale", "unknown"] = "alive", **changed: Any) -> ConsumerState:
    return replace(ConsumerState(name, pending=0, idle=1.0, state=state), **changed)


def shown(
    *consumers: ConsumerState,
    width: int = 80,
    errors: dict[str, str] | None = None,
    queue: QueueState | None = QUEUE,
) -> list[str]:
    status = SystemStatus("now", "", "orders", "ingest", queue, list(consumers), ORDERS, errors or {})
    return list(lines_of([status], width))


def test_several_sources_are_shown_with_one_line_each_and_their_total() -> None:
    outage = CircuitState("HTTP 401", open_for=200.0, is_unproven=False)
    queues = [QUEUE, replace(QUEUE, depth=5, oldest_age=3.0, dead=0), replace(QUEUE, depth=None)]
    consumers = [[consumer("w-0", circuit=outage), consumer("w-1")], [consumer("w-0")], []]
    sources = [
        SystemStatus("now", name, f"orders/{name}", "ingest", queue, alive, ORDERS, {"postgres": "gone"})
        for name, queue, alive in zip(("shop-de", "b", "c"), queues, consumers, strict=True)
    ]

    assert list(lines_of(sources[:2], 100)) == [
        "source   waiting  pending  retries  dead  stored  oldest         circuit",
        "shop-de    2,000        3        0     1       7   7 min  open in 1 of 2",
        "b              5        3        0     0       7   3.0 s          closed",
        "total      2,005        6        0     1      14   7 min",
        "shop-de: external API: HTTP 401 (for 3 min)",
        "postgres: gone",
    ]
    *_, total, without_worker, _, _ = lines_of(sources, 100)
    assert without_worker == "c: no worker is running: start one with `ingest worker --source c`"
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
        "no worker is running: start one with `ingest worker`",
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
    circuit = CircuitState("HTTP 401", open_for=361.0)

    lines = shown(
        consumer("a"),
        consumer("b", circuit=circuit, pending=12),
        consumer("c", "stale", stale_for=12.3),
        consumer("d", "stale"),
        consumer("e", "unknown", idle=104.0),
    )

    assert lines[-6:] == [
        "consumer  pending  state",
        "b              12  alive, circuit open for 6 min",
        "c               0  stale for 12.3 s",
        "d               0  stopped",
        "e               0  no heartbeat, idle for 104.0 s",
        "a               0  alive",
    ]
    assert "circuit            open in 1 of 2 processes" in lines
    assert "external API: HTTP 401 (for 6 min)" in lines


def test_on_a_narrow_terminal_the_state_of_each_consumer_is_below() -> None:
    name = "ingest-worker-6d4b75cb6d-x7k2p-7f9c41aa-0"

    lines = shown(consumer(name, circuit=CircuitState("HTTP 401", open_for=361.0)), consumer("b"))

    assert lines[-5:] == [
        f"{'consumer':<{len(name)}}  pending",
        f"{name}        0",
        "  alive, circuit open for 6 min",
        f"{'b':<{len(name)}}        0",
        "  alive",
    ]


def test_one_cause_is_shown_once_however_many_processes_have_it() -> None:
    lines = shown(*(consumer(f"w{n}", circuit=CircuitState("HTTP 503", open_for=n)) for n in range(300)))

    assert [line for line in lines if line.startswith("external API")] == ["external API: HTTP 503 (for 5 min)"]
    assert lines[-1] == "and 280 more: --json shows all"


def test_the_circuit_is_closed_if_a_consumer_is_alive_and_unknown_if_none_is() -> None:
    def circuit(*consumers: ConsumerState) -> list[str]:
        return [line.split()[-1] for line in shown(*consumers) if line.startswith("circuit")]

    assert circuit(consumer("a")) == ["closed"]
    assert circuit(consumer("a", "stale", stale_for=1.0)) == ["-"]
    assert circuit() == []


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
