"""Something of asyncio for programs without it: an event loop in a thread of each process that uses it.

Calls of all threads share it. The first call starts the thread; a process that was forked starts its own.
"""

import asyncio

# What getaddrinfo imports when it is first used, in a thread: a process that another thread forks in the middle of an import waits
# for its end indefinitely.
import encodings.idna  # noqa: F401
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib.resources import files
from typing import Any, Generic, TypeVar

_C = TypeVar("_C")
_T = TypeVar("_T")
_CLOSED = "is closed"
files("ingest")  # imports as well, when it is first used


class Background(Generic[_C]):
    """One thing of asyncio, such as a producer, for all threads of a process, and each process forked from it.

    Args:
        connect: opens it.
        name: of the thread.
        unavailable: makes the exception for calls that wait when it is closed, and for those that cannot start the thread; is
            given the rest of its message.
    """

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[_C]], name: str, unavailable: Callable[[str], Exception]
    ) -> None:
        self._new = partial(_LoopThread, connect, name, unavailable)
        # After a fork, the parent's threads do not run here, and a lock that one of them held stays locked: each
        # process has its own of everything. The parent's stays referenced, as nothing of it must be closed here.
        self._by_process: dict[int, _LoopThread[_C]] = {}

    def run(self, call: Callable[[_C], Coroutine[Any, Any, _T]]) -> _T:
        """The result of a call in the loop; Ctrl-C interrupts the wait and cancels the call."""
        process = os.getpid()
        # Threads that make the first call together get the same.
        thread = self._by_process.get(process) or self._by_process.setdefault(process, self._new())
        return thread.run(call)

    def close(self) -> None:
        """Close this process's; calls that still wait raise what `unavailable` makes. A later call opens it again."""
        if (thread := self._by_process.pop(os.getpid(), None)) is not None:
            thread.stop()


class _LoopThread(Generic[_C]):
    """One process's event loop, started by the first call."""

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[_C]], name: str, unavailable: Callable[[str], Exception]
    ) -> None:
        self._connect = connect
        self._name = name
        self._unavailable = unavailable
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, _C]] = Future()
        self._stop = asyncio.Event()

    def run(self, call: Callable[[_C], Coroutine[Any, Any, _T]]) -> _T:
        answer = self._begin(call)
        try:
            return answer.result()
        except CancelledError as error:
            raise self._unavailable(_CLOSED) from error
        finally:
            answer.cancel()

    def _begin(self, call: Callable[[_C], Coroutine[Any, Any, _T]]) -> Future[_T]:
        # Under the lock, so that no call comes to a loop that has ended.
        with self._lock:
            if self._is_stopped:
                raise self._unavailable(_CLOSED)
            loop, opened = self._opened()
            return asyncio.run_coroutine_threadsafe(call(opened), loop)

    def _opened(self) -> tuple[asyncio.AbstractEventLoop, _C]:
        if self._thread is None:
            self._started = Future()
            # A daemon: a program that does not close what it uses ends all the same.
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        if (error := self._started.exception()) is None:
            return self._started.result()
        # The next call tries again.
        self._thread = None
        if isinstance(error, OSError):
            # Such as no file descriptor left.
            raise self._unavailable(f"cannot start: {error.strerror or type(error).__name__}") from error
        raise error

    def stop(self) -> None:
        """End the thread; what still waits is cancelled."""
        with self._lock:
            self._is_stopped = True
            if self._thread is None or self._started.exception() is not None:
                return
            loop, _ = self._started.result()
            loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except BaseException as error:  # raised in the call that has started the thread
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        async with self._connect() as opened:
            self._started.set_result((asyncio.get_running_loop(), opened))
            await self._stop.wait()
