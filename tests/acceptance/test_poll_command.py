"""`ingest poll` reads the lists of shops once, and `ingest source list` shows when."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from integration.listed_shop import ListedShop, listed_shop
from support import Cli


@dataclass
class Shops:
    """A shop whose list can be read, and one whose list cannot be."""

    good: ListedShop
    bad: ListedShop


@pytest.fixture
async def shops(cli: Cli, dsn: str, tmp_path: Path) -> AsyncIterator[Shops]:
    async with listed_shop() as good, listed_shop() as bad:
        bad.fails = [403] * 10
        tables = [
            f"""
            [sources.{name}]
            list = {{ url = "{shop.url}/orders?since={{since}}&page={{cursor}}", next = "page", size = 10 }}
            upstream.url = "{shop.url}/orders/{{order_id}}"
            """
            for name, shop in (("good", good), ("bad", bad))
        ]
        (tmp_path / "sources.toml").write_text("\n".join(tables))
        cli.env |= {"INGEST_SOURCES": str(tmp_path / "sources.toml"), "INGEST_POSTGRES_DSN": dsn}
        yield Shops(good, bad)


async def test_each_list_is_read_once_and_an_error_of_one_does_not_touch_the_other(cli: Cli, shops: Shops) -> None:
    shops.good.change("a", "b", ago=60)
    await run(cli, "poll")
    shops.good.change("a", "c")

    shown = await run(cli, "poll", "--source", "good")
    again = await run(cli, "poll", "--json")
    states = [json.loads(line) for line in (await run(cli, "source", "list", "--json")).stdout.splitlines()]
    listed = await run(cli, "source", "list")

    assert (shown.returncode, shown.stdout) == (0, "good: 3 listed orders: 1 enqueued, 2 already waiting\n")
    assert again.returncode == 1
    results = {result["source"]: result for result in map(json.loads, again.stdout.splitlines())}
    assert (results["good"]["enqueued"], results["good"]["waiting"]) == (0, 3)
    assert "HTTP 403" in results["bad"]["error"]
    polls = {state["source"]: state["poll"] for state in states}
    assert (polls["good"]["error"], polls["good"]["failures"]) == (None, 0)
    assert (polls["bad"]["looked_at"], polls["bad"]["failures"]) == (None, 2)
    assert "no worker, polled " in listed.stdout
    assert "no worker, list not read: HTTP 403" in listed.stdout


async def test_a_check_of_a_source_reads_its_list(cli: Cli, shops: Shops) -> None:
    shops.good.change("a", "b")
    shops.bad.change("a")

    good = await run(cli, "source", "check", "good", "--id", "a")
    bad = await run(cli, "source", "check", "bad", "--id", "a")

    assert good.returncode == 0, good.stdout
    assert "the list of orders can be read: 2 orders on the first page of a day" in good.stdout
    assert bad.returncode == 1
    assert "the list of orders cannot be read: HTTP 403" in bad.stdout


async def test_a_source_without_a_list_is_a_wrong_use(cli: Cli, dsn: str) -> None:
    cli.env |= {"INGEST_POSTGRES_DSN": dsn}

    done = await run(cli, "poll")

    assert done.returncode == 2
    assert "no source has a list of orders" in done.stderr


async def run(cli: Cli, *args: str) -> CompletedProcess[str]:
    """Run a command while the shops respond in this event loop."""
    return await asyncio.to_thread(cli.run, *args)
