"""The pace of requests that are sent for several orders: the limit and the pauses count requests, slots count orders."""

from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.pauses import Pacing


class SharedPacing(Pacing):
    """Pauses for orders that share requests: orders wait until a pause for all is over, requests for each other as well."""

    def wait(self) -> float:
        """Seconds until the next order may be handed over; 0 or less for now."""
        return self._until - self._clock() if self.request_wait() > 0 else 0.0

    def record_start(self) -> None:
        """An order is handed over, which begins no request of its own."""

    def request_wait(self) -> float:
        """Seconds until the next request may begin; 0 or less for now."""
        return super().wait()

    def record_request(self) -> None:
        """A request begins."""
        super().record_start()


class RequestPace:
    """When the next request may begin.

    Args:
        limit: how many may be in flight.
        pacing: the pauses.
    """

    def __init__(self, limit: ConcurrencyLimit, pacing: SharedPacing) -> None:
        self._limit = limit
        self._pacing = pacing

    @property
    def most(self) -> int:
        """Requests that may be in flight."""
        return self._limit.value

    def wait(self) -> float:
        """Seconds until the next one may begin; 0 or less for now."""
        return self._pacing.request_wait() if self._pacing.is_on else 0.0

    def record_request(self) -> None:
        """A request begins."""
        self._pacing.record_request()
