"""The situations of an operator who is on call, found and repaired on pages of the console."""

import os
import re
import signal
from contextlib import suppress

from browser.console_operator import ConsoleOperator
from dead_letter_entries import chunks, dead_fields
from integration.scene import Scene, ids
from redis.asyncio import Redis
from rehearsals.on_call.stage import Stage
from rehearsals.on_call.walks_orders import KINDS, MAPPING, POISON
from support import connected, eventually

SHOP = "shop-de"
_SOURCE = f"/sources/show?source={SHOP}"


async def api_down(stage: Stage, operator: ConsoleOperator) -> None:
    shop = stage.scene(SHOP)
    async with stage.worker():
        shop.api.behave(down="503")
        await shop.enqueue(*ids(50))

        await operator.sees("/", "circuit open")
        await operator.sees(_SOURCE, "Circuit open: HTTP 503")
        shop.api.behave(down=None)

        await operator.sees(_SOURCE, "State running")
        await stage.stores(SHOP, 50)
    assert await shop.dead() == []


async def api_slow(stage: Stage, operator: ConsoleOperator) -> None:
    shop = stage.scene(SHOP)
    async with stage.worker(concurrency=40):
        await shop.enqueue(*ids(10))
        shop.api.behave(latency="2")
        stage.shops.write(**{SHOP: "concurrency = 2"})
        await shop.enqueue(*ids(400, "late"))

        await operator.sees(_SOURCE, r"2(\.\d+)? s on average")
        await operator.press("Change limits")
        await operator.fill("Concurrency", "40")
        await operator.press("Change")
        await operator.sees(_SOURCE, "changed to 40")
        shop.api.behave(latency="0")
        await stage.stores(SHOP, 410)
        await operator.press("Change limits")
        await operator.press("Use the configured limits")


async def wrong_credential(stage: Stage, operator: ConsoleOperator) -> None:
    stage.write("token", "old")
    token = f'upstream.auth = "bearer"\nupstream.token_file = "{stage.folder / "token"}"'
    stage.shops.write(**{SHOP: token})
    shop = stage.scene(SHOP)
    async with stage.worker():
        shop.api.behave(token="new")
        await shop.enqueue(*ids(50))

        await operator.sees(_SOURCE, "Circuit open: HTTP 401: the external API rejects our credential")
        with operator.other_tool("echo NEW > /run/secrets/shop-de"):
            stage.write("token", "new")

        await operator.sees(_SOURCE, "State running")
        await stage.stores(SHOP, 50)
    assert await shop.dead() == []


async def database_down(stage: Stage, operator: ConsoleOperator) -> None:
    async with stage.worker():
        await stage.scene(SHOP).enqueue(*ids(50))
        await stage.stores(SHOP, 50)
        stage.servers.postgres.stop()
        await stage.scene(SHOP).enqueue(*ids(50, "late"))

        await operator.sees("/", r"PostgreSQL is unavailable\. .*")
        with operator.other_tool("systemctl start postgresql"):
            stage.servers.postgres.start()

        await stage.stores(SHOP, 100)
        await operator.sees("/", "(?s)^(?!.*PostgreSQL is unavailable).")


async def locked_table(stage: Stage, operator: ConsoleOperator) -> None:
    shop = stage.scene(SHOP)
    async with stage.worker(), connected(shop.dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("LOCK TABLE orders")
        await shop.enqueue(*ids(50))

        shown = await operator.sees(
            "/", r"Store unavailable: postgres\. The session \d+ of the role \S+ .*?backend\(\d+\)"
        )
        statement = re.search(r"SELECT pg_terminate_backend\(\d+\)", shown)
        assert statement is not None
        with operator.other_tool(f"psql -c '{statement[0]}'"):
            await shop.sql(statement[0])

        await stage.stores(SHOP, 50)
        await operator.sees("/", "(?s)^(?!.*has locked the table).")


async def redis_full(stage: Stage, operator: ConsoleOperator) -> None:
    shop, count = stage.scene(SHOP), int(30_000 * stage.size)
    async with Redis.from_url(shop.redis_url) as redis, stage.worker():
        await _add_dead(redis, shop, [dead_fields(number, document="x" * 500) for number in range(count)])
        await redis.config_set("maxmemory", int((await redis.info("memory"))["used_memory"] * 0.9))
        try:
            await operator.sees("/", r"Redis is full\. It uses \S+ MiB of \S+ MiB")
            await operator.open_page(f"/dead-letters?source={SHOP}")
            exported = await operator.downloads("Download as JSON lines")
            await operator.press("Drop all matching…")
            await operator.press(f"Drop {count:,}")
            await operator.waits_for_job()
            await operator.sees("/", "(?s)^(?!.*Redis is full).")
            await shop.enqueue(*ids(50))

            await stage.stores(SHOP, 50)
            assert exported.count("\n") == count
        finally:
            await redis.config_set("maxmemory", 0)


async def stuck_worker(stage: Stage, operator: ConsoleOperator) -> None:
    async with stage.worker(heartbeat_ttl=1) as command:
        await operator.sees("/workers", r"alive .*alive .* 2 processes\.")
        pid = command.pid_of("worker-1")
        os.kill(pid, signal.SIGSTOP)
        try:
            await stage.scene(SHOP).enqueue(*ids(50))

            await operator.sees("/workers", r"Gone processes .* (stale|gone) for")
            await stage.stores(SHOP, 50)
            with operator.other_tool(f"kill -9 {pid}   # the log has it: process_started process=worker-1"):
                os.kill(pid, signal.SIGKILL)
        finally:
            # It may have been killed a moment ago.
            if command.pid_of("worker-1") == pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        await eventually(lambda: command.pid_of("worker-1") != pid)
        await operator.sees("/workers", r"alive .*alive .* 2 processes\.")


async def poison(stage: Stage, operator: ConsoleOperator) -> None:
    stage.write("poisoned.py", POISON)
    stage.shops.write(**{SHOP: 'transform = "poisoned:transform"'})
    async with stage.worker():
        await stage.scene(SHOP).enqueue(*ids(50), "poison")

        await operator.sees("/dead-letters", "1 dead letter in 1 group", within=180)
        await stage.stores(SHOP, 50)
    with operator.other_tool("vi poisoned.py; systemctl restart order-ingest-worker"):
        stage.write("poisoned.py", POISON.replace("os._exit(1)", "return order"))
    async with stage.worker():
        await operator.open_page("/dead-letters")
        await operator.press("Replay 1 with .*")
        await operator.press("Replay 1")
        await operator.waits_for_job()

        await stage.stores(SHOP, 51)


def use_wrong_mapping(stage: Stage) -> None:
    """Configure the mapping before `ingest api` starts, which reads the sources file then."""
    stage.write("mapping.toml", MAPPING.format(currency="USD"))
    stage.shops.write(**{SHOP: 'mapping = "mapping.toml"\nkeep_document = "on"'})


async def wrong_mapping(stage: Stage, operator: ConsoleOperator) -> None:
    shop, orders = stage.scene(SHOP), ids(int(10_000 * stage.size))
    async with stage.worker():
        await shop.enqueue(*orders)
        await stage.stores(SHOP, len(orders))

        await operator.sees(f"/orders?source={SHOP}", "USD")
        with operator.other_tool("vi mapping.toml"):
            stage.write("mapping.toml", MAPPING.format(currency="EUR"))
            stage.shops.write(**{SHOP: 'mapping = "mapping.toml"\nkeep_document = "on"\nresults = "off"'})
        await operator.open_page(f"/orders?source={SHOP}")
        await operator.press("Remap all matching…")
        await operator.press(r"Remap [\d,]+.*")
        await operator.waits_for_job()
    found = await shop.sql("SELECT currency, count(*) FROM orders WHERE source = $1 GROUP BY currency", SHOP)
    assert [tuple(row) for row in found] == [("EUR", len(orders))]


async def many_dead_letters(stage: Stage, operator: ConsoleOperator) -> None:
    shop, counts = stage.scene(SHOP), {}
    async with Redis.from_url(shop.redis_url) as redis, stage.worker():
        for reason, error, share in KINDS:
            counts[reason] = count = round(30_000 * stage.size * share)
            await _add_dead(
                redis,
                shop,
                [dead_fields(f"{reason}-{n}", reason, error=error.replace("10", str(n % 90))) for n in range(count)],
            )
        await operator.sees("/dead-letters", rf"{sum(counts.values()):,} dead letters in 4 groups")
        await operator.press("HTTP 404")
        exported = await operator.downloads("Download as JSON lines")
        await operator.press("Drop all matching…")
        await operator.press(f"Drop {counts['not_found']:,}")
        await operator.waits_for_job()
        for reason in ("attempts_exhausted", "invalid_order", "transform_failed"):
            await operator.open_page("/dead-letters")
            await operator.press(f"Replay {counts[reason]} with .*")
            await operator.press(f"Replay {counts[reason]:,}")
            await operator.waits_for_job()

        expected = sum(count for reason, count in counts.items() if reason != "not_found")
        await stage.stores(SHOP, expected, within=300)
    assert exported.count("\n") == counts["not_found"]
    assert await stage.stored(SHOP) == expected
    assert await shop.dead() == []


async def many_retries(stage: Stage, operator: ConsoleOperator) -> None:
    shop, orders = stage.scene(SHOP), ids(int(3_000 * stage.size) + 50)
    async with stage.worker():
        shop.api.behave(error_rate=0.5, error_status=500)
        await shop.enqueue(*orders)

        await operator.sees("/retries", r"HTTP 500 http_status")
        shop.api.behave(error_rate=0.0)
        await operator.open_page(f"/retries?source={SHOP}&reason=http_status")
        await operator.press("Run all matching now…")
        await operator.press(r"Run now [\d,]+")
        await operator.waits_for_job()

        await stage.stores(SHOP, len(orders))
    assert await shop.dead() == []


async def erased_customer(stage: Stage, operator: ConsoleOperator) -> None:
    shop = stage.scene(SHOP)
    async with stage.worker():
        await shop.enqueue(*ids(200))
        await stage.stores(SHOP, 200)
        rows = await shop.sql(
            "SELECT customer_id, count(*) FROM orders WHERE customer_id <> '' GROUP BY 1 ORDER BY 2 DESC"
        )
        customer, count = rows[0]
        erased = await shop.sql("SELECT order_id FROM orders WHERE customer_id = $1", customer)

        await operator.open_page(f"/orders?source={SHOP}")
        await operator.fill("Customer", customer)
        await operator.press("Filter")
        await operator.press("Erase all matching…")
        await operator.press("Erase for good")
        await operator.sees(f"/orders?source={SHOP}&customer_id={customer}", "No stored order matches")
        await shop.enqueue(*(row[0] for row in erased))

        await shop.finished()
    assert await stage.stored(SHOP) == 200 - count


async def _add_dead(redis: Redis, shop: Scene, entries: list[dict[str, str]]) -> None:
    for chunk in chunks(entries):
        async with redis.pipeline(transaction=False) as pipe:
            for fields in chunk:
                pipe.xadd(shop.keys.dead, fields)  # type: ignore[arg-type]
            await pipe.execute()
