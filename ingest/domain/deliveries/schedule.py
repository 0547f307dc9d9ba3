"""The delay before a failed order is retried."""

from collections.abc import Callable

FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0


def retry_delay(attempt: int, draw: Callable[[float, float], float]) -> float:
    """Return the seconds to wait after the failed attempt number `attempt` (from 1).

    Exponential backoff with full jitter: a random time up to 1 s · 2^(attempt-1), capped at 5 minutes.
    Orders that failed together are therefore not retried together (Brooker, "Exponential Backoff And
    Jitter", AWS Architecture Blog, 2015).

    Args:
        attempt: from 1.
        draw: a uniform random number between its two arguments.
    """
    # The exponent is bounded because 2.0 ** 2000 would overflow.
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt - 1, 30))
    return draw(0.0, ceiling)
