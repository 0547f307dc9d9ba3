"""Waiting for a server that is away: an outage is no order's fault."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from ingest.domain.errors import Unavailable, UserError
from ingest.telemetry.logs import get_logger

_T = TypeVar("_T")
_log = get_logger("patience")
_LOG_EVERY = 10.0
_LONGEST_PAUSE = 2.0


def warn(log: Any, event: str, error: BaseException, **fields: object) -> None:
    """Log that a server cannot be used: a warning, or, if it refuses us, an error: that does not pass without a person."""
    (log.error if isinstance(error, UserError) else log.warning)(event, error=str(error), **fields)


async def until_available(what: str, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Make the call until the server does what it asks for; only cancelling ends the wait.

    A refusal (a right taken away, a table renamed) is waited for as well, and logged as an error: to end with orders in hand,
    and to come back with them again and again, would make them look like poison.
    Says so when the waiting starts, every ten seconds while it lasts, and once when it is over.
    """
    return await _patiently(what, lambda error: isinstance(error, Unavailable), call, arguments)


async def until_ready(what: str, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """As `until_available`, for a process that starts and has nothing in hand yet: it is told of a refusal at once.

    Raises:
        UserError: if the server refuses us.
    """
    return await _patiently(
        what, lambda error: isinstance(error, Unavailable) and not isinstance(error, UserError), call, arguments
    )


async def _patiently(
    what: str,
    is_waited_for: Callable[[BaseException], bool],
    call: Callable[..., Awaitable[_T]],
    arguments: tuple[Any, ...],
) -> _T:
    try:
        return await call(*arguments)
    except Unavailable as error:
        if not is_waited_for(error):
            raise
        warn(_log, "unavailable", error, server=what)
    started = told = time.monotonic()

    def tell(state: RetryCallState) -> None:
        nonlocal told
        error = state.outcome.exception() if state.outcome is not None else None
        if time.monotonic() - told >= _LOG_EVERY and error is not None:
            told = time.monotonic()
            warn(_log, "still_unavailable", error, server=what, seconds=round(told - started))

    retrying = AsyncRetrying(
        retry=retry_if_exception(is_waited_for),
        wait=wait_random_exponential(multiplier=0.1, max=_LONGEST_PAUSE),
        before_sleep=tell,
    )
    result: _T = await retrying(call, *arguments)
    _log.info("available_again", server=what, seconds=round(time.monotonic() - started, 1))
    return result
