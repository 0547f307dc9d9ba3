"""Waiting for Redis, where an operation must not fail because it is away or full, or the backlog at its limit."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from ingest.domain.errors import QueueUnavailable, Unavailable, UserError
from ingest.queue.connection import QueueFull

_T = TypeVar("_T")
_LONGEST_WAIT = 2.0


async def patiently(on_wait: Callable[[str], None], call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Make the call until Redis answers it; only cancelling ends the wait.

    Args:
        on_wait: told, in words, why it waits; once for each reason.
        call: what may be called again after a reply was lost.
        arguments: what it is called with.
    """
    waiting = ""

    def tell(state: RetryCallState) -> None:
        nonlocal waiting
        reason = _reason(state)
        if reason != waiting:
            waiting = reason
            on_wait(reason)

    retrying = AsyncRetrying(
        retry=retry_if_exception(_passes),
        wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_WAIT),
        before_sleep=tell,
    )
    result: _T = await retrying(call, *arguments)
    return result


def _passes(error: BaseException) -> bool:
    # A refusal does not, and the person who has to do something about it is at the terminal.
    return isinstance(error, Unavailable) and not isinstance(error, UserError)


def _reason(state: RetryCallState) -> str:
    match state.outcome and state.outcome.exception():
        case QueueFull():
            return "Redis is out of memory; waiting for the workers to make room"
        case QueueUnavailable() as away:
            return f"Redis cannot be reached ({away}); trying again"
        case full:
            return f"{full}; waiting for the workers"
