"""The connection's faults, where they depend on the event loop that production runs on."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop
from consumers import Consumer
from redis.asyncio import Redis
from servers.kinds import Kind
from support import becomes, eventually
from tls import Certificates, behind_tls

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.lab.servers import ValkeyServer
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client, translated
from ingest.queue.redis.routed_connection import open_direct


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_was_closed_a_moment_ago_is_opened_again(
    redis_url: str, run: Callable[[Coroutine[Any, Any, object]], object]
) -> None:
    async def ping_over_a_closed_connection() -> object:
        async with control_client(redis_url) as client:
            connection = await client.connection_pool.get_connection()
            # This is the state after a failed write. The event loop closes the connection before it notifies the reader.
            connection._writer.transport.abort()
            await connection.send_command("PING")
            return await connection.read_response()

    assert run(ping_over_a_closed_connection()) == b"PONG"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_that_redis_has_closed_while_it_was_idle_is_opened_again(
    redis_url: str, run: Callable[[Coroutine[Any, Any, object]], object]
) -> None:
    async def ping_after_the_end() -> object:
        async with control_client(redis_url) as client, control_client(redis_url) as other:
            connection = await client.connection_pool.get_connection()
            await connection.send_command("CLIENT", "ID")
            number = await connection.read_response()
            await client.connection_pool.release(connection)
            await other.client_kill_filter(_id=number)

            await eventually(lambda: is_closed(connection))
            return await client.ping()

    assert run(ping_after_the_end()) is True


async def test_connections_that_only_a_start_has_needed_are_closed_while_another_is_used(redis_url: str) -> None:
    async with control_client(redis_url) as client:
        pool = client.connection_pool
        opened = [await pool.get_connection() for _ in range(3)]
        for connection in opened:
            await pool.release(connection)

        async def are_closed() -> bool:
            await client.ping()
            return [connection.is_connected for connection in opened] == [False, False, True]

        await eventually(are_closed)
        again = [await pool.get_connection() for _ in range(3)]
        assert all(connection.is_connected for connection in again)
        for connection in again:
            await pool.release(connection)


async def test_a_client_that_is_cancelled_while_it_closes_closes_its_connections(own_valkey: ValkeyServer) -> None:
    async def use(is_used: asyncio.Event) -> None:
        async with control_client(own_valkey.url) as client:
            await client.ping()
            is_used.set()

    for moment in range(10):
        is_used = asyncio.Event()
        using = asyncio.create_task(use(is_used))
        await is_used.wait()
        for _ in range(moment):
            await asyncio.sleep(0)

        using.cancel()
        await asyncio.wait([using])

    async with control_client(own_valkey.url) as client:

        async def is_alone() -> bool:
            return len(await client.client_list()) == 1

        await eventually(is_alone)


async def is_closed(connection: Any) -> bool:
    return not connection.is_connected or await connection.can_read()


@pytest.mark.each_server
async def test_it_is_the_same_over_tls(redis_url: str, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")

    async with behind_tls(urlsplit(redis_url).port or 0, certificates.server_context()) as port:
        await answers(f"rediss://:{urlsplit(redis_url).password}@localhost:{port}/0?ssl_ca_certs={certificates.ca}")


@pytest.mark.each_server
async def test_it_is_the_same_over_a_unix_socket(kind: Kind, tmp_path: Path) -> None:
    with kind.server(tmp_path / "server", unixsocket=str(tmp_path / "s")) as server:
        await answers(f"unix://{tmp_path}/s?password={server.password}")


@pytest.mark.each_server
async def test_it_is_the_same_where_hello_is_switched_off(kind: Kind, tmp_path: Path) -> None:
    with kind.server(tmp_path / "server", rename_command='HELLO ""') as server:
        await answers(f"{server.url}?protocol=2")


async def test_options_for_other_programs_that_share_the_url_change_nothing(redis_url: str, queue_name: str) -> None:
    options = "socket_timeout=0.05&max_connections=1&decode_responses=true&encoding=ascii&retry_on_error=x"
    shared = f"{redis_url}{'&' if '?' in redis_url else '?'}{options}"

    async with (
        Consumer.open(shared, queue_name, "ingest", "one", 0.2) as consumer,
        Producer.connect(shared, queue_name) as producer,
    ):
        await consumer.ensure_group()
        assert await consumer.read(1, 0.2) == []

        await producer.enqueue(["a"])

        assert [delivery.order_id for delivery in await consumer.read(1, 0.2)] == ["a"]


async def test_a_lost_connection_takes_the_idle_ones_along(redis: Redis, redis_url: str, queue_name: str) -> None:
    named = f"{redis_url}{'&' if '?' in redis_url else '?'}client_name={queue_name}"

    async def connected() -> list[str]:
        return [client["id"] for client in await redis.client_list() if client["name"] == queue_name]

    async with control_client(named) as client:
        await asyncio.gather(*(client.ping() for _ in range(3)))
        ids = await connected()
        assert len(ids) == 3
        waiting = asyncio.create_task(client.blpop([queue_name]))

        async def blocked() -> list[str]:
            return [
                client["id"] for client in await redis.client_list() if client["id"] in ids and "b" in client["flags"]
            ]

        await eventually(blocked)
        await redis.client_kill_filter(_id=(await blocked())[0])
        with pytest.raises(QueueUnavailable), translated():
            await waiting

        await becomes(connected, [])
        assert await client.ping() is True


async def test_the_owner_of_a_direct_connection_is_told_of_its_loss(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    lost: list[bool] = []

    async def on_loss() -> None:
        lost.append(True)

    async with open_direct(redis_url, 5.0, on_loss) as line:
        number = await line.call("CLIENT", "ID")
        waiting = asyncio.create_task(line.call("BLPOP", queue_name, 0))
        await eventually(lambda: is_blocked(redis, number))
        await redis.client_kill_filter(_id=number)
        with pytest.raises(QueueUnavailable), translated():
            await waiting

        assert lost == [True]
        assert await line.call("PING") == b"PONG"


@pytest.mark.each_server
async def test_a_server_that_forgets_a_script_as_soon_as_it_is_sent_it_is_unavailable(redis: Redis) -> None:
    with pytest.raises(QueueUnavailable) as unavailable, translated():
        await redis.evalsha("0" * 40, 0)

    assert not isinstance(unavailable.value, UserError)


async def is_blocked(redis: Redis, number: int) -> bool:
    [client] = await redis.client_list(client_id=[number])
    return "b" in client["flags"]


async def answers(url: str) -> None:
    async with control_client(url) as client, open_direct(url, 5.0) as line:
        assert await client.ping() is True
        assert await line.call("PING") == b"PONG"
