"""Situations in which a server or a process fails. The operator finds the cause by commands, and repairs it."""

import os
import re
import signal
from contextlib import suppress

from dead_letter_entries import chunks, dead_fields
from integration.scene import ids
from redis.asyncio import Redis
from rehearsals.on_call.stage import Operator, Stage
from support import connected, eventually


async def api_down(stage: Stage, operator: Operator) -> None:
    shop, orders = stage.scene("shop-de"), ids(50)
    async with stage.worker():
        shop.api.behave(down="503")
        await operator.enqueue("shop-de", orders)

        await operator.sees("status", text=r"shop-de: external API: HTTP 503 \(for")
        await operator.sees(
            "doctor", "--source", "shop-de", text="shop-de: order .* HTTP 503 -> ask the API's operator"
        )
        shop.api.behave(down=None)

        await operator.sees("status", text=r"shop-de 0 0 0 0 50 - idle")
    assert await shop.dead() == []


async def api_slow(stage: Stage, operator: Operator) -> None:
    shop = stage.scene("shop-fr")
    stage.shops.write(**{"shop-fr": "concurrency = 5"})
    async with stage.worker():
        shop.api.behave(latency="2")
        await operator.enqueue("shop-fr", ids(400))

        await operator.sees("top", "--once", text=r"shop-fr: requests to the external API take 2\.\d s")
        await operator.run("tune", "--source", "shop-fr", "--concurrency", "40")
        await operator.sees("top", "--once", text=r"shop-fr \d+ 0 0 \d+ s \S+ ([12]\d|3\d|4\d) ")
        shop.api.behave(latency="0")
        await operator.run("tune", "--source", "shop-fr", "--reset")

        await operator.sees("status", text=r"shop-fr 0 0 0 0 400 ")


async def wrong_credential(stage: Stage, operator: Operator) -> None:
    stage.write("token", "old")
    token = f'upstream.auth = "bearer"\nupstream.token_file = "{stage.folder / "token"}"'
    stage.shops.write(**{"shop-de": token})
    shop = stage.scene("shop-de")
    async with stage.worker():
        shop.api.behave(token="new")
        await operator.enqueue("shop-de", ids(50))

        await operator.sees("status", text="shop-de: external API: HTTP 401: the external API rejects our credential")
        await operator.sees("config", text=r"sources.shop-de.upstream.token \*\*\* (from )?\S+/token")
        with operator.other_tool("echo NEW > /run/secrets/shop-de"):
            stage.write("token", "new")
        await operator.run("source", "check", "shop-de", "--id", "order-1")

        await operator.sees("status", text=r"shop-de 0 0 0 0 50 - idle")
    assert await shop.dead() == []


async def database_down(stage: Stage, operator: Operator) -> None:
    async with stage.worker():
        await operator.enqueue("shop-de", ids(50))
        await stage.stores("shop-de", 50)
        stage.servers.postgres.stop()
        await operator.enqueue("shop-fr", ids(50))

        await operator.sees("status", text="postgres: cannot connect to")
        await operator.sees("doctor", text="^error postgres unavailable: cannot connect")
        with operator.other_tool("systemctl start postgresql"):
            stage.servers.postgres.start()

        await operator.sees("status", text=r"shop-fr 0 0 0 0 50 ")


async def locked_table(stage: Stage, operator: Operator) -> None:
    shop = stage.scene("shop-de")
    async with stage.worker(), connected(shop.dsn) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("LOCK TABLE orders")
        await operator.enqueue("shop-de", ids(50))

        await operator.sees("status", text="postgres: the session .* has locked the table orders")
        found = await operator.sees(
            "doctor", text=r"error postgres another transaction has locked orders .* process \d+"
        )
        statement = re.search(r"SELECT pg_terminate_backend\(\d+\)", " ".join(found.split()))
        assert statement is not None, found
        with operator.other_tool(f"psql -c '{statement[0]}'"):
            await shop.sql(statement[0])

        await operator.sees("status", text=r"shop-de 0 0 0 0 50 ")


async def redis_full(stage: Stage, operator: Operator) -> None:
    shop = stage.scene("shop-de")
    count = int(30_000 * stage.size)
    async with Redis.from_url(shop.redis_url) as redis, stage.worker():
        for chunk in chunks(dead_fields(number, document="x" * 500) for number in range(count)):
            async with redis.pipeline(transaction=False) as pipe:
                for fields in chunk:
                    pipe.xadd(shop.keys.dead, fields)
                await pipe.execute()
        await redis.config_set("maxmemory", int((await redis.info("memory"))["used_memory"] * 0.9))
        try:
            await operator.sees("doctor", text="error redis .*memory")
            await operator.sees("status", text=rf"shop-de \d+ \d+ 0 {count:,}")
            exported = stage.folder / "dead.jsonl"
            await operator.run("dead", "export", "--source", "shop-de", "--output", str(exported))
            await operator.run("dead", "drop", "--source", "shop-de", "--all", "--yes")
            await operator.enqueue("shop-de", ids(50))

            await operator.sees("status", text=r"shop-de 0 0 0 0 50 ")
            assert exported.read_text().count("\n") == count
        finally:
            await redis.config_set("maxmemory", 0)


async def stuck_worker(stage: Stage, operator: Operator) -> None:
    async with stage.worker(heartbeat_ttl=1) as command:
        pid = command.pid_of("worker-1")
        os.kill(pid, signal.SIGSTOP)
        try:
            await operator.enqueue("shop-de", ids(50))

            await operator.sees("health", text="stalled: worker-1")
            await operator.sees("status", text=r"shop-de 0 0 0 0 50 ")
            with operator.other_tool(f"kill -9 {pid}   # the log has it: process_started process=worker-1"):
                os.kill(pid, signal.SIGKILL)
        finally:
            # It may have been killed a moment ago.
            if command.pid_of("worker-1") == pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

        await eventually(lambda: command.pid_of("worker-1") != pid)
        await operator.sees("health", text="^ok$")
