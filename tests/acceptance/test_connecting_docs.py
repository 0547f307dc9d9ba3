"""The steps of docs/connect/your-api.md lead from an API with its own JSON to stored rows."""

import re
import shlex
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene
from support import Cli, connected

PAGE = (Path(__file__).parents[2] / "docs" / "connect" / "your-api.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
EXPORTS = dict(line.removeprefix("export ").split("=", 1) for line in COMMANDS if line.startswith("export "))
ORDERS = [f"620040729000{number}" for number in range(1, 6)]


def command(beginning: str) -> list[str]:
    """The one command of the page that begins so, without the program's name."""
    found = [shlex.split(line)[1:] for line in COMMANDS if line.startswith(f"ingest {beginning}")]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture
def shop(cli: Cli) -> Iterator[Workers]:
    """The page's shop, on any free port, and the page's settings."""
    upstream = cli.start(*command("upstream"), "--port", "0")
    assert upstream.stdout is not None
    base_url = upstream.stdout.readline().strip()
    settings = {name: shlex.split(value)[0] for name, value in EXPORTS.items()}
    template = settings["INGEST_UPSTREAM_URL"].replace("http://127.0.0.1:8081", base_url)
    cli.env |= settings | {"INGEST_UPSTREAM_URL": template}
    with closing_workers(cli, cli.env) as workers:
        yield workers


async def test_an_api_with_its_own_json_is_connected_by_the_page(
    shop: Workers, cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    assert cli.run(*command("migrate")).returncode == 0
    checked = cli.run(*command("mapping check --id"))
    assert checked.returncode == 0, checked.stderr
    shown = [" ".join(line.split()) for line in checked.stdout.splitlines()]
    for line in re.findall(r"```text\norder_id.*?```", PAGE, re.DOTALL)[0].splitlines()[1:-1]:
        assert line == "…" or " ".join(line.split()) in shown

    enqueued = cli.run(*command("enqueue"))
    assert enqueued.returncode == 0, enqueued.stderr
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        worker = shop.start()
        await scene.finished()
        assert await scene.dead() == []
        assert await worker.stop() == 0

    async with connected(dsn) as connection:
        rows = await connection.fetch("SELECT order_id, status, total, customer_id, attributes FROM orders ORDER BY 1")
    assert [row["order_id"] for row in rows] == ORDERS
    assert (rows[0]["status"], rows[0]["total"], rows[0]["customer_id"]) == (
        "pending/unfulfilled",
        Decimal("184.91"),
        "18144",
    )
    assert '"name": "#1001"' in rows[0]["attributes"]


async def test_orders_of_which_no_document_fits_wait_until_the_mapping_is_right(
    shop: Workers, cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    cli.env["INGEST_MAPPING"] = "woocommerce"
    assert cli.run("enqueue", ORDERS[0]).returncode == 0

    async with Scene.open(redis_url, dsn, queue_name) as scene:
        worker = shop.start(mapping="woocommerce")
        await worker.says("circuit_opened")
        [opened] = worker.events("circuit_opened")
        assert "no value for `id` - at `$.id`" in opened["error"]
        assert await worker.stop() == 0
        assert await scene.dead() == []

        worker = shop.start(mapping="shopify-rest")
        await scene.finished()
        assert await worker.stop() == 0
        assert list(await scene.rows()) == ORDERS[:1]


async def test_a_dead_letter_is_listed_and_replayed_by_the_page(
    shop: Workers, cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    cli.env["INGEST_MAPPING"] = "shopify-rest"

    async with Scene.open(redis_url, dsn, queue_name) as scene:
        worker = shop.start(mapping="shopify-rest")
        assert cli.run("enqueue", ORDERS[0]).returncode == 0
        await scene.finished()
        assert await worker.stop() == 0
        worker = shop.start(mapping="shopify-rest", upstream_status="404=not_found")
        assert cli.run("enqueue", "1").returncode == 0
        await scene.finished()
        assert await worker.stop() == 0
        assert "not_found" in cli.run(*command("dead list")).stdout
        assert cli.run(*command("dead replay"), "--yes").returncode == 0
