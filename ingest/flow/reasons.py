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
_UNANSWERED = 8.0


class Reasons:
    """The reasons of one process and source.

    Args:
        servers: the logs of the calls to PostgreSQL.
        unanswered_for: returns for how many seconds requests have been waiting without any response.
        redis_failing: returns why Redis accepts no regular writes, and since when, by the clock.
        now: Unix seconds by the queue's clock.
        clock: monotonic seconds, as in `servers`.
    """

    def __init__(
        self,
        circuit: CircuitBreaker,
        pauses: Pauses,
        servers: Sequence[AvailabilityLog],
        unanswered_for: Callable[[], float],
        redis_failing: Callable[[], tuple[str, float] | None],
        now: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._circuit = circuit
        self._pauses = pauses
        self._servers = servers
        self._unanswered_for = unanswered_for
        self._redis_failing = redis_failing
        self._now = now
        self._clock = clock
        self._throttled_at: float | None = None
        self._unanswered_at: float | None = None

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
        self._note_throttling(throttled)
        if throttled is not None:
            until = now + throttled.left if throttled.is_asked else None
            found.append(Reason(State.THROTTLED, _short(throttled.error), now - throttled.seconds, UPSTREAM, until))
        unanswered = 0.0 if circuit.is_open or throttled is not None else self._unanswered_for()
        self._note_unanswered(unanswered if unanswered >= _UNANSWERED else 0.0)
        if unanswered >= _UNANSWERED:
            found.append(Reason(State.RUNNING, "no response to requests in flight", now - unanswered, UPSTREAM))
        return merged(found)

    def _note_throttling(self, throttled: Throttling | None) -> None:
        """Log the beginning and the end of throttling."""
        if throttled is not None and self._throttled_at is None:
            self._throttled_at = self._clock() - throttled.seconds
            _log.warning("throttling_began", error=_short(throttled.error), seconds=round(throttled.seconds, 1))
        elif throttled is None and self._throttled_at is not None:
            _log.info("throttling_ended", seconds=round(self._clock() - self._throttled_at, 1))
            self._throttled_at = None

    def _note_unanswered(self, seconds: float) -> None:
        """Log when requests receive no response, and when they do again."""
        if seconds and self._unanswered_at is None:
            self._unanswered_at = self._clock() - seconds
            _log.warning("no_response", seconds=round(seconds, 1))
        elif not seconds and self._unanswered_at is not None:
            _log.info("response_again", seconds=round(self._clock() - self._unanswered_at, 1))
            self._unanswered_at = None


def _short(error: str) -> str:
    text = " ".join(mask_urls(error).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
