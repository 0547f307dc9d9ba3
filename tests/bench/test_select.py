"""`ingest bench select` does the same work in each compared way, and its clients count correctly. Speed is not asserted."""

import asyncio
import itertools
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import typer
from aiohttp import web
from support import Cli, closing_cli

from ingest.bench.clients import Clients, Load, percentile
from ingest.bench.select.compare import request_of
from ingest.bench.select.fill import fill
from ingest.bench.select.plan import KINDS, PAUSES
from ingest.bench.select.readers import encode, open_reader
from ingest.cli.trial.bench.select import numbers

pytestmark = pytest.mark.long

CLIENTS, EVERY, PAUSE = 10, 5, 0.1


@pytest.fixture
def bench() -> Iterator[Cli]:
    with closing_cli(dict(os.environ)) as cli:
        yield cli


def test_every_way_answers_all_clients_and_a_blocking_call_stops_them_all(bench: Cli, tmp_path: Path) -> None:
    size = ("--clients", str(CLIENTS), "--pool", "2", "--processes", "2", "--seconds", "0.2", "--orders", "100")
    pauses = ("--blocking-every", str(EVERY), "--blocking-clients", str(CLIENTS))

    done = bench.run("bench", "select", *size, *pauses, "--output", str(tmp_path / "out"), "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = report["runs"]
    assert [(run["kind"], run["processes"], run["pause"]) for run in runs] == [
        *((kind, 2, "none") for kind in KINDS),
        *(("async_in_turn", 1, pause) for pause in PAUSES),
    ]
    assert all(run["answered"] > 0 and run["errors"] == 0 for run in runs)
    assert all(0 < run["p50_ms"] <= run["p95_ms"] <= run["p99_ms"] <= run["longest_ms"] for run in runs)
    blocked = next(run for run in runs if run["pause"] == "blocking")
    # No request gets a response during a pause. This is the maximum between the pauses, with the requests in flight.
    assert blocked["answered"] <= (blocked["seconds"] / PAUSE + 2) * EVERY + CLIENTS
    assert [len(table["rows"]) for table in report["tables"]] == [5, 4]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "select.md", "select.json", "select.svg", "select.png", "select-blocking.svg", "select-blocking.png",
    }  # fmt: skip
    assert "minutes in total" in done.stderr.splitlines()[0]


async def test_all_ways_of_reading_give_the_same_bytes(dsn: str) -> None:
    order_ids = await asyncio.to_thread(fill, dsn, 20)

    answers = {}
    for kind in KINDS:
        async with open_reader(kind, dsn, 2) as read:
            rows = [await read(order_id) for order_id in order_ids]
            answers[kind] = [row and encode(row) for row in [*rows, await read("none")]]

    assert all(given == answers["threads"] for given in answers.values())
    *bodies, missing = answers["threads"]
    assert missing is None
    assert [json.loads(body)["order_id"] for body in bodies] == order_ids
    assert all(json.loads(body)["line_count"] == len(json.loads(body)["lines"]) for body in bodies)


async def test_in_turn_no_request_is_overtaken(dsn: str) -> None:
    numbers_asked = itertools.count()
    answered: list[int] = []

    async def ask_again_and_again(draw: Random) -> None:
        for _ in range(20):
            for _ in range(draw.randrange(10)):
                await asyncio.sleep(0)  # one turn of the loop, so that it may come between a wake-up and its task
            number = next(numbers_asked)
            await read("none")
            answered.append(number)

    async with open_reader("async_in_turn", dsn, 1) as read, asyncio.TaskGroup() as clients:
        for seed in range(10):
            clients.create_task(ask_again_and_again(Random(seed)))

    assert answered == list(range(200))


@pytest.mark.parametrize(
    ("status", "body"), [(404, b""), (500, b'{"order_id":"A1",'), (200, b'{"order_id":"B2","status":"placed"}')]
)
async def test_a_wrong_answer_is_an_error(status: int, body: bytes) -> None:
    async def answer(request: web.Request) -> web.Response:
        del request
        return web.Response(status=status, body=body)

    async with serving(answer) as port:
        measured = await Clients(Load(port, 2, 0.1, [request_of("A1")], 1)).run()

    assert measured.answered == 0
    assert measured.errors > 0
    assert measured.row()["p99_ms"] is None


async def test_a_lost_connection_is_an_error_and_another_takes_its_place() -> None:
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked % 4 == 0 and request.transport is not None:
            request.transport.abort()
        return web.Response(body=b'{"order_id":"A1","status":"placed"}')

    async with serving(answer) as port:
        measured = await Clients(Load(port, 8, 0.5, [request_of("A1")], 1)).run()

    assert measured.answered > 0
    assert measured.errors > 0


async def test_the_longest_wait_includes_requests_that_are_never_answered() -> None:
    asked: Counter[object] = Counter()

    async def answer(request: web.Request) -> web.Response:
        asked[request.transport] += 1
        # The first client is answered as it connects and once more, and never again.
        if request.transport is next(iter(asked)) and asked[request.transport] > 2:
            await asyncio.Event().wait()
        return web.Response(body=b'{"order_id":"A1","status":"placed"}')

    async with serving(answer) as port:
        measured = await Clients(Load(port, 2, 0.2, [request_of("A1")], 1)).run()

    assert measured.answered > 0
    assert measured.errors == 0
    assert measured.longest_ms >= 200


def test_percentiles_are_of_what_was_measured() -> None:
    ascending = [number / 1000 for number in range(1, 101)]

    found = [percentile(ascending, share) for share in (0.5, 0.95, 0.99, 1.0)]

    assert found == [50.0, 95.0, 99.0, 100.0]
    assert percentile([0.007], 0.5) == 7.0


def test_lists_of_numbers_are_sorted() -> None:
    assert numbers("--pool", "50, 10,20", most=500) == [10, 20, 50]


@pytest.mark.parametrize("text", ["", "0", "501", "10,10", "ten", "1.5", "10,", "-1"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="no list of different numbers from 1 to 500"):
        numbers("--pool", text, most=500)


@asynccontextmanager
async def serving(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[int]:
    """Run a server that sends such responses, and yield its port."""
    application = web.Application()
    application.router.add_get("/orders/{order_id}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
