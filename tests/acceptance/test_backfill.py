"""`ingest backfill` as a process. It enqueues missing orders, survives kills, and gives way to live orders."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import aiohttp
import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.scene import Scene
from shop_source import SOURCE, ShopSource, shop_source
from support import Cli, eventually

EXPIRE = "UPDATE jobs SET leased_until = clock_timestamp() WHERE state = 'active'"


@pytest.fixture
async def shop(scene: Scene, tmp_path: Path) -> AsyncIterator[ShopSource]:
    async with shop_source(scene, tmp_path, orders=200) as shop:
        yield shop


@pytest.fixture
def workers(cli: Cli, shop: ShopSource) -> Iterator[Workers]:
    with closing_workers(cli, dict(shop.env)) as workers:
        yield workers


async def run(cli: Cli, shop: ShopSource, *arguments: str) -> CompletedProcess[str]:
    return await asyncio.to_thread(cli.run, *arguments, env=dict(shop.env))


async def job(shop: ShopSource) -> Any:
    return (await shop.scene.sql("SELECT * FROM jobs ORDER BY id DESC LIMIT 1"))[0]


async def all_stored(shop: ShopSource) -> None:
    wanted = set(shop.order_ids())

    async def are_stored() -> bool:
        return await shop.stored() == wanted

    await eventually(are_stored)


async def test_a_backfill_stores_every_order_of_the_period_and_repeats_nothing(
    cli: Cli, shop: ShopSource, workers: Workers
) -> None:
    workers.start()

    dry = await run(cli, shop, "backfill", "--since", "60d", "--dry-run")
    done = await run(cli, shop, "backfill", "--since", "60d", "--json")
    await all_stored(shop)
    again = await run(cli, shop, "backfill", "--since", "60d")

    counted = "dry run 1 of outdoor is done: would enqueue 200 orders (200 missing, 0 outdated) of 200 listed\n"
    assert dry.stdout == counted, dry.stderr
    ended = json.loads(done.stdout)
    assert (done.returncode, ended["state"], ended["listed"], ended["missing"]) == (0, "done", 200, 200), done.stderr
    assert again.stdout == "backfill 3 of outdoor is done: enqueued 0 orders (0 missing, 0 outdated) of 200 listed\n"
    audited = await shop.scene.sql("SELECT phase, action, source FROM audit_log ORDER BY id")
    assert [tuple(row) for row in audited] == 3 * [
        ("begun", "backfills.start", SOURCE),
        ("done", "backfills.start", SOURCE),
    ]


async def test_a_second_backfill_is_refused_until_the_first_is_cancelled_and_it_can_be_resumed(
    cli: Cli, shop: ShopSource
) -> None:
    # Without workers, a backfill waits after its first orders.
    first = cli.start("backfill", "--since", "60d", "--rate", "1", env=dict(shop.env))
    await eventually(lambda: is_running(shop))

    second = await run(cli, shop, "backfill", "--since", "60d")
    resumed = await run(cli, shop, "backfill", "resume", "1")
    listed = await run(cli, shop, "backfill", "list", "--json")
    cancelled = await run(cli, shop, "backfill", "cancel", "1")
    await eventually(lambda: first.poll() is not None)
    out, err = await asyncio.to_thread(first.communicate)

    assert (second.returncode, resumed.returncode) == (1, 1)
    assert "the backfill 1 of outdoor is running in " in second.stderr
    assert json.loads(listed.stdout)["state"] == "running"
    assert (cancelled.returncode, cancelled.stdout[:26]) == (0, "backfill 1 is cancelled: e"), cancelled.stderr
    assert first.returncode == 1
    assert out.startswith("backfill 1 of outdoor is cancelled: enqueued "), err
    assert "continue it with: ingest backfill resume 1" in err


async def is_running(shop: ShopSource) -> bool:
    return bool(await shop.scene.sql("SELECT FROM jobs WHERE leased_until IS NOT NULL"))


async def test_ctrl_c_cancels_a_backfill_which_can_be_resumed(cli: Cli, shop: ShopSource, workers: Workers) -> None:
    running = cli.start("backfill", "--since", "60d", env=dict(shop.env))
    await eventually(lambda: is_running(shop))

    running.send_signal(signal.SIGINT)
    await eventually(lambda: running.poll() is not None)
    _, err = await asyncio.to_thread(running.communicate)
    after = await job(shop)
    workers.start()
    resumed = await run(cli, shop, "backfill", "resume", "1")

    assert (running.returncode, after["state"]) == (130, "cancelled"), err
    assert "continue it with `ingest backfill resume 1`" in err
    assert resumed.stdout.startswith("backfill 1 of outdoor is done: "), resumed.stderr
    await all_stored(shop)


async def test_a_backfill_requested_over_http_survives_the_end_of_the_api_and_of_a_worker_process(
    cli: Cli, shop: ShopSource, workers: Workers
) -> None:
    async with api_of(cli, shop) as call:
        started = await call("POST", "", {"since": "2020-01-01T00:00:00Z", "rate": 100})
    command = workers.start(processes=2)
    [begun] = [await command.says("job_begun")]

    async def has_progress() -> bool:
        return int((await job(shop))["listed"]) > 0

    await eventually(has_progress)
    holder = str((await job(shop))["holder"])
    command.ask_child(f"worker-{holder.rpartition('-')[2]}", signal.SIGKILL)
    await shop.scene.sql(EXPIRE)
    await command.says("job_ended", state="done")

    assert (started[0], started[1]["state"], begun["job"]) == (202, "waiting", started[1]["id"])
    assert (await job(shop))["lease"] == 2
    await all_stored(shop)


async def test_a_dry_run_requested_over_http_is_counted_by_a_worker_and_enqueues_nothing(
    cli: Cli, shop: ShopSource, workers: Workers
) -> None:
    async with api_of(cli, shop) as call:
        started = await call("POST", "", {"since": "2020-01-01T00:00:00Z", "dry_run": True})
        second = await call("POST", "", {"since": "2020-01-01T00:00:00Z"})
        command = workers.start()
        begun = await command.says("job_begun", kind="backfill")
        await command.says("job_ended", state="done")
        shown = await call("GET", f"/{started[1]['id']}")
    listed = await run(cli, shop, "backfill", "list")

    assert (started[0], second[0], second[1]["code"]) == (202, 409, "unfinished_backfill")
    assert begun["job"] == started[1]["id"]
    counts = {name: shown[1][name] for name in ("dry_run", "listed", "missing", "outdated", "up_to_date", "enqueued")}
    assert counts == {"dry_run": True, "listed": 200, "missing": 200, "outdated": 0, "up_to_date": 0, "enqueued": 0}
    assert "done (dry run)" in listed.stdout
    assert await shop.scene.redis.xlen(shop.scene.keys.stream) == 0
    assert await shop.stored() == set()


@asynccontextmanager
async def api_of(cli: Cli, shop: ShopSource) -> AsyncIterator[Callable[..., Awaitable[tuple[int, Any]]]]:
    """Run the real API, and call its paths below the backfills."""
    api = WorkerCommand(cli.start("api", env={**shop.env, "INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}))
    try:
        url = f"{(await api.says('listening'))['url']}/v1/backfills"
        async with aiohttp.ClientSession() as http:

            async def call(method: str, path: str, body: Any = None) -> tuple[int, Any]:
                async with http.request(method, url + path, json=body) as response:
                    return response.status, await response.json()

            yield call
    finally:
        api.close()


async def test_a_live_order_does_not_wait_behind_a_backfill(cli: Cli, shop: ShopSource, workers: Workers) -> None:
    # The backfill takes five seconds at least.
    text = shop.file.read_text()
    shop.file.write_text(text.replace("tries = 1", "tries = 1\nrate = 40"))
    workers.start()
    running = cli.start("backfill", "--since", "60d", env=dict(shop.env))

    async def is_on_the_way() -> bool:
        return len(await shop.stored()) >= 20

    await eventually(is_on_the_way)
    live = shop.shop.state.create(quiet=True)
    order_id = shop.shop.kind.order_id(live.number)
    before = len(await shop.stored())
    await shop.scene.enqueue(order_id)

    async def is_stored() -> bool:
        return order_id in await shop.stored()

    await eventually(is_stored)
    overtaken = len(await shop.stored()) - before
    running.send_signal(signal.SIGINT)
    await eventually(lambda: running.poll() is not None)

    # Two seconds at this rate, and the portion that was just enqueued.
    assert overtaken <= 130, "it has waited behind the backfill"
