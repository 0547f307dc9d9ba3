"""Waits for the first of several things to happen."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any


async def all_ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Wait until every task has ended, however."""
    if tasks:
        await asyncio.wait(tasks)


async def first_of(tasks: Sequence[asyncio.Task[None]], *events: asyncio.Event, within: float | None = None) -> None:
    """Wait until a task has ended, an event is set, or `within` seconds have passed."""
    happening = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([*tasks, *happening], timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in happening:
            waiting.cancel()


async def ended_before(call: Coroutine[Any, Any, None], event: asyncio.Event) -> bool:
    """Wait until a call has ended, or cancel it when an event is set. Return whether it has ended by itself."""
    calling = asyncio.create_task(call)
    try:
        await first_of([calling], event)
        return calling.done() and calling.result() is None
    finally:
        calling.cancel()
        await all_ended([calling])
