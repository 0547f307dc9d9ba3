"""Composes the reading of a source's list for changed orders, for workers and for `ingest poll`."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

from ingest.operations.poll.look import Found, Look, OnProgress
from ingest.operations.poll.turns import PollPlan, Turns
from ingest.queue.produce.producer import Producer
from ingest.queue.produce.submission import most_in_a_step
from ingest.services.producers import open_producer
from ingest.sources.list_opening import open_order_list
from ingest.store.connections.pool import Pool
from ingest.store.connections.statements import Fetches
from ingest.store.polls import Polls
from ingest.upstream.lists.order_list import ListOptions
from ingest.upstream.session import utc_now

if TYPE_CHECKING:
    from ingest.settings import Settings

# How often `ingest poll` tries to take the turn from another process.
_TRY_AGAIN = 1.0


def turns_of(
    settings: "Settings",
    options: ListOptions,
    polls: Polls,
    connection: Fetches,
    producer: Producer,
    now: Callable[[], datetime],
) -> Turns:
    """Return the turns of one process in the list of a source. For the other arguments, see `Turns`."""
    look = Look(connection, settings.source, producer, now, most_in_a_step(settings.backlog_limit))
    plan = PollPlan(settings.poll or 0.0, options.overlap, options.look_back)
    return Turns(polls, look, plan, now)


async def poll_now(
    settings: "Settings", environ: Mapping[str, str], on_progress: OnProgress, on_wait: Callable[[], None]
) -> Found:
    """Read the list of a source once, even if it is not due. Waits while another process reads it.

    Args:
        settings: of the source.
        environ: the environment of the process, with proxies.
        on_progress: called with the number of listed orders.
        on_wait: called once if another process reads the list.

    Raises:
        ConfigError: the source has no list, or its settings cannot be used.
        Fault: the list cannot be read.
        Unavailable: Redis or PostgreSQL cannot be used right now.
        TurnLost: PostgreSQL was unavailable for so long that another process has the turn.
    """
    async with AsyncExitStack() as stack:
        orders = await stack.enter_async_context(open_order_list(settings, environ))
        connection = await stack.enter_async_context(Pool.open(settings.postgres_dsn.get_secret_value(), size=1))
        # The position advances when Redis has confirmed all orders, so that is as durable as any other confirmation.
        producer = await stack.enter_async_context(open_producer(settings))
        polls = Polls(connection, settings.source, f"ingest poll {uuid4()}")
        turns = turns_of(settings, orders.options, polls, connection, producer, utc_now)
        if (turn := await turns.take(is_due=True)) is None:
            on_wait()
        while turn is None:
            await asyncio.sleep(_TRY_AGAIN)
            turn = await turns.take(is_due=True)
        return await turns.run(turn, orders, on_progress)
