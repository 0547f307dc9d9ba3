"""The memory that one key can make the real `ingest api` hold by requests that it sends slowly or whose responses it does not read."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from acceptance.greedy_key import Served, held, served
from dead_letter_entries import dead_fields
from redis.asyncio import Redis
from support import INSERT_ORDER, Cli, connected

from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client

MEGABYTE = 1 << 20
# A container of the deployments has 512 MB.
BOUND = 350 * MEGABYTE
DOCUMENT = json.dumps({"id": "1", "lines": [{"sku": "85123A", "quantity": 6, "unit_price": "2.55"}] * 60_000})[
    :3_900_000
]


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(redis_url) as client:
        yield client


@pytest.fixture
async def stored(dsn: str) -> tuple[int, int]:
    """One order with a large document and many lines, and the jobs of an export and of a preview, with large results."""
    add = (
        "INSERT INTO jobs (kind, source, selection, requested_by, state, ended_at, result)"
        " VALUES ($1, '', $2::text::jsonb, 'me', 'done', now(), $3::text::jsonb) RETURNING id"
    )
    lines = json.dumps([{"sku": "85123A", "description": "x" * 100, "quantity": 6, "unit_price": "2.55"}] * 24_000)
    failures = [{"order_id": f"o{number}", "error": "e" * 500} for number in range(7_000)]
    result = {"count": 7_000, "fetched": 0, "changed": 0, "fields": [], "failures": failures}
    async with connected(dsn) as sql:
        await sql.execute(INSERT_ORDER, "large")
        await sql.execute(
            "UPDATE orders SET document = $1::text::jsonb, lines = $2::text::jsonb", json.dumps(DOCUMENT), lines
        )
        export = await sql.fetchval(add, "dead_letters.export", '{"format": "jsonl"}', None)
        preview = await sql.fetchval(add, "orders.preview", "{}", json.dumps(result))
        text = "".join(json.dumps({"document": f"{n:06}{'x' * 200}"}) + "\n" for n in range(20_000))
        for part in range(10):
            row = (export, part, gzip.compress(text.encode()))
            await sql.execute("INSERT INTO job_output (job, part, progress, content) VALUES ($1, $2, '{}', $3)", *row)
    return export, preview


@pytest.fixture
async def dead_letter(redis: Redis, queue_name: str) -> str:
    """One of several dead letters with a large document, which many small ones follow."""
    dead = Keys.of(queue_name).dead
    for _ in range(3):
        large: bytes = await redis.xadd(dead, dead_fields("large", document=DOCUMENT))
    for number in range(500):
        await redis.xadd(dead, dead_fields(f"small-{number}", error="e" * 500))
    return large.decode()


UPLOAD = b"".join(b"%0128d\n" % number for number in range(499))
ROUTES: dict[str, tuple[bytes | str, int]] = {
    "uploads": (UPLOAD, 5_000),
    "pushes": (DOCUMENT.encode(), 60),
    "dead letter": ("/v1/dead-letters/{dead_letter}", 60),
    "list of dead letters": ("/v1/dead-letters?limit=500", 400),
    "export": ("/v1/dead-letters/export", 60),
    "order": ("/v1/orders/large", 60),
    "preview": ("/v1/jobs/{preview}", 60),
    "output of a job": ("/v1/jobs/{export}/output", 60),
    "page of a dead letter": ("/console/dead-letters/show?id={dead_letter}", 100),
    "page of dead letters": ("/console/dead-letters?since=2020-01-01", 400),
    "exporting page": ("/console/dead-letters/export?since=2020-01-01", 60),
    "page of an order": ("/console/orders/show?id=large", 60),
    "page of a document": ("/console/orders/document?id=large", 60),
    "document": ("/console/orders/document?id=large&download=1", 60),
    "page of a preview": ("/console/jobs/show?id={preview}", 60),
}


def memory_of(process: int, name: str) -> int:
    """The memory of a process that is resident now (`VmRSS`), or was at most (`VmHWM`), in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


async def settled(api: Served) -> None:
    """Wait until the peak has not grown for two seconds."""
    peak = 0
    while (now := memory_of(api.process, "VmHWM")) > peak:
        peak = now
        await asyncio.sleep(2)


# Of the routes that respond in the same way, one. A body, a list, a stream, an output, a page and a download differ.
REPEATED = ("dead letter", "order", "preview", "page of a dead letter", "exporting page", "page of an order", "page of a document", "page of a preview")  # fmt: skip


@pytest.mark.parametrize(
    "route", [pytest.param(route, marks=[pytest.mark.nightly] if route in REPEATED else []) for route in ROUTES]
)
async def test_one_key_cannot_fill_the_memory_by(
    cli: Cli,
    dead_letter: str,
    stored: tuple[int, int],
    tmp_path: Path,
    route: str,
    record_property: Callable[[str, object], None],
) -> None:
    sent, count = ROUTES[route]
    async with served(cli, tmp_path) as api:
        if isinstance(sent, bytes):
            request = api.upload(sent) if sent is UPLOAD else api.push(sent)
        else:
            path = sent.format(dead_letter=dead_letter, export=stored[0], preview=stored[1])
            request = api.get(path)
            async with api.client(api.greedy) as http, http.get(path, headers={"Cookie": api.cookie}) as response:
                assert response.status == 200
                await response.read()
        before = memory_of(api.process, "VmRSS")

        async with held(api, request, count):
            await settled(api)
            admitted = await api.admitted(["/v1/orders/large", f"/v1/dead-letters/{dead_letter}"])
        peak = memory_of(api.process, "VmHWM")

    record_property("megabytes", (before // MEGABYTE, peak // MEGABYTE))
    record_property("admitted", admitted)
    assert peak < BOUND
    assert admitted == 20


@pytest.mark.usefixtures("dead_letter")
async def test_responses_that_clients_have_abandoned_leave_the_memory(cli: Cli, tmp_path: Path) -> None:
    async with served(cli, tmp_path) as api:
        for _ in range(3):
            async with held(api, api.get("/v1/dead-letters/export"), 60):
                await settled(api)
        peak = memory_of(api.process, "VmHWM")

    assert peak < BOUND
