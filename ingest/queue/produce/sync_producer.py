"""The producer for programs without asyncio: Django, Flask, scripts, threads, processes that fork.

A thread of each process runs an event loop with a `Producer`, so that calls of all threads share round trips. The first
call starts this thread. A forked process starts its own thread with its own connection.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Self

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.errors import QueueUnavailable
from ingest.domain.source_name import UNNAMED, parse_source_name, queue_of
from ingest.loop_thread import Background
from ingest.queue.produce.producer import IDEMPOTENCY_LIFETIME, Producer, checked_lifetime
from ingest.queue.produce.submission import Orders, listed_orders
from ingest.queue.redis.topology import topology_of


class SyncProducer:
    """Enqueues orders into one queue, from any thread.

    You can create it at import time, and share it between threads and forked processes. It connects when you first use it.
    It does not support gevent and eventlet. It takes the arguments of `Producer.connect`, and calls `on_wait` in its own thread.
    """

    def __init__(
        self,
        url: str,
        queue: str = "orders",
        *,
        source: str = UNNAMED,
        partitions: int = 1,
        backlog_limit: int = 0,
        durability: Durability = Durability.MEMORY,
        replicas: int = 1,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        lifetime = checked_lifetime(idempotency_lifetime)
        # A URL that cannot be read is an error of this call, not of the first call that connects.
        topology_of(url)
        own_queue = queue_of(queue, source and parse_source_name(source))

        def connect() -> AbstractAsyncContextManager[Producer]:
            return Producer.connect(
                url,
                own_queue,
                partitions=partitions,
                backlog_limit=backlog_limit,
                durability=durability,
                replicas=replicas,
                idempotency_lifetime=lifetime,
                on_wait=on_wait,
            )

        self._background = Background(connect, "ingest-producer", lambda why: QueueUnavailable(f"the producer {why}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enqueue(
        self,
        orders: Orders,
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        timeout: float | None = None,
    ) -> int:
        """Enqueue orders, and return their number when Redis holds all of them. See `Producer.enqueue`.

        In all methods, an iterator runs in the calling thread. It may call this producer, or use objects of the thread.
        """
        listed = listed_orders(orders)
        return self._background.run(
            lambda producer: producer.enqueue(listed, idempotency_key=idempotency_key, express=express, timeout=timeout)
        )

    def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """Enqueue orders, or raise an exception instead of waiting. See `Producer.try_enqueue`."""
        listed = listed_orders(orders)
        return self._background.run(
            lambda producer: producer.try_enqueue(listed, idempotency_key=idempotency_key, express=express)
        )

    def try_announce(
        self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False, coalesce: float = 0.0
    ) -> Accepted:
        """Enqueue orders like `try_enqueue`, and return the number of new entries. See `Producer.try_announce`."""
        listed = listed_orders(orders)
        return self._background.run(
            lambda producer: producer.try_announce(
                listed, idempotency_key=idempotency_key, express=express, coalesce=coalesce
            )
        )

    def check_durability(self) -> None:
        """Return if this Redis can confirm `durability`. See `Producer.check_durability`."""
        self._background.run(lambda producer: producer.check_durability())

    def close(self) -> None:
        """Disconnect this process. Calls that still wait raise `QueueUnavailable`. A later call connects again."""
        self._background.close()
