"""A user's function between decoding and storing, called in the event loop: its results and failures."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fakes.upstream import document
from fakes.workers import metrics
from msgspec.structs import replace

from ingest.domain.errors import ConfigError, TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import InvalidDocument, Order, decode_order
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.mapping.transforms.functions import MOST_BYTES, MOST_ORDERS, Function, load_function
from ingest.mapping.transforms.transform import InLoop, Transform

BODY = document("a1")


def transform(function: Function, timeout: float = 5.0) -> Transform:
    return Transform(OrderDecoder(decode_order), InLoop(function, timeout), metrics().transform)


async def made_by(function: Function, body: bytes = BODY) -> tuple[Order, ...]:
    """The orders that the function makes of one document."""
    return await transform(function).decode(body, FetchRequest("a1"))


async def failure_of(function: Function) -> str:
    with pytest.raises(TransformFailed) as failed:
        await made_by(function)
    return str(failed.value)


# -- accepted results -----------------------------------------------------------------------------------------


async def test_the_function_gets_the_order_and_its_raw_document() -> None:
    given: list[tuple[Order, bytes]] = []

    def keep(order: Order, body: bytes) -> Order:
        given.append((order, body))
        return order

    orders = await made_by(keep)

    assert [(order.id, body) for order, body in given] == [("a1", BODY)]
    assert orders == (given[0][0],)


async def test_an_order_that_was_changed_is_the_order() -> None:
    [order] = await made_by(lambda order, _: replace(order, status="seen", attributes={"score": Decimal("1.50")}))

    assert (order.status, order.attributes) == ("seen", {"score": "1.50"})


async def test_an_async_function_is_awaited() -> None:
    async def seen(order: Order, _: bytes) -> Order:
        await asyncio.sleep(0)
        return replace(order, status="seen")

    [order] = await made_by(seen)

    assert order.status == "seen"


@pytest.mark.parametrize("nothing", [lambda *_: None, lambda *_: [], lambda *_: iter(())])
async def test_nothing_skips_the_order(nothing: Function) -> None:
    assert await made_by(nothing) == ()


def halves(order: Order, _: bytes) -> Iterator[Order]:
    yield order
    yield replace(order, id=f"{order.id}-2", lines=())


@pytest.mark.parametrize("several", [halves, lambda *given: list(halves(*given)), lambda *given: tuple(halves(*given))])
async def test_several_orders_are_several_orders(several: Function) -> None:
    orders = await made_by(several)

    assert [(order.id, len(order.lines)) for order in orders] == [("a1", 1), ("a1-2", 0)]


async def test_many_orders_that_are_large_together_are_checked_in_a_thread() -> None:
    def several(order: Order, _: bytes) -> list[Order]:
        note = {"note": "x" * 5_000}
        return [replace(order, id=f"a1-{number}", attributes=note) for number in range(300)]

    before = set(threading.enumerate())

    assert len(await made_by(several)) == 300
    assert [thread.name for thread in threading.enumerate() if thread not in before] == ["asyncio_0"]


# -- rejected results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"status": 7}, "returned an order that is not valid: Expected `str`, got `int` - at `$.status`"),
        ({"status": "\ud800"}, "returned an order that cannot be encoded as JSON: `UnicodeEncodeError`"),
        (
            {"placed_at": datetime.fromisoformat("2026-01-02")},
            "returned an order that is not valid: Expected `datetime` with a timezone component - at `$.placed_at`",
        ),
        ({"id": "a 1 "}, "returned an order without a valid ID"),
        ({"id": None}, "returned an order without a valid ID"),
        ({"attributes": {"of": object()}}, "returned an order that cannot be encoded as JSON: `TypeError`"),
        ({"attributes": []}, "returned an order that is not valid: Expected `object`, got `array` - at `$.attributes`"),
        ({"lines": None}, "returned an order that is not valid: Expected `array`, got `null` - at `$.lines`"),
    ],
)
async def test_what_is_returned_is_checked_like_a_document(changed: dict[str, Any], problem: str) -> None:
    assert (await failure_of(lambda order, _: replace(order, **changed))).startswith(problem)


@pytest.mark.parametrize("price", [Decimal("NaN"), Decimal("1E+40"), "two"])
async def test_an_amount_that_is_returned_is_checked(price: Any) -> None:
    def priced(order: Order, _: bytes) -> Order:
        return replace(order, lines=(replace(order.lines[0], unit_price=price),))

    assert "returned an order that is not valid: " in await failure_of(priced)


async def test_attributes_that_are_changed_in_place_are_checked() -> None:
    def spoil(order: Order, _: bytes) -> Order:
        order.attributes["note"] = object()
        return order

    assert (await failure_of(spoil)).startswith("returned an order that cannot be encoded as JSON")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("a1", "returned `str` instead of an order or orders"),
        (7, "returned `int` instead of an order or orders"),
        ({"id": "a1"}, "returned `dict` instead of an order or orders"),
        (["a1"], "returned `str` in a list of orders"),
    ],
)
async def test_what_is_not_an_order_is_refused(value: object, problem: str) -> None:
    assert await failure_of(lambda *_: value) == problem


async def test_two_orders_with_one_id_are_refused() -> None:
    assert await failure_of(lambda order, _: [order, order]) == "returned two orders with the same ID"


async def test_endless_orders_are_refused() -> None:
    def endless(order: Order, _: bytes) -> Iterator[Order]:
        while True:
            yield order

    assert await failure_of(endless) == f"returned more than {MOST_ORDERS:,} orders"


async def test_orders_that_are_too_large_together_are_refused() -> None:
    note = {"note": "x" * 4_000_000}

    told = await failure_of(lambda order, _: [replace(order, id=f"a1-{n}", attributes=note) for n in range(9)])

    assert told == f"returned more than {MOST_BYTES:,} bytes"


# -- how it fails -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("Jane Doe"), SystemExit("Jane Doe"), asyncio.CancelledError("Jane Doe")])
async def test_a_failure_tells_the_type_and_the_place_and_not_the_text(error: BaseException) -> None:
    def fail(*_: object) -> Order:
        raise error

    told = await failure_of(fail)

    assert told.startswith(f"`{type(error).__name__}` at test_transform:")
    assert told.endswith(" in fail")
    assert "Jane" not in told


async def test_a_failure_in_a_library_tells_the_place_in_the_users_own_code() -> None:
    def fail(order: Order, _: bytes) -> Order:
        raise_in_library: Callable[[], object] = Path("/nowhere/at/all").read_text
        raise_in_library()
        return order

    assert (await failure_of(fail)).startswith("`FileNotFoundError` at test_transform:")


async def test_an_async_function_that_takes_too_long_fails() -> None:
    async def wait(order: Order, _: bytes) -> Order:
        await asyncio.Event().wait()
        return order

    with pytest.raises(TransformFailed, match=r"took longer than 0\.01 s"):
        await transform(wait, timeout=0.01).decode(BODY, FetchRequest("a1"))


async def test_an_async_function_that_ignores_its_cancellation_fails_in_time_all_the_same() -> None:
    end = asyncio.Event()

    async def ignore(order: Order, _: bytes) -> Order:
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()
        return order

    async with asyncio.timeout(5):
        with pytest.raises(TransformFailed, match=r"took longer than 0\.01 s"):
            await transform(ignore, timeout=0.01).decode(BODY, FetchRequest("a1"))
    end.set()


async def test_a_failure_of_a_function_without_a_module_tells_the_place() -> None:
    class Function:
        __module__ = None  # type: ignore[assignment]  # as methods of extensions have it

        def __call__(self, _order: Order, _body: bytes) -> Order:
            raise ValueError

    assert (await failure_of(Function())).startswith("`ValueError` at test_transform:")


async def test_a_worker_that_cancels_a_call_is_obeyed() -> None:
    started = asyncio.Event()

    async def wait(order: Order, _: bytes) -> Order:
        started.set()
        await asyncio.Event().wait()
        return order

    call = asyncio.create_task(made_by(wait))
    await started.wait()
    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_document_that_is_not_an_order_does_not_reach_the_function() -> None:
    def never(*_: object) -> None:
        raise AssertionError("called")

    with pytest.raises(InvalidDocument):
        await made_by(never, b"[]")


# -- loading ----------------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module to the command's folder, and return its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(text: str) -> str:
        name = f"own_code_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return name

    return write


def test_a_function_is_found_in_the_working_directory(module: Callable[[str], str]) -> None:
    name = module("def transform(order, document):\n    return order\n")

    assert load_function(f"{name}:transform")("order", b"") == "order"  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_module_that_handles_a_signal_to_stop_changes_nothing(
    module: Callable[[str], str], number: signal.Signals
) -> None:
    name = module(f"import signal\nsignal.signal({number:d}, print)\ndef transform(order, document): ...\n")
    before = signal.getsignal(number)

    try:
        load_function(f"{name}:transform")

        assert signal.getsignal(number) is before
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n", "the module does not contain transform"),
        ("transform = 1\n", "it is not a function, or is an async generator"),
        ("async def transform(a, b):\n    yield a\n", "it is not a function, or is an async generator"),
        ("def transform(order): ...\n", "it does not take two arguments, an order and its document"),
        ("import nothing_of_this_name\n", "importing it failed: No module named 'nothing_of_this_name'"),
        ("class Panic(BaseException): ...\nraise Panic('x')\n", "importing it failed: Panic: x"),
        ("raise SystemExit(3)\n", "importing it failed: SystemExit: 3"),
        ("raise ValueError('two\\nlines')\n", "importing it failed: ValueError: two lines"),
    ],
)
def test_a_function_that_cannot_be_used_is_one_line(module: Callable[[str], str], text: str, problem: str) -> None:
    name = module(text)

    with pytest.raises(ConfigError) as refused:
        load_function(f"{name}:transform")

    assert str(refused.value) == f"INGEST_TRANSFORM: {name}:transform cannot be used: {problem}"


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no module nowhere_at_all in the working directory or among the packages"):
        load_function("nowhere_at_all.orders:transform")
