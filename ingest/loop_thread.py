"""Lets synchronous programs use an asyncio object, in an event loop that runs in a thread.

The first call starts the thread, and calls of all threads share it. A forked process starts its own thread.
"""

import asyncio

# The first getaddrinfo call imports this in a thread. If another thread forked the process during the import,
# the new process would wait for its end indefinitely.
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
files("ingest")  # its first call also imports modules


class Background(Generic[_C]):
    """An asyncio object, such as a producer, for all threads of a process and of the processes forked from it.

    Args:
        connect: opens the object.
        name: the name of the thread.
        unavailable: makes an exception from the end of its message, for calls that wait while the object is closed,
            and for calls that cannot start the thread.
    """

    def __init__(
        self, connect: Callable[[], AbstractAsyncContextManager[_C]], name: str, unavailable: Callable[[str], Exception]
    ) -> None:
        self._new = partial(_LoopThread, connect, name, unavailable)
        # After a fork, the parent's threads do not run here, and a lock that one of them held stays locked, so each
        # process opens its own object. The parent's objects stay referenced, because this process must not close them.
        self._by_process: dict[int, _LoopThread[_C]] = {}

    def run(self, call: Callable[[_C], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of a call in the loop. Ctrl-C cancels the call, which may have taken effect."""
        process = os.getpid()
        # Threads that make the first call concurrently get the same loop.
        thread = self._by_process.get(process) or self._by_process.setdefault(process, self._new())
        return thread.run(call)

    def close(self) -> None:
        """Close the object of this process, so that waiting calls fail. A later call opens it again."""
        if (thread := self._by_process.pop(os.getpid(), None)) is not None:
            thread.stop()


class _LoopThread(Generic[_C]):
    """The event loop of one process, started by the first call."""

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
        response = self._begin(call)
        try:
            return response.result()
        except CancelledError as error:
            raise self._unavailable(_CLOSED) from error
        finally:
            response.cancel()

    def _begin(self, call: Callable[[_C], Coroutine[Any, Any, _T]]) -> Future[_T]:
        # Under the lock, so that no call is sent to a loop that has ended.
        with self._lock:
            if self._is_stopped:
                raise self._unavailable(_CLOSED)
            loop, opened = self._opened()
            return asyncio.run_coroutine_threadsafe(call(opened), loop)

    def _opened(self) -> tuple[asyncio.AbstractEventLoop, _C]:
        if self._thread is None:
            self._started = Future()
            # A daemon thread does not keep a program running that forgets to close this object.
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        if (error := self._started.exception()) is None:
            return self._started.result()
        # The next call tries again.
        self._thread = None
        if isinstance(error, OSError):
            # For example, no file descriptor is left.
            raise self._unavailable(f"cannot start: {error.strerror or type(error).__name__}") from error
        raise error

    def stop(self) -> None:
        """End the thread, and cancel waiting calls."""
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
