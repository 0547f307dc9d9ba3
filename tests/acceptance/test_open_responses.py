"""A key that keeps many responses and uploads open leaves connections of the real `ingest api` to other callers."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from acceptance.greedy_key import Served, held, served
from dead_letter_entries import dead_fields
from redis import Redis
from support import Cli

from ingest.queue.layout.keys import Keys

CONNECTIONS = 100
# Faster than a client that the API regards as slow.
_PIECE = 4_096


def read(sock: socket.socket) -> None:
    if not sock.recv(_PIECE):
        raise ConnectionResetError


def write(sock: socket.socket) -> None:
    sock.send((b"1" + b" " * 1_000 + b"\n") * 4)


HELD: dict[str, tuple[Callable[[Served], bytes], Callable[[socket.socket], None]]] = {
    "live pages": (lambda api: api.get("/console/events/overview"), read),
    "live pages that are not read": (lambda api: api.get("/console/events/overview"), lambda _: None),
    "downloads": (lambda api: api.get("/v1/dead-letters/export"), read),
    "downloads that are not read": (lambda api: api.get("/v1/dead-letters/export"), lambda _: None),
    "lists that are not read": (lambda api: api.get("/v1/dead-letters?limit=500"), lambda _: None),
    "uploads": (lambda api: api.upload(b"\n"), write),
}


@pytest.mark.parametrize("kind", HELD)
async def test_one_key_cannot_use_up_the_connections_by(
    cli: Cli, redis_url: str, queue_name: str, tmp_path: Path, kind: str
) -> None:
    with Redis.from_url(redis_url) as redis:
        for number in range(500):
            redis.xadd(Keys.of(queue_name).dead, dead_fields(f"o{number}", document="d" * 20_000, error="e" * 500))
    make, then = HELD[kind]

    async with served(cli, tmp_path, api_connections=CONNECTIONS) as api:
        async with held(api, make(api), 3 * CONNECTIONS, then):
            await asyncio.sleep(3)  # a moment later, clients that read or send nothing are slow
            admitted = await api.admitted_webhooks(), await api.admitted()
        shortages = api.command.events("api_full")

    assert admitted == (20, 20)
    assert any(each["holder"] == "greedy" for each in shortages)
    assert len(shortages) <= 6, "one line for each resource and holder in ten seconds"
