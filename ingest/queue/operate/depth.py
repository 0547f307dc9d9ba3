"""Waits for Redis, where an operation must not fail because it is unavailable or full."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ingest.backoff import call_until_available
from ingest.domain.errors import QueueUnavailable, Unavailable, UserError
from ingest.queue.redis.connection import QueueFull

_T = TypeVar("_T")


async def until_answered(on_wait: Callable[[str], None], call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Make the call until Redis responds. Only cancelling ends the wait.

    Args:
        on_wait: called with each reason for waiting, once.
        call: what may be called again after a reply was lost.
        arguments: its arguments.
    """
    waiting = ""

    def on_failure(error: BaseException) -> None:
        nonlocal waiting
        reason = _reason(error)
        if reason != waiting:
            waiting = reason
            on_wait(reason)

    return await call_until_available(call, *arguments, passes=_passes, on_failure=on_failure)


def _passes(error: BaseException) -> bool:
    # A refusal does not, and the person who has to do something about it is at the terminal.
    return isinstance(error, Unavailable) and not isinstance(error, UserError)


def _reason(error: BaseException) -> str:
    match error:
        case QueueFull():
            return "Redis is out of memory; waiting for the workers to make room"
        case QueueUnavailable():
            return f"Redis cannot be reached ({error}); trying again"
        case full:
            return f"{full}; waiting for the workers"
