"""Repeats calls while Redis is unavailable or full, for operators who wait at a terminal."""

from collections.abc import Callable
from typing import Any, NoReturn

from ingest.backoff import call_until_available
from ingest.domain.errors import QueueUnavailable, Unavailable, UserError
from ingest.queue.redis.server_trouble import reason_to_wait


class RepeatedCalls:
    """Calls until Redis responds. `on_wait` is called once with each reason for waiting."""

    def __init__(self, on_wait: Callable[[str], None]) -> None:
        self._on_wait = on_wait

    async def call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of the call."""
        reported = [""]

        def on_failure(error: BaseException) -> None:
            if (reason := reason_to_wait(error)) != reported[-1]:
                reported.append(reason)
                self._on_wait(reason)

        return await call_until_available(call, *arguments, passes=_passes, on_failure=on_failure)


def refuse_to_wait(reason: str) -> NoReturn:
    """The `on_wait` of callers that do not wait for Redis."""
    raise QueueUnavailable(reason)


def _passes(error: BaseException) -> bool:
    # A refusal does not, and the operator who has to do something about it is at the terminal.
    return isinstance(error, Unavailable) and not isinstance(error, UserError)
