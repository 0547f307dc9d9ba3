"""Finds out how this Redis can prove that writes are durable, or why it cannot."""

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.durability import Proof, always_synced, ask, replicated, sync_difference, synced
from ingest.queue.produce.producer_errors import CannotConfirm
from ingest.queue.redis.connection import client_for, translated

_ABSENT = ("unknown command", "NOPERM", "no permissions")
_NO_FILE = "it has no append-only file; set appendonly yes"
# Major versions of Redis whose WAITAOF can be relied on.
_RELIABLE = {str(major) for major in range(8, 100)}


class Proofs:
    """The proof that one producer needs, found once.

    Args:
        client: A connection to Redis.
        key: Written with each proof.
        durability: The durability to prove.
        replicas: The required number of replicas, with `Durability.REPLICATED`.
    """

    def __init__(self, client: Redis, key: str, durability: Durability, replicas: int) -> None:
        if replicas < 1:
            raise ValueError("replicas must be at least 1")
        self._client = client
        self._key = key
        self._durability = durability
        self._replicas = replicas
        self._found: Proof | None = None

    @property
    def is_trivial(self) -> bool:
        """Whether the answer to a script is all the proof there has to be."""
        return self._durability is Durability.MEMORY

    async def find(self) -> Proof:
        """How it is proven. Raises `CannotConfirm` if it cannot be."""
        if self._found is None:
            with translated():
                self._found = await self._find()
        return self._found

    async def check(self) -> None:
        """Write something and prove it. Raises as `find` does."""
        if self.is_trivial:
            return
        proof = await self.find()
        with translated():
            replies = await ask(await client_for(self._client, self._key), proof.commands)
        try:
            proof.check(replies)
        except QueueUnavailable as error:
            raise self._cannot(str(error).partition(";")[0]) from error

    async def _find(self) -> Proof:
        client = await client_for(self._client, self._key)
        if self._durability is Durability.REPLICATED:
            if missing := await self._missing(client, "WAIT", 0, 1):
                raise self._cannot(missing)
            return replicated(self._key, self._replicas)
        if missing := await self._missing(client, "WAITAOF", 1, 0, 1):
            return await self._always_synced(client, missing)
        if await self._waits_for_its_disk(client):
            return synced(self._key)
        return await self._always_synced(client, "its WAITAOF may reply too early")

    async def _waits_for_its_disk(self, client: Redis) -> bool:
        """Whether `WAITAOF` can be relied on with `appendfsync everysec`.

        Redis 7.2 and 7.4, and their forks up to Valkey 9.1, may answer before the data is on the disk. Redis 8 does not
        (https://github.com/redis/redis/pull/13793). A fork reports the version of the Redis that it began with.
        """
        try:
            server = await client.info("server")
        except ResponseError:
            return False
        version = str(server.get("redis_version", ""))
        return server.get("server_name", "redis") == "redis" and version.partition(".")[0] in _RELIABLE

    async def _always_synced(self, client: Redis, reason: str) -> Proof:
        """A server that syncs before it answers."""
        proof = always_synced()
        try:
            difference = sync_difference(await ask(client, proof.commands))
        except ResponseError as error:
            raise self._cannot(
                f"{reason}, and CONFIG GET, which would confirm that appendfsync is always, is denied"
            ) from error
        if "appendonly" in difference:
            raise self._cannot(_NO_FILE)
        if difference:
            raise self._cannot(f"{reason}, and {difference}; set appendfsync always, or use Redis 8")
        return proof

    async def _missing(self, client: Redis, *command: Any) -> str:
        """Why a command cannot be used, or an empty text."""
        try:
            await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so
        except ResponseError as error:
            if "appendonly" in str(error):
                raise self._cannot(_NO_FILE) from error
            if any(text in str(error) for text in _ABSENT):
                return f"it does not support {command[0]}, or its user may not send it"
            raise
        return ""

    def _cannot(self, reason: str) -> CannotConfirm:
        return CannotConfirm(
            f"durability {self._durability} (INGEST_DURABILITY) is not possible with this Redis: {reason}"
        )
