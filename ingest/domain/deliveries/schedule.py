"""When a failed order is tried again."""

from collections.abc import Callable

FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0


def retry_delay(attempt: int, draw: Callable[[float, float], float]) -> float:
    """Seconds to wait after the failed attempt number `attempt` (from 1).

    Exponential backoff with full jitter: anything up to 1 s · 2^(attempt-1), capped at 5 minutes, so
    that orders that failed together do not come back together (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015).

    Args:
        attempt: from 1.
        draw: a uniform random number between its two arguments.
    """
    # The exponent is bounded first: 2.0 ** 2000 would overflow.
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt - 1, 30))
    return draw(0.0, ceiling)
