"""The entries that a failover loses are named from the files of the servers."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from support import eventually

from chaos.written import OPTIONS, Written
from ingest.lab.servers import ValkeyServer

STREAM = "ingest:{orders}:stream"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[ValkeyServer, ValkeyServer]]:
    kind: Kind = request.param
    password = secrets.token_urlsafe(18)
    options = {**OPTIONS, "masterauth": password, "repl-diskless-sync-delay": "0"}
    with TemporaryDirectory(prefix="ingest-") as folder, ExitStack() as stack:
        made = [ValkeyServer(Path(folder) / name, binary=kind.binary, options=options) for name in ("one", "other")]
        for server in made:
            server.password = password
            stack.enter_context(server)
        yield made[0], made[1]


async def test_an_entry_that_only_the_former_primary_has_written_is_lost_and_no_other(
    servers: tuple[ValkeyServer, ValkeyServer],
) -> None:
    one, other = servers
    written = Written()
    async with Redis.from_url(one.url) as primary, Redis.from_url(other.url) as replica:
        await primary.xadd(STREAM, {"order_id": "copied"})
        await replica.replicaof("127.0.0.1", str(one.port))
        await eventually(lambda: replica.exists(STREAM))
        written.decide(written.read(servers), [one])
        await primary.xadd(STREAM, {"order_id": "replicated"})
        await primary.xadd("ingest:{orders}:express", {"order_id": "moved", "enqueued_at": "1"})
        await eventually(lambda: _has(replica, 2))

        await replica.replicaof("NO", "ONE")
        await primary.xadd(STREAM, {"order_id": "lost"})
        await primary.xadd(STREAM, {"order": "nameless"})
        await replica.xadd(STREAM, {"order_id": "later"})
        written.read(servers)
        # The former primary removes its file.
        await primary.replicaof("127.0.0.1", str(other.port))
        await eventually(lambda: _is_copied(primary))
        written.decide(written.read(servers), [other])
        written.close()

    assert {stream: sorted(entry.order for entry in entries) for stream, entries in written.lost.items()} == {
        STREAM: ["", "lost"]
    }


async def _has(redis: Redis, entries: int) -> bool:
    return bool(await redis.xlen(STREAM) == entries)


async def _is_copied(redis: Redis) -> bool:
    return any(fields == {b"order_id": b"later"} for _, fields in await redis.xrange(STREAM))
