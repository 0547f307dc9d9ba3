"""A user's function in separate processes can only harm the order for which it was called."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import psutil
import pytest
from fakes.upstream import document
from fakes.workers import metrics
from msgspec.structs import replace
from process_state import command_of, is_alive
from support import eventually

from ingest.domain.errors import ConfigError, TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, Order, decode_order
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.mapping.transforms.process_pool import ProcessPool, check_function
from ingest.mapping.transforms.transform import Transform

MEMORY = 512 * 1024 * 1024


@asynccontextmanager
async def opened(function: str = "hostile", processes: int = 2, within: float = 60.0) -> AsyncIterator[Transform]:
    before = children()
    async with ProcessPool.open(f"own_code:{function}", processes, within, MEMORY) as pool:
        yield Transform(OrderDecoder(decode_order), pool, metrics().transform)
    assert set(children()) <= set(before)


def children() -> list[psutil.Process]:
    """The transform processes of this one, zombies too."""
    return [
        child
        for child in psutil.Process().children()
        if not is_alive(child) or "ingest.mapping.transforms.transform_process" in command_of(child)
    ]


async def made(transform: Transform, order_id: str) -> tuple[Order, ...]:
    return await transform.decode(document(order_id), FetchRequest(order_id))


async def failure(transform: Transform, order_id: str) -> str:
    with pytest.raises(TransformFailed) as failed:
        await made(transform, order_id)
    return str(failed.value)


async def test_orders_are_transformed_in_other_processes() -> None:
    async with opened() as transform:
        made_orders = await asyncio.gather(*(made(transform, f"order-{number}") for number in range(20)))

    pids = {order.attributes["pid"] for [order] in made_orders}
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids
    assert {order.attributes["bytes"] for [order] in made_orders} == {len(document(f"order-{n}")) for n in range(20)}


async def test_an_order_may_be_skipped_split_or_stay_as_it_is() -> None:
    async with opened() as transform:
        assert await made(transform, "skip-1") == ()
        assert [order.id for order in await made(transform, "split-1")] == ["split-1", "split-1-2"]
        assert await made(transform, "same-1") == (decode_order(document("same-1"), "same-1"),)


async def test_an_async_function_has_a_loop_of_its_own() -> None:
    async with opened("slow") as transform:
        for number in range(3):
            [order] = await made(transform, f"order-{number}")
            assert order.status == "slow"


async def test_attributes_keep_their_types() -> None:
    order = replace(decode_order(document("a1"), "a1"), attributes={"price": Decimal("1.50")})
    async with ProcessPool.open("own_code:typed", 1, 30.0, 0) as pool:
        [returned] = await pool.run(order, b"")

    assert decode_order(returned.body, "a1").attributes == {"type": "Decimal"}


async def test_times_keep_the_offset_of_the_document() -> None:
    body = document("a1").replace(
        b'"2010-12-01T08:26:00Z"', b'"2024-12-31T23:30:00-05:00","updated_at":"2025-01-01T08:00:00+09:00"'
    )
    async with opened("local_times") as transform:
        [order] = await transform.decode(body, FetchRequest("a1"))

    assert order.attributes == {"times": ["2024-12-31 23:30:00-05:00", "2025-01-01 08:00:00+09:00"]}


async def test_attributes_that_the_function_takes_out_of_the_order_are_gone() -> None:
    body = document("a1").removesuffix(b"}") + b',"attributes":{"note":"leave it at the door"}}'
    async with opened("without_note") as transform:
        [order] = await transform.decode(body, FetchRequest("a1"))

    assert order.attributes == {}


@pytest.mark.parametrize(
    ("order_id", "problem"),
    [
        ("exit-1", "ended its process (exit code 3), twice"),
        ("killed-1", "ended its process (signal 9), twice"),
        ("garbage-1", "ended its process ("),
        ("flood-1", "ended its process ("),
        ("eat-1", "`MemoryError` at own_code:"),
        ("leave-1", "`SystemExit` at own_code:"),
        ("raise-1", "`ValueError` at own_code:"),
        ("panic-1", "`Panic` at own_code:"),
        ("wrong-1", "returned an order that is not valid: Expected `str`, got `int` - at `$.status`"),
        ("huge-1", "returned more than 33,554,432 bytes"),
    ],
)
async def test_only_the_order_that_fails_is_at_fault(order_id: str, problem: str) -> None:
    async with opened() as transform:
        others = [made(transform, f"order-{number}") for number in range(30)]
        told, *rest = await asyncio.gather(failure(transform, order_id), *others)

    assert told.startswith(problem)
    assert len(rest) == 30


async def test_a_call_that_hangs_ends_with_its_process() -> None:
    async with opened(within=0.5) as transform:
        others = [made(transform, f"order-{number}") for number in range(30)]
        told, *rest = await asyncio.gather(failure(transform, "hang-1"), *others)

    assert told == "took longer than 0.5 s, twice"
    assert len(rest) == 30


async def test_an_order_whose_process_died_once_is_not_at_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_CODE_MARKERS", str(tmp_path))
    async with opened("dies_once") as transform:
        made_orders = await asyncio.gather(*(made(transform, f"order-{number}") for number in range(5)))

    assert [order.id for [order] in made_orders] == [f"order-{number}" for number in range(5)]


@pytest.mark.parametrize("function", ["second_exits", "second_hangs", "leaks_memory", "leaks_files", "leaks_threads"])
async def test_an_order_is_not_at_fault_for_what_others_have_left_in_a_process(function: str) -> None:
    async with opened(function, within=3.0) as transform, asyncio.TaskGroup() as group:
        calls = [group.create_task(made(transform, f"order-{number}")) for number in range(12)]

    assert [order.id for call in calls for order in call.result()] == [f"order-{number}" for number in range(12)]


async def test_a_fork_that_returns_does_not_answer_for_other_orders() -> None:
    async with opened(processes=1) as transform:
        ids = ["fork-1", "order-1", "fork-2", "order-2"]
        made_orders = [await made(transform, order_id) for order_id in ids]

    assert [order.id for [order] in made_orders] == ids


async def test_programs_that_the_function_has_started_end_with_its_process() -> None:
    async with opened() as transform:
        [order] = await made(transform, "start-1")
        program = psutil.Process(order.attributes["pid"])
        assert program.is_running()

    await eventually(lambda: _none_runs([program]))


async def test_a_process_that_the_function_has_forked_ends_with_its_process() -> None:
    async with opened(within=1.0) as transform:
        assert "took longer than 1 s" in await failure(transform, "abandon-1")

    command = ["ingest.mapping.transforms.transform_process", str(os.getpid())]
    forked = [process for process in psutil.process_iter() if command_of(process)[-2:] == command]
    await eventually(lambda: _none_runs(forked))


@pytest.mark.parametrize("levels", range(500, 1000, 50))
async def test_attributes_that_are_nested_too_deeply_for_a_process_are_the_fault_of_their_order(levels: int) -> None:
    attributes = b'"attributes":{"deep":' + b"[" * levels + b"]" * levels + b"}}"
    body = document("deep-1").removesuffix(b"}") + b"," + attributes

    async with opened() as transform:
        try:
            [order] = await transform.decode(body, FetchRequest("deep-1"))
        except (TransformFailed, InvalidDocument) as failed:  # from where on depends on Python, and on who calls
            assert "nested too deeply" in str(failed)  # noqa: PT017
        else:
            assert order.id == "deep-1"


async def test_a_process_that_was_killed_between_two_calls_is_replaced() -> None:
    async with opened(processes=1) as transform:
        [first] = await made(transform, "order-1")
        os.kill(first.attributes["pid"], signal.SIGKILL)
        [second] = await made(transform, "order-2")

    assert first.attributes["pid"] != second.attributes["pid"]


async def test_a_call_that_is_cancelled_leaves_nothing_for_the_next() -> None:
    async with opened(processes=1) as transform:
        call = asyncio.create_task(made(transform, "hang-1"))
        [child] = filter(is_alive, children())
        await eventually(lambda: _burns(child))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        [order] = await made(transform, "order-1")

        assert order.id == "order-1"
        assert order.attributes["pid"] != child.pid


async def _burns(child: psutil.Process) -> bool:
    before = sum(child.cpu_times()[:2])
    await asyncio.sleep(0.05)
    return sum(child.cpu_times()[:2]) > before


async def test_signals_are_for_the_worker_and_output_goes_to_its_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with opened("prints") as transform:
        [order] = await made(transform, "a1")

    assert order.status == "printed"
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", f"{document('a1')!r}\n")


async def test_a_function_that_cannot_be_loaded_is_one_line() -> None:
    before = children()

    with pytest.raises(
        ConfigError, match="INGEST_TRANSFORM: own_code:nothing cannot be used: the module does not contain nothing"
    ):
        await check_function("own_code:nothing", MEMORY)
    with pytest.raises(ConfigError, match="the module does not contain nothing"):
        async with ProcessPool.open("own_code:nothing", 2, 1.0, MEMORY):
            raise AssertionError("opened")

    assert set(children()) <= set(before)


async def _none_runs(found: list[psutil.Process]) -> bool:
    return not any(map(is_alive, found))
