"""The only retry loop for an unavailable server: exponential backoff with full jitter until it responds."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

_T = TypeVar("_T")
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


async def call_until_available(
    call: Callable[..., Awaitable[_T]],
    *arguments: Any,
    passes: Callable[[BaseException], bool],
    on_failure: Callable[[BaseException], None],
) -> _T:
    """Repeat a call until it succeeds, is cancelled, or fails with an error that does not pass.

    Args:
        call: a call that may be repeated after its response was lost.
        arguments: arguments of the call.
        passes: whether trying again may help after this error.
        on_failure: called with each such error before the pause.
    """
    try:
        # Without tenacity, which would double the cost of a call that succeeds.
        return await call(*arguments)
    except Exception as error:
        if not passes(error):
            raise
        on_failure(error)

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            on_failure(error)

    retrying = AsyncRetrying(
        retry=retry_if_exception(passes),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE),
        before_sleep=before_sleep,
    )
    result: _T = await retrying(call, *arguments)
    return result
