"""`ingest worker` warns at its start of Redis settings that can lose orders, and starts nevertheless."""

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
    """Its warnings about Redis before its first process starts; it is stopped then."""
    await command.says("process_started")
    said = [str(event["problem"]) for event in command.events("redis_configuration", level="warning")]
    assert await command.stop() == 0
    return said


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_may_evict_the_queue_is_a_warning(workers: Workers, tmp_path: Path, policy: str) -> None:
    options = {**VALKEY_DURABLE, "maxmemory-policy": policy}
    with ValkeyServer(tmp_path / "valkey", options=options) as server:
        (warning,) = await warnings(workers.start(redis_url=server.url))

    assert policy in warning
    assert "noeviction" in warning, "what to do"


async def test_a_server_without_persistence_is_a_warning(workers: Workers, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as server:
        (warning,) = await warnings(workers.start(redis_url=server.url))

    assert "appendonly" in warning


async def test_a_durable_server_is_no_warning(workers: Workers, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey", options=VALKEY_DURABLE) as server:
        assert await warnings(workers.start(redis_url=server.url)) == []


async def test_a_server_that_does_not_show_its_configuration_is_used_without_warning(
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
