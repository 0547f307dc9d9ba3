"""Finds out how this Redis can prove that what was written is durable, or why it cannot."""

from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.accepted import Durability
from ingest.domain.errors import QueueUnavailable
from ingest.queue.connection import translated
from ingest.queue.durability import AlwaysSynced, Proof, Replicated, Synced, ask, values
from ingest.queue.producer_errors import CannotConfirm

_ABSENT = ("unknown command", "NOPERM", "no permissions")


class Proofs:
    """The proof that one producer needs, found once.

    Args:
        client: a connection to Redis.
        key: written with each proof.
        durability: what is to be proven.
        replicas: with `Durability.REPLICATED`: how many are to have it.
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
        """How it is proven.

        Raises:
            CannotConfirm: if it cannot be.
            QueueUnavailable: if Redis cannot be used right now.
        """
        if self._found is None:
            with translated():
                self._found = await self._find()
        return self._found

    async def check(self) -> None:
        """Write something and prove it; raises as `find` does."""
        if self.is_trivial:
            return
        proof = await self.find()
        with translated():
            replies = await ask(self._client, proof.commands())
        try:
            proof.check(replies)
        except QueueUnavailable as error:
            raise self._cannot(str(error).partition(";")[0]) from error

    async def _find(self) -> Proof:
        if self._durability is Durability.REPLICATED:
            await self._try("WAIT", 0, 1)
            return Replicated(self._key, self._replicas)
        try:
            await self._try("WAITAOF", 1, 0, 1)
        except CannotConfirm as refusal:
            return await self._by_configuration(refusal)
        return Synced(self._key)

    async def _by_configuration(self, refusal: CannotConfirm) -> Proof:
        """A server without `WAITAOF` that syncs before it answers."""
        proof = AlwaysSynced()
        try:
            replies = await ask(self._client, proof.commands())
        except ResponseError:
            raise refusal from None
        appendonly, appendfsync = map(values, replies)
        if appendonly != "yes":
            raise self._cannot("it has no append-only file; set appendonly yes")
        if appendfsync != "always":
            raise self._cannot(
                f"it has no WAITAOF, and appendfsync is {appendfsync}; set it to always, or use Redis 7.2"
            )
        return proof

    async def _try(self, *command: Any) -> None:
        try:
            await self._client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so
        except ResponseError as error:
            if "appendonly" in str(error):
                raise self._cannot("it has no append-only file; set appendonly yes") from error
            if any(text in str(error) for text in _ABSENT):
                raise self._cannot(f"it does not know {command[0]}, or its user may not use it") from error
            raise

    def _cannot(self, reason: str) -> CannotConfirm:
        return CannotConfirm(
            f"durability {self._durability} (INGEST_DURABILITY) is not possible with this Redis: {reason}"
        )
