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
    """Its warnings about Redis before its first process starts, after which it is stopped."""
    await command.says("process_started")
    said = [str(event["problem"]) for event in command.events("redis_configuration", level="warning")]
    assert await command.stop() == 0
    return said


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({**VALKEY_DURABLE, "maxmemory-policy": "allkeys-lru"}, ["allkeys-lru"]),
        ({**VALKEY_DURABLE, "maxmemory-policy": "volatile-ttl"}, ["volatile-ttl"]),
        ({}, ["appendonly"]),
        (VALKEY_DURABLE, []),
    ],
    ids=["evicts all keys", "evicts keys that expire", "no persistence", "durable"],
)
async def test_each_way_in_which_a_server_may_lose_the_queue_is_a_warning(
    workers: Workers, tmp_path: Path, options: dict[str, str], named: list[str]
) -> None:
    with ValkeyServer(tmp_path / "valkey", options=options) as server:
        said = await warnings(workers.start(redis_url=server.url))

    assert len(said) == len(named)
    assert all(name in warning for name, warning in zip(named, said, strict=True))


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
