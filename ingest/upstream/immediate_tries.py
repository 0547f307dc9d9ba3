"""Sends a request again immediately after a failure that may pass, within one attempt."""

import asyncio
from collections.abc import Awaitable, Callable

from ingest.domain.errors import ASKED_TO_WAIT, NotSent, TokenFault, TransientFault
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.fetch.result import Failed, Fetched

# Pauses between the tries, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


async def with_tries(
    send: Callable[[], Awaitable[Fetched | Failed]],
    tries: int,
    draw: Callable[[float, float], float],
    is_paused: Callable[[], bool] = lambda: False,
) -> Fetched | Failed:
    """Return the result of the last try.

    Args:
        send: sends the request.
        tries: most tries.
        draw: returns a uniform random number between its arguments.
        is_paused: whether the API has requested a pause. Then there are no further tries.
    """
    result = await send()
    for number in range(tries - 1):
        # Requests for a token have their own pauses.
        if (
            not isinstance(result, Failed)
            or not isinstance(result.fault, TransientFault)
            or isinstance(result.fault, TokenFault)
        ):
            break
        # Full jitter, so that requests that failed together are not retried together.
        await asyncio.sleep(draw(0.0, exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, number)))
        if is_paused():
            return Failed(NotSent(ASKED_TO_WAIT), result.exchange)
        result = await send()
    return result
