"""Waits while a server is unavailable, since an outage is not an order's fault."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ingest.backoff import call_until_available
from ingest.domain.errors import AccessDenied, Unavailable, UserError
from ingest.telemetry.activity import record_activity
from ingest.telemetry.logs import get_logger

_T = TypeVar("_T")
_log = get_logger("availability")
_LOG_EVERY = 10.0


def log_unavailable(log: Any, event: str, error: BaseException, **fields: object) -> None:
    """Log that a server is unavailable: a warning, or an error if it denies access, because an operator must act then."""
    (log.error if isinstance(error, UserError) else log.warning)(event, error=str(error), **fields)


class AvailabilityLog:
    """Logs when a server becomes unavailable, every ten seconds during the outage, and once at its end.

    A denied right is logged once, because it lasts until an operator grants it.

    Attributes:
        server: its name.
        problem: the error of the last call, or empty.
        since: when the first of the calls failed that have failed since the last success, in monotonic seconds. None without one.
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.problem = ""
        self.since: float | None = None
        self._logged_at = 0.0
        self._denied = ""

    def failed(self, error: BaseException) -> None:
        """A call has failed."""
        now = time.monotonic()
        is_first = self.since is None
        self.problem, self.since = str(error), now if self.since is None else self.since
        if isinstance(error, AccessDenied):
            if str(error) != self._denied:
                self._denied = str(error)
                _log.error("access_denied", server=self.server, error=self._denied)
            return
        if is_first or self._denied:
            self._denied, self._logged_at = "", now
            log_unavailable(_log, "unavailable", error, server=self.server)
        elif now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            log_unavailable(_log, "still_unavailable", error, server=self.server, seconds=round(now - self.since))

    def succeeded(self) -> None:
        """A call has succeeded."""
        self.problem = ""
        if self._denied:
            self._denied = ""
            _log.info("access_granted", server=self.server)
        elif self.since is not None:
            _log.info("available_again", server=self.server, seconds=round(time.monotonic() - self.since, 1))
        self.since = None


async def until_available(server: str | AvailabilityLog, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """Repeat the call until it succeeds. Only cancellation ends the wait.

    It also waits while access is denied (a privilege was revoked, a table renamed), and logs an error. If the process ended instead,
    with orders in flight, those orders would look like poison messages after a few restarts.
    """
    return await _until(server, _is_unavailable, call, arguments)


async def until_ready(server: str | AvailabilityLog, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
    """As `until_available`, for a process that starts, or a task that no delivery waits for: denied access raises immediately.

    Args:
        server: its name, or its log.
        call: called until it succeeds.
        arguments: of the call.

    Raises:
        UserError: if the server denies access.
    """
    return await _until(server, _may_become_ready, call, arguments)


def _is_unavailable(error: BaseException) -> bool:
    return isinstance(error, Unavailable)


def _may_become_ready(error: BaseException) -> bool:
    return isinstance(error, Unavailable) and not isinstance(error, UserError)


async def _until(
    server: str | AvailabilityLog,
    passes: Callable[[BaseException], bool],
    call: Callable[..., Awaitable[_T]],
    arguments: tuple[Any, ...],
) -> _T:
    log = AvailabilityLog(server) if isinstance(server, str) else server

    def failed(error: BaseException) -> None:
        record_activity()
        log.failed(error)

    result = await call_until_available(call, *arguments, passes=passes, on_failure=failed)
    log.succeeded()
    return result
