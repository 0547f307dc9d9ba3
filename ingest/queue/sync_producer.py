"""The producer for programs without asyncio: Django, Flask, scripts, threads, processes that fork.

A thread of each process runs an event loop with a `Producer`, so that calls of all threads share round trips. The first
call starts it. A process that was forked starts its own, with a connection of its own.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from ingest.domain.accepted import Accepted, Durability
from ingest.domain.errors import QueueUnavailable
from ingest.queue.producer import IDEMPOTENCY_LIFETIME, Producer, checked_lifetime
from ingest.queue.submission import Orders
from ingest.queue.transport import connection_options

_T = TypeVar("_T")
_Connect = Callable[[], AbstractAsyncContextManager[Producer]]


class SyncProducer:
    """Announces orders to one queue, from any thread.

    May be made at import time, and shared by all threads of a process and by the processes forked from it. Connects
    when it is first used. Not for programs whose threads gevent or eventlet replaces.

    Args:
        url: of Redis.
        queue: the queue's name.
        backlog_limit: see `Producer`.
        durability: see `Producer`.
        replicas: see `Producer`.
        idempotency_lifetime: see `Producer`.
        on_wait: see `Producer`; called in the producer's own thread.
    """

    def __init__(
        self,
        url: str,
        queue: str = "orders",
        *,
        backlog_limit: int = 0,
        durability: Durability = Durability.MEMORY,
        replicas: int = 1,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        lifetime = checked_lifetime(idempotency_lifetime)
        # A URL that cannot be read is the caller's mistake here, not that of the first call.
        connection_options(url)

        def connect() -> AbstractAsyncContextManager[Producer]:
            return Producer.connect(
                url,
                queue,
                backlog_limit=backlog_limit,
                durability=durability,
                replicas=replicas,
                idempotency_lifetime=lifetime,
                on_wait=on_wait,
            )

        self._connect = connect
        # After a fork, the parent's threads do not run here, and a lock that one of them held stays locked: each
        # process has its own of everything. The parent's stays referenced, as nothing of it must be closed here.
        self._by_process: dict[int, _ProducerThread] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def enqueue(
        self,
        orders: Orders,
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Announce orders; return how many, once Redis has them all: see `Producer.enqueue`."""
        return self._thread().run(
            lambda producer: producer.enqueue(orders, idempotency_key=idempotency_key, express=express, timeout=timeout)
        )

    def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """As `enqueue`, but raise where that would wait: see `Producer.try_enqueue`."""
        return self._thread().run(
            lambda producer: producer.try_enqueue(orders, idempotency_key=idempotency_key, express=express)
        )

    def try_announce(
        self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False, coalesce: float = 0.0
    ) -> Accepted:
        """As `try_enqueue`; say how many entries the orders needed: see `Producer.try_announce`."""
        return self._thread().run(
            lambda producer: producer.try_announce(
                orders, idempotency_key=idempotency_key, express=express, coalesce=coalesce
            )
        )

    def check_durability(self) -> None:
        """Return if this Redis can confirm what `durability` promises: see `Producer.check_durability`."""
        self._thread().run(lambda producer: producer.check_durability())

    def close(self) -> None:
        """Disconnect this process; calls that still wait raise `QueueUnavailable`. A later call connects again."""
        if (thread := self._by_process.pop(os.getpid(), None)) is not None:
            thread.stop()

    def _thread(self) -> "_ProducerThread":
        process = os.getpid()
        found = self._by_process.get(process)
        return found if found is not None else self._by_process.setdefault(process, _ProducerThread(self._connect))


class _ProducerThread:
    """One process' event loop with a producer in it, started by the first call."""

    def __init__(self, connect: _Connect) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, Producer]] = Future()
        self._stop = asyncio.Event()

    def run(self, call: Callable[[Producer], Coroutine[Any, Any, _T]]) -> _T:
        """The result of a call in the loop; Ctrl-C interrupts the wait and cancels the call."""
        answer = self._begin(call)
        try:
            return answer.result()
        except CancelledError as error:
            raise QueueUnavailable("the producer is closed") from error
        finally:
            answer.cancel()

    def _begin(self, call: Callable[[Producer], Coroutine[Any, Any, _T]]) -> Future[_T]:
        # Under the lock, so that no call comes to a loop that has ended.
        with self._lock:
            if self._is_stopped:
                raise QueueUnavailable("the producer is closed")
            if self._thread is None:
                # A daemon: a program that does not close its producer ends all the same.
                thread = threading.Thread(target=self._run, name="ingest-producer", daemon=True)
                thread.start()
                self._thread = thread
            loop, producer = self._started.result()
            return asyncio.run_coroutine_threadsafe(call(producer), loop)

    def stop(self) -> None:
        """End the thread; what still waits is cancelled."""
        with self._lock:
            self._is_stopped = True
            if self._thread is None:
                return
            loop, _ = self._started.result()
            loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        try:
            async with self._connect() as producer:
                self._started.set_result((asyncio.get_running_loop(), producer))
                await self._stop.wait()
        finally:
            if not self._started.done():
                self._started.set_exception(sys.exception() or RuntimeError("the producer's thread has ended"))
