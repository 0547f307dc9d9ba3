"""Ctrl-C while an event loop runs: the task is cancelled, whatever the loop is doing."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ingest.process.interrupt import interrupting_reads, run_interruptible


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, own)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


async def endless() -> None:
    await asyncio.Event().wait()


def test_the_result_is_returned() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert run_interruptible(main()) == 7


def test_an_error_is_raised() -> None:
    async def main() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        run_interruptible(main())


def test_a_callback_that_is_interrupted_can_still_set_its_future() -> None:
    errors: list[dict[str, Any]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        connected = loop.create_future()

        def refuse() -> None:
            if not connected.done():
                interrupt()
                connected.set_exception(ConnectionRefusedError())

        loop.call_soon(refuse)
        try:
            await connected
        except ConnectionRefusedError:
            await endless()

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(main())
    assert errors == []


def test_a_waiting_task_cleans_up() -> None:
    ended = []

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.01, interrupt)
        try:
            await endless()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(main())
    assert ended


def test_a_second_interrupt_does_not_wait_for_the_task() -> None:
    async def main() -> None:
        interrupt()
        interrupt()
        time.sleep(60)  # noqa: ASYNC251

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(main())


def test_a_read_that_would_begin_after_an_interrupt_does_not_begin() -> None:
    began = []

    async def main() -> None:
        interrupt()
        with interrupting_reads():
            began.append(True)
        await endless()

    with pytest.raises(KeyboardInterrupt):
        run_interruptible(main())
    assert began == []


def test_a_background_job_is_not_interrupted() -> None:
    async def main() -> int:
        interrupt()
        await asyncio.sleep(0)
        return 7

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_interruptible(main()) == 7
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_task_that_is_cancelled_otherwise_was_not_interrupted() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_interruptible(main())
