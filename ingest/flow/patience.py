"""Waiting for a server that is away: an outage is no order's fault."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from ingest.domain.errors import Unavailable
from ingest.telemetry.logs import get_logger

_T = TypeVar("_T")
_log = get_logger("patience")
_LOG_EVERY = 10.0
_LONGEST_PAUSE = 2.0


async def until_available(what: str, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Make the call until the server answers it; only cancelling ends the wait.

    Says once when the waiting starts, every ten seconds while it lasts, and once when it is over.
    """
    try:
        return await call(*arguments)
    except Unavailable as error:
        _log.warning("unavailable", server=what, error=str(error))
    started = told = time.monotonic()

    def tell(state: RetryCallState) -> None:
        nonlocal told
        if time.monotonic() - told >= _LOG_EVERY and state.outcome is not None:
            told = time.monotonic()
            waited = round(told - started)
            _log.warning("still_unavailable", server=what, seconds=waited, error=str(state.outcome.exception()))

    patiently = AsyncRetrying(
        retry=retry_if_exception_type(Unavailable),
        wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
        before_sleep=tell,
    )
    result: _T = await patiently(call, *arguments)
    _log.info("available_again", server=what, seconds=round(time.monotonic() - started, 1))
    return result
