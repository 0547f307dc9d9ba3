"""A foreign server in place of Redis counts as an outage, and no process ends because of it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import pytest
from consumers import Consumer
from foreign import echo, greeting, http, ones, words
from listener import Serve, listening
from proxy import Proxy
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.operate.scanner import PartitionScanner
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import QueueRefused, control_client

pytestmark = pytest.mark.each_server

GROUP = "ingest"
EVERYTHING = (echo, http, greeting, ones, words)
HELD = Delivery(EntryRef("ingest:{orders}:stream", "1-1"), "a", 1.0, 1, 1, None, {b"order_id": b"a"})


def to(port: int, url: str) -> str:
    return url.rpartition(":")[0] + f":{port}/0"


@pytest.fixture
def proxy(own_valkey: ValkeyServer) -> AsyncIterator[Proxy]:
    with Proxy(own_valkey.port) as proxy:
        yield proxy


@pytest.mark.parametrize("answer", [echo, http, greeting], ids=lambda answer: answer.__name__)
async def test_at_the_start_it_is_told_at_once(answer: Serve) -> None:
    for account in ("", ":password@"):
        async with listening(answer) as port:
            with pytest.raises(QueueRefused, match="the server is not Redis"):
                async with Consumer.open(f"redis://{account}127.0.0.1:{port}/0", "orders", GROUP, "one", 1.0):
                    pass


async def test_a_sentinel_is_told_from_the_redis_that_it_watches(own_valkey: ValkeyServer) -> None:
    class Sentinel(ValkeyServer):
        def _command(self, port: int) -> list[Any]:
            self.directory.joinpath("sentinel.conf").write_text(
                f"port {port}\nbind 127.0.0.1\nrequirepass {self.password}\n"
            )
            return [self._binary, self.directory / "sentinel.conf", "--sentinel"]

    with (
        Sentinel(own_valkey.directory / "sentinel", binary=own_valkey._binary) as sentinel,
        pytest.raises(QueueRefused, match="the server is a Sentinel"),
    ):
        async with Consumer.open(sentinel.url, "orders", GROUP, "one", 1.0):
            pass


@pytest.mark.parametrize("answer", EVERYTHING, ids=lambda answer: answer.__name__)
async def test_whatever_answers_no_call_fails_otherwise_than_in_an_outage(
    answer: Serve, own_valkey: ValkeyServer, proxy: Proxy
) -> None:
    url = to(proxy.port, own_valkey.url)
    async with (
        Consumer.open(url, "orders", GROUP, "one", 1.0) as consumer,
        control_client(url) as client,
        listening(answer) as foreign,
    ):
        await consumer.ensure_group()
        monitor, scanner, letters = (
            PartitionMonitor(client, "orders", GROUP),
            PartitionScanner(client, "orders", GROUP),
            PartitionDeadLetters(client, "orders"),
        )

        async def queued() -> None:
            async for _ in scanner.queued():
                pass

        calls: Mapping[str, Callable[[], Awaitable[object]]] = {
            "ensure_group": consumer.ensure_group,
            "read": lambda: consumer.read(1, 0.01),
            "claim_own": lambda: consumer.claim_own(1, []),
            "claim_abandoned": lambda: consumer.claim_abandoned(1),
            "sweep": lambda: consumer.sweep(5.0),
            "heartbeat": lambda: consumer.heartbeat(5.0),
            "ack": lambda: consumer.ack([HELD.entry]),
            "reschedule": lambda: consumer.reschedule(HELD, 1.0, 2),
            "dead_letter": lambda: consumer.dead_letter(HELD, DeadReason.REJECTED, "no"),
            "move_due": lambda: consumer.move_due(10),
            "renew": lambda: consumer.renew([HELD.entry]),
            "release": lambda: consumer.release([HELD]),
            "leave": consumer.leave,
            "remove_silent": lambda: consumer.remove_stale(1.0),
            "trim": lambda: consumer.trim(10),
            "state": monitor.state,
            "consumers": monitor.consumers,
            "traps": monitor.traps,
            "queued": queued,
            "count": letters.count,
            "newest": letters.newest,
            "get": lambda: letters.get("1-1"),
        }
        fallen: dict[str, str] = {}
        for name, call in calls.items():
            proxy.lead_to(foreign)
            await asyncio.to_thread(proxy.cut)
            for _ in range(3):
                try:
                    await call()
                except QueueUnavailable:
                    pass
                except Exception as error:  # noqa: BLE001  what else it may be is what is asked
                    fallen[name] = repr(error)
            proxy.lead_to(own_valkey.port)

            async def works(call: Callable[[], Awaitable[object]] = call) -> bool:
                try:
                    await call()
                except QueueUnavailable:
                    return False
                return True

            if answer in (ones, words):
                await asyncio.to_thread(proxy.cut)
            await eventually(works)
    assert fallen == {}


async def test_after_a_reply_that_makes_no_sense_the_next_command_connects_again(
    own_valkey: ValkeyServer, proxy: Proxy
) -> None:
    url = to(proxy.port, own_valkey.url)
    async with Consumer.open(url, "orders", GROUP, "one", 1.0) as consumer, listening(ones) as foreign:

        async def is_refused() -> bool:
            try:
                await consumer.heartbeat(5.0)
            except QueueUnavailable as error:
                return isinstance(error, QueueRefused)
            return False

        proxy.lead_to(foreign)
        await asyncio.to_thread(proxy.cut)
        await eventually(is_refused)
        proxy.lead_to(own_valkey.port)

        await consumer.heartbeat(5.0)


async def test_a_producer_says_so_and_goes_on_when_it_is_redis_again(own_valkey: ValkeyServer, proxy: Proxy) -> None:
    async with Producer.connect(to(proxy.port, own_valkey.url), "orders") as producer:
        await producer.enqueue(["before"])
        async with listening(echo) as foreign:
            proxy.lead_to(foreign)
            await asyncio.to_thread(proxy.cut)
            with pytest.raises(QueueRefused):
                async with asyncio.timeout(10):
                    await producer.enqueue(["meanwhile"])
            proxy.lead_to(own_valkey.port)
        await producer.enqueue(["after"])
    async with Redis.from_url(own_valkey.url) as redis:
        entries = await redis.xrange(Keys.of("orders").stream)
    assert [fields[b"order_id"] for _, fields in entries] == [b"before", b"after"]
