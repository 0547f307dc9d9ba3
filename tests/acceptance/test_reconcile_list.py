"""`ingest reconcile --since` as a process. It finds exactly the planted differences, and enqueues missing orders.

`INGEST_TEST_RECONCILE` sets the number of orders of the shop.
"""

import asyncio
import csv
import json
import os
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from subprocess import CompletedProcess
from typing import Any

import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene
from shop_source import SOURCE, ShopSource, shop_source
from support import Cli, eventually

ORDERS = int(os.environ.get("INGEST_TEST_RECONCILE", "200"))
PERIOD = ("--since", "60d")


@pytest.fixture
async def shop(scene: Scene, tmp_path: Path) -> AsyncIterator[ShopSource]:
    async with shop_source(scene, tmp_path, orders=ORDERS, size=100) as shop:
        yield shop


@pytest.fixture
def workers(cli: Cli, shop: ShopSource) -> Iterator[Workers]:
    with closing_workers(cli, dict(shop.env)) as workers:
        yield workers


async def run(cli: Cli, shop: ShopSource, *arguments: str) -> CompletedProcess[str]:
    return await asyncio.to_thread(cli.run, *arguments, env=dict(shop.env), timeout=200)


async def backfilled(cli: Cli, shop: ShopSource, workers: Workers) -> None:
    """Store all orders."""
    command = workers.start()
    done = await run(cli, shop, "backfill", *PERIOD)
    assert done.returncode == 0, done.stderr

    async def are_stored() -> bool:
        return await shop.stored() == set(shop.order_ids())

    await eventually(are_stored)
    await command.stop()


async def planted(shop: ShopSource) -> dict[str, set[str]]:
    """Fifty differences, by kind."""
    ids = Random(2).sample(shop.order_ids(), 45)
    missing, outdated, total, deleted = ids[:20], ids[20:35], ids[35:40], ids[40:45]
    of_source = f"source = '{SOURCE}' AND order_id = ANY ($1::text[])"
    await shop.scene.sql(f"DELETE FROM orders WHERE {of_source}", missing)
    older = "SET version = version - interval '1 minute', updated_at = updated_at - interval '1 minute'"
    await shop.scene.sql(f"UPDATE orders {older} WHERE {of_source}", outdated)
    difference = """SET attributes = attributes || '{"total_difference": "1.50"}'"""
    await shop.scene.sql(f"UPDATE orders {difference} WHERE {of_source}", total[:2])
    # The lines of these changed without the document, and an outdated order is only outdated.
    await shop.scene.sql(f"UPDATE orders SET total = total - 0.01 WHERE {of_source}", [*total[2:], outdated[0]])
    for order_id in deleted:
        order = shop.shop.state.get(shop.shop.kind.number(order_id))
        assert order is not None
        shop.shop.state.delete(order, quiet=True)
    unlisted = await shop.scene.sql(
        "INSERT INTO orders SELECT 'x-' || n, status, currency, customer_id, country, placed_at, updated_at, line_count, total,"
        " lines, version, fetched_at, attempts, enqueued_at, ingested_at, attributes, document, source"
        f" FROM orders, generate_series(1, 5) AS n WHERE source = '{SOURCE}' AND order_id = $1 RETURNING order_id",
        ids[39],
    )
    unexpected = {*deleted, *(row[0] for row in unlisted)}
    return {"missing": {*missing}, "outdated": {*outdated}, "total": {*total}, "unexpected": unexpected}


def by_kind(differences: list[dict[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in differences:
        found.setdefault(each["difference"], set()).add(each["order_id"])
    return found


async def test_exactly_the_planted_differences_are_found_reported_and_repaired(
    cli: Cli, shop: ShopSource, workers: Workers, tmp_path: Path
) -> None:
    await backfilled(cli, shop, workers)
    clean = await run(cli, shop, "reconcile", *PERIOD, "--json")
    described = shop.file.read_text()
    shop.file.write_text(described.replace('amount = "total"', 'amount = "status"'))
    unread = await run(cli, shop, "reconcile", *PERIOD, "--json")
    shop.file.write_text(described)
    wanted = await planted(shop)
    erased = next(iter(wanted["missing"]))
    report, metrics, table = tmp_path / "found.jsonl", tmp_path / "shop.prom", tmp_path / "found.csv"

    found = await run(cli, shop, "reconcile", *PERIOD, "--json", "--report", str(report), "--metrics", str(metrics))
    again = await run(cli, shop, "reconcile", *PERIOD, "--report", str(table))
    refused = await run(cli, shop, "reconcile", *PERIOD, "--report", str(table))

    assert clean.returncode == 0, clean.stderr
    assert json.loads(clean.stdout)["clean"]
    counts = json.loads(unread.stdout)
    assert (unread.returncode, counts["unread_amounts"]) == (1, ORDERS), unread.stderr
    assert (counts["equal"], counts["not_compared"]["count"]) == (0, ORDERS)
    assert (found.returncode, again.returncode, refused.returncode) == (1, 1, 1), found.stderr
    counted = {kind: json.loads(found.stdout)[kind]["count"] for kind in wanted}
    assert counted == {"missing": 20, "outdated": 15, "total": 5, "unexpected": 10}
    assert by_kind([json.loads(line) for line in report.read_text().splitlines()]) == wanted
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert by_kind(rows) == wanted
    cents = [Decimal(row["listed_total"]) - Decimal(row["stored_total"]) for row in rows if row["listed_total"]]
    assert cents.count(Decimal("0.01")) == 3
    assert f'ingest_reconcile_differences{{source="{SOURCE}",difference="unexpected"}} 10\n' in metrics.read_text()
    assert (metrics.stat().st_mode & 0o777, report.stat().st_mode & 0o777) == (0o644, 0o600)
    assert f"{table} exists" in refused.stderr

    workers.start()
    await run(cli, shop, "order", "erase", erased, "--yes")
    repairing = await run(cli, shop, "reconcile", *PERIOD, "--enqueue-missing", "--json")

    assert (repairing.returncode, json.loads(repairing.stdout)["enqueued"]) == (1, 34), repairing.stderr

    async def is_repaired() -> bool:
        after = await run(cli, shop, "reconcile", *PERIOD, "--no-unexpected", "--json")
        counts = json.loads(after.stdout)
        return not (counts["missing"]["count"] or counts["outdated"]["count"]) and counts["erased"] == 1

    await eventually(is_repaired)
    assert erased not in await shop.stored()


async def test_orders_that_are_queued_or_dead_are_not_missing_and_changes_during_the_reading_not_unexpected(
    cli: Cli, shop: ShopSource, workers: Workers
) -> None:
    await backfilled(cli, shop, workers)
    queued, dead, changed, outdated, recalculated = Random(3).sample(shop.order_ids(), 5)
    await shop.scene.sql("DELETE FROM orders WHERE order_id = ANY ($1::text[])", [queued, dead])
    await shop.scene.sql(
        "UPDATE orders SET version = version - interval '1 minute', updated_at = NULL WHERE order_id = $1", outdated
    )
    await shop.scene.sql("UPDATE orders SET total = total + 1 WHERE order_id = $1", recalculated)
    await shop.scene.enqueue(queued, outdated, recalculated)
    fields: Any = {"order_id": dead, "reason": "not_found", "error": "x"}
    await shop.scene.redis.xadd(shop.scene.keys.dead, fields)
    order = shop.shop.state.get(shop.shop.kind.number(changed))
    assert order is not None
    shop.shop.state.change(order, quiet=True)

    # The changed order is not in the period any more.
    found = await run(cli, shop, "reconcile", *PERIOD, "--until", "1m", "--json")
    # A list may be some minutes behind a webhook.
    await shop.scene.sql(
        "UPDATE orders SET order_id = 'late', version = now(), updated_at = now() WHERE order_id = $1", changed
    )
    shop.shop.state.delete(order, quiet=True)
    late = await run(cli, shop, "reconcile", *PERIOD, "--json")
    older = "now() - interval '11 minutes'"
    await shop.scene.sql(f"UPDATE orders SET version = {older}, updated_at = {older} WHERE order_id = 'late'")
    overdue = await run(cli, shop, "reconcile", *PERIOD, "--json")

    assert [json.loads(each.stdout)["unexpected"]["count"] for each in (late, overdue)] == [0, 1]
    counts = json.loads(found.stdout)
    assert (found.returncode, counts["queued"], counts["dead"]) == (0, 1, 1), found.stdout
    assert counts["listed"] < ORDERS


async def test_options_of_the_other_kind_of_list_are_refused(cli: Cli, shop: ShopSource) -> None:
    shop_only = await run(cli, shop, "reconcile", "a", "--enqueue-missing")
    ids_only = await run(cli, shop, "reconcile", *PERIOD, "--complete")
    both = await run(cli, shop, "reconcile", "a", *PERIOD)

    assert [shop_only.returncode, ids_only.returncode, both.returncode] == [2, 2, 2]
    assert "--enqueue-missing requires --since" in shop_only.stderr
    assert "--complete is only used without --since" in ids_only.stderr
