"""Functions of users, for tests of transforms in processes: what each does is told by the ID of the order."""

import asyncio
import os
import signal
import stat
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ingest import Order


def hostile(order: Order, document: bytes) -> Any:
    """Does to some orders what no function should."""
    kind = order.id.partition("-")[0]
    if kind in _HOSTILE:
        return _HOSTILE[kind](order, document)
    return replace(order, attributes={"pid": os.getpid(), "bytes": len(document)})


def _socket() -> int:
    """The socket to the worker, which no function should touch."""
    return next(fd for fd in range(3, 20) if stat.S_ISSOCK(os.fstat(fd).st_mode))


def _hang(*_: object) -> None:
    while True:
        pass


def _eat(*_: object) -> None:
    eaten = [b"x" * 10_000_000]
    while True:
        eaten.append(eaten[-1] + b"x")


def _leave(*_: object) -> None:
    raise SystemExit(4)


def _raise(_: Order, document: bytes) -> None:
    raise ValueError(document)


_HOSTILE: dict[str, Callable[[Order, bytes], Any]] = {
    "exit": lambda *_: os._exit(3),
    "killed": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "eat": _eat,
    "leave": _leave,
    "raise": _raise,
    "skip": lambda *_: None,
    "split": lambda order, _: [order, replace(order, id=f"{order.id}-2")],
    "wrong": lambda order, _: replace(order, status=7),
    "huge": lambda order, _: replace(order, attributes={"all": "x" * 40_000_000}),
    "same": lambda order, _: order,
    "garbage": lambda *_: os.write(_socket(), b"\0\0\0\3abc"),
    "flood": lambda *_: os.write(_socket(), b"\xff" * 64),
}


def dies_once(order: Order, document: bytes) -> Order:
    """Dies at the first call for an order, and not at a second: as if another had been the cause."""
    del document
    marker = Path(os.environ["OWN_CODE_MARKERS"]) / order.id
    if not marker.exists():
        marker.touch()
        os._exit(9)
    return order


async def slow(order: Order, document: bytes) -> Order:
    """An async function."""
    del document
    await asyncio.sleep(0.001)
    return replace(order, status="slow")


def typed(order: Order, document: bytes) -> Order:
    """Tells what type an attribute has here."""
    del document
    return replace(order, attributes={"type": type(order.attributes["price"]).__name__})


def burn(order: Order, document: bytes) -> Order:
    """50 ms of processor time."""
    del document
    until = time.process_time() + 0.05
    total = Decimal(0)
    while time.process_time() < until:
        total += 1
    return replace(order, status="burnt")


def prints(order: Order, document: bytes) -> Order:
    """Prints, and is asked to stop as its worker is."""
    print(document)  # noqa: T201  what it is for
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return replace(order, status="printed")


async def ignores_its_end(order: Order, document: bytes) -> Order:
    """Waits indefinitely, and goes on waiting when its time is up: a bug that keeps its slot."""
    del document
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.Event().wait()
    return order
