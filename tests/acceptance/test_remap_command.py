"""`ingest remap`, as operators and scripts use it."""

import asyncio
import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from acceptance.dead_lettering import assert_one_line
from integration.scene import document
from msgspec.structs import replace
from support import Cli, connected, eventually

from ingest.domain.orders.order import Order, decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.store.orders.order_store import OrderStore

FUNCTION = """
from msgspec.structs import replace

def transform(order, document):
    if order.id == "bad":
        raise ValueError("Jane Doe")
    return replace(order, status="better")
"""


Stored = tuple[Order, str]


def decoded(order_id: str) -> Stored:
    """An order and its document."""
    return decode_order(document(order_id), order_id), document(order_id).decode()


async def store(dsn: str, *stored: Stored) -> None:
    """Store orders with their documents."""
    async with OrderStore.open(dsn) as orders:
        await orders.upsert([OrderRow.of(order, datetime.now(UTC), 1, 0.0, body) for order, body in stored])


def without_log(stderr: str) -> str:
    """The messages to the user, without the line of the audit log."""
    return "".join(line for line in stderr.splitlines(keepends=True) if not line.startswith("{"))


@pytest.fixture
async def own_code(dsn: str, tmp_path: Path) -> dict[str, str]:
    """Three stored orders, and the environment of a function for them."""
    await store(dsn, *map(decoded, ("a", "b", "c")))
    (tmp_path / "remapped_code.py").write_text(FUNCTION, encoding="utf-8")
    return {"PYTHONPATH": str(tmp_path), "INGEST_TRANSFORM": "remapped_code:transform"}


async def statuses(dsn: str) -> dict[str, str]:
    async with connected(dsn) as sql:
        return {row["order_id"]: row["status"] for row in await sql.fetch("SELECT order_id, status FROM orders")}


@pytest.mark.parametrize("processes", ["0", "1"])
async def test_stored_orders_are_made_again(cli: Cli, dsn: str, own_code: dict[str, str], processes: str) -> None:
    env = own_code | {"INGEST_TRANSFORM_PROCESSES": processes}

    dry = cli.run("remap", "--dry-run", env=env)
    assert (dry.returncode, dry.stdout) == (0, "")
    assert dry.stderr.splitlines()[:3] == [
        "3 orders with a document: 3 would be changed",
        "  status: 3 orders",
        "    a: placed -> better",
    ]
    assert set((await statuses(dsn)).values()) == {"placed"}

    assert without_log(cli.run("remap", "--after", "a", env=env).stderr) == "2 orders with a document: 2 changed\n"
    done = cli.run("remap", "--json", env=env)

    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "source": "",
        "examined": 3,
        "changed": 1,
        "unchanged": 2,
        "inserted": 0,
        "skipped": 0,
        "newer": 0,
        "failed": 0,
        "failures": [],
        "last": "c",
        "fields": [],
        "dry_run": False,
    }
    assert set((await statuses(dsn)).values()) == {"better"}


# The first page has been counted when the transform receives an order of the second one.
WAITS = """
import asyncio
from pathlib import Path
from msgspec.structs import replace

async def transform(order, document):
    if order.id == "order-0249":
        Path(__file__).with_name("is_waiting").touch()
        await asyncio.Event().wait()
    return replace(order, status="better")
"""


async def test_a_document_that_cannot_be_used_is_told(cli: Cli, dsn: str, own_code: dict[str, str]) -> None:
    async with connected(dsn) as sql:
        await sql.execute(
            "UPDATE orders SET order_id = 'bad', document = document || '{\"id\": \"bad\"}' WHERE order_id = 'b'"
        )

    done = cli.run("remap", env=own_code)

    assert done.returncode == 1
    assert without_log(done.stderr) == (
        "bad: transform_failed: `ValueError` at remapped_code:6 in transform\n"
        "3 orders with a document: 2 changed, 1 failed\n"
    )


@pytest.mark.parametrize(
    ("options", "how"), [((), "ingest remap"), (("--since", "7d"), "the same options and")], ids=["all", "some"]
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_an_interrupted_run_says_where_to_go_on(
    cli: Cli, dsn: str, tmp_path: Path, options: tuple[str, ...], how: str, number: signal.Signals
) -> None:
    await store(dsn, *(decoded(f"order-{each:04}") for each in range(250)))
    (tmp_path / "waiting_code.py").write_text(WAITS, encoding="utf-8")
    env = {"PYTHONPATH": str(tmp_path), "INGEST_TRANSFORM": "waiting_code:transform", "INGEST_TRANSFORM_TIMEOUT": "600"}

    running = cli.start("remap", *options, env=env)

    await eventually((tmp_path / "is_waiting").exists)
    running.send_signal(number)
    _, told = await asyncio.to_thread(running.communicate)

    assert running.returncode == 128 + number
    assert without_log(told) == f"200 orders done; go on with: {how} --after order-0199\nstopped\n"
    assert list((await statuses(dsn)).values()).count("better") == 200


@pytest.mark.parametrize(
    "lock", ["SELECT FROM orders WHERE order_id = 'b' FOR UPDATE", "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"]
)
async def test_a_run_that_waits_for_a_lock_reports_it_and_continues(
    cli: Cli, dsn: str, own_code: dict[str, str], lock: str
) -> None:
    async with connected(dsn) as sql:
        await sql.execute(f"BEGIN; {lock}")
        running = cli.start("remap", env=own_code)
        assert running.stderr is not None
        told = await asyncio.to_thread(running.stderr.readline)
        await sql.execute("COMMIT")

    _, rest = await asyncio.to_thread(running.communicate)

    assert told == "waiting for another transaction, which has locked the table or one of the next orders\n"
    assert without_log(rest) == "3 orders with a document: 3 changed\n"
    assert set((await statuses(dsn)).values()) == {"better"}


async def test_a_run_that_waits_for_a_lock_can_be_stopped(cli: Cli, dsn: str, own_code: dict[str, str]) -> None:
    async with connected(dsn) as sql:
        await sql.execute("BEGIN; SELECT FROM orders WHERE order_id = 'b' FOR UPDATE")
        running = cli.start("remap", env=own_code)
        assert running.stderr is not None
        await asyncio.to_thread(running.stderr.readline)
        running.send_signal(signal.SIGTERM)
        _, rest = await asyncio.to_thread(running.communicate)

    assert (running.returncode, without_log(rest)) == (128 + signal.SIGTERM, "stopped\n")


MAPPING = """
[order]
id = "number"
status = "state"
placed_at = "created"
currency = {{ value = "EUR" }}
country = "{country}"

[[lines]]
from = "positions"
sku = "article"
quantity = "amount"
unit_price = "price"
"""


async def test_a_better_mapping_is_applied(cli: Cli, dsn: str, tmp_path: Path) -> None:
    lines = [{"article": "S", "amount": 2, "price": "1.50"}]
    body = json.dumps(
        {"number": "m1", "state": "new", "created": "2026-01-02T00:00:00Z", "land": "NO", "positions": lines}
    )
    await store(dsn, (replace(decoded("m1")[0], status="new", country=None), body))
    (tmp_path / "mapping.toml").write_text(MAPPING.format(country="land"), encoding="utf-8")

    done = cli.run("remap", env={"INGEST_MAPPING": str(tmp_path / "mapping.toml")})

    assert without_log(done.stderr) == "1 order with a document: 1 changed\n"
    async with connected(dsn) as sql:
        row = await sql.fetchrow("SELECT country, total FROM orders")
    assert (row["country"], str(row["total"])) == ("NO", "3.00")


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_transform_that_cannot_be_loaded_is_one_line(cli: Cli, processes: str) -> None:
    env = {"INGEST_TRANSFORM": "nowhere_at_all:transform", "INGEST_TRANSFORM_PROCESSES": processes}

    done = cli.run("remap", env=env)

    assert_one_line(done, 2)
    assert "no module nowhere_at_all" in done.stderr
