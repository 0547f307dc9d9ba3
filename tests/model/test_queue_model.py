"""A queue under random steps: every accepted order is always in one place, and only committed orders are finished."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from model.queue_machine import QueueMachine
from model.world import World
from servers.kinds import KINDS, Kind
from shipped import as_admin
from structlog.testing import capture_logs

from ingest.lab.servers import ValkeyServer
from ingest.queue.redis.connection import COMMAND_TIMEOUT, control_client
from ingest.queue.redis.routed_connection import open_direct
from ingest.queue.redis.scripts import has_xnack
from ingest.store.orders.order_store import OrderStore

pytestmark = [pytest.mark.long, pytest.mark.each_server]

# Each takes about a quarter of a second, half of it the servers'.
EXAMPLES = {kind.name: 80 if kind.product == "valkey" else 25 for kind in KINDS}
SETTINGS = settings(
    stateful_step_count=50,
    report_multiple_bugs=False,
    phases=[Phase.reuse, Phase.generate, Phase.shrink],
)


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture
def server(kind: Kind) -> Iterator[ValkeyServer]:
    """A server that may be stopped or killed without losing confirmed writes."""
    with (
        TemporaryDirectory(prefix="ingest-") as folder,
        kind.server(Path(folder) / "server", appendonly="yes", appendfsync="always") as server,
    ):
        yield server


async def the_world(stack: AsyncExitStack, runner: asyncio.Runner, server: ValkeyServer, dsn: str) -> World:
    redis = await stack.enter_async_context(control_client(server.url))
    clerk_url = f"redis://clerk:secret@127.0.0.1:{server.port}/0"
    clerk = await stack.enter_async_context(control_client(clerk_url))
    line = await stack.enter_async_context(open_direct(server.url, COMMAND_TIMEOUT))
    clerk_line = await stack.enter_async_context(open_direct(clerk_url, COMMAND_TIMEOUT))
    store = await stack.enter_async_context(OrderStore.open(dsn))
    sql = await asyncpg.connect(as_admin(dsn))
    stack.push_async_callback(sql.close)
    return World(runner.get_loop(), server, redis, clerk, line, clerk_line, store, sql, await has_xnack(redis, "none"))


@pytest.mark.timeout(600)  # a failure is made as short as it goes, which takes minutes
def test_no_interleaving_of_workers_and_mishaps_loses_an_order_or_finishes_one_that_is_not_stored(
    kind: Kind, server: ValkeyServer, dsn: str
) -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            world = runner.run(the_world(stack, runner, server, dsn))
            machine = type("Queue", (QueueMachine,), {"world": world})
            with capture_logs():
                run_state_machine_as_test(machine, settings=settings(SETTINGS, max_examples=EXAMPLES[kind.name]))
        finally:
            runner.run(stack.aclose())
