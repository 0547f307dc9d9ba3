"""Functions of users for tests of transforms in processes. The ID of the order selects the behaviour."""

import asyncio
import os
import resource
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from ingest import Order


def hostile(order: Order, document: bytes) -> Any:
    """Misbehaves for some orders."""
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


class Panic(BaseException):
    """A `BaseException`, like the panics of extensions in Rust."""


def _panic(_: Order, document: bytes) -> None:
    raise Panic(document)


def _fork(order: Order, _: bytes) -> Order:
    """Returns twice, the second time in another process."""
    os.fork()
    return order


def _abandon(*_: object) -> None:
    """Ends, and leaves a process behind that it has forked, with the socket to the worker."""
    if os.fork() == 0:
        threading.Event().wait()
    os._exit(3)


def _start_program(order: Order, _: bytes) -> Order:
    """Starts a program, and forgets it."""
    program = subprocess.Popen(["sleep", "1000"])
    return replace(order, attributes={"pid": program.pid})


_HOSTILE: dict[str, Callable[[Order, bytes], Any]] = {
    "exit": lambda *_: os._exit(3),
    "killed": lambda *_: os.kill(os.getpid(), signal.SIGKILL),
    "hang": _hang,
    "eat": _eat,
    "leave": _leave,
    "raise": _raise,
    "panic": _panic,
    "fork": _fork,
    "abandon": _abandon,
    "start": _start_program,
    "skip": lambda *_: None,
    "split": lambda order, _: [order, replace(order, id=f"{order.id}-2")],
    "shatter": lambda order, _: [replace(order, id=f"{order.id}-{number}") for number in range(1_000)],
    "wrong": lambda order, _: replace(order, status=7),
    "huge": lambda order, _: replace(order, attributes={"all": "x" * 40_000_000}),
    "same": lambda order, _: order,
    "garbage": lambda *_: os.write(_socket(), b"\0\0\0\3abc"),
    "flood": lambda *_: os.write(_socket(), b"\xff" * 64),
}


def dies_once(order: Order, document: bytes) -> Order:
    """Dies at the first call for an order but not at the second, as if another order had been the cause."""
    del document
    marker = Path(os.environ["OWN_CODE_MARKERS"]) / order.id
    if not marker.exists():
        marker.touch()
        os._exit(9)
    return order


_calls: list[object] = []
_lock = threading.Lock()


def second_exits(order: Order, document: bytes) -> Order:
    """Ends its process at the second call for any order, as if the first call had damaged the process."""
    _calls.append(document)
    if len(_calls) > 1:
        os._exit(9)
    return order


def second_hangs(order: Order, document: bytes) -> Order:
    """Hangs at the second call in a process, because the first has left something locked."""
    del document
    _lock.acquire()
    return order


def leaks_memory(order: Order, document: bytes) -> Order:
    """Keeps 150 MB of each call."""
    del document
    _calls.append(b"x" * 150_000_000)
    return order


def leaks_files(order: Order, document: bytes) -> Order:
    """Keeps half of the allowed files open."""
    del document
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    _calls.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(most // 2))
    return order


def leaks_threads(order: Order, document: bytes) -> Order:
    """Leaves a thread with a large stack behind."""
    del document
    threading.stack_size(100_000_000)
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    return order


async def cancels_itself(order: Order, document: bytes) -> Order:
    """Cancels the task in which it runs, mistaking it for its own task."""
    del document
    if order.id.startswith("cancel"):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
    return order


async def slow(order: Order, document: bytes) -> Order:
    """An async function."""
    del document
    await asyncio.sleep(0.001)
    return replace(order, status="slow")


def typed(order: Order, document: bytes) -> Order:
    """Returns the type of an attribute."""
    del document
    return replace(order, attributes={"type": type(order.attributes["price"]).__name__})


def without_note(order: Order, document: bytes) -> Order:
    """Changes the attributes in place, until there are none."""
    del document, order.attributes["note"]
    return order


def local_times(order: Order, document: bytes) -> Order:
    """Returns the local times at which the order was placed and changed."""
    del document
    return replace(order, attributes={"times": [str(order.placed_at), str(order.updated_at)]})


def burn(order: Order, document: bytes) -> Order:
    """50 ms of processor time."""
    del document
    until = time.process_time() + 0.05
    total = Decimal(0)
    while time.process_time() < until:
        total += 1
    return replace(order, status="burnt")


def prints(order: Order, document: bytes) -> Order:
    """Prints, and receives the same stop signal as its worker."""
    print(document)  # noqa: T201  the purpose of this function
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    return replace(order, status="printed")


async def keeps_slots(order: Order, document: bytes) -> Order:
    """Stands for a bug of the worker that keeps slots, so that later calls never end."""
    from ingest.mapping.transforms import transform  # noqa: PLC0415  not in processes

    del document

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    transform._in_own_task = cast("Any", never)
    return order
