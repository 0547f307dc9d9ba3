"""For the suites of the ports: each implementation, on each server and in memory."""

from collections.abc import AsyncIterator, Callable

import pytest
from contract.ports.groups import GroupUnderTest, MemoryGroupUnderTest, redis_group
from servers.kinds import KINDS, Kind

from ingest.lab.servers import ValkeyServer
from ingest.services.worker_parts import Queue


@pytest.fixture(params=[None, *KINDS], ids=["memory", *(kind.name for kind in KINDS)])
def implementation(request: pytest.FixtureRequest) -> Kind | None:
    """The server, or None for the fake."""
    return request.param


@pytest.fixture
async def group(
    implementation: Kind | None, queue_name: str, shared_server: Callable[[Kind], ValkeyServer]
) -> AsyncIterator[GroupUnderTest]:
    """A new group without entries."""
    if implementation is None:
        yield MemoryGroupUnderTest()
    else:
        async with redis_group(shared_server(implementation).url, queue_name) as group:
            yield group


@pytest.fixture
async def one(group: GroupUnderTest) -> Queue:
    return await group.consumer("one")


@pytest.fixture
async def two(group: GroupUnderTest) -> Queue:
    return await group.consumer("two")
