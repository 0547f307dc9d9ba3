"""Situations in which servers work, and orders do not. The operator finds the cause by commands, and repairs it."""

import json

from dead_letter_entries import chunks, dead_fields
from integration.scene import ids
from redis.asyncio import Redis
from rehearsals.on_call.stage import Operator, Stage

MAPPING = """
[order]
id = "id"
status = "status"
placed_at = "placed_at"
currency = {{ value = "{currency}" }}
customer_id = "customer_id"

[[lines]]
from = "lines"
sku = "sku"
quantity = "quantity"
unit_price = "unit_price"
"""
POISON = """
import os

def transform(order, document):
    if order.id == "poison":
        os._exit(1)
    return order
"""
KINDS = (
    ("attempts_exhausted", "timeout after 10 s", 0.5),
    ("invalid_order", "missing at `$.currency`", 0.3),
    ("not_found", "HTTP 404", 0.15),
    ("transform_failed", "KeyError at shop:12", 0.05),
)


async def poison(stage: Stage, operator: Operator) -> None:
    stage.write("poisoned.py", POISON)
    stage.shops.write(**{"shop-de": 'transform = "poisoned:transform"'})
    async with stage.worker():
        await operator.enqueue("shop-de", [*ids(50), "poison"])

        await operator.sees("status", text=r"shop-de 0 0 0 1 50 ", within=120)
        await operator.sees("dead", "list", text=r"shop-de \S+ poison max_deliveries")
    with operator.other_tool("vi poisoned.py; systemctl restart order-ingest-worker"):
        stage.write("poisoned.py", POISON.replace("os._exit(1)", "return order"))
    async with stage.worker():
        await operator.run("dead", "replay", "--source", "shop-de", "poison")

        await operator.sees("status", text=r"shop-de 0 0 0 0 51 ")


async def many_dead_letters(stage: Stage, operator: Operator) -> None:
    total, counts = int(30_000 * stage.size), {}
    for shop in ("shop-de", "shop-fr", "warehouse"):
        scene = stage.scene(shop)
        async with Redis.from_url(scene.redis_url) as redis:
            for reason, error, share in KINDS:
                counts[reason] = count = round(total * share / 3)
                fields = (
                    dead_fields(f"{reason}-{n}", reason, error=error.replace("10", str(n % 90))) for n in range(count)
                )
                for chunk in chunks(fields):
                    async with redis.pipeline(transaction=False) as pipe:
                        for each in chunk:
                            pipe.xadd(scene.keys.dead, each)
                        await pipe.execute()
    async with stage.worker():
        await operator.sees("status", text=rf"total 0 0 0 {3 * sum(counts.values()):,} ")
        found = await operator.run("dead", "groups", "--json")
        groups = [json.loads(line) for line in found.splitlines()]
        assert sorted((each["source"], each["reason"], each["count"]) for each in groups) == sorted(
            (shop, reason, count) for shop in ("shop-de", "shop-fr", "warehouse") for reason, count in counts.items()
        )
        every_shop = ("--source", "shop-de", "--source", "shop-fr", "--source", "warehouse")
        gone = stage.folder / "not-found.jsonl"
        await operator.run("dead", "export", "--reason", "not_found", "--output", str(gone))
        await operator.run("dead", "drop", *every_shop, "--reason", "not_found", "--yes")
        await operator.run("dead", "replay", *every_shop, "--shape", "timeout after 10 s", "--dry-run")
        await operator.run("dead", "replay", *every_shop, "--shape", "timeout after 10 s", "--yes")
        await operator.run("dead", "replay", *every_shop, "--text", "$.currency", "--yes")
        await operator.run("dead", "replay", *every_shop, "--reason", "transform_failed", "--yes")

        await operator.sees("status", text=r"total 0 0 0 0 [\d,]+ -", within=300)
    assert gone.read_text().count("\n") == 3 * counts["not_found"]
    stored = sum([await stage.stored(shop) for shop in ("shop-de", "shop-fr", "warehouse")])
    assert stored == 3 * sum(count for reason, count in counts.items() if reason != "not_found")


async def many_retries(stage: Stage, operator: Operator) -> None:
    shop, orders = stage.scene("shop-de"), ids(int(3_000 * stage.size) + 50)
    async with stage.worker():
        shop.api.behave(error_rate=0.5, error_status=500)
        await operator.enqueue("shop-de", orders)

        await operator.sees("status", text=r"shop-de [\d,]+ [\d,]+ [1-9][\d,]* ")
        await operator.sees("retries", "groups", text=r"shop-de [\d,]+ http_status .* HTTP 500")
        shop.api.behave(error_rate=0.0)
        await operator.run("retries", "run-now", "--source", "shop-de", "--reason", "http_status", "--yes", code=None)

        await operator.sees("status", text=rf"shop-de 0 0 0 0 {len(orders):,} ", within=120)
    assert await shop.dead() == []


async def wrong_mapping(stage: Stage, operator: Operator) -> None:
    orders = ids(int(10_000 * stage.size))
    stage.write("mapping.toml", MAPPING.format(currency="USD"))
    stage.shops.write(**{"shop-de": 'mapping = "mapping.toml"\nkeep_document = "on"'})
    async with stage.worker():
        await operator.enqueue("shop-de", orders)
        await stage.stores("shop-de", len(orders))

        await operator.sees("order", "show", "order-1", "--json", text='"currency": ?"USD"')
        found = await operator.run(
            "order", "list", "--source", "shop-de", "--stored-between", "1h", "now", "--limit", "100000", "--json"
        )
        assert len(found.splitlines()) == len(orders)
        with operator.other_tool("vi mapping.toml"):
            stage.write("mapping.toml", MAPPING.format(currency="EUR"))
            stage.shops.write(**{"shop-de": 'mapping = "mapping.toml"\nkeep_document = "on"\nresults = "off"'})
        await operator.run("remap", "--source", "shop-de", "--stored-between", "1h", "now", "--dry-run")
        # It changes nothing until the workers use the mapping as well.
        await operator.sees("remap", "--source", "shop-de", "--stored-between", "1h", "now", text="changed")

        await operator.sees("order", "show", "order-1", "--json", text='"currency": ?"EUR"')
    found = await stage.scene("shop-de").sql("SELECT currency, count(*) FROM orders GROUP BY currency")
    assert [tuple(row) for row in found] == [("EUR", len(orders))]


async def erased_customer(stage: Stage, operator: Operator) -> None:
    shop = stage.scene("shop-de")
    async with stage.worker():
        await operator.enqueue("shop-de", ids(200))
        await stage.stores("shop-de", 200)
        rows = await shop.sql(
            "SELECT customer_id, count(*) FROM orders WHERE customer_id <> '' GROUP BY 1 ORDER BY 2 DESC"
        )
        customer, count = rows[0]

        found = await operator.run("order", "list", "--customer", customer, "--limit", "100000", "--json")
        orders = [json.loads(line)["order"]["id"] for line in found.splitlines()]
        assert len(orders) == count
        await operator.run("order", "erase", "--source", "shop-de", "--yes", *orders)
        await operator.run("order", "list", "--customer", customer)
        await operator.enqueue("shop-de", orders)

        await operator.sees("status", text=rf"shop-de 0 0 0 0 {200 - count} ")
    assert await shop.sql("SELECT 1 FROM orders WHERE customer_id = $1", customer) == []
