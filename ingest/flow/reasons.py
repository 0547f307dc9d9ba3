"""Collects the reasons why one process does not fetch or store the orders of a source, which its heartbeats report.

Servers and the circuit breaker log their own events. Throttling and an external API that does not respond are logged here, at their
beginning and their end, when a heartbeat finds them.
"""

import time
from collections.abc import Callable, Sequence

from ingest.domain.masking import mask_urls
from ingest.domain.operating.source_state import REDIS, UPSTREAM, Reason, State, merged
from ingest.flow.availability import AvailabilityLog
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.pace.pauses import Pauses, Throttling
from ingest.telemetry.logs import get_logger

_log = get_logger("reasons")
# Characters of a text. Some libraries quote whole documents.
_LONGEST = 200
# Seconds without a response from which on the external API is reported. Requests time out later.
_SILENT = 8.0
_THROTTLED = "throttling_began", "throttling_ended"
_NO_RESPONSE = "no_response", "response_again"


class Reasons:
    """The reasons of one process and source.

    Args:
        servers: the logs of the calls to PostgreSQL.
        silent_for: returns for how many seconds requests have been waiting without any response.
        redis_failing: returns why Redis accepts no regular writes, and since when, by the clock.
        now: Unix seconds by the queue's clock.
        clock: monotonic seconds, as in `servers`.
    """

    def __init__(
        self,
        circuit: CircuitBreaker,
        pauses: Pauses,
        servers: Sequence[AvailabilityLog],
        silent_for: Callable[[], float],
        redis_failing: Callable[[], tuple[str, float] | None],
        now: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._circuit = circuit
        self._pauses = pauses
        self._servers = servers
        self._silent_for = silent_for
        self._redis_failing = redis_failing
        self._now = now
        self._clock = clock
        self._logged: dict[tuple[str, str], float] = {}

    def current(self) -> Sequence[Reason]:
        """The reasons now, the most serious first."""
        now, clock, circuit = self._now(), self._clock(), self._circuit
        found = [
            Reason(State.STORE_UNAVAILABLE, _short(each.problem), now - (clock - each.since), each.server)
            for each in self._servers
            if each.since is not None
        ]
        if (failing := self._redis_failing()) is not None:
            error, at = failing
            found.append(Reason(State.QUEUE_UNAVAILABLE, _short(error), now - (clock - at), REDIS))
        if circuit.is_open and not circuit.is_throttled:
            since = now - circuit.open_for()
            found.append(
                Reason(
                    State.CIRCUIT_OPEN,
                    _short(circuit.error),
                    since,
                    UPSTREAM,
                    needs_operator=circuit.is_unproven,
                )
            )
        throttled = self._pauses.throttled()
        if throttled is None and circuit.is_open and circuit.is_throttled:
            throttled = Throttling(circuit.open_for(), 0.0, circuit.error, is_asked=False)
        self._note(_THROTTLED, 0.0 if throttled is None else throttled.seconds, throttled and throttled.error)
        if throttled is not None:
            until = now + throttled.left if throttled.is_asked else None
            found.append(Reason(State.THROTTLED, _short(throttled.error), now - throttled.seconds, UPSTREAM, until))
        silent = 0.0 if circuit.is_open or throttled is not None else self._silent_for()
        self._note(_NO_RESPONSE, silent if silent >= _SILENT else 0.0, None)
        if silent >= _SILENT:
            found.append(Reason(State.RUNNING, "no response to requests in flight", now - silent, UPSTREAM))
        return merged(found)

    def _note(self, events: tuple[str, str], seconds: float, error: str | None) -> None:
        """Log the beginning, or the end, of a reason that lasts for some seconds, or 0 if it does not exist."""
        began, ended = events
        if seconds and events not in self._logged:
            self._logged[events] = self._clock() - seconds
            fields = {} if error is None else {"error": _short(error)}
            _log.warning(began, seconds=round(seconds, 1), **fields)
        elif not seconds and events in self._logged:
            _log.info(ended, seconds=round(self._clock() - self._logged.pop(events), 1))


def _short(error: str) -> str:
    text = " ".join(mask_urls(error).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
