"""The connection's faults, where they depend on the event loop that production runs on."""

import pytest
import uvloop

from ingest.domain.errors import QueueUnavailable
from ingest.queue.connection import control_client, translated


def test_a_connection_that_was_closed_a_moment_ago_is_an_outage_on_uvloop_too(redis_url: str) -> None:
    async def write_to_a_closed_connection() -> None:
        async with control_client(redis_url) as client:
            connection = await client.connection_pool.get_connection()
            # As when a write has just failed: uvloop has closed it, and its reader has not been told yet.
            connection._writer.transport.abort()
            with translated():
                await connection.send_command("PING")

    with pytest.raises(QueueUnavailable):
        uvloop.run(write_to_a_closed_connection())
