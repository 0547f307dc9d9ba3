"""Fixtures for the suites of the ports, with each implementation, on each server and in memory."""

from collections.abc import AsyncIterator

import pytest
from contract.ports.groups import GroupUnderTest, MemoryGroupUnderTest, redis_group
from topologies import CLUSTERS, SENTINEL, STANDALONE, Place, SharedServers

from ingest.queue.layout.keys import Keys
from ingest.services.worker_parts import Queue

PLACES = [*STANDALONE, SENTINEL, *CLUSTERS]


@pytest.fixture(params=[None, *PLACES], ids=["memory", *(place.name for place in PLACES)])
def implementation(request: pytest.FixtureRequest) -> Place | None:
    """The servers, or None for the fake."""
    return request.param


@pytest.fixture
async def group(
    implementation: Place | None, queue_name: str, shared_servers: SharedServers
) -> AsyncIterator[GroupUnderTest]:
    """A new group without entries."""
    if implementation is None:
        yield MemoryGroupUnderTest()
    else:
        url = shared_servers.url(implementation)
        async with (
            shared_servers.client_of(implementation, Keys.of(queue_name).stream) as redis,
            redis_group(redis, url, queue_name) as group,
        ):
            yield group


@pytest.fixture
async def one(group: GroupUnderTest) -> Queue:
    return await group.consumer("one")


@pytest.fixture
async def two(group: GroupUnderTest) -> Queue:
    return await group.consumer("two")
