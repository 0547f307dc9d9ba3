"""Clients of a Redis with Sentinels find the primary, and continue at the promoted replica."""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from consumers import BEFORE, RESUMED_WITHIN, Consumer, open_quota, read_all, resuming
from proxy import Proxy
from redis.asyncio import Redis
from sentinel_set import SentinelSet
from servers.kinds import KINDS, Kind
from support import eventually
from tls import Certificates, behind_tls

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.quota import LeaseRequest, QuotaLimits
from ingest.domain.redis_urls.redis_addresses import address_text
from ingest.domain.redis_urls.sentinel_url import parse_sentinel_url
from ingest.lab.servers.server import free_port
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.quota import FleetQuotaClient
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.checked_connections import connection_options
from ingest.queue.redis.connection import QueueRefused, control_client, translated
from ingest.queue.redis.topology.role_connections import PrimaryConnection
from ingest.queue.redis.topology.sentinel import PrimaryAddress

QUEUE = "orders"
SPEAK_TLS = [kind for kind in KINDS if kind.speaks_tls]


@pytest.fixture
async def watched(kind: Kind) -> AsyncIterator[SentinelSet]:
    with TemporaryDirectory(prefix="ingest-") as folder, SentinelSet.open(kind, Path(folder)) as watched:
        await watched.become_ready()
        yield watched


@pytest.mark.parametrize("failure", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_producers_and_consumers_go_on_at_the_promoted_replica_without_a_loss(
    watched: SentinelSet, failure: signal.Signals
) -> None:
    primary = await watched.primary()
    async with resuming(watched.url(), watched.replicate):
        os.kill(primary.pid, failure)
    assert (await watched.primary()).port != primary.port


async def test_a_planned_failover_loses_nothing_that_a_replica_has_confirmed(watched: SentinelSet) -> None:
    # The former primary accepts writes until a Sentinel makes it a replica, which deletes them.
    primary = await watched.primary()
    async with (
        Consumer.open(watched.url(), QUEUE, "ingest", "one", 1.0) as consumer,
        Producer.connect(watched.url(), QUEUE, durability=Durability.REPLICATED) as producer,
    ):
        await consumer.ensure_group()
        await producer.enqueue(BEFORE)

        await watched.fail_over()
        async with asyncio.timeout(2 * RESUMED_WITHIN):
            await producer.enqueue(["after"])
            seen = await read_all(consumer, len(BEFORE) + 1)

    assert seen == {"after", *BEFORE}
    assert (await watched.primary()).port != primary.port


async def test_a_thawed_primary_accepts_nothing_from_a_new_connection(watched: SentinelSet) -> None:
    primary = await watched.primary()
    os.kill(primary.pid, signal.SIGSTOP)
    await watched.await_other_than(primary)
    os.kill(primary.pid, signal.SIGCONT)

    async with Producer.connect(watched.url(), QUEUE) as producer:
        await producer.enqueue(["later"])

    async with Redis.from_url((await watched.primary()).url) as redis:
        assert await redis.xlen(Keys.of(QUEUE).stream) == 1


async def test_a_sentinel_that_is_gone_or_frozen_is_skipped(watched: SentinelSet) -> None:
    watched.sentinels[0].kill()
    os.kill(watched.sentinels[1].pid, signal.SIGSTOP)

    async with asyncio.timeout(3), control_client(watched.url()) as client:
        assert await client.ping()
        # The Sentinel that responds is first now.
        await client.connection_pool.disconnect()
        started = asyncio.get_running_loop().time()
        assert await client.ping()
        assert asyncio.get_running_loop().time() - started < 0.4


async def test_a_quota_is_leased_only_while_most_sentinels_confirm_the_primary(watched: SentinelSet) -> None:
    request, limits = LeaseRequest(tokens=1, concurrency=1), QuotaLimits(rate=50.0)
    with ExitStack() as stack:
        ways = [stack.enter_context(Proxy(sentinel.port)) for sentinel in watched.sentinels]
        hosts = ",".join(f"127.0.0.1:{way.port}" for way in ways)
        async with open_quota(watched.url(hosts=hosts), "split", limits) as quota:
            await quota.lease(request)
            ways[0].freeze()
            asked_at = time.monotonic()
            while time.monotonic() < asked_at + 3:
                await quota.lease(request)
            ways[1].freeze()

            async def is_refused() -> bool:
                with suppress(QueueUnavailable):
                    await quota.lease(request)
                    return False
                return True

            await eventually(is_refused, within=10, every=0.1)
            with pytest.raises(QueueUnavailable, match=r"fewer than 2 of 3 Sentinels confirm that .* is the primary"):
                await quota.lease(request)
            ways[1].thaw()
            await quota.lease(request)


async def test_quotas_of_many_sources_do_not_wait_for_each_others_sentinels(watched: SentinelSet) -> None:
    request, limits = LeaseRequest(tokens=1, concurrency=1), QuotaLimits(rate=50.0)
    async with QueueConnections.open(watched.url()) as connections:
        quotas = [FleetQuotaClient.on(connections, f"split-{number}", limits) for number in range(50)]
        await quotas[0].lease(request)
        for sentinel in watched.sentinels[:2]:
            os.kill(sentinel.pid, signal.SIGSTOP)

        async def are_refused() -> bool:
            async with asyncio.timeout(20):
                replies = await asyncio.gather(*(each.lease(request) for each in quotas), return_exceptions=True)
            return all(isinstance(reply, QueueUnavailable) for reply in replies)

        await eventually(are_refused, every=0.1)


async def test_an_address_behind_nat_is_replaced(watched: SentinelSet) -> None:
    primary = await watched.primary()
    with Proxy(primary.port) as proxy:
        mapping = f"&nat=127.0.0.1:{primary.port},127.0.0.1:{proxy.port}"
        async with control_client(watched.url(options=mapping)) as client:
            assert await client.ping()
            proxy.cut()
            with pytest.raises(QueueUnavailable), translated():
                await client.ping()


async def test_an_unreachable_sentinel_set_is_an_outage_that_names_the_sentinels() -> None:
    port = free_port()
    async with control_client(f"redis+sentinel://127.0.0.1:{port}/orders/0") as client:
        with pytest.raises(QueueUnavailable, match=f"Sentinel 127.0.0.1:{port}") as caught, translated():
            await client.ping()

    assert not isinstance(caught.value, QueueRefused)


async def test_mistakes_in_the_url_are_refused_with_their_reason(watched: SentinelSet) -> None:
    primary = await watched.primary()
    right = watched.url()
    mistakes = {
        right.replace("/orders/", "/other/"): "does not watch a service 'other'",
        right.replace(
            "sentinel_password=", "sentinel_password=x"
        ): "WRONGPASS|invalid username-password|invalid password",
        right.partition("?")[0]: "requires a password, and none is given",
        watched.url(hosts=f"127.0.0.1:{primary.port}").replace(watched.sentinels[0].password, primary.password): (
            "the server is not a Sentinel"
        ),
    }
    for url, reason in mistakes.items():
        async with control_client(url) as client:
            with pytest.raises(QueueRefused, match=reason), translated():
                await client.ping()


@pytest.mark.each_server
async def test_a_user_with_the_documented_rights_suffices(watched: SentinelSet) -> None:
    text = Path(__file__).parents[2].joinpath("docs/deploy/sentinel.md").read_text()
    [rule] = re.findall(r"^  user (ingest .*)$", text, re.MULTILINE)
    for sentinel in watched.sentinels:
        async with Redis.from_url(sentinel.url) as redis:
            await redis.execute_command("ACL", "SETUSER", *rule.replace("PASSWORD", "pw").split())  # type: ignore[no-untyped-call]  # redis-py leaves it so

    url = f"{watched.url().partition('?')[0]}?sentinel_username=ingest&sentinel_password=pw"
    async with control_client(url) as client:
        assert await client.ping()


async def test_over_tls_sentinels_and_primary_are_verified(watched: SentinelSet, tmp_path: Path) -> None:
    primary = await watched.primary()
    certificates = Certificates(tmp_path / "certificates")
    context = certificates.server_context()
    async with (
        behind_tls(watched.sentinels[0].port, context) as sentinel,
        behind_tls(primary.port, context) as reached,
    ):
        options = f"&nat=127.0.0.1:{primary.port},localhost:{reached}"
        url = watched.url(hosts=f"localhost:{sentinel}", options=options).replace("redis+", "rediss+")
        async with control_client(f"{url}&ssl_ca_certs={certificates.ca}") as client:
            assert await client.ping()
        async with control_client(url) as client:
            with pytest.raises(QueueUnavailable, match="certificate verify failed"), translated():
                await client.ping()


@pytest.mark.parametrize("kind", SPEAK_TLS, ids=[kind.name for kind in SPEAK_TLS])
async def test_sentinels_and_servers_that_speak_tls_fail_over(kind: Kind) -> None:
    with TemporaryDirectory(prefix="ingest-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101  the servers' user reads the certificates
        certificates = Certificates(Path(folder) / "certificates")
        with SentinelSet.open(kind, Path(folder), **certificates.server_options()) as watched:
            await watched.become_ready()
            hosts = ",".join(f"localhost:{sentinel.tls_port}" for sentinel in watched.sentinels)
            # They report addresses, and the certificate contains the name.
            names = [f"&nat=127.0.0.1:{each.tls_port},localhost:{each.tls_port}" for each in watched.servers]
            url = watched.url(hosts=hosts, options=f"&ssl_ca_certs={certificates.ca}{''.join(names)}")
            async with Producer.connect(url.replace("redis+", "rediss+"), QUEUE) as producer:
                await producer.enqueue(["before"])

                await watched.fail_over()
                async with asyncio.timeout(RESUMED_WITHIN):
                    await producer.enqueue(["after"])


async def test_a_replica_that_sentinels_still_report_is_waited_for(watched: SentinelSet) -> None:
    primary, replica = watched.servers
    address = Moving(replica.port)
    async with control_client(At(address, replica.password)) as client:
        with pytest.raises(QueueUnavailable, match="is a replica") as caught, translated():
            await client.ping()

        address.port = primary.port
        assert await client.ping()

    assert not isinstance(caught.value, QueueRefused)


async def test_a_connection_to_a_former_primary_is_closed_once_another_has_found_the_new_one(
    kind: Kind, tmp_path: Path
) -> None:
    with kind.server(tmp_path / "one") as one, kind.server(tmp_path / "other") as other:
        other.password = one.password
        other.restart()
        address = Moving(one.port)
        owner = At(address, one.password)
        async with control_client(owner) as first, control_client(owner) as second:
            await first.set("key", "former")

            address.port = other.port
            await second.ping()
            await first.set("key", "new")

        async with Redis.from_url(other.url) as redis:
            assert await redis.get("key") == b"new"


class Moving(PrimaryAddress):
    """An address that the test changes, without Sentinels."""

    def __init__(self, port: int) -> None:
        super().__init__(parse_sentinel_url("redis+sentinel://nowhere/orders"))
        self.port = port

    async def find(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


class At:
    """A server at such an address."""

    def __init__(self, address: PrimaryAddress, password: str) -> None:
        self._address = address
        self._password = password

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        options = connection_options(f"redis://:{self._password}@nowhere/0", PrimaryConnection, **defaults)
        return options | {"address": self._address}

    async def current_address(self) -> str:
        return address_text(await self._address.find())
