"""The one command beyond those of Redis 7.0 that is used where the server has it."""

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.queue.redis.connection import is_out_of_memory, translated

_ABSENT = ("unknown command", "NOPERM", "no permissions")


async def has_xnack(client: Redis, key: str) -> bool:
    """Whether the server has `XNACK` (Redis 8.8), and the user may send it.

    Tried on `key`, which does not exist and is not created, because forks count their versions differently. Without it, `XCLAIM`
    releases entries: see `_release_uncounted.lua`.

    Raises:
        QueueUnavailable: if Redis cannot be used right now.
    """
    with translated():
        try:
            await client.execute_command("XNACK", key, "none", "SILENT", "IDS", 1, "0-1")  # type: ignore[no-untyped-call]  # redis-py leaves it so
        except ResponseError as error:
            # Out of memory, Redis does not check the command.
            if is_out_of_memory(error) or any(text in str(error) for text in _ABSENT):
                return False
            if "NOGROUP" not in str(error):
                raise
    return True
