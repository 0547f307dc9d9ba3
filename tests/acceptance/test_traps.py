"""What in Redis' configuration can lose orders is said when `ingest worker` starts, and does not stop it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from redis.asyncio import Redis
from support import Cli

from ingest.lab.servers import VALKEY_DURABLE, ValkeyServer


@pytest.fixture
def workers(cli: Cli) -> Iterator[Workers]:
    with closing_workers(cli, {"INGEST_PROCESSES": "1"}) as workers:
        yield workers


async def warnings(command: WorkerCommand) -> list[str]:
    """What it says of Redis before its first process starts; it is asked to stop then."""
    await command.says("process_started")
    said = [str(event["problem"]) for event in command.events("redis_configuration", level="warning")]
    assert await command.stop() == 0
    return said


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_the_queue_is_warned_of(workers: Workers, tmp_path: Path, policy: str) -> None:
    options = {**VALKEY_DURABLE, "maxmemory-policy": policy}
    with ValkeyServer(tmp_path / "valkey", options=options) as server:
        (warning,) = await warnings(workers.start(redis_url=server.url))

    assert policy in warning
    assert "noeviction" in warning, "what to do"


async def test_a_server_that_forgets_when_it_restarts_is_warned_of(workers: Workers, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as server:
        (warning,) = await warnings(workers.start(redis_url=server.url))

    assert "appendonly" in warning


async def test_a_server_that_keeps_what_it_accepts_is_not_warned_of(workers: Workers, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey", options=VALKEY_DURABLE) as server:
        assert await warnings(workers.start(redis_url=server.url)) == []


async def test_a_server_that_does_not_say_how_it_is_configured_is_used_all_the_same(
    workers: Workers, tmp_path: Path
) -> None:
    with ValkeyServer(tmp_path / "valkey") as server:
        async with Redis.from_url(server.url) as redis:
            await redis.acl_setuser(
                "limited",
                enabled=True,
                passwords=["+secret"],
                keys=["ingest:*"],
                commands=["+@all", "-info", "-config"],
            )
        url = server.url.replace(f":{server.password}@", "limited:secret@")

        assert await warnings(workers.start(redis_url=url)) == []
