"""The causes of the alerts. Each really happens, and ends when its block ends."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import asyncpg
from aiohttp import web
from rehearsals.alerting.divided import a_node_accepts_no_writes
from rehearsals.alerting.system import APART, Shop, System, good, slow

# The name and the severity of an alert, and its source or an empty text.
Caused = tuple[str, str, str]
Cause = Callable[[System, float], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A cause, which `speed` may scale, and all alerts that have to fire while it holds, and to end after it."""

    alerts: tuple[Caused, ...]
    cause: Cause

    @property
    def name(self) -> str:
        return self.cause.__name__


@asynccontextmanager
async def more_orders_than_the_shop_serves(system: System, speed: float) -> AsyncIterator[None]:
    system.shops["slow"] = slow
    # One order a second, so that the last one waits longer than an hour, divided by the speed.
    await system.enqueue("slow", *(f"slow-{number}" for number in range(int(5000 / speed))))
    yield
    del system.shops["slow"]
    await system.finished("slow")


@asynccontextmanager
async def a_shop_is_down(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.enqueue("down", "known")
    await system.finished("down")

    async def down(order_id: str) -> web.Response:
        return web.Response(status=503, text=order_id)

    system.shops["down"] = down
    async with system.steadily("down", "a"):
        yield
    del system.shops["down"]
    await system.finished("down")


@asynccontextmanager
async def one_order_does_not_exist(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.enqueue("gone", "known")
    await system.finished("gone")

    system.shops["gone"] = _missing_if("lost")
    await system.enqueue("gone", "lost")
    yield


@asynccontextmanager
async def most_orders_do_not_exist(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.shops["wrong"] = _missing_if("lost")
    async with system.steadily("wrong", "known", "lost-a", "lost-b", "lost-c"):
        yield
    await system.finished("wrong")


@asynccontextmanager
async def lines_miss_an_amount(system: System, speed: float) -> AsyncIterator[None]:
    del speed

    async def with_a_fee(order_id: str) -> web.Response:
        return web.Response(text=str(good(order_id).text).replace('"5.00"', '"7.00"'), content_type="application/json")

    system.shops["totals"] = with_a_fee
    # Within an hour, divided by the speed, they are rare again.
    await system.enqueue("totals", "known")
    async with system.steadily("totals", "a"):
        yield
    del system.shops["totals"]


@asynccontextmanager
async def a_new_shop_knows_no_order(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.shops["unknown"] = _missing_if("")
    await system.enqueue("unknown", *(f"order-{number}" for number in range(20)))
    yield
    del system.shops["unknown"]
    await system.finished("unknown")


@asynccontextmanager
async def most_requests_fail(system: System, speed: float) -> AsyncIterator[None]:
    del speed

    async def failing(order_id: str) -> web.Response:
        return web.Response(status=500) if "bad" in order_id else good(order_id)

    system.shops["failing"] = failing
    await system.enqueue("failing", "known")
    await system.finished("failing")
    async with system.steadily("failing", "good", "bad-a", "bad-b", "bad-c", "bad-d"):
        yield
    del system.shops["failing"]
    await system.finished("failing", 400)


@asynccontextmanager
async def a_list_is_broken(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.lists_work = False
    yield
    system.lists_work = True


@asynccontextmanager
async def entry_ids_are_used_up(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.use_up_entry_ids("ahead")
    yield
    await system.run("partitions", "repair", "--source", "ahead")
    await system.enqueue("ahead", "next")
    await system.finished("ahead")


@asynccontextmanager
async def a_webhook_has_another_secret(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    for _ in range(10):
        assert await system.post_webhook("signed", "d3Jvbmc=") == 401
        # The counter has to grow after the first scrape.
        await asyncio.sleep(1)
    yield


@asynccontextmanager
async def the_secret_of_a_webhook_is_missing(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    for _ in range(10):
        assert await system.post_webhook("unread", "d3Jvbmc=") == 503
        await asyncio.sleep(1)
    yield


@asynccontextmanager
async def a_shop_throttles_everything(system: System, speed: float) -> AsyncIterator[None]:
    del speed

    async def throttled(order_id: str) -> web.Response:
        return web.Response(status=429, text=order_id)

    system.shops["throttled"] = throttled
    async with system.steadily("throttled", "a"):
        yield
    del system.shops["throttled"]
    await system.finished("throttled")


@asynccontextmanager
async def the_table_of_orders_is_locked(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    connection = await asyncpg.connect(system.on.postgres_dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE orders")
            await system.enqueue("gone", "waits-for-the-table")
            yield
    finally:
        await connection.close()
    await system.finished("gone")


@asynccontextmanager
async def the_keys_of_a_source_are_forbidden(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.permit(without="orders/forbidden")
    yield
    system.permit()


@asynccontextmanager
async def the_worker_of_a_source_is_stopped(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.stop(APART)
    await system.enqueue(APART, "waits")
    yield
    await system.start_apart()
    await system.finished(APART)


@asynccontextmanager
async def all_workers_are_stopped(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.stop(*system.workers)
    await system.enqueue("gone", "waits")
    yield
    await system.start_workers()
    await system.finished("gone")


@asynccontextmanager
async def workers_may_not_read(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.stop(*system.workers)
    system.permit(commands="+@all -xreadgroup")
    await system.start_workers()
    yield
    system.permit()


@asynccontextmanager
async def redis_refuses_connections(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.redis.refuse()
    system.redis.cut()
    async with system.steadily("gone", "a"):
        yield
    system.redis.accept()
    await system.finished("gone")


@asynccontextmanager
async def a_source_is_paused(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    await system.run("pause", "--source", "paused", "--reason", "rehearsal")
    yield
    await system.run("resume", "--source", "paused")


@asynccontextmanager
async def the_api_hangs(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    system.signal_all("api", signal.SIGSTOP)
    yield
    system.signal_all("api", signal.SIGCONT)


@asynccontextmanager
async def worker_processes_are_killed(system: System, speed: float) -> AsyncIterator[None]:
    del speed
    for _ in range(4):
        await system.kill_child("worker")
    yield


def _missing_if(part: str) -> Shop:
    async def respond(order_id: str) -> web.Response:
        return web.Response(status=404) if part in order_id else good(order_id)

    return respond


def _one(name: str, severity: str, source: str, cause: Cause) -> Scenario:
    return Scenario(((name, severity, source),), cause)


# Each has its own source, so that all of them happen concurrently.
OF_SOURCES = (
    Scenario(
        (("IngestQueueOld", "warning", "slow"), ("IngestQueueOld", "critical", "slow")),
        more_orders_than_the_shop_serves,
    ),
    Scenario(
        (("IngestCircuitOpen", "warning", "down"), ("IngestNothingStored", "critical", "down")),
        a_shop_is_down,
    ),
    _one("IngestDeadLetters", "warning", "gone", one_order_does_not_exist),
    _one("IngestMostOrdersDead", "critical", "wrong", most_orders_do_not_exist),
    _one("IngestTotalDifferences", "warning", "totals", lines_miss_an_amount),
    _one("IngestNoKnownOrder", "critical", "unknown", a_new_shop_knows_no_order),
    _one("IngestUpstreamFailing", "warning", "failing", most_requests_fail),
    _one("IngestEntryIdsAhead", "critical", "ahead", entry_ids_are_used_up),
    _one("IngestPollBehind", "warning", "listed", a_list_is_broken),
    _one("IngestThrottled", "warning", "throttled", a_shop_throttles_everything),
    _one("IngestPausedLong", "warning", "paused", a_source_is_paused),
    _one("IngestWebhookSignatures", "warning", "signed", a_webhook_has_another_secret),
    _one("IngestWebhooksRejected", "warning", "unread", the_secret_of_a_webhook_is_missing),
)
# These concern processes, Redis or its users, which all sources share.
ALONE = (
    _one("IngestQueueUnreadable", "critical", "forbidden", the_keys_of_a_source_are_forbidden),
    _one("IngestPartitionStuck", "critical", "parted", a_node_accepts_no_writes),
    _one("IngestSourceNotServed", "critical", APART, the_worker_of_a_source_is_stopped),
    _one("IngestSourceCannotWork", "critical", "", the_table_of_orders_is_locked),
    _one("IngestTargetDown", "warning", "", the_api_hangs),
    _one("IngestProcessesRestart", "warning", "", worker_processes_are_killed),
    Scenario(
        (("IngestRedisUnreachable", "critical", ""), ("IngestApiErrors", "critical", "")),
        redis_refuses_connections,
    ),
    _one("IngestNoConsumers", "critical", "gone", workers_may_not_read),
    _one("IngestNoWorkers", "critical", "", all_workers_are_stopped),
)


def labels_of(caused: Caused) -> Mapping[str, str]:
    """The labels by which an alert is found."""
    name, severity, source = caused
    return {"alertname": name, "severity": severity, **({"source": source} if source else {})}
