"""Runs work that only one process does at a time, while its lease is renewed."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def while_renewed(work: Awaitable[_T], renewing: Awaitable[None]) -> _T:
    """Return the result of the work. If the lease cannot be renewed, the work is cancelled, and that error is raised.

    Args:
        work: to run.
        renewing: renews the lease until it is cancelled.
    """
    working, lease = asyncio.ensure_future(work), asyncio.ensure_future(renewing)
    try:
        await asyncio.wait([working, lease], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            lease.result()
        return await working
    finally:
        working.cancel()
        lease.cancel()
        await asyncio.gather(working, lease, return_exceptions=True)
